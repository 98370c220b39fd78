"""
The scenes in which processes run writes under keys of a journal that they share.

What ships is real: ``ClientJournal``, ``Keys``, ``Claims``, the statements in PostgreSQL, leases, the driver and the
rules of writes. Judged is what each process was told, and the ledger of the service:

1  No write is sent while an earlier send of it may still land.
2  Verdicts are true.
3  Nothing is done twice.
8  No write is superseded, because nobody else writes.
11 Nothing is sent while another write to the same thing may still land.
12 Writes to one thing take effect in the order of their claims.
13 Each run that lives gets a verdict; after a cancellation of another one at once.
14 A key has one final verdict.
15 Nothing is sent under a key after a final verdict was told.
17 What waited when its process ended is sent once it is run again with all others.
22 Reasons are true, too.
0  Nothing fails, and nothing is stuck.
"""

from __future__ import annotations

import asyncio
from contextvars import Context
from functools import partial
from itertools import chain
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import attrs

from invsvc_async.durable.journal import ClientJournal
from invsvc_async.durable.key_names import key_in
from invsvc_async.reconcile.history import Verdict
from tests.exhaustive.batches.journals import ScriptedPostgres, server
from tests.exhaustive.batches.judge import ended, in_order, reasoned
from tests.exhaustive.batches.stage import (
    FROZEN,
    KINDS,
    BatchStage,
    BatchWire,
    Process,
    Told,
    keys_of,
    seed,
)
from tests.interleavings.scene import Scene

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.exhaustive.batches.stage import Play

FINAL = (Verdict.APPLIED, Verdict.SUPERSEDED)
NO_EFFECT = (Verdict.NOT_APPLIED, Verdict.REFUSED)


class KeyJournal:
    """The schema of a journal, which any number of clients open."""

    def __init__(self) -> None:
        self.ears: list[Any] = []
        server("journal").empty()

    def close(self) -> None:
        """Do nothing."""


