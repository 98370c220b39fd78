"""
Measure what lost answers come to in services of many kinds: how often UNKNOWN, how many requests and seconds.

    python -m benchmarks.bench_doubt_worlds               all worlds
    python -m benchmarks.bench_doubt_worlds old           services that store letter by letter
    python -m benchmarks.bench_doubt_worlds new           services that store in their own way
    python -m benchmarks.bench_doubt_worlds compare A B   what B, an output of this, has more than A

The first answer to each write is lost, in a way that is drawn from a seed: after the effect, before it, or
half a second ahead of it.  *Twice* counts effects beyond the first of a create.  Times are those of a virtual
clock, with the default policy.
"""

from __future__ import annotations

import asyncio
import random
import re
import statistics
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs

from invsvc_async import ApiKey, Client, Verdict
from invsvc_async.reconcile.history import Attempt, Reading
from invsvc_async.simulator import Simulator, Stores
from invsvc_async.simulator.own_words import WAYS, WORDS
from tests.support import awkward
from tests.support.virtual_time import LoopClock, VirtualTimeLoop, service_clock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from invsvc_async import Write

WRITES: Final = 50  # of each operation in each world, at once; a list of 100 webhooks proves nothing
ROUNDS: Final = 4
LOSSES: Final = ("apply, then reset", "reset", "late 0.5, then reset")
EVENTS: Final = ["invoice.failed", "invoice.created"]
AGO: Final = 10.0  # s before the write, its thing was read: longer than reads may lag
LETTER_BY_LETTER: Final = Stores()
OPERATIONS: Final = (
    "webhooks.create",
    "webhooks.update",
    "journeys.update",
    "webhooks.delete",
)
HEAD: Final = (
    "world",
    "write",
    "writes",
    "unknown",
    "in s",
    "requests",
    "s, mean",
    "s, most",
    "twice",
    "verdicts",
)


@attrs.frozen(kw_only=True)
class World:
    """A service, and what goes on around the writes."""

    name: str
    stores: Stores = LETTER_BY_LETTER
    tagged: bool = False
    plain: bool = False  # values that no service would store in other words
    in_a_row: int = 1  # updates of one thing that are begun at once
    strangers: float = 0.0  # seconds between two acts of somebody else; 0: nobody acts
    on_host: str = "elsewhere.example"  # where somebody else creates webhooks
    at_our_urls: bool = False  # of which each has the URL of one of ours
    operations: tuple[str, ...] = OPERATIONS


OLD: Final = (
    World(name="alone", plain=True),
    World(name="alone, awkward values"),
    World(name="tagged creates", tagged=True, operations=("webhooks.create",)),
    World(
        name="three in a row",
        plain=True,
        in_a_row=3,
        operations=("webhooks.update", "journeys.update"),
    ),
    World(name="strangers", plain=True, strangers=1.0),
    World(
        name="strangers on the host",
        plain=True,
        strangers=2.0,
        on_host=awkward.HOST,
        operations=("webhooks.create",),
    ),
    World(
        name="strangers on the host, tagged",
        plain=True,
        strangers=2.0,
        on_host=awkward.HOST,
        tagged=True,
        operations=("webhooks.create",),
    ),
    World(
        name="strangers at our URLs, tagged",
        plain=True,
        strangers=2.0,
        on_host=awkward.HOST,
        at_our_urls=True,
        tagged=True,
        operations=("webhooks.create",),
    ),
)
_CHANGES: Final = ("webhooks.create", "webhooks.update", "journeys.update")


def _that_meet(word: str) -> tuple[str, ...]:
    """Return the operations whose values are stored in other words by this one."""
    kinds = set(WAYS[word])
    fields = {
        "webhooks.create": {"text", "url", "events", "status"},
        "webhooks.update": {"text", "events"},
        "journeys.update": {"text", "graph", "trigger"},
    }
    return tuple(operation for operation in _CHANGES if kinds & fields[operation])


