"""
Measure what a key costs: an awaited write under a key against one without, with the same journal.

The cost is the CPU time of the client's process; the service runs in another.

    python -m benchmarks.bench_key [rounds]
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.harness import at_once, ratio_of
from benchmarks.service import service
from invsvc_async import ApiKey, Client

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.harness import Ratio, Samples
    from invsvc_async import Write

_HOOKS = 64  # that are changed in turn: changes of one webhook wait for each other


async def _measure(place: str, address: str, rounds: int) -> None:
    with service() as base:
        async with _client(base, f"{address}_creates") as client:
            await _compare((place, "create"), _creates(client), rounds)
        async with _client(base, f"{address}_updates") as client:
            hooks = [
                await client.webhooks.get(f"wh_{number}")
                for number in range(1, _HOOKS + 1)
            ]

            def update(number: int) -> Write[object]:
                return client.webhooks.update(
                    hooks[number % _HOOKS], description="changed"
                )

            await _compare((place, "update"), update, rounds)


async def ratio_of_creates(address: str, rounds: int) -> Ratio:
    """Return what 50 keyed creates at once cost, of the same without keys, in the journal at *address*."""
    with service() as base:
        async with _client(base, address) as client:
            found = await _costs(_creates(client), rounds, together=50)
    return ratio_of(found, "keyed", "plain")


@contextmanager
def journals(name: str) -> Iterator[dict[str, str]]:
    """Yield the addresses of a journal of each kind."""
    from tests.support.database import database

    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder) / "journal.db")
        yield {"SQLite": file, "PostgreSQL": database().at(journal=name)}


def _client(base: str, journal: str) -> Client:
    return Client(
        base, ApiKey("key"), journal=journal, on_secret=lambda _key, _hook: None
    )


def _creates(client: Client) -> Callable[[int], Write[object]]:
    def create(number: int) -> Write[object]:
        url = f"https://me.example/{number}"
        return client.webhooks.create(url=url, events=["invoice.created"], tag=True)

    return create


async def _compare(
    what: tuple[str, str], write: Callable[[int], Write[object]], rounds: int
) -> None:
    """Print a row of many writes at once, and one of single ones."""
    for together in (50, 1):
        found = await _costs(write, rounds, together=together)
        ratio = ratio_of(found, "keyed", "plain")
        costs = [f"{statistics.median(found[way]) * 1e6:,.0f} µs" for way in found]
        bounds = f"{ratio.median:.2f} ({ratio.low:.2f} to {ratio.high:.2f})"
        print(*what, f"{together}", *costs, bounds, sep="  ", flush=True)


async def _costs(
    write: Callable[[int], Write[object]], rounds: int, *, together: int
) -> Samples:
    """Return the CPU seconds of a write, of each round, by how it is done."""
    numbers = count()

    async def plain() -> None:
        await write(next(numbers)).outcome()

    async def keyed() -> None:
        number = next(numbers)
        await write(number).keyed(f"key {number}").outcome()

    async def replayed() -> None:
        await write(0).keyed("replayed", match="operation").outcome()

    ways = {"plain": plain, "keyed": keyed, "replayed": replayed}
    return await at_once(ways, rounds=rounds, calls=200, together=together)


def main(rounds: int = 30) -> None:
    print(
        "journal",
        "write",
        "at once",
        "without a key",
        "with a key",
        "replay",
        "ratio",
        sep="  ",
    )
    with journals("keys") as addresses:
        for place, address in addresses.items():
            asyncio.run(_measure(place, address, rounds))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