@attrs.define(eq=False)
class KeyStage(BatchStage):
    """Where one scene of keys is played, by one schedule."""

    # which process's run was cancelled, and when
    cancelled: dict[str, float] = attrs.field(factory=dict)
    all_are_sent: bool = False  # in the end, whatever happens

    def open_journal(self) -> KeyJournal:
        self.by_journal = True
        return KeyJournal()

    def process(self, name: str, **policy: Any) -> Process:  # type: ignore[override]
        """Make a process with a client whose journal is not open."""
        store = ScriptedPostgres(
            self, self.journal.ears, f"{name}/run", server("journal")
        )
        with patch("invsvc_async.durable.journal.store_at", lambda *_: store):
            journal = ClientJournal("postgresql://walk?namespace=walk")
        member = self.client(name, program="keys", journal=journal, **policy)  # type: ignore[arg-type]
        wire = BatchWire(self.service, name)
        wire.stage = self
        member.wire = wire
        member.state.transport, member.state.random, member.state.on_secret = (
            wire,
            lambda: 0.5,
            lambda *_: None,
        )
        process = self.processes[name] = Process(
            name, member, None, SimpleNamespace(store=store)
        )  # type: ignore[arg-type]
        return process

    def run_keys(self, process: Process, *asked: tuple[str, str]) -> None:
        """Start *process*, which runs writes (kind, key), one after the other. It outlives a cancellation."""

        async def life() -> None:
            for kind, key in asked:
                begun = self.loop.now
                write = KINDS[kind](process.member, key).keyed(key)
                process.made.append(write)
                try:
                    outcome = await write.outcome()
                except asyncio.CancelledError:
                    await asyncio.sleep(FROZEN)
                    break
                self.heard.append(
                    Told(key, "keyed", process.name, begun, self.loop.now, outcome)
                )
            await process.member.client.aclose()
            process.is_over = True

        self.start(f"{process.name}/run", life())

    def run_queue(self, process: Process, *asked: tuple[str, str]) -> None:
        """Start *process*, which runs writes (kind, key) at the same time. It outlives a cancellation."""

        async def one(kind: str, key: str) -> None:
            begun = self.loop.now
            write = KINDS[kind](process.member, key).keyed(key)
            process.made.append(write)
            outcome = await write.outcome()
            self.heard.append(
                Told(key, "keyed", process.name, begun, self.loop.now, outcome)
            )

        async def life() -> None:
            try:
                await asyncio.gather(*(one(kind, key) for kind, key in asked))
            except asyncio.CancelledError:
                await asyncio.sleep(FROZEN)
            await process.member.client.aclose()
            process.is_over = True

        self.start(f"{process.name}/run", life())

    def offer_cancel(self, process: Process) -> None:
        """Allow one cancellation of what *process* awaits, at a moment that the schedule chooses."""

        def cancel() -> None:
            if not process.is_over:
                self.cancelled[process.name] = self.loop.now
                self.runs[f"{process.name}/run"].cancel()

        self.offer(
            f"cancel {process.name}", cancel, frozenset((f"{process.name}/run",))
        )

    def _read(self) -> dict[str, tuple[str, str | None]]:
        rows = server("journal").fetch(
            "SELECT key, state, verdict, place FROM {s}entries"
        )
        self.places = {key_in(key): place for key, _, _, place in rows}
        return {key_in(key): (state, verdict) for key, state, verdict, _ in rows}

    def broken(self) -> list[str]:
        judged = (
            self._told(),
            self._waited(),
            self._effects(),
            self._lost(),
            reasoned(self),
        )
        return [
            *self.wrong,
            *ended(self),
            *in_order(self),
            *chain.from_iterable(judged),
        ]

    def _told(self) -> Iterator[str]:
        final: dict[str, tuple[Verdict, float]] = {}
        for told in self.heard:
            verdict, at = final.setdefault(told.writer, (told.verdict, told.at))
            if verdict not in FINAL:
                final[told.writer] = told.verdict, told.at
            elif told.verdict is not verdict:
                yield f"14: {told.writer} is {verdict}, and {told.client} was told {told.verdict}"
            if told.verdict is Verdict.SUPERSEDED:
                yield f"8: {told.writer} is superseded, and nobody else was there"
        for sent in self.service.sends:
            verdict, at = final.get(sent.writer, (None, 0.0))
            if verdict in FINAL and sent.started > at:
                yield f"15: {sent.writer} is sent by {sent.client} after it was told as {verdict}"

    def _waited(self) -> Iterator[str]:
        for name, process in self.processes.items():
            if (
                name not in self.killed_at
                and name not in self.cancelled
                and not process.is_over
            ):
                yield f"13: {name} was told no verdict"
        for name, since in self.cancelled.items():
            for told in self.heard:
                if told.begun < since + FROZEN / 2 < told.at:
                    yield f"13: {told.client} had to wait until {name} was gone, where it was cancelled"

    def _lost(self) -> Iterator[str]:
        """Yield what waited, and was never sent."""
        if not self.all_are_sent:
            return
        sent = {each.writer for each in self.service.sends}
        for writer in self.ranks:
            if writer not in sent:
                yield f"17: {writer} waited, and was never sent"

    def _effects(self) -> Iterator[str]:
        for writer in self.ranks:
            effects = [
                effect for effect in self.service.effects if effect.writer == writer
            ]
            if len(effects) > 1:
                yield f"3: {writer} took effect {len(effects)} times"
            for told in self.heard:
                if told.writer != writer:
                    continue
                if told.verdict is Verdict.APPLIED and not effects:
                    yield f"2: {writer} is said to be applied, and is not"
                early = [
                    each
                    for each in effects
                    if self.service.sends[each.number].started < told.begun
                ]
                if told.verdict in NO_EFFECT and early:
                    yield f"2: {writer} is said to be {told.verdict}, and took effect"


def raced(
    *asked: tuple[str, str],
    apart: tuple[float, ...] = (0.0, 0.05, 0.5),
    dies: str = "",
    freezes: str = "",
    cancels: str = "",
    frozen: float = FROZEN,
    slow: int = 0,
    reads: str = "",
) -> Play:
    """
    Return a scene where two processes run the same writes, and a third one does when all that is over.

    The second begins at one of the times *apart*, in s.  One may be killed, *frozen* for longer than its lease, or
    cancelled.  *slow* is how many transactions may take long.  The processes *reads* know the thing beforehand.
    """

    async def scene(stage: KeyStage) -> None:
        seed(stage)
        stage.rank(*keys_of(asked))
        stage.slow = slow
        one, two = stage.process("p1"), stage.process("p2")
        for process in (one, two):
            if process.name in reads.split():
                await process.member.client.journeys.get("j1")
        stage.run_keys(one, *asked)
        for process in (one, two):
            if process.name in dies.split():
                stage.offer_kill(process)
            if process.name in freezes.split():
                stage.offer_freeze(process, frozen)
            if process.name in cancels.split():
                stage.offer_cancel(process)
        await stage.at(*apart, what="p2")
        stage.run_keys(two, *asked)
        stage.loop.call_later(
            2 * FROZEN,
            lambda: stage.run_keys(stage.process("p3"), *asked),
            context=Context(),
        )

    return scene


