"""The writes of a batch, an outbox or a journal: who sends them, and what people see and change."""

from __future__ import annotations

import json
import os
import socket
import sys
import weakref
from contextlib import nullcontext
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from invsvc_async.durable.done_at import SLACK
from invsvc_async.durable.entry import Entry, State
from invsvc_async.durable.key_names import key_in
from invsvc_async.durable.store import due, lanes as in_lanes, lists
from invsvc_async.durable.store.conditions import aside_of, lane_of
from invsvc_async.durable.store.deleting import drop, old_entries, prune
from invsvc_async.durable.store.due import NotDue
from invsvc_async.durable.store.facts import Facts, now_of
from invsvc_async.durable.store.findings import entry_of
from invsvc_async.durable.store.migrations import WITH_DUE_TIMES
from invsvc_async.durable.store.noted import ALL, wanted_by
from invsvc_async.durable.store.opening import Store, store_at, without_names
from invsvc_async.durable.store.reopening import (
    Reopened,
    in_order,
    reopen,
    reopen_keyed,
)
from invsvc_async.durable.store.sqlite import SqliteStore
from invsvc_async.errors import InvalidRequestError
from invsvc_async.reconcile.history import Verdict
from invsvc_async.storage.dialect import Cell, Script, slices
from invsvc_async.storage.file_lock import is_owned, owner_of

if TYPE_CHECKING:
    from collections.abc import (
        AsyncIterator,
        Callable,
        Collection,
        Iterable,
        Sequence,
    )
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from invsvc_async.durable.store.noted import Chosen
    from invsvc_async.transport.client_core import ClientCore


T = TypeVar("T")

NOT_APPLIED = tuple(each.value for each in Verdict if each is not Verdict.APPLIED)
_AT_ONCE = 200  # rows that one transaction changes
# of which one transaction of a prune looks at the rows, if it deletes none
_LOOKED_AT = 5000


class Owner(NamedTuple):
    """The process that has a lane, as far as it is known; ``last_sign`` is how many seconds ago."""

    host: str | None
    pid: int | None
    alive: bool
    last_sign: float | None = None