NEW: Final = (
    *(
        World(name=word, stores=Stores(words=(word,)), operations=_that_meet(word))
        for word in WORDS
    ),
    World(name="all words", stores=Stores(words=WORDS), operations=_CHANGES),
    World(
        name="all words, tagged",
        stores=Stores(words=WORDS),
        tagged=True,
        operations=("webhooks.create",),
    ),
    World(
        name="half of the words",
        stores=Stores(words=WORDS, rate=0.5),
        operations=_CHANGES,
    ),
    World(
        name="in part",
        stores=Stores(partly=1.0),
        operations=("webhooks.update", "journeys.update"),
    ),
    World(
        name="one in ten in part",
        stores=Stores(partly=0.1),
        operations=("webhooks.update", "journeys.update"),
    ),
    World(
        name="answers echo",
        stores=Stores(words=WORDS, echoes=True),
        operations=_CHANGES,
    ),
    World(
        name="lists show ids twice",
        stores=Stores(twice=0.5),
        operations=("webhooks.create",),
    ),
    World(
        name="lists hide inactive",
        stores=Stores(hides_inactive=True),
        operations=("webhooks.create",),
    ),
    World(
        name="created_at zero",
        stores=Stores(created_at="zero"),
        operations=("webhooks.create",),
    ),
    World(
        name="created_at in seconds",
        stores=Stores(created_at="seconds"),
        operations=("webhooks.create",),
    ),
    World(
        name="created_at of the minute",
        stores=Stores(created_at="minute"),
        operations=("webhooks.create",),
    ),
    World(
        name="created_at of the day",
        stores=Stores(created_at="day"),
        operations=("webhooks.create",),
    ),
)


@attrs.frozen(kw_only=True)
class Doubt:
    """What one write with a lost answer took: requests, its own included, and seconds until the verdict."""

    verdict: Verdict
    requests: int
    seconds: float


class Scene:
    """The writes of one world."""

    def __init__(
        self,
        world: World,
        operation: str,
        seed: int,
        service: Simulator,
        client: Client,
    ) -> None:
        self.world = world
        self.operation = operation
        self.service = service
        self.client = client
        self.chance = random.Random(f"{world.name} {operation} {seed}")

    async def things(self) -> list[Any]:  # Any: of the operation
        """Return what the writes change, as a get shows it."""
        if self.operation == "webhooks.create":
            return [None] * WRITES
        if self.operation == "journeys.update":
            journeys = [self.service.seed_journey() for _ in range(WRITES)]
            return [
                await self.client.journeys.get(str(each["id"])) for each in journeys
            ]
        hooks = [
            self.service.seed_webhook(url=f"https://old.example/{at}")
            for at in range(WRITES)
        ]
        return [await self.client.webhooks.get(str(each["id"])) for each in hooks]

    def write(self, thing: Any, at: int) -> Write[Any]:  # Any: of the operation
        """Make write number *at*."""
        text = f"new {at}" if self.world.plain else awkward.text(at)
        if self.operation == "webhooks.create":
            url = (
                f"https://{awkward.HOST}/{at}" if self.world.plain else awkward.url(at)
            )
            write = self.client.webhooks.create(
                url=url,
                events=EVENTS,
                description=text,
                on_lost_secret="keep",
                status=self._status(at),
            )
            return write.tagged() if self.world.tagged else write
        if self.operation == "webhooks.update":
            return self.client.webhooks.update(thing, description=text, events=EVENTS)
        if self.operation == "webhooks.delete":
            return self.client.webhooks.delete(thing)
        if self.world.plain:
            return self.client.journeys.update(thing, name=text, description=text)
        return self.client.journeys.update(
            thing,
            name=text,
            description=text,
            trigger_type=awkward.trigger(at),
            graph=awkward.graph(at),
        )

    def _status(self, at: int) -> str:
        return "inactive" if self.world.stores.hides_inactive and at % 2 else "active"

    async def doubts(self) -> list[Doubt]:
        """Make all writes at once, and return what each took."""
        things = await self.things()
        await asyncio.sleep(AGO)
        self.service.script(
            self.operation, *(self.chance.choice(LOSSES) for _ in things)
        )
        writes = [
            self.write(thing, at + WRITES * place)
            for at, thing in enumerate(things)
            for place in range(self.world.in_a_row)
        ]
        strangers = asyncio.create_task(self._strangers(things))
        doubts = await asyncio.gather(*map(self._one, writes))
        strangers.cancel()
        return doubts

    async def _one(self, write: Write[Any]) -> Doubt:
        loop = asyncio.get_running_loop()
        started = loop.time()
        outcome = await write.outcome()
        requests = sum(
            isinstance(event, Attempt | Reading) for event in outcome.history
        )
        return Doubt(
            verdict=outcome.verdict, requests=requests, seconds=loop.time() - started
        )

    async def _strangers(self, things: list[Any]) -> None:  # Any: of the operation
        """Change some of the things, or create webhooks, as other programs do."""
        while self.world.strangers:
            await asyncio.sleep(self.chance.expovariate(1 / self.world.strangers))
            if self.operation == "journeys.update":
                self.service.change_journey(
                    self.chance.choice(things).id, name=self._word()
                )
            elif self.operation == "webhooks.update":
                self.service.change_webhook(
                    self.chance.choice(things).id, description=self._word()
                )
            else:
                self._foreign_create()

    def _word(self) -> str:
        return "".join(self.chance.choices("aeioulmnrst", k=12))

    def _foreign_create(self) -> None:
        path = self._word()
        if self.world.at_our_urls:
            path = str(self.chance.randrange(WRITES))
        url = f"https://{self.world.on_host}/{path}"
        self.service.seed_webhook(
            url=url, description=self._word(), created_at=self.service.clock.now_ms()
        )


