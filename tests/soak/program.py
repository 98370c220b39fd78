"""
The program under test: its client, which can be killed and comes back with its journal, and one on another machine.

A kill drops every task of the client at once, and the next client opens what was durable at that moment.
"""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from unittest.mock import patch

from invsvc_async import ApiKey, Client, Timeouts
from invsvc_async.client import options_of
from invsvc_async.durable.journal import ClientJournal
from tests.soak.records import attributed
from tests.support.certificates import client_context
from tests.support.inline_writer import InlineWriter
from tests.support.virtual_time import LoopClock

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Coroutine, Generator
    from pathlib import Path

    from invsvc_async import Intent
    from invsvc_async.simulator import Simulator
    from invsvc_async.transport.client_core import DecisionReport
    from tests.soak.records import Flights
    from tests.soak.world import World
    from tests.support.virtual_time import JumpingLoop

__all__ = ["KilledError", "Program", "in_virtual_time"]

T = TypeVar("T")

PLACES = 2000  # no request waits for a place: one that has begun is on its way


class KilledError(Exception):
    """The process that was to do it has been killed."""


class InOrder(dict[Any, None]):
    """A set that is iterated over in the order of adding, so that a seed repeats."""

    def add(self, item: object) -> None:
        self[item] = None

    def discard(self, item: object) -> None:
        self.pop(item, None)


class RandomWriter(InlineWriter):
    """
    Commits a group some virtual milliseconds after it was asked for.

    So a seed repeats, and what a kill finds under way is lost as on a disk.
    """

    # Any: those of Writer
    def __init__(self, *arguments: Any, chance: random.Random, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._chance = chance

    def delay(self) -> float:
        return self._chance.expovariate(1 / self._chance.choice((0.0005, 0.0005, 0.02)))


@contextmanager
def in_virtual_time(loop: JumpingLoop, chance: random.Random) -> Generator[None]:
    """
    Make journals commit on the loop, and aiohttp measure by the loop's time how long a connection is idle.
    """
    with ExitStack() as stack:
        stack.enter_context(
            patch(
                "invsvc_async.durable.store.sqlite.Writer",
                partial(RandomWriter, chance=chance),
            )
        )
        stack.enter_context(patch("aiohttp.connector.monotonic", loop.time))
        # That a client has left a hanging exchange need not be noticed at once: each look costs a turn.
        stack.enter_context(patch("invsvc_async.simulator.replies.LOOK_EVERY", 5.0))
        yield


class Program:
    """One client of the program; with *folder*, it has a journal there and can be killed."""

    def __init__(
        self,
        name: str,
        service: Simulator,
        world: World,
        loop: JumpingLoop,
        flights: Flights,
        chance: random.Random,
        *,
        folder: Path | None = None,
    ) -> None:
        self.generation = 0
        self.unsettled: dict[str, Intent] = {}  # as the client tells of them
        self.alive = asyncio.Event()
        self._name, self._folder = name, folder
        self._service, self._world, self._loop, self._flights = (
            service,
            world,
            loop,
            flights,
        )
        self._chance = chance
        # In the order of their beginning, or a seed would not repeat. Any: of any kind of call.
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._awaited: tuple[str, asyncio.Event] | None = None
        self.start()

    @property
    def name(self) -> str:
        """The client's name in the ledger."""
        return f"{self._name}{self.generation}"

    @property
    def _path(self) -> Path:
        assert self._folder is not None
        return self._folder / f"journal-{self.generation}.db"

    def start(self) -> None:
        """Make the client; its machine's clock has a start of its own."""
        self.ahead = self._chance.choice((0.0, 50_000.0, -900.0))
        journal = None if self._folder is None else ClientJournal(self._path)
        client = Client(
            self._service.base_url,
            ApiKey(self._service.api_key),
            timeout=Timeouts(attempt=self._world.attempt),
            max_concurrency=PLACES,
            journal=journal,
            on_unsettled=self._keep,
            on_decision=None if journal is None else self._decided,
            clock=LoopClock(ahead=self.ahead),
            ssl=client_context()
            if self._service.base_url.startswith("https")
            else None,
        )
        options_of(client).core.random = self._chance.random
        # reaches: in the order of their beginning, or a seed would not repeat
        options_of(client).core.transport._in_flight = InOrder()
        self.client = attributed(client, self._flights, self._loop, ahead=self.ahead)
        self.alive.set()

    def _keep(self, intent: Intent) -> None:
        self.unsettled[intent.key] = intent

    def _decided(self, report: DecisionReport) -> None:
        if self._awaited and self._awaited[0] == report.decision:
            self._awaited[1].set()
            self._awaited = None

    async def next_decision(self, kind: str) -> None:
        """Wait until the client decides so about one of its writes."""
        decided = asyncio.Event()
        self._awaited = kind, decided
        await decided.wait()

    async def call(self, begin: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """
        Run the coroutine that *begin* makes, which uses the client, as a part of its process.

        Raises:
            KilledError: The process was killed meanwhile.

        """
        if self._folder is None:
            return await begin()

        async def begun() -> T:
            return await begin()

        generation = self.generation
        task = self._loop.create_task(begun())
        self._tasks[task] = None
        try:
            return await task
        except asyncio.CancelledError:
            if task.cancelled() and generation != self.generation:
                raise KilledError from None
            task.cancel()
            raise
        finally:
            self._tasks.pop(task, None)

    async def kill(self) -> None:
        """Kill it as it stands, and start it anew with what its journal had stored."""
        before, path = self.client, self._path
        self.alive.clear()
        self.generation += 1
        _copy(path, self._path)
        for task in [*self._tasks]:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        self.unsettled.clear()
        await before.aclose()
        for suffix in ("", "-wal", "-shm", ".owner", ".epoch"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)
        self.start()

    async def aclose(self) -> None:
        await self.client.aclose()


def _copy(path: Path, other: Path) -> None:
    """Copy what is committed in the SQLite file *path* at this moment, and before it the count beside it."""
    shutil.copyfile(f"{path}.epoch", f"{other}.epoch")
    source, target = sqlite3.connect(path), sqlite3.connect(other)
    try:
        source.backup(target)
    finally:
        source.close()
        target.close()
