"""Receiving processes that are killed at random moments: nothing acknowledged is lost, nothing is handled twice."""

from __future__ import annotations

import asyncio
import itertools
import random
import sqlite3
from collections import Counter
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from tests.events.bodies import encoded, headers_of, v2
from tests.support.children import first_lines, started
from tests.support.database import connected
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.untraced

EVENTS = 7_000
IN_FLIGHT = 32  # handlers that run at once in one process


class Receiving:
    """A receiving process that can be killed and started anew."""

    def __init__(self, *arguments: object) -> None:
        self._arguments = arguments
        self._process: asyncio.subprocess.Process | None = None
        self.port = 0
        self.kills = 0

    async def start(self) -> None:
        self._process = await started("tests.events.inbox_process", *self._arguments)
        [port] = await first_lines(self._process, 1)
        self.port = int(port)

    async def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        await self._process.wait()
        self.kills += 1


async def deliver(
    requests: Iterator[bytes], chosen: Callable[[], Receiving], answers: Counter[int]
) -> None:
    """Send each request over a kept connection until it is answered 2xx, as the service does."""
    reader: asyncio.StreamReader | None = None
    writer: asyncio.StreamWriter | None = None
    for request in requests:
        while True:
            try:
                if writer is None or reader is None:
                    reader, writer = await asyncio.open_connection(
                        "127.0.0.1", chosen().port
                    )
                writer.write(request)
                head = await reader.readuntil(b"\r\n\r\n")
                await reader.readexactly(
                    int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
                )
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


def requests_of(
    chance: random.Random, *, events: int, deliveries: int
) -> Iterator[bytes]:
    """Return deliveries of so many events, with duplicates, in random order."""
    numbers = list(range(events)) + [
        chance.randrange(events) for _ in range(deliveries - events)
    ]
    chance.shuffle(numbers)
    for number in numbers:
        body = encoded(v2("invoice.created", number=number))
        head = "".join(
            f"{name}: {value}\r\n"
            for name, value in headers_of(body, shared=True).items()
        )
        yield b"POST /in HTTP/1.1\r\n" + head.encode() + b"\r\n" + body


async def deliver_all(
    requests: Iterator[bytes],
    receiving: list[Receiving],
    kills: int,
    chance: random.Random,
) -> Counter[int]:
    """Deliver while processes are killed at random moments and started anew, each time another."""
    answers: Counter[int] = Counter()
    turns = itertools.cycle(receiving)
    await asyncio.gather(*(one.start() for one in receiving))
    senders = asyncio.gather(
        *(deliver(requests, lambda: next(turns), answers) for _ in range(24))
    )
    for _, victim in zip(range(kills), itertools.cycle(receiving), strict=False):
        await asyncio.sleep(chance.uniform(0.2, 0.6))
        await victim.kill()
        await victim.start()
    await senders
    return answers


async def kept_in(store: str) -> list[tuple[str, str]]:
    """Return keys and states of the events, as they are in the tables."""
    if not store.startswith("postgresql"):
        with closing(sqlite3.connect(store)) as db:
            return db.execute("SELECT key, state FROM delivery").fetchall()
    async with connected(store) as connection:
        return [
            tuple(row)
            for row in await connection.fetch("SELECT key, state FROM invsvc_delivery")
        ]


@pytest.mark.parametrize(
    ("place", "processes", "kills"),
    [("SQLite", 1, 6), ("PostgreSQL", 2, 4)],
    indirect=["place"],
)
async def test_inbox_that_is_killed(
    tmp_path: Path, place: str, processes: int, kills: int
) -> None:
    """
    10,000 deliveries, duplicated and reordered, over kills: every event is on record as handled, once.

    Two processes receive and work at once, each killed in its turn.  Only what was in hand at a kill may have
    run again.
    """
    chance, log = random.Random(processes), tmp_path / "log"
    receiving = [Receiving(place, log) for _ in range(processes)]
    whole = sorted((f"dlv_{number}", "handled") for number in range(EVENTS))

    async def all_handled() -> bool:
        return sorted(await kept_in(place)) == whole

    requests = requests_of(chance, events=EVENTS, deliveries=10_000)
    answers = await deliver_all(requests, receiving, kills, chance)
    await until(all_handled, every=0.1)
    for one in receiving:
        await one.kill()

    ended = Counter(log.read_text().split())
    assert answers[200] == 10_000
    assert answers[0] > 0, "no kill was felt"
    assert sorted((key, "handled") for key in ended) == whole
    assert ended.total() - EVENTS <= sum(one.kills for one in receiving) * IN_FLIGHT