async def doubts_of(world: World, operation: str, seed: int) -> tuple[list[Doubt], int]:
    """Return what each write of *operation* took in *world*, and how many webhooks were made twice."""
    async with (
        Simulator(seed=seed, clock=service_clock(), stores=world.stores) as service,
        Client(
            service.base_url,
            ApiKey(service.api_key),
            clock=LoopClock(),
            max_concurrency=200,
        ) as client,
    ):
        await client.webhooks.list(limit=1)
        doubts = await Scene(world, operation, seed, service, client).doubts()
        made = Counter(
            str(each.body["url"]) for each in service.ledger.effects("webhooks.create")
        )
        return doubts, sum(made.values()) - len(made)


@attrs.frozen
class Figures:
    """One row: a world and an operation, and what its writes took."""

    cells: tuple[str, ...]

    @classmethod
    def of(
        cls, world: World, operation: str, own: Sequence[Doubt], twice: int
    ) -> Figures:
        """Return the row of *operation* in *world*, of whose writes *own* tells."""
        unknown = [each.seconds for each in own if each.verdict is Verdict.UNKNOWN]
        counts = {
            verdict: sum(each.verdict is verdict for each in own) for verdict in Verdict
        }
        seconds = [each.seconds for each in own]
        return cls(
            (
                world.name,
                operation,
                str(len(own)),
                f"{len(unknown) / len(own):.1%}",
                f"{statistics.median(unknown):.1f}" if unknown else "",
                f"{statistics.fmean(each.requests for each in own):.2f}",
                f"{statistics.fmean(seconds):.2f}",
                f"{max(seconds):.1f}",
                str(twice),
                ", ".join(
                    f"{verdict} {count}" for verdict, count in counts.items() if count
                ),
            )
        )


WIDTHS: Final = (30, 17, 8, 9, 8, 10, 9, 9, 7)


def print_row(cells: Sequence[str]) -> None:
    """Print one row of columns; nothing is a dash."""
    filled = [cell or "-" for cell in cells]
    padded = [f"{cell:<{width}}" for cell, width in zip(filled, WIDTHS, strict=False)]
    print("  ".join([*padded, *filled[len(WIDTHS) :]]).rstrip(), flush=True)


def main(worlds: Sequence[World]) -> None:
    """Print a row for each world and operation."""
    print_row(HEAD)
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        for world in worlds:
            for operation in world.operations:
                rounds = [
                    runner.run(doubts_of(world, operation, seed))
                    for seed in range(ROUNDS)
                ]
                doubts = [each for found, _ in rounds for each in found]
                twice = sum(each for _, each in rounds)
                print_row(Figures.of(world, operation, doubts, twice).cells)


def compare(before: Path, after: Path) -> None:
    """Print what *after* has more than *before*: unknown, requests, seconds and effects."""
    old = rows_in(before.read_text())
    new = rows_in(after.read_text())
    heads = [
        word
        for name in ("unknown", "requests", "s, mean", "twice")
        for word in (name, "after")
    ]
    print_row(("world", "write", *heads))
    for key in old:
        if key not in new:
            continue
        pairs = [
            row[name]
            for name in ("unknown", "requests", "s, mean", "twice")
            for row in (old[key], new[key])
        ]
        print_row((*key, *pairs))


def rows_in(printed: str) -> dict[tuple[str, str], dict[str, str]]:
    """Return the rows that `main` printed, by world and operation."""
    lines = [re.split(r"\s{2,}", line.strip()) for line in printed.splitlines()]
    found = [
        dict(zip(HEAD, cells, strict=True))
        for cells in lines
        if len(cells) == len(HEAD)
    ]
    return {
        (row["world"], row["write"]): row for row in found if row["world"] != HEAD[0]
    }


if __name__ == "__main__":
    match sys.argv[1:]:
        case []:
            main((*OLD, *NEW))
        case ["old"]:
            main(OLD)
        case ["new"]:
            main(NEW)
        case ["compare", first, second]:
            compare(Path(first), Path(second))
        case _:
            sys.exit(__doc__)
