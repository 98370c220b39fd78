"""The writes in the journal of a client, for commands that look at them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from invsvc_async.durable.entries import NOT_APPLIED, Entries
from invsvc_async.durable.entry import State
from invsvc_async.durable.journal import without_names
from invsvc_async.durable.key_claims import FREED
from invsvc_async.durable.key_names import key_in
from invsvc_async.durable.places import store_at
from invsvc_async.durable.scripts import reopen
from invsvc_async.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from invsvc_async.durable.entry import Entry
    from invsvc_async.reconcile.history import Verdict
    from invsvc_async.storage.dialect import Script
    from invsvc_async.transport.session import ClientState

__all__ = ["JournalEntries"]

# The key of an entry has a namespace before a key of the user's own, and a nonce after a made-up one.
_NAMED = """
e.key = {arg 1 text}
    OR e.digest <> '' AND substr(e.key, length(e.key) - length({arg 1 text})) = ' ' || {arg 1 text}
    OR e.digest = '' AND substr(e.key, 1, length({arg 1 text}) + 1) = {arg 1 text} || ' '
ORDER BY e.seq LIMIT 10
"""


class JournalEntries(Entries):
    """
    The writes in the journal of a client at *address*, which exists.

    With *reading*, nothing is changed, and a process may own a file.  One in a database needs the *session*
    of a client of the same base URL.

    Raises:
        ConfigurationError: The address is invalid, or the extra ``postgres`` is not installed.
        JournalError: The file does not exist.

    """

    def __init__(self, address: str, session: ClientState | None, *, reading: bool = False) -> None:
        place, _ = without_names(address)
        super().__init__(store_at(place, "journal", create=False, reading=reading), session)

    async def named(self, key: str) -> str:
        """
        Return the whole key of the entry that people call *key*; *key* itself if there is none.

        Raises:
            InvalidRequestError: Several namespaces have it.

        """
        found = [entry.key for entry in await self.store.entries(_NAMED, key)]
        if key not in found and len(found) > 1:
            raise InvalidRequestError(f"key: {key!r} is not unique", hint=f"Use one of {', '.join(found)}.")
        return found[0] if found and key not in found else key

    def key_of(self, entry: Entry) -> str:
        """Return the key of *entry* without its namespace."""
        return key_in(entry.key) if entry.digest else entry.key

    async def done(self, verdict: Verdict | None, after: int, limit: int) -> list[Entry]:
        """Return the next page of entries that are done, with the note whether the application had them."""
        return await self._told(await super().done(verdict, after, limit))

    async def _told(self, entries: list[Entry]) -> list[Entry]:
        """Note which verdicts the application has had: those under made-up keys are deleted then."""
        for entry in await super()._told(entries):
            entry.heard = entry.heard and entry.digest != ""
        return entries

    async def do_again(
        self, keys: Iterable[str], *, verdicts: Collection[str] = NOT_APPLIED, newest: bool = False
    ) -> list[str]:
        """
        Forget verdicts, so that the next run of each write does it anew; return the keys.

        Only of writes under keys of the user's own: nothing runs another one again.
        """
        again: set[str] = set()
        await self.store.run(partial(_do_again, [*keys], [*verdicts], again, newest=newest))
        return sorted(again)


def _do_again(keys: list[str], verdicts: list[str], again: set[str], *, newest: bool) -> Script[None]:
    mine = yield "SELECT key FROM {s}entries WHERE key {any 1 text} AND digest <> ''", (keys,)
    yield from reopen([key for (key,) in mine], verdicts, again, part=None, newest=newest)
    text = f"UPDATE {{s}}entries SET lane = {FREED} WHERE key {{any 1 text}} AND state = {State.TO_DO:d}"  # noqa: S608 - our own text
    yield text, (sorted(again),)
