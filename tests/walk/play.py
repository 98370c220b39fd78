"""One history: a program is played, and judged."""

from __future__ import annotations

import signal
import sys
import time
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock, patch

from invsvc_async.durable.resolve import _entry as entry_of_finding
from invsvc_async.writes.new_intent import intent_of
from tests.interleavings.loop import RUN, START, Stuck
from tests.walk.journals import WalkConnection, WalkWriter
from tests.walk.judge import broken
from tests.walk.stage import WalkStage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from invsvc_async.durable.entry import Entry
    from invsvc_async.reconcile.intent import Intent
    from tests.walk.program import Program

_STORAGE = "invsvc_async.storage"
LONGEST = 5.0  # s of the processor, in which a step usually takes less than a thousandth of one
# A killed process runs none. Here, each would keep a store, and with it the loop of all processes, which has tasks
# of the process that the finalizer waits for: none of them would ever be collected.
_NO_FINALIZERS = SimpleNamespace(finalize=lambda *_: Mock())


@contextmanager
def _world(stage: WalkStage) -> Iterator[None]:
    """Let each process have its own time of day; commit in files on the loop; try again at once."""

    def process_now() -> str:
        return RUN.get().partition("/")[0]

    def now() -> float:
        return stage.wall_time(process_now())

    def noted(*given: Any) -> Intent:
        intent = intent_of(*given)
        if intent.nonce is None:
            stage.note_intent(intent)
        return intent

    def finding(*given: Any) -> Entry:
        stage.note_finding(process_now())
        return entry_of_finding(*given)

    writer = type("StagedWriter", (WalkWriter,), {"stage": stage})
    with ExitStack() as stack:
        for name, value in (
            ("invsvc_async.durable.store.sqlite.Writer", writer),
            ("invsvc_async.outbox.application_file.Writer", writer),
            ("invsvc_async.durable.store.sqlite.LockedConnection", WalkConnection),
            ("invsvc_async.durable.entries.weakref", _NO_FINALIZERS),
            ("invsvc_async.durable.journal_life.weakref", _NO_FINALIZERS),
            (f"{_STORAGE}.postgres_pool._PAUSE", 0.0),
            ("invsvc_async.durable.last_writes._RECENT", stage.program.recent),
            ("invsvc_async.writes.driver.intent_of", noted),
            ("invsvc_async.writes.write.intent_of", noted),
            ("invsvc_async.durable.resolve._entry", finding),
        ):
            stack.enter_context(patch(name, value))
        stack.enter_context(patch.object(time, "time", now))
        stack.enter_context(patch.object(time, "time_ns", lambda: int(now() * 1e9)))
        yield


@contextmanager
def _interrupted(stage: WalkStage) -> Iterator[None]:
    """Interrupt a step that takes ``LONGEST``, again and again until it ends. Windows has no such timers."""
    if sys.platform == "win32":
        yield
        return
    before = signal.signal(signal.SIGVTALRM, stage.loop.interrupt_step)
    signal.setitimer(signal.ITIMER_VIRTUAL, LONGEST, LONGEST)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
        signal.signal(signal.SIGVTALRM, before)


def play(program: Program) -> tuple[WalkStage, list[str]]:
    """Play *program* once, and return what is broken."""
    stage = WalkStage.of(program)
    try:
        with _world(stage), _interrupted(stage):
            stage.play()
    except Stuck as stuck:
        return stage, [f"hang: {stuck}"]
    return stage, broken(stage)


def told(stage: WalkStage) -> list[str]:
    """Return what happened, in order."""
    service = stage.service
    lines = [
        *(
            (sent.started, f"{sent.writer} is sent by {sent.client} ({sent.fate.name})")
            for sent in service.sends
        ),
        *(
            (effect.at, f"{effect.writer} takes effect on {effect.thing}")
            for effect in service.effects
        ),
        *(
            (begun, f"{run.partition('/')[0]} reads {what}")
            for begun, _, run, what in service.looks
        ),
        *((begun, f"{name} begins a run of {key}") for begun, name, key in stage.asked),
    ]
    lines += [
        (each.at, f"somebody edits {each.hook}: {each.edit.how} of {each.edit.key}")
        for each in service.edited
    ]
    for process in stage.lives.values():
        lines.append((process.begun, f"{process.name} begins"))
        if process.hit is not None:
            how = "" if process.life.end is None else process.life.end.how
            lines.append((process.hit, f"{process.name}: {how}"))
        if process.ended is not None:
            lines.append((process.ended, f"{process.name} is gone"))
    lines += [
        (
            each.at,
            f"{each.client} is told that {each.writer} is {each.verdict}: {each.told.words}",
        )
        for each in stage.told
    ]
    lines += [
        (
            each.at,
            f"{each.client} resolves {each.writer} as {each.verdict}, seen at {each.begun - START:.3f}",
        )
        for each in stage.found
    ]
    return [
        f"{at - START:9.3f} {words}"
        for at, words in sorted(lines, key=lambda line: line[0])
    ]