class Entries:
    """
    The writes in *store*, whose *lanes* the sending processes divide among themselves.

    Opened for the client of *core*, they are those of its base URL and credential; with *same_mode* also
    what an older credential has left.
    """

    # what `do_again` runs
    _reopen: Callable[..., Script[list[Reopened]]] = staticmethod(reopen)

    def __init__(
        self,
        store: Store,
        core: ClientCore | None = None,
        *,
        same_mode: bool = False,
    ) -> None:
        self.store: Store = store
        self.facts: Facts = Facts(store)
        self.lanes: int = store.how.lanes
        self._core = core
        self._same_mode = same_mode
        self._unclosed: weakref.finalize[..., Entries] | None = None
        # Held while what is stored elsewhere is deleted with entries.
        self._moving: AbstractAsyncContextManager[object] = nullcontext()

    async def open(self) -> None:
        """Open the store, or create it; raise JournalError if it cannot be used, or may lack sends."""
        if self._unclosed is None:
            # of what nobody closes
            self._unclosed = weakref.finalize(self, self.store.abandon)
            self._unclosed.atexit = False
        await self.store.open_for(self._core, same_mode=self._same_mode)

    async def aclose(self) -> None:
        """Store everything and close it."""
        await self.store.aclose()

    async def hear(self, woken: Callable[..., None]) -> None:
        """
        Call *woken* with the number of each lane that has something new, until cancelled.

        Its second argument is the number after which to look, if that is known. Other words are as in the
        store.

        Raises:
            JournalError: The application's file cannot be used.
        """
        await self.store.listen(woken)

    async def not_done(self, limit: int) -> list[Entry]:
        """Return the first entries that are not done."""
        if not self.lanes:  # each process has one of its own
            return await lists.first_unfinished(self.store, limit)
        found = await self.store.open_in(
            dict.fromkeys(range(1, self.lanes + 1), 0), (), limit
        )
        if _may_have_times(self.store):
            found += await due.first(self.store, self.lanes, limit)
        return sorted(found, key=attrgetter("seq"))[:limit]

    # --- for people

    async def named(self, key: str) -> str:
        """Return the whole key of the entry that people call *key*."""
        return key

    def key_of(self, entry: Entry) -> str:
        """Return the key of *entry* for people."""
        return entry.key

    async def entry(self, key: str) -> Entry | None:
        """Return the entry of *key*."""
        found = await entry_of(self.store, key)
        if found is None:
            return None
        return (await _told(self.store, [found]))[0]

    async def first(self, limit: int, chosen: Chosen = ALL) -> list[Entry]:
        """Return the first of the *chosen* entries."""
        if chosen.state == "open" and not wanted_by(chosen):
            return await _told(self.store, await self.not_done(limit))
        return await _told(self.store, await lists.first(self.store, chosen, limit))

    async def count(self, most: int, chosen: Chosen = ALL) -> tuple[int, int | None]:
        """
        Count the *chosen* entries, up to *most*.

        Return also when the oldest of them was stored, in epoch ms.
        """
        counted = await lists.count(self.store, chosen, most)
        waiting = await self.waiting(chosen)
        return counted.many + waiting, counted.oldest

    async def waiting(self, chosen: Chosen = ALL) -> int:
        """Count the *chosen* writes that the store does not have yet."""
        del chosen
        return 0

    async def done(
        self,
        verdict: Verdict | None,
        after: int,
        limit: int,
    ) -> list[Entry]:
        """Return the next page of entries that are done."""
        return await lists.done(self.store, verdict, after, limit)

    async def do_again(
        self,
        keys: Iterable[str],
        *,
        verdicts: Collection[str] = NOT_APPLIED,
        at_end: bool = False,
    ) -> list[str]:
        """
        Reopen entries that are done and not applied, with one of *verdicts*; return their keys.

        One with the verdict UNKNOWN keeps its sends, and is settled first. With *at_end*, they come after all
        others, in the order that they have.
        """
        again: list[str] = []
        found = await in_order(self.store, sorted({*keys}))
        for some in slices([key for _, key in found], _AT_ONCE):
            script = partial(self._reopen, some, [*verdicts], {}, at_end=at_end)
            reopened = await self.store.run(script)
            again += [each.key for each in reopened]
            await self.store.notify(*{str(each.lane) for each in reopened})
        return sorted(again)

    async def drop(self, key: str, *, seen: Entry | None = None) -> bool:
        """
        Delete the entry of *key* if nothing of it was sent, or if it is done; return ``False`` if not.

        With *seen*, only if the entry is still as it was then.

        A process that is about to send the write finds that the entry is gone, and does not send. In a batch,
        an entry that is done stays. With an UNKNOWN one, it is forgotten that the write may still take
        effect.

        Raises:
            PlaceError: The store may lack sends, because it is in another place than before.
        """
        script = partial(drop, key, [], done=not self.store.how.counted, seen=seen)
        async with self.store.in_place():
            dropped = await self._delete([key], script)
        if dropped is None:
            return False
        lane = dropped.lane
        if lane is not None:  # what waited for it may be sent now
            await self.store.notify(str(lane), str(aside_of(lane)))
        return True

    async def ago(self, seconds: float) -> int:
        """
        Return the time *seconds* ago, in epoch ms, by the clock that notes when entries are done.

        In a database that is the server's: the clock of this machine may be another than those of the
        processes whose entries are compared with it.  For a file it is the machine's.  If it is later than
        the answers that the client has had allow, the service's clock counts: a clock that was set ahead must
        not make new entries old.
        """
        now = await now_of(self.store)
        core = self._core
        if core is not None:
            here = core.clock.now()
            bounds = core.server_clock.bounds(here, SLACK)
            now = now if bounds is None else min(now, here + bounds.high)
        return round((now - seconds) * 1000)

    async def prune(self, before: int, *, unacknowledged: bool = False) -> int:
        """
        Delete entries done before *before* (epoch ms), in many short transactions; return how many.

        An age becomes such a time by :meth:`ago`.

        Of those of a batch, key, digest and verdict stay. UNKNOWN ones stay as they are, and so do those
        whose verdict nobody has acknowledged, unless *unacknowledged*.
        """
        count = 0
        empties = self.store.how.counted
        async for after, last in parts_of(
            self.store, _LOOKED_AT if empties else _AT_ONCE
        ):
            async with self._moving:
                if old := await old_entries(
                    self.store, before, after, last, unacknowledged=unacknowledged
                ):
                    change = partial(
                        prune,
                        before,
                        [seq for seq, _ in old],
                        unacknowledged=unacknowledged,
                        tried=set(),
                        empties=empties,
                    )
                    count += len(await self._delete([key for _, key in old], change))
        return count

    async def _delete(
        self,
        keys: Sequence[str],
        deletion: Callable[[], Script[T]],
    ) -> T:
        """Run *deletion* of entries of *keys*, and delete what a store has of them elsewhere."""
        del keys
        return await self.store.run(deletion)


def _may_have_times(store: Store) -> bool:
    """Return whether some entries of *store* may wait for their time."""
    return store.how.kind == "outbox" and store.version >= WITH_DUE_TIMES


async def not_due(entries: Entries, most: int) -> NotDue:
    """Count the *entries* whose time has not come, up to *most*."""
    if not _may_have_times(entries.store):
        return NotDue(0, None)
    return await due.count(entries.store, entries.lanes, most)


async def owner_of_lane(store: Store, lane: int) -> Owner | None:
    """Return who has *lane* of *store*, if anybody has."""
    found = await in_lanes.owner_of(store, lane_of(lane))
    if found is None:
        return None
    if isinstance(store, SqliteStore):  # one process has all lanes
        return _owner_of_file(store.path)
    said = json.loads(found.status or "{}")
    return Owner(said.get("host"), said.get("pid"), found.is_alive, found.silent)


