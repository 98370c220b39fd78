"""
One write that is interrupted at one place, then run again, and what the service has of it.

It is keyed; or it is one whose intent a process has left, and that the next one resumes.
"""

from __future__ import annotations

import asyncio
import gc
import time
from contextlib import contextmanager, suppress
from itertools import count
from typing import TYPE_CHECKING, Any

import attrs

from invsvc_async import (
    ApiKey,
    Client,
    JournalError,
    ReadRetries,
    ReconcilePolicy,
    Timeouts,
    Verdict,
)
from invsvc_async.storage import sqlite_writer
from tests.interrupts.program import Stuck, WatchedQueue, World
from tests.interrupts.tracer import Interrupter

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from pathlib import Path

    from invsvc_async import Outcome, Write

RELEASE_TRIES = 40  # 8 s in all
POLICY = ReconcilePolicy(
    settle_after_error=0.05, settle_after_loss=0.1, deadline=20.0, reads_lag=0.05
)
TIMES = Timeouts(attempt=2.0, connect=2.0, call=5.0)


class TimeLimit(Exception):  # noqa: N818 - as those of task queues
    """What a signal handler raises, and an application may catch."""


class Failed(BaseException):
    """What a signal handler raises that no ``except Exception`` catches, as those of test runners."""


class Stop(KeyboardInterrupt):
    """What a signal handler raises that ends the loop."""


_numbers = count(1)  # of trials, which are the names of their writes
KINDS = (TimeLimit, Failed, Stop)


class Clock:
    """The time of a world."""

    def __init__(self, world: World) -> None:
        self._world = world

    def now(self) -> float:
        """Return the time, in seconds."""
        return self._world.now

    async def sleep(self, seconds: float) -> None:
        """Wait for so many seconds."""
        await asyncio.sleep(seconds)


@attrs.define
class Trials:
    """Trials of one *kind* of write in one kind of journal, which *address* makes of a number."""

    world: World
    address: Callable[[int], str | Path]
    kind: str  # of the write: create, update or delete
    # the application catches the exception, and goes on with the same client
    goes_on: bool = False
    # another process has sent it before, and was cancelled when it had taken effect
    was_sent: bool = False
    _number: int = 0
    heard: list[Outcome[Any]] = attrs.field(factory=list)

    def places(self, within: str | None = None) -> int:
        """Return how many places there are, or are in one function."""
        interrupter = Interrupter(within=within)
        assert self._trial(interrupter) == []
        return interrupter.count

    def at(
        self, place: int, error: type[BaseException], within: str | None = None
    ) -> list[str]:
        """Return what is wrong if *error* is raised at *place*."""
        interrupter = Interrupter(error, place, within=within)
        wrong = self._trial(interrupter)
        return [
            f"{self.kind} {error.__name__} {place} at {interrupter.where}: {each}"
            for each in wrong
        ]

    def _trial(self, interrupter: Interrupter) -> list[str]:
        self._number = next(_numbers)
        self.heard = []
        self.world.clear_list()
        wrong = []
        if self.was_sent:
            self.world.run(self._sent_before())
        gc.collect()
        gc.disable()  # what it calls is no place of the program
        try:
            with interrupter:
                self.world.run(self._going_on() if self.goes_on else self._once())
        except KINDS:
            pass
        except Stuck as stuck:
            wrong.append(f"the program that was interrupted is stuck: {stuck}")
        except JournalError:  # which says that something was interrupted
            pass
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - any is wrong
            wrong.append(f"the program that was interrupted: {error!r}")
        gc.enable()
        failed = self._next_program()
        return [*wrong, *([failed] if failed else self._judged())]

    def _next_program(self) -> str:
        """Run the write again, as the next process would; return what is wrong with that."""
        for tries in range(RELEASE_TRIES):
            try:
                self.world.run(self._once())
                break
            except Stuck as stuck:
                return f"the next program is stuck: {stuck}"
            except JournalError as error:
                if "in use by" not in str(error) or tries == RELEASE_TRIES - 1:
                    return f"the next program: {error}"
                gc.collect()
                # The thread of a client that was collected lets its file go, as soon as the machine lets it run.
                time.sleep(0.01 * tries)
            except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - any is wrong
                return f"the next program: {error!r}"
        return ""

    def _judged(self) -> list[str]:
        effects = [
            each for each in self.world.service.ledger.effects() if self._is_ours(each)
        ]
        wrong = [] if len(effects) == 1 else [f"{len(effects)} effects"]
        not_applied = [
            each for each in self.heard if each.verdict is not Verdict.APPLIED
        ]
        return wrong + [
            f"{outcome.verdict}: {outcome.message}" for outcome in not_applied
        ]

    def _is_ours(self, effect: Any) -> bool:
        mark = f"n{self._number}"
        return isinstance(effect.body, dict) and mark in (
            effect.body.get("name"),
            str(effect.body.get("url")).rpartition("/")[2],
        )

    # --- the programs

    def _client(self) -> Client:
        service = self.world.service
        return Client(
            service.base_url,
            ApiKey(service.api_key),
            reconcile=POLICY,
            timeout=TIMES,
            reads=ReadRetries(initial=0.01, maximum=0.05),
            clock=Clock(self.world),
            journal=self.address(self._number),
            on_secret=lambda *_: None,
        )

    def _write(self, client: Client, mark: str = "") -> Write[Any]:
        name = f"n{self._number}{mark}"
        if self.kind == "create":
            url = f"https://me.example/{name}"
            return client.webhooks.create(url=url, events=["invoice.created"]).keyed(
                name
            )
        return client.journeys.update("jrn_1", name=name).keyed(name)

    async def _sent_before(self) -> None:
        """Send it, and be cancelled before the answer; it has taken effect."""
        service = self.world.service
        operation = "webhooks.create" if self.kind == "create" else "journeys.update"
        arrived = service.arrivals(operation) + 1
        service.script(operation, "apply, then hang")
        async with self._client() as client:
            running = asyncio.ensure_future(self._write(client).outcome())
            while service.arrivals(operation) < arrived:  # noqa: ASYNC110 - the service has another loop
                await asyncio.sleep(0.05)
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running

    async def _once(self) -> None:
        async with self._client() as client:
            self.heard.append(await self._write(client).outcome())

    async def _going_on(self) -> None:
        async with self._client() as client:
            with suppress(TimeLimit, Failed):
                await self._write(client).outcome()
            self.heard.append(await self._write(client).outcome())
            await self._write(client, "-next").outcome()


@contextmanager
def watched() -> Generator[None]:
    """Let the queues of writers' threads tell whether these work."""
    before = sqlite_writer.SimpleQueue
    sqlite_writer.SimpleQueue = WatchedQueue  # type: ignore[misc,assignment]
    try:
        yield
    finally:
        sqlite_writer.SimpleQueue = before  # type: ignore[misc]
