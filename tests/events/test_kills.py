"""Receiving processes that are killed at random moments: nothing acknowledged is lost, nothing is handled twice."""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import sqlite3
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import asyncpg
import pytest

from tests.events.bodies import encoded, headers_of, v2

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.untraced

ROOT = Path(__file__).parents[2]
IN_FLIGHT = 32  # handlers that run at once in one process


class Receiving:
    """A receiving process that can be killed and started anew."""

    def __init__(self, store: str, log: Path) -> None:
        self._command = [sys.executable, str(ROOT / "tests/events/inbox_process.py"), store, str(log)]
        self._process: asyncio.subprocess.Process | None = None
        self.port = 0
        self.kills = 0

    async def start(self) -> None:
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        self._process = await asyncio.create_subprocess_exec(
            *self._command, stdout=asyncio.subprocess.PIPE, env=environment
        )
        assert self._process.stdout is not None
        self.port = int(await self._process.stdout.readline())

    async def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        await self._process.wait()
        self.kills += 1


async def deliver(requests: Iterator[bytes], chosen: Callable[[], Receiving], answers: Counter[int]) -> None:
    """Send each request over a kept connection until it is answered 2xx, as the service does."""
    reader: asyncio.StreamReader | None = None
    writer: asyncio.StreamWriter | None = None
    for request in requests:
        while True:
            try:
                if writer is None or reader is None:
                    reader, writer = await asyncio.open_connection("127.0.0.1", chosen().port)
                writer.write(request)
                head = await reader.readuntil(b"\r\n\r\n")
                await reader.readexactly(int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0]))
            except (OSError, asyncio.IncompleteReadError):
                if writer is not None:
                    writer.close()
                writer = None
                answers[0] += 1
                await asyncio.sleep(0.02)
                continue
            status = int(head.split(b" ", 2)[1])
            answers[status] += 1
            if status == 200:
                break
    if writer is not None:
        writer.close()


def requests_of(chance: random.Random, *, events: int, deliveries: int) -> Iterator[bytes]:
    """Return deliveries of so many events, with duplicates, in random order."""
    numbers = list(range(events)) + [chance.randrange(events) for _ in range(deliveries - events)]
    chance.shuffle(numbers)
    for number in numbers:
        body = encoded(v2("invoice.created", number=number))
        head = "".join(f"{name}: {value}\r\n" for name, value in headers_of(body, shared=True).items())
        yield b"POST /in HTTP/1.1\r\n" + head.encode() + b"\r\n" + body


async def deliver_all(
    requests: Iterator[bytes], receiving: list[Receiving], kills: int, chance: random.Random
) -> Counter[int]:
    """Deliver while processes are killed at random moments and started anew, each time another."""
    answers: Counter[int] = Counter()
    turns = itertools.cycle(receiving)
    await asyncio.gather(*(one.start() for one in receiving))
    senders = asyncio.gather(*(deliver(requests, lambda: next(turns), answers) for _ in range(24)))
    for _, victim in zip(range(kills), itertools.cycle(receiving), strict=False):
        await asyncio.sleep(chance.uniform(0.2, 0.6))
        await victim.kill()
        await victim.start()
    await senders
    return answers


async def until_handled(count: Callable[[], object], events: int) -> None:
    async with asyncio.timeout(60):
        while True:
            found = count()
            if asyncio.iscoroutine(found):
                found = await found
            if found == [("handled", events)]:
                return
            await asyncio.sleep(0.1)


def judge_log(log: Path, keys: set[str], kills: int) -> None:
    """Every event's handler ended, and only what was in hand at a kill may have run again."""
    ended = Counter(log.read_text().split())
    assert set(ended) == keys
    again = sum(times - 1 for times in ended.values())
    assert again <= kills * IN_FLIGHT


@pytest.mark.parametrize("seed", [1])
async def test_inbox_on_sqlite_that_is_killed(tmp_path: Path, seed: int) -> None:
    """10,000 deliveries, duplicated and reordered, over kills: every event is on record as handled, once."""
    chance = random.Random(seed)
    store, log, events = tmp_path / "events.db", tmp_path / "log", 7_000
    receiving = Receiving(str(store), log)

    answers = await deliver_all(requests_of(chance, events=events, deliveries=10_000), [receiving], 6, chance)

    db = sqlite3.connect(store)
    await until_handled(
        lambda: db.execute("SELECT state, count(*) FROM delivery GROUP BY state").fetchall(), events
    )
    keys = [key for (key,) in db.execute("SELECT key FROM delivery")]
    db.close()
    await receiving.kill()
    assert sorted(keys) == sorted(f"dlv_{number}" for number in range(events))
    assert answers[200] == 10_000
    assert answers[0] > 0, "no kill was felt"
    judge_log(log, set(keys), receiving.kills)


async def test_inbox_on_postgres_of_two_processes_that_are_killed(tmp_path: Path, own_postgres: str) -> None:
    """The same with two processes that receive and work at once, each killed in its turn."""
    chance = random.Random(2)
    log, events = tmp_path / "log", 7_000
    receiving = [Receiving(own_postgres, log), Receiving(own_postgres, log)]

    answers = await deliver_all(requests_of(chance, events=events, deliveries=10_000), receiving, 4, chance)

    db = await asyncpg.connect(own_postgres)

    async def count() -> object:
        return [
            tuple(row) for row in await db.fetch("SELECT state, count(*) FROM invsvc_delivery GROUP BY state")
        ]

    await until_handled(count, events)
    keys = [row["key"] for row in await db.fetch("SELECT key FROM invsvc_delivery")]
    await db.close()
    for one in receiving:
        await one.kill()
    assert sorted(keys) == sorted(f"dlv_{number}" for number in range(events))
    assert answers[200] == 10_000
    assert answers[0] > 0, "no kill was felt"
    judge_log(log, set(keys), sum(one.kills for one in receiving))
