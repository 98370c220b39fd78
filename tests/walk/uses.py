"""What the processes of a program use: keys of a journal, a batch, an outbox, or writes without keys."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self
from unittest.mock import patch

import attrs

from invsvc_async.batch import Batch
from invsvc_async.batch.entries import BatchEntries
from invsvc_async.batch.sending import Sending
from invsvc_async.durable.journal import ClientJournal
from invsvc_async.durable.key_names import key_in
from invsvc_async.durable.store.reopening import reopen_keyed
from invsvc_async.outbox.outbox import Outbox
from invsvc_async.reconcile.history import Verdict
from tests.walk.errors import SILENT_ERRORS
from tests.walk.person import (
    BECAUSE,
    drop_entries,
    find_all,
    in_doubt,
    outbox_entries,
    owners,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from invsvc_async import Client
    from invsvc_async.batch.result import Result
    from invsvc_async.reconcile.intent import Intent
    from invsvc_async.reconcile.outcome import Outcome
    from tests.walk.person import Resolve
    from tests.walk.process import Process
    from tests.walk.program import Then
    from tests.walk.stage import WalkStage

    Act = Callable[[], Awaitable[Outcome[Any]]]

AN_HOUR = 3600.0  # s
ROUNDS = 4  # how often the last process runs what has no final verdict
GRACE = 0.5  # s that a process that is stopped gives to what is under way
APART = 0.05  # s between the beginnings of runs
SILENT = 3.0  # s: after that, a process that gives no sign of life counts as dead


class Use(Protocol):
    """How one process uses its journal."""

    def drop(self) -> None:
        """Close its files, as the end of its process does."""

    async def live(self, process: Process) -> None:
        """Do its work."""

    async def close(self) -> None:
        """End before the work is done, as after SIGTERM."""


@attrs.define(eq=False)
class _OfClient:
    """Writes that a client awaits."""

    kind: ClassVar = "journal"
    stage: WalkStage
    process: Process
    journal: ClientJournal | None
    store: Any  # of that journal

    @classmethod
    def of(cls, stage: WalkStage, process: Process) -> Self:
        life = process.life
        if life.bare:
            process.member = stage.member(life)
            return cls(stage, process, None, None)
        store = stage.journal.store(f"{life.name}/run", cls.kind)
        with patch("invsvc_async.durable.journal.store_at", lambda *_: store):
            journal = ClientJournal(stage.program.address)
        process.member = stage.member(life, journal=journal)
        return cls(stage, process, journal, store)

    @property
    def lanes(self) -> set[str]:
        """The tokens of the lanes that the process has in the journal."""
        own = None if self.journal is None else self.journal.life.own
        return (
            set() if own is None else {lane.token for lane in own.leases.lanes.values()}
        )

    @staticmethod
    def key_of(name: str) -> str:
        """Return the key of the program in that of an entry."""
        return key_in(name)

    def drop(self) -> None:
        if self.store is not None:
            self.store.drop()

    async def close(self) -> None:
        await self.process.member.client.aclose()

    async def _round(self, keys: list[str]) -> None:
        how = self.process.life.how
        if how == "one by one":
            for key in keys:
                await self._run(key)
            return
        tasks = []
        try:
            for key in keys:
                tasks.append(asyncio.create_task(self._run(key)))
                if how == "apart":
                    await asyncio.sleep(APART)
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks)

    async def _run(self, key: str) -> None:
        raise NotImplementedError

    async def _recover(self) -> None:
        await self.stage.until_not_cut(self.process, "", self._recover_once)

    async def _recover_once(self) -> None:
        begun = self.stage.loop.now
        with suppress(*SILENT_ERRORS):
            for outcome in await self.process.member.client.recover(same_mode=True):
                self.stage.note_outcome(
                    self.process, self._writer(outcome), begun, outcome
                )

    def _writer(self, outcome: Outcome[Any]) -> str:
        return outcome.started_as.key


class Keyed(_OfClient):
    """Keys of the journal of a client."""

    async def live(self, process: Process) -> None:
        life = process.life
        async with process.member.client:
            if life.recovers:
                await self._recover()
            if life.marks:
                await self._mark()
            await self._round([*life.keys])
            if life.settles:
                await self._settle_and_run()
            if life.resolves:
                await self._resolve()
            if life.prunes is not None:
                await self._prune(life.prunes)
            for _ in range(ROUNDS - 1 if life.name == "last" else 0):
                if keys := self.stage.unsettled(process):
                    await self._round(keys)
            if life.name == "last" and self.stage.program.is_mixed:
                await self._recover()

    async def _settle_and_run(self) -> None:
        """Settle what the client has left open, and do its work again: after that, or beside it."""
        # What has no key would be another write.
        is_other = self.stage.program.is_without_key
        keys = [key for key in self.process.life.keys if not is_other(key)]
        if not self.process.life.runs_beside:
            if await self._settle_open():
                await self._round(keys)
            return
        settling = asyncio.create_task(self._settle_open())
        try:
            await self._round(keys)
            await settling
        finally:
            settling.cancel()
            await asyncio.wait([settling])

    async def _run(self, key: str) -> None:
        stage, process = self.stage, self.process
        write = stage.made(process, key)
        with stage.limited(process, key):
            await stage.until_not_cut(process, key, partial(self._await, key, write))

    async def _await(self, key: str, write: Any) -> None:
        stage, process = self.stage, self.process
        begun = stage.note_asked(process, key)
        try:
            outcome = await write.outcome()
        except SILENT_ERRORS as error:
            stage.note_error(process, key, error)
        else:
            stage.note_outcome(process, key, begun, outcome)

    async def _settle_open(self) -> bool:
        """Settle what the client has left open; return whether there was something."""
        stage, client = self.stage, self.process.member.client
        left = client.unsettled
        if self.process.life.rests:
            await asyncio.sleep(self.process.life.rests)
        for intent in left:
            begun, key = stage.loop.now, stage.writer_in(intent)
            sender = self._sender_of(key)
            try:
                outcome = await settling(stage, client, intent)()
            except SILENT_ERRORS as error:
                stage.note_error(self.process, key, error)
            else:
                stage.note_outcome(self.process, key, begun, outcome, sender=sender)
        return bool(left)

    def _sender_of(self, key: str) -> str:
        """Return the process that has *key* as one that it may be sending, or ``""``."""
        token = owners(self.stage).get(key)
        return next(
            (
                process.name
                for process in self.stage.lives.values()
                if isinstance(process.use, Keyed) and token in process.use.lanes
            ),
            "",
        )

    def _writer(self, outcome: Outcome[Any]) -> str:
        return self.stage.writer_in(outcome.started_as)

    async def _mark(self) -> None:
        """Mark what is UNKNOWN as to be done again, as the command line does."""
        names = [
            name for (name,) in self.stage.journal.fetch("SELECT key FROM {s}entries")
        ]
        change = partial(reopen_keyed, names, [Verdict.UNKNOWN], {}, at_end=False)
        with suppress(*SILENT_ERRORS):
            await self.store.run(change)

    async def _resolve(self) -> None:
        client = self.process.member.client
        acts = [
            (key, by_person(client.resolve, key, self.process))
            for _, key in in_doubt(self.stage)
        ]
        await find_all(self.stage, self.process, acts)

    async def _prune(self, pause: float) -> None:
        await asyncio.sleep(pause)
        with suppress(*SILENT_ERRORS):
            await self.process.member.client.prune(older_than=AN_HOUR)


class Unkeyed(_OfClient):
    """
    Writes without keys of a client, which may have a journal.

    What its client has left open at the end, a process hands over to the last one, as an application does that
    stores ``client.unsettled``.
    """

    @staticmethod
    def key_of(name: str) -> str:
        return name

    async def live(self, process: Process) -> None:
        stage, life = self.stage, process.life
        try:
            async with process.member.client:
                if life.recovers and not life.bare:
                    await self._recover()
                if life.name == "last":
                    await self._take_up()
                await self._round([*life.keys])
                if life.resolves and not life.bare:
                    await self._resolve()
                if life.name == "last":
                    await self._settle_all()
        finally:
            if process.ended is None:
                stage.handed.update(stage.open_here(process))

    async def _take_up(self) -> None:
        """Settle or resume what others have handed over, unless its verdict is known by now."""
        stage, client = self.stage, self.process.member.client
        for key, intent in [*stage.handed.items()]:
            if stage.has_verdict(key):
                continue
            act = settling(stage, client, intent)
            if self.process.life.resumes:
                act = resuming(stage, client, intent)
            await self._act(key, act)

    async def _resolve(self) -> None:
        stage, process = self.stage, self.process
        acts = [
            (key, by_person(process.member.client.resolve, intent, process))
            for key, intent in stage.open_here(process).items()
        ]
        await find_all(stage, process, acts)

    async def _settle_all(self) -> None:
        """Settle what this client has left open, and what others have left in the journal, until nothing is."""
        stage, process = self.stage, self.process
        for _ in range(ROUNDS):
            for key, intent in stage.open_here(process).items():
                act = settling(stage, process.member.client, intent)
                await self._act(key, act)
            if not process.life.bare:
                await self._recover()
            if not stage.open_here(process) and not stage.stored():
                return
            await asyncio.sleep(SILENT)

    async def _run(self, key: str) -> None:
        self.stage.note_asked(self.process, key)
        write = self.stage.made_without_key(self.process, key)
        await self._act(key, write.outcome)

    async def _act(self, key: str, act: Act) -> None:
        """Await the outcome of a write, as often as it is cancelled."""
        stage, process, begun = self.stage, self.process, self.stage.loop.now
        for cut in process.cuts(key):
            with stage.cut_short(process, cut) as cancelled:
                await self._hear(key, act, begun)
            if not cancelled or cut is None:
                return
            stage.judge_cut(process, key, cancelled[0])
            await asyncio.sleep(cut.pause)
            intent = stage.open_here(process).get(key)
            if intent is not None and cut.then != "again":
                act = self._taking_up(intent, cut.then)

    def _taking_up(self, intent: Intent, how: Then) -> Act:
        take_up = settling if how == "settle" else resuming
        return take_up(self.stage, self.process.member.client, intent)

    async def _hear(self, key: str, act: Act, begun: float) -> None:
        stage, process = self.stage, self.process
        try:
            outcome = await act()
        except SILENT_ERRORS as error:
            stage.note_error(process, key, error)
        else:
            stage.note_outcome(process, key, begun, outcome)
            stage.judge_told(process, key, outcome.verdict)

    def _writer(self, outcome: Outcome[Any]) -> str:
        return self.stage.writer_in(outcome.started_as)


def settling(stage: WalkStage, client: Client, intent: Intent) -> Act:
    """Return what settles *intent*, with the reader that its write needs."""
    reader = stage.reader_of(stage.writer_in(intent))
    return partial(client.settle, intent, reader=reader, same_mode=True)


def resuming(stage: WalkStage, client: Client, intent: Intent) -> Act:
    """Return what resumes *intent*, with the reader that its write needs."""
    reader = stage.reader_of(stage.writer_in(intent))
    return client.resume(intent, reader=reader, same_mode=True).outcome


def by_person(
    method: Callable[..., Awaitable[Outcome[Any]]],
    write: str | Intent,
    process: Process,
) -> Resolve:
    """Return what resolves *write* by the *method* of a client, a batch or an outbox."""

    def act(applied: bool | str) -> Awaitable[Outcome[Any]]:
        return method(write, applied=applied, because=BECAUSE, by=process.name)

    return act


def _acts(
    stage: WalkStage,
    process: Process,
    method: Callable[..., Awaitable[Outcome[Any]]],
) -> list[tuple[str, Resolve]]:
    return [(key, by_person(method, key, process)) for _, key in in_doubt(stage)]


def _sending(process: Process) -> Sending:
    concurrency = 1 if process.life.how == "one by one" else 4
    return Sending(
        client=process.member.client,
        concurrency=concurrency,
        rate=None,
        on_secret=lambda *_: None,
    )


@attrs.define(eq=False)
class InBatch:
    """A batch."""

    kind: ClassVar = "batch"
    stage: WalkStage
    process: Process
    store: Any
    batch: Batch

    @classmethod
    def of(cls, stage: WalkStage, process: Process) -> InBatch:
        store = stage.journal.store(f"{process.name}/run", cls.kind)
        process.member = stage.member(process.life)
        return cls(
            stage, process, store, Batch(BatchEntries(store), _sending(process), None)
        )

    @staticmethod
    def key_of(name: str) -> str:
        return name

    def drop(self) -> None:
        self.store.drop()

    async def live(self, process: Process) -> None:
        async with self.batch:
            await self._take(process.life.keys)
            if process.life.resolves:
                await find_all(
                    self.stage, process, _acts(self.stage, process, self.batch.resolve)
                )
                await self._take(())
            if process.life.name != "last":
                return
            for _ in range(ROUNDS - 1):
                if keys := self.stage.unsettled(process):
                    self.stage.note_retried(process, keys)
                    await self.batch.retry(keys=keys)
                    await self._take(())

    async def close(self) -> None:
        await self.batch.stop(GRACE)

    async def _take(self, keys: tuple[str, ...]) -> None:
        for cut in self.process.cuts(""):
            begun, run = self.stage.loop.now, self.batch.run(self._writes(keys))
            with self.stage.cut_short(self.process, cut) as cancelled:
                await self._hear(run, begun)
            if not cancelled:
                return
            await asyncio.sleep(0.0 if cut is None else cut.pause)
            await self._hear(
                run, begun
            )  # its rest; then what is left is for another run

    async def _hear(self, run: AsyncIterator[Result], begun: float) -> None:
        async for result in run:
            self.stage.note_result(self.process, begun, result)

    async def _writes(self, keys: tuple[str, ...]) -> AsyncIterator[Any]:
        for key in keys:
            self.stage.note_asked(self.process, key)
            yield self.stage.made(self.process, key)
            if self.process.life.how == "apart":
                await asyncio.sleep(APART)


@attrs.define(eq=False)
class InOutbox:
    """An outbox, into which each process enqueues, and from which it sends."""

    kind: ClassVar = "outbox"
    stage: WalkStage
    process: Process
    entries: Any
    outbox: Outbox
    stopped: asyncio.Event = attrs.field(factory=asyncio.Event)

    @classmethod
    def of(cls, stage: WalkStage, process: Process) -> InOutbox:
        process.member = stage.member(process.life)
        entries = outbox_entries(stage, process)
        return cls(stage, process, entries, Outbox(entries, _sending(process)))

    @staticmethod
    def key_of(name: str) -> str:
        return name

    def drop(self) -> None:
        drop_entries(self.entries)

    async def live(self, process: Process) -> None:
        async with self.outbox, self.outbox.dispatching(grace=GRACE):
            working = asyncio.create_task(self._work(process))
            stopping = asyncio.create_task(self.stopped.wait())
            try:
                await asyncio.wait(
                    [working, stopping], return_when=asyncio.FIRST_COMPLETED
                )
            finally:
                working.cancel()
                stopping.cancel()
                await asyncio.wait([working, stopping])
            if not working.cancelled():
                working.result()

    async def close(self) -> None:
        self.stopped.set()

    async def _work(self, process: Process) -> None:
        stage = self.stage
        for key in process.life.keys:
            begun = stage.note_asked(process, key)
            spec = self.outbox._accepted(stage.made(process, key))
            new = self.entries.enqueuing.new(spec, stage.due_time(process, key))
            await self.entries.enqueuing.insert(None, new)
            if process.life.how == "one by one":
                await self._wait(key, begun)
        await asyncio.gather(
            *(self._wait(key, stage.loop.now) for key in process.life.keys)
        )
        if process.life.resolves:
            await find_all(stage, process, _acts(stage, process, self.outbox.resolve))
        for _ in range(ROUNDS - 1 if process.life.name == "last" else 0):
            if keys := stage.unsettled(process):
                begun = stage.loop.now
                stage.note_retried(process, keys)
                await self.outbox.retry(*keys)
                await asyncio.gather(*(self._wait(key, begun) for key in keys))

    async def _wait(self, key: str, begun: float) -> None:
        stage, process = self.stage, self.process

        async def hear() -> None:
            stage.note_outcome(process, key, begun, await self.outbox.wait(key))

        await stage.until_not_cut(process, key, hear)


USES: dict[str, type[Keyed | InBatch | InOutbox | Unkeyed]] = {
    "keys": Keyed,
    "batch": InBatch,
    "outbox": InOutbox,
    "writes": Unkeyed,
}
