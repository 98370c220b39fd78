"""
Two processes on one store, killed and started anew, that handle the events of each invoice in order.

What they did is read in a log that the handlers write, not in the store.
"""

from __future__ import annotations

import asyncio
import os
import random
import sqlite3
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import asyncpg
import pytest

from tests.events.bodies import SHARED, encoded, v2
from tests.events.ordered_process import CONCURRENCY, receiver_on

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from invsvc_async import events

pytestmark = pytest.mark.untraced

ROOT = Path(__file__).parents[2]
# The end of all leases, once those who held them are dead.
EXPIRE_SQLITE = "UPDATE delivery SET due = 0 WHERE state = 'open' AND token <> '' AND due < 9e999"
EXPIRE_POSTGRES = """
    UPDATE invsvc_delivery SET due = 0 WHERE state = 'open' AND token <> '' AND due < 'infinity'
"""


class Processes:
    """Two processes, of which the second dies some time after the first; then all leases end."""

    def __init__(self, store: str, log: Path, expire: Callable[[], Awaitable[object]]) -> None:
        self._command = [sys.executable, str(ROOT / "tests/events/ordered_process.py"), store, str(log)]
        self._log = log
        self._expire = expire
        self._running: list[asyncio.subprocess.Process] = []
        self.kills = 0

    async def start(self) -> None:
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        for _ in range(2):
            process = await asyncio.create_subprocess_exec(
                *self._command, stdout=asyncio.subprocess.PIPE, env=environment
            )
            self._running.append(process)
        for process in self._running:
            assert process.stdout is not None
            assert await process.stdout.readline() == b"runs\n"

    async def kill(self, pause: float) -> None:
        for process in self._running:
            process.kill()
            await process.wait()
            self.kills += 1
            with self._log.open("a") as log:
                log.write(f"killed - - - {process.pid}\n")
            await asyncio.sleep(pause)
        self._running.clear()
        await self._expire()


async def deliver_all(receiver: events.Receiver, number: int, invoices: int) -> None:
    """Receive events of each invoice in their order, while others are handled; and each one twice."""

    async def deliver(invoice: int) -> None:
        for each in range(invoice, number, invoices):
            body = encoded(
                v2("invoice.created", number=each, data={"object": {"uuid": f"U-{invoice}", "total": 1}})
            )
            for outcome in ("stored", "duplicate"):
                assert (await receiver.receive(body, dict([SHARED]))).outcome == outcome

    await asyncio.gather(*map(deliver, range(invoices)))


async def handle_over_kills(
    store: str, log: Path, expire: Callable[[], Awaitable[object]], *, number: int, invoices: int, rounds: int
) -> int:
    """Handle so many events in two processes that are killed in so many rounds; return how many died."""
    chance = random.Random(5)
    receiver = receiver_on(store, str(log))
    processes = Processes(store, log, expire)
    await receiver.store.open()
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(deliver_all(receiver, number, invoices))
            await processes.start()
            for _ in range(rounds):
                await asyncio.sleep(chance.uniform(0.1, 0.4))
                await processes.kill(chance.uniform(0.0, 0.2))
                await processes.start()
        async with asyncio.timeout(600):
            while (counts := await receiver.store.counts())["open"]:  # noqa: ASYNC110 - it knows nothing of this
                await asyncio.sleep(0.1)
    finally:
        await processes.kill(0)
    await receiver.store.close()
    assert counts == {"open": 0, "handled": 2 * number, "dead": 0}
    return processes.kills


def judge(log: Path, *, number: int, kills: int) -> None:
    """
    Compare what the handlers did with what they should.

    Nothing runs twice at once in living processes: no event for one handler, and of one invoice no event for
    the handler in order.  There, none begins after a later one.  Each handler got each event, and again only
    after a failure or a kill.
    """
    running: dict[tuple[str, str], tuple[str, str]] = {}
    last: dict[str, int] = {}
    ends: Counter[tuple[str, str]] = Counter()
    for line in log.read_text().splitlines():
        kind, handler, invoice, key, process = line.split()
        if kind == "killed":
            running = {what: by for what, by in running.items() if by[1] != process}
            continue
        what = (handler, invoice if handler == "in_order" else key)
        if kind == "end":
            ends[handler, key] += 1
            assert running.pop(what) == (key, process), line
            continue
        assert what not in running, line
        running[what] = (key, process)
        if handler == "in_order":
            each = int(key.removeprefix("dlv_"))
            assert last.get(invoice, -1) <= each, line
            last[invoice] = each
    assert set(ends) == {
        (name, f"dlv_{each}") for name in ("in_order", "any_order") for each in range(number)
    }
    failures = 0.35 * number  # about a tenth of each handler's calls fail
    assert ends.total() <= 2 * number + failures + kills * CONCURRENCY


async def test_order_on_sqlite_of_two_processes_that_are_killed(tmp_path: Path) -> None:
    """No event is handled twice at once, out of order, or not at all."""
    store, log = tmp_path / "events.db", tmp_path / "log"

    async def expire() -> None:
        db = sqlite3.connect(store, timeout=60, isolation_level=None)
        db.execute(EXPIRE_SQLITE)
        db.close()

    kills = await handle_over_kills(str(store), log, expire, number=120, invoices=8, rounds=1)

    judge(log, number=120, kills=kills)


async def test_order_on_postgres_of_two_processes_that_are_killed(tmp_path: Path, own_postgres: str) -> None:
    """The same on PostgreSQL."""
    log = tmp_path / "log"

    async def expire() -> None:
        db = await asyncpg.connect(own_postgres)
        await db.execute(EXPIRE_POSTGRES)
        await db.close()

    kills = await handle_over_kills(own_postgres, log, expire, number=120, invoices=8, rounds=1)

    judge(log, number=120, kills=kills)
