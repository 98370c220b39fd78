"""The meaning of a key: the namespace, the write under the key, and whether the journal has all keys."""

from __future__ import annotations

from decimal import Decimal
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from invsvc_async.durable.store.claims import is_there
from invsvc_async.durable.store.facts import Facts
from invsvc_async.durable.store.restored import NOT_RESTORED, close_restored, marked
from invsvc_async.errors import ConfigurationError, JournalError, KeyConflictError
from invsvc_async.reconcile.findings import is_unique

if TYPE_CHECKING:
    from collections.abc import Mapping

    from invsvc_async.codec.exact_json import Wire
    from invsvc_async.durable.entry import Entry
    from invsvc_async.durable.store.opening import Store
    from invsvc_async.durable.store.restored import Mark
    from invsvc_async.transport.client_core import ClientCore
    from invsvc_async.writes.spec import WriteSpec


_LONGEST: Final = 1000  # digits of a number that is compared by value
_TWO_NAMES: Final = (
    "journal: it has keys of writes with team=… and without. Where that is the credential's own team, the "
    "same key means two writes, because this token does not say which team it is of. Always pass team=…, "
    "or never."
)
_encode = msgspec.json.Encoder(order="sorted", decimal_format="number").encode
_decode = msgspec.json.Decoder(dict[str, str]).decode


class Namespaces:
    """
    The namespaces of the keys in *store*: *named* by its address, or one for each base URL and team.

    All base URLs and teams share the keys of a named one, and each key is of one of them: see ``key_scopes``.

    One without a name belongs to the credential that began it, because another one may be of another data
    mode, where a write that was made would seem absent.  *same_mode* is the word of a person that it is not.

    Where its token says of which team the credential is, writes with and without the name of that team have
    one namespace.  An older version of the package gave them two: then each key stays where it is, and new
    ones are where that version looks for them.  In a journal that has both, the first run of a new key notes
    in which of the two the key is, so that runs under both names at a time are runs of one write.
    """

    def __init__(
        self,
        store: Store,
        *,
        named: str | None,
        same_mode: bool,
    ) -> None:
        self._facts = Facts(store)
        self._named = named
        self._same_mode = same_mode
        self._store = store
        # By team: its namespace, and another one in which an older version may have stored a key of it.
        self._known: dict[str | None, tuple[str, str | None]] = {}

    async def name(
        self,
        key: str,
        team: str | None,
        core: ClientCore,
        *,
        is_run: bool = False,
    ) -> str:
        """
        Return the key of the entry of *key*, which begins with its namespace.

        *is_run* is whether a run of the key begins, which may make the entry.

        Raises:
            ConfigurationError: Nothing shows that the credential is of the data mode of the keys there.
        """
        if team not in self._known:
            found = await self._places(team, core)
            self._warn_of_two_names(team, core)
            self._known[team] = found
        place, other = self._known[team]
        if other is not None:
            place = await self._one_of(place, other, key, is_run=is_run)
        return f"{place} {key}"

    async def _one_of(self, place: str, other: str, key: str, *, is_run: bool) -> str:
        """
        Return in which of two namespaces *key* is.

        One without an entry is in *place*, unless a run of it has noted *other*.
        """
        for each in (place, other):
            if await is_there(self._store, f"{each} {key}"):
                return each
        if not is_run:
            return place
        pair = " ".join(sorted((place, other)))
        digest = blake2b(f"{pair} {key}".encode(), digest_size=16).hexdigest()
        return await self._facts.get(f"namespace of {digest}", place) or place

    async def _places(
        self, team: str | None, core: ClientCore
    ) -> tuple[str, str | None]:
        """Return the namespace of *team*, and a second namespace in which the team may have keys."""
        own = core.credential.team
        if self._named is not None:
            return self._named, None
        if own is None or team not in (None, own):
            return await self._found(team, core), None
        begun = [
            each
            for each in (None, own)
            if await self._facts.get(f"keys {_place_of(each, core)}")
        ]
        if len(begun) < 2:  # that of the version before, or of this one
            return await self._found(begun[0] if begun else None, core), None
        other = own if team is None else None
        return await self._found(team, core), _place_of(other, core)

    def _warn_of_two_names(self, team: str | None, core: ClientCore) -> None:
        """Warn if a team may have keys under two names, because the token does not name its team."""
        unnamed = [each is None for each in (team, *self._known)]
        is_certain = self._named is not None or core.credential.team is not None
        if any(unnamed) and not all(unnamed) and not is_certain:
            core.warn_once("keys of a team", _TWO_NAMES)

    async def has(self, name: str, core: ClientCore) -> bool:
        """Return whether the key of an entry is in a namespace that this client may use."""
        place, _, _ = name.partition(" ")
        begun = f"keys {place}"
        noted = f"keys {place} {_mine(core)}"
        mine = _mine(core)
        facts = await self._facts.of([begun, noted])
        if place == self._named:
            return True
        if mine is None or begun not in facts:
            return False
        return self._same_mode or facts[begun] == mine or noted in facts

    async def _found(self, team: str | None, core: ClientCore) -> str:
        mine = _mine(core)
        if mine is None:
            raise ConfigurationError(
                "journal: this credential does not show its team and data mode, so the namespace of its keys "
                "is not certain. Name one: journal='…?namespace=NAME'. Nothing was sent."
            )
        place = _place_of(team, core)
        if await self._facts.get(f"keys {place}", mine) == mine:
            return place
        new = "" if self._same_mode else None
        if await self._facts.get(f"keys {place} {mine}", new) is not None:
            return place
        raise ConfigurationError(
            "journal: its keys for this base URL and team were made with another credential, perhaps of "
            "another data mode. If it is of the same, add same_mode=true to the query of the journal's "
            "address; otherwise name a namespace: namespace=NAME. Nothing was sent."
        )