def in_turn(
    one: tuple[str, str], two: tuple[str, str], *, dies: bool = False, reads: str = ""
) -> Play:
    """Return a scene where two processes write to one thing under two keys; the first may be killed."""

    async def scene(stage: KeyStage) -> None:
        seed(stage)
        stage.rank(*keys_of((one, two)))
        first, second = stage.process("p1"), stage.process("p2")
        for process in (first, second):
            if process.name in reads.split():
                await process.member.client.journeys.get("j1")
        stage.run_keys(first, one)
        if dies:
            stage.offer_kill(first)
        await stage.at(0.0, 0.02, 0.3, what="p2")
        stage.run_keys(second, two)
        stage.loop.call_later(
            FROZEN,
            lambda: stage.run_keys(stage.process("p3"), one, two),
            context=Context(),
        )

    return scene


def queued(*asked: tuple[str, str], again: str, ends: str, both: bool = False) -> Play:
    """
    Return a scene where a process with a queue of writes to one thing *ends*, and the next one runs them *again*.

    It is killed or cancelled at any moment.  *again* is the order in which the next one starts them, all at once.
    If *both*, a third one does the same at the same time.
    """

    async def scene(stage: KeyStage) -> None:
        seed(stage)
        stage.rank(*keys_of(asked))
        stage.all_are_sent = True
        first = stage.process("p1")
        stage.run_queue(first, *asked)
        if ends == "killed":
            stage.offer_kill(first)
        else:
            stage.offer_cancel(first)
        by_key = {key: (kind, key) for kind, key in asked}
        for name in ("p2", "p3") if both else ("p2",):
            chosen = again if name == "p2" else again[::-1]
            run = partial(_run_again, stage, name, [by_key[key] for key in chosen])
            stage.loop.call_later(FROZEN / 2, run, context=Context())

    return scene


def _run_again(stage: KeyStage, name: str, asked: list[tuple[str, str]]) -> None:
    stage.run_queue(stage.process(name), *asked)


A, B, C = ("rename", "A"), ("rename", "B"), ("rename", "C")
D, E, F = ("change", "D"), ("change", "E"), ("create", "F")
LEFT = ("ok", "lost", "late")
KEY_SCENES: tuple[Scene, ...] = (
    Scene(name="keys: two runs", play=raced(A), fates={"A": ("ok", "lost", "landed", "late", "500 late", "refused")}),
    Scene(name="keys: two runs, at once", play=raced(A, reads="p1 p2"), fates={"A": ("ok", "lost", "late")}),
    Scene(name="keys: two runs of a create", play=raced(F), fates={"F": (*LEFT, "refused")}),
    Scene(name="keys: killed", play=raced(A, dies="p1 p2"), fates={"A": LEFT}),
    Scene(name="keys: killed: a create", play=raced(F, dies="p1"), fates={"F": LEFT}),
    Scene(name="keys: frozen", play=raced(A, freezes="p1"), fates={"A": ("ok", "late")}),
    Scene(name="keys: frozen for a moment", play=raced(A, freezes="p1", frozen=3.0), fates={"A": ("slow", "late")}),
    Scene(name="keys: cancelled", play=raced(A, cancels="p1"), fates={"A": LEFT}),
    Scene(name="keys: cancelled: a create", play=raced(F, cancels="p1"), fates={"F": LEFT}),
    Scene(name="keys: slow", play=raced(A, D, slow=1, apart=(0.01,)), fates={"A": ("ok", "late")}),
    Scene(name="keys: in turn", play=in_turn(A, B, dies=True), fates={"A": LEFT, "B": ("ok", "late")}),
    Scene(name="keys: in turn, at once", play=in_turn(A, B, dies=True, reads="p1 p2"),
          fates={"A": LEFT, "B": ("ok", "late")}),
    Scene(name="keys: queued, killed", play=queued(A, B, C, again="ABC", ends="killed"), fates={"A": LEFT}),
    Scene(name="keys: queued, killed, reversed", play=queued(A, B, C, again="CBA", ends="killed"),
          fates={"A": LEFT, "B": ("ok", "lost")}),
    Scene(name="keys: queued, cancelled", play=queued(A, B, C, again="CAB", ends="cancelled"), fates={"A": LEFT}),
    Scene(name="keys: queued, a webhook", play=queued(D, E, again="ED", ends="killed"), fates={"D": LEFT}),
    Scene(name="keys: queued, two go on", play=queued(A, B, again="BA", ends="killed", both=True), fates={"A": LEFT}),
)  # fmt: skip