class JournalEntries(Entries):
    """
    The writes in the journal of a client at *address*, which exists.

    With *reading*, nothing is changed, and a process may own a file.  One in a database needs the *core*
    of a client of the same base URL.

    Raises:
        ConfigurationError: The address is invalid, or the extra ``postgres`` is not installed.
        JournalError: The file does not exist.
    """

    def __init__(
        self,
        address: str,
        core: ClientCore | None,
        *,
        reading: bool = False,
    ) -> None:
        place, _ = without_names(address)
        super().__init__(
            store_at(place, "journal", create=False, reading=reading), core
        )

    async def named(self, key: str) -> str:
        """
        Return the whole key of the entry that people call *key*; *key* itself if there is none.

        Raises:
            InvalidRequestError: Several namespaces have it.
        """
        found = await lists.keys_called(self.store, key)
        if not found or key in found:
            return key
        if len(found) > 1:
            raise InvalidRequestError(
                f"key: {key!r} is not unique", hint=f"Use one of {', '.join(found)}."
            )
        return found[0]

    def key_of(self, entry: Entry) -> str:
        """Return the key of *entry* without its namespace."""
        if entry.digest:
            return key_in(entry.key)
        return entry.key

    async def done(
        self,
        verdict: Verdict | None,
        after: int,
        limit: int,
    ) -> list[Entry]:
        """Return the next page of entries that are done, with the note whether the application had them."""
        return await _told(self.store, await super().done(verdict, after, limit))

    # only of writes under keys of the user's own: nothing runs another one again
    _reopen = staticmethod(reopen_keyed)


async def counts_of(entries: Entries) -> Sequence[Cell]:
    """Count all *entries* by state, verdict (or "") and flags."""
    return [
        *await lists.counts(entries.store),
        (int(State.TO_DO), "", 0, await entries.waiting()),
    ]


async def reopen_all(
    entries: Entries,
    verdicts: Collection[Verdict],
    *,
    at_end: bool,
) -> int:
    """
    Reopen all *entries* with one of *verdicts*, which is not APPLIED; return how many.

    Each is reopened as by :meth:`Entries.do_again`. It takes many short transactions. If it is stopped, what
    they did stays, and another call does the rest.
    """
    chosen = [*map(str, verdicts)]
    count = 0
    parts = _with_verdicts(entries.store, chosen)
    if at_end:
        # All are read first: the order of their places is not that of their numbers.
        keys = [key async for part in parts for key in part]
        return len(await entries.do_again(keys, verdicts=chosen, at_end=True))
    async for part in parts:
        count += len(await entries.do_again(part, verdicts=chosen))
    return count


async def _with_verdicts(
    store: Store, verdicts: Sequence[str]
) -> AsyncIterator[Sequence[str]]:
    """Yield the keys of all entries with one of *verdicts*, in parts, in the order of their numbers."""
    after = 0
    last = await lists.last_number(store)
    while True:
        found: list[tuple[int, str]] = []
        for verdict in verdicts:  # each by the index of those few
            found += await lists.of_verdict(store, verdict, after, last, _AT_ONCE)
        if not found:
            return
        part = sorted(found)[:_AT_ONCE]
        yield [key for _, key in part]
        after = part[-1][0]


async def parts_of(store: Store, size: int) -> AsyncIterator[tuple[int, int]]:
    """Yield parts of all entries of *store*, of *size* each: after and up to which number."""
    after = 0
    while (last := await lists.end_of_part(store, after, size)) is not None:
        yield after, last
        after = last


async def _told(store: Store, entries: list[Entry]) -> list[Entry]:
    """Note in *entries* what people see of each, as ``lists.Notes``."""
    known = await lists.notes_of(store, [entry.seq for entry in entries])
    for entry in entries:
        entry.added_at, unheard, entry.not_before, entry.noted = known.get(
            entry.seq, (None, False, entry.not_before, entry.noted)
        )
        # A client's journal deletes those under made-up keys then; they are without digests.
        is_kept = entry.state is State.DONE and entry.digest != ""
        entry.heard = is_kept and not unheard
    return entries


def attempts_of(entry: Entry) -> int:
    """Return how many sends are stored with *entry*: none once it is pruned, or if it is damaged."""
    try:
        # also those of a process that was killed
        sent = len(json.loads(entry.intent or "{}").get("sent", []))
        if entry.outcome is None:
            return sent
        # as the default of a record
        return max(sent, int(json.loads(entry.outcome).get("tries", 1)))
    except (ValueError, TypeError, AttributeError):
        return 0


def _owner_of_file(path: Path) -> Owner:
    """Return the process that the lock file of *path* names; on another machine, it may live."""
    host, pid = owner_of(path) or (None, None)
    # where signal 0 would end it
    if pid and host == socket.gethostname() and sys.platform != "win32":
        # its number may be another process's by now, or it may not have been reaped
        if is_owned(path) is False:
            return Owner(host, pid, alive=False)
        try:
            os.kill(pid, 0)
        except (OSError, OverflowError) as error:
            return Owner(host, pid, not isinstance(error, ProcessLookupError))
    return Owner(host, pid, alive=True)