def _place_of(team: str | None, core: ClientCore) -> str:
    """Return the namespace of the keys of *team*."""
    return blake2b(f"{core.base_url} {team or ''}".encode(), digest_size=8).hexdigest()


def _mine(core: ClientCore) -> str | None:
    if core.writes.is_of_one_mode:
        return core.credential.fingerprint(core.base_url)
    return None


class Doubts:
    """
    Whether *store* was restored from a copy, which lacks the keys of later writes.

    A person who has looked for those writes opens it once as *complete*.
    """

    def __init__(self, store: Store, *, complete: bool) -> None:
        self._store = store
        self._complete = complete
        self._read_at = -1  # marks of the store when this was read
        self._mark = NOT_RESTORED

    async def mark(self) -> Mark:
        """Return the mark of the copy, read anew until a person has said that the journal is complete."""
        if self._read_at != (marks := self._store.marks) or self._mark.is_open:
            if self._complete and self._read_at < 0:
                await self._store.run(close_restored)
            self._mark = await self._store.run(marked)
            # not before: another run must not rely on what is not read yet
            self._read_at = marks
        return self._mark

    async def has(self, entry: Entry) -> bool:
        """Return whether *entry* is of the copy, so that it may have been sent since."""
        return entry.seq <= (await self.mark()).through

    async def check(self) -> None:
        """Raise JournalError if a write without a key in the store may have been made since the copy was."""
        if (await self.mark()).is_open:
            raise JournalError(
                "journal: it was restored from a copy, or moved, so it may lack keys, and a write under one "
                "of these would be made twice. Nothing was sent. Look for what was written since the copy "
                "was made; then open the journal once with complete=true in the query of its address."
            )


def key_in(name: str) -> str:
    """Return the user's key in the key of an entry."""
    return name.partition(" ")[2]


def digests_of(spec: WriteSpec) -> str:
    """
    Return digests of the parts of the write *spec*, as JSON, so that an error can name the parts that differ.

    Numbers of equal value are equal: 0.10 is 0.1, and 1.0 is 1.
    """
    request = spec.request
    body = spec.request.body
    parts = {
        "operation": request.operation.name,
        "thing": _digest_of_thing(
            request.method, request.raw_path, request.path, request.query
        ),
    }
    if isinstance(body, dict):
        parts |= {
            f"body.{name}": _digest(by_value(value)) for name, value in body.items()
        }
    elif request.has_body:
        parts["body"] = _digest(by_value(body))
    if spec.tag is not None and not is_unique(spec.tag):
        parts["tag"] = _digest(spec.tag)
    return _encode(parts).decode()


def by_value(value: Wire) -> Wire:
    """Return *value* with each number in the shortest of the forms that have its value."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return {name: by_value(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [by_value(each) for each in value]
    if isinstance(value, Decimal) and abs(value.adjusted()) < _LONGEST:
        whole, _, rest = f"{value:f}".partition(".")
        rest = rest.rstrip("0")
        if rest:
            return Decimal(f"{whole}.{rest}")
        return int(whole)
    return value


def _digest_of_thing(
    method: str | None,
    raw_path: str | None,
    path: Mapping[str, object],
    query: Mapping[str, object],
) -> str:
    has_none = method is None and raw_path is None and not path and not query
    if has_none:  # most creates
        return _OF_NO_THING
    return _digest([method, raw_path, dict(path), dict(query)])


def _digest(value: object) -> str:
    digest = _OF_NOTHING.copy()  # half of what a new one costs
    digest.update(_encode(value))
    return digest.hexdigest()


_OF_NOTHING: Final = blake2b(digest_size=8)
_OF_NO_THING: Final = _digest([None, None, {}, {}])


_A_KEY_OF_ITS_OWN: Final = (
    "All teams and base URLs share the keys of a named namespace: put the team into the key, or use a "
    "namespace for each."
)


class Elsewhere(NamedTuple):
    """
    A stored write belongs elsewhere than the one that is asked for.

    *differs* names what differs, *asked_by* is the client that may ask for the stored one, and *advice* is
    for a run of the other one.
    """

    differs: str
    asked_by: str
    advice: str = _A_KEY_OF_ITS_OWN


def check_same(
    spec: WriteSpec,
    stored: str,
    mine: str,
    elsewhere: Elsewhere | None,
) -> None:
    """
    Raise KeyConflictError unless *spec*, with the digests *mine*, is the write whose digests are *stored*.

    It is not if that one belongs *elsewhere*, whatever of it has to match.
    """
    differing = _differing(spec, stored, mine)
    advice = "Give this write a key of its own."
    if elsewhere is not None:
        differing = [elsewhere.differs, *differing]
        advice = elsewhere.advice
    if differing:
        raise KeyConflictError(
            f"key: {spec.key!r} has another write in the journal, with another {', '.join(differing)}",
            operation=spec.operation.name,
            hint=f"Nothing was sent. {advice}",
        )


def _differing(spec: WriteSpec, stored: str, mine: str) -> list[str]:
    """Return the names of the parts in which two digests differ, but for parts that need not match."""
    if stored == mine:
        return []
    theirs = _decode(stored)
    ours = _decode(mine)
    differing = sorted(
        name for name in {*theirs, *ours} if theirs.get(name) != ours.get(name)
    )
    if spec.match == "operation":
        differing = [name for name in differing if not name.startswith(("body", "tag"))]
    return differing
