"""
Two processes on one store, killed and started anew, that handle the events of each invoice in order.

What they did is read in a log that the handlers write, not in the store.
"""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections import Counter
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from tests.events.bodies import SHARED, encoded, v2
from tests.events.ordered_process import CONCURRENCY, receiver_on
from tests.events.receiving.test_receiver import until_none_is_open
from tests.support.children import first_lines, started
from tests.support.database import connected

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from invsvc_async import events

pytestmark = pytest.mark.untraced

# The end of all leases, once those who held them are dead.
EXPIRE = "UPDATE {} SET due = 0 WHERE state = 'open' AND token <> '' AND due < {}"


class Processes:
    """Two processes, of which the second dies some time after the first; then all leases end."""

    def __init__(
        self, store: str, log: Path, expire: Callable[[], Awaitable[object]]
    ) -> None:
        self._store, self._log = store, log
        self._expire = expire
        self._running: list[asyncio.subprocess.Process] = []
        self.kills = 0

    async def start(self) -> None:
        for _ in range(2):
            self._running.append(
                await started("tests.events.ordered_process", self._store, self._log)
            )
        for process in self._running:
            assert await first_lines(process, 1) == ["runs"]

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
                v2(
                    "invoice.created",
                    number=each,
                    data={"object": {"uuid": f"U-{invoice}", "total": 1}},
                )
            )
            for outcome in ("stored", "duplicate"):
                assert (await receiver.receive(body, dict([SHARED]))).outcome == outcome

    await asyncio.gather(*map(deliver, range(invoices)))


async def handle_over_kills(
    store: str,
    log: Path,
    expire: Callable[[], Awaitable[object]],
    *,
    number: int,
    invoices: int,
    rounds: int,
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
        await until_none_is_open(receiver.store, every=0.1, within=600)
        counts = await receiver.store.counts()
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
        (name, f"dlv_{each}")
        for name in ("in_order", "any_order")
        for each in range(number)
    }
    failures = 0.35 * number  # about a tenth of each handler's calls fail
    assert ends.total() <= 2 * number + failures + kills * CONCURRENCY


async def test_order_of_two_processes_that_are_killed(
    tmp_path: Path, place: str
) -> None:
    """No event is handled twice at once, out of order, or not at all."""
    log = tmp_path / "log"

    async def expire() -> None:
        if not place.startswith("postgresql"):
            with closing(
                sqlite3.connect(place, timeout=60, isolation_level=None)
            ) as db:
                db.execute(EXPIRE.format("delivery", "9e999"))
            return
        async with connected(place) as connection:
            await connection.execute(EXPIRE.format("invsvc_delivery", "'infinity'"))

    kills = await handle_over_kills(
        place, log, expire, number=120, invoices=8, rounds=1
    )

    judge(log, number=120, kills=kills)
