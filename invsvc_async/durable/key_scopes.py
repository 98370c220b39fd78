"""
Where the writes of keys belong: a named namespace has the keys of all base URLs and teams together.

Any other namespace is that of one base URL and team, so nothing is compared there.  In a named one, a key is
of the base URL and team of its write, and a write of another team needs another key.  The team of the
credential is the same by its name and without, if the token says which one that is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from invsvc_async.durable.key_names import Elsewhere
from invsvc_async.errors import KeyConflictError

if TYPE_CHECKING:
    from invsvc_async.durable.entry import Entry
    from invsvc_async.durable.journal_life import JournalLife
    from invsvc_async.durable.key_claims import Claims
    from invsvc_async.durable.store.claims import Seen
    from invsvc_async.durable.stored_keys import StoredKeys
    from invsvc_async.reconcile.intent import Scope


_ONE_SPELLING: Final = (
    "This token does not say which team it is of, so a write with team=… may be of another team than one "
    "without: always pass team=…, or never."
)


class KeyScopes:
    """The scopes of the writes that are *stored* under keys, in a namespace that *is_named* or not."""

    def __init__(
        self,
        life: JournalLife,
        claims: Claims,
        stored: StoredKeys,
        *,
        is_named: bool,
    ) -> None:
        self._life = life
        self._claims = claims
        self._stored = stored
        self._is_named = is_named

    async def look(self, name: str, key: str, team: str | None) -> Seen | None:
        """Return the entry *name*, of *key*; raise KeyConflictError if it does not belong to *team*."""
        found = await self._claims.look(name)
        if found is not None:
            await self.check(key, team, "Nothing was sent.", found.entry)
        return found

    async def elsewhere(self, entry: Entry, team: str | None) -> Elsewhere | None:
        """Return how the write of *entry* belongs elsewhere than one for *team* by the journal's client."""
        if not self._is_named:
            return None
        return await self.compared(await self._stored.scope_of(entry), team)

    async def check(
        self,
        key: str,
        team: str | None,
        undone: str,
        entry: Entry,
    ) -> None:
        """Raise KeyConflictError, which says what was not done, if the *entry* of *key* belongs elsewhere."""
        elsewhere = await self.elsewhere(entry, team)
        if elsewhere is not None:
            raise KeyConflictError(
                f"key: {key!r} has a write in the journal that is of another {elsewhere.differs}",
                hint=f"{undone} Ask {elsewhere.asked_by}.",
            )

    async def compared(self, scope: Scope, team: str | None) -> Elsewhere | None:
        """Return how a write in *scope* belongs elsewhere than one for *team* by the journal's client."""
        if not self._is_named:
            return None
        core = self._life.core
        assert core is not None
        if scope.base_url != core.base_url:
            return Elsewhere("base URL", f"a client of {scope.base_url}")
        if scope.team == team:
            return None
        asked_by = f"client.for_team({scope.team!r})"
        if scope.team is None:
            asked_by = "the client without for_team"
        if scope.team is not None and team is not None:
            return Elsewhere("team", asked_by)
        own = await core.credential.own_team()
        if own is None:
            return Elsewhere("team (perhaps)", asked_by, _ONE_SPELLING)
        if own in (scope.team, team):
            return None
        return Elsewhere("team", asked_by)
