"""
One seed of the soak: many tasks that write few things through one client, in a world of faults.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from invsvc_async import InvsvcError, Verdict
from invsvc_async.simulator import Simulator
from invsvc_async.simulator.state import ServiceClock
from tests.soak.judge import Truth
from tests.soak.later_settling import TakingUp
from tests.soak.program import KilledError, Program, in_virtual_time
from tests.soak.records import Flights, Heard, Sibling
from tests.soak.rivals import Surroundings
from tests.soak.work import draw
from tests.soak.world import HOOKS, JOURNEYS, Weather
from tests.support.certificates import made_certificate, server_context
from tests.support.naming import named
from tests.support.virtual_time import TURN

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from tests.soak.records import Run
    from tests.soak.work import Drawn
    from tests.soak.world import World
    from tests.support.virtual_time import JumpingLoop

__all__ = ["Soaked", "soak"]

LOOKS = 0.03  # how often a program reads a thing before it writes it


@attrs.frozen(kw_only=True)
class Soaked:
    """What a soak leaves for its judge."""

    siblings: list[Sibling]
    truth: Truth
    requests: int
    most_hooks: int
    kills: int
    raised: list[str]
    seconds: float  # of virtual time


@attrs.define(eq=False)
class Soak(TakingUp):
    """A run of one seed, until *left* writes have been done."""

    left: int = attrs.field(kw_only=True)
    siblings: list[Sibling] = attrs.field(factory=list)
    # in order: a seed must repeat
    cancellable: dict[asyncio.Task[None], None] = attrs.field(factory=dict)
    background: set[asyncio.Task[None]] = attrs.field(factory=set)
    sequences: int = 0
    kills: int = 0

    async def run(self) -> None:
        """Do all writes, and bring each to a verdict."""
        acts = [self.loop.create_task(act) for act in self._acts()]
        async with asyncio.TaskGroup() as group:
            for _ in range(self.world.at_once):
                group.create_task(self._work())
        while self.background:
            await asyncio.wait(self.background)
        for task in acts:
            task.cancel()
        for ended in await asyncio.gather(*acts, return_exceptions=True):
            if not isinstance(ended, asyncio.CancelledError):
                raise RuntimeError(  # noqa: TRY004 - no argument
                    "what goes on around the writes has ended"
                ) from ended
        if self.world.kills_every:
            await self._kill()  # what the last process left is recovered
        await self.around.service.settled()

    def _acts(self) -> list[Coroutine[Any, Any, None]]:
        # Any: a coroutine, or nothing
        async def now_and_then(act: Callable[[], Any], mean: float) -> None:
            while True:
                await asyncio.sleep(self.chance.expovariate(1 / mean))
                if (awaitable := act()) is not None:
                    await awaitable

        world = self.world
        every = (
            (self.around.rival, world.rival_every),
            (self.around.step, world.steps_every),
            (self._kill_soon, world.kills_every),
        )
        return [now_and_then(act, seconds) for act, seconds in every if seconds]

    # --- the writes

    async def _work(self) -> None:
        while self.left > 0:
            drawn = draw(
                self.chance,
                len(self.siblings),
                self.around.made,
                awkwardly=self.world.awkward,
            )
            self.left -= len(drawn)
            await self._sequence(drawn)

    async def _sequence(self, drawn: list[Drawn]) -> None:
        """Do the writes of a sequence, one after the other; some that were cancelled are taken up after it."""
        self.sequences += 1
        number, thing, later = self.sequences, drawn[0].thing, list[Sibling]()
        if drawn[-1].operation == "webhooks.delete":
            self.around.take(thing)
        self.around.in_use[thing] += 1
        for place, each in enumerate(drawn):
            if self.chance.random() < LOOKS:
                await self._look(each)
            sibling = Sibling(
                f"w{len(self.siblings)}",
                each.operation,
                thing,
                each.wanted,
                (number, place),
            )
            self.siblings.append(sibling)
            self.by_key[sibling.key] = sibling
            if not await self._one(sibling, each, more=place + 1 < len(drawn)):
                later.append(sibling)
        for sibling in later:
            await self.take_up(sibling)
        self.around.in_use[thing] -= 1

    async def _look(self, drawn: Drawn) -> None:
        """Read as programs do, whatever comes of it."""
        client = self.main.client
        reads: dict[str, Callable[[], Coroutine[Any, Any, Any]]] = {  # Any: models
            "journeys.update": lambda: client.journeys.get(drawn.thing),
            "webhooks.update": lambda: client.webhooks.get(drawn.thing),
        }
        with suppress(InvsvcError, KilledError):
            await self.main.call(reads.get(drawn.operation, client.webhooks.list))

    async def _one(self, sibling: Sibling, drawn: Drawn, *, more: bool) -> bool:
        """Do one write; returns whether it is done with: not if it is to be taken up after the sequence."""
        await self.main.alive.wait()
        while (event := self.handed.get(sibling.thing)) is not None:
            await event.wait()
        cancels = self.chance.random() < self.world.cancelled
        self.active[sibling.thing] = self.active.get(sibling.thing, 0) + 1
        try:
            was_cancelled = await self._live(sibling, drawn, cancels=cancels)
        except KilledError:  # what becomes of it is for its journal to tell
            self.left += not sibling.sent
            return True
        finally:
            self.active[sibling.thing] -= 1
        if not was_cancelled:
            self.finish(sibling)
            return True
        if more and self.chance.random() < 0.4:
            return False
        if self.chance.random() < 0.4:
            self._beside(self.take_up(sibling))
        else:
            await self.take_up(sibling)
        return True

    async def _live(self, sibling: Sibling, drawn: Drawn, *, cancels: bool) -> bool:
        """Await the write; returns whether it was cancelled, and may have been sent."""
        main = self.main
        await main.alive.wait()
        run = sibling.begin("live", main.name, self.loop.time())
        write = named(drawn.made_by(main.client), sibling.key)

        def heard() -> Coroutine[Any, Any, None]:
            return self.heard_of(sibling, run, main, write.outcome)

        try:
            if not cancels:
                await main.call(heard)
                return False
            return await self._cancelled(
                sibling, run, self.loop.create_task(main.call(heard))
            )
        finally:
            write.close()

    async def _cancelled(
        self, sibling: Sibling, run: Run, task: asyncio.Task[None]
    ) -> bool:
        """Cancel *task* at a random moment; returns whether the write may have been sent, and nobody heard of it."""
        self.cancellable[task] = None
        delay = self.chance.expovariate(
            1 / self.chance.choice((0.001, 0.02, 1.0, 10.0))
        )
        if self.chance.random() < 0.2:
            self.loop.call_later(delay, self._cancel, task)
        else:
            sibling.on_send = lambda: self.loop.call_later(delay, self._cancel, task)
        await asyncio.wait((task,))
        del self.cancellable[task]
        sibling.on_send = None
        if not task.cancelled():
            task.result()
            return False
        if sibling.heard:  # in the same moment
            return False
        run.ended = self.loop.time()
        if sibling.key in self.main.unsettled:
            return True
        # The client says by this that it never left.
        sibling.heard.append(Heard(Verdict.NOT_APPLIED, self.loop.time(), run))
        return False

    def _cancel(self, task: asyncio.Task[None]) -> None:
        """Cancel *task*; now and then all that are to be cancelled at once, as a group of tasks that fails does."""
        together = self.chance.random() < 0.1
        for each in [*self.cancellable] if together else [task]:
            each.cancel()

    def _beside(self, act: Coroutine[Any, Any, None]) -> None:
        task = self.loop.create_task(act)
        self.background.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self.background.discard(task)
        task.result()

    # --- kills

    async def _kill_soon(self) -> None:
        """Kill the client now, or some turns of the loop after one of its next decisions."""
        if self.chance.random() < 0.7:
            await self.main.next_decision(self.chance.choice(("send", "done")))
            await asyncio.sleep(self.chance.randrange(6) * TURN)
        await self._kill()

    async def _kill(self) -> None:
        self.kills += 1
        await self.main.kill()
        if self.left > 0 and self.chance.random() < 0.7:
            self._beside(self.recover())
        else:
            await self.recover()


async def soak(
    loop: JumpingLoop, world: World, *, seed: int, writes: int, tls: bool = False
) -> Soaked:
    """Do *writes* writes in *world*, perhaps over TLS; everything random is drawn from *seed*."""
    chance = random.Random(seed)
    begun = loop.time()
    clock = ServiceClock(
        offset=chance.uniform(-5, 5), wall=loop.wall, steady=loop.stamp
    )
    with (
        tempfile.TemporaryDirectory(prefix="siblings-") as folder,
        in_virtual_time(loop, chance),
    ):
        context = server_context(made_certificate(Path(folder))) if tls else None
        async with Simulator(
            seed=seed,
            faults=Weather(world),
            stores=world.stores,
            clock=clock,
            ssl=context,
        ) as service:
            initial = _seeded(service)
            flights = Flights(service.ledger.entries)
            loop.clockwork.in_flight, loop.clockwork.give_up = (
                flights.any,
                flights.give_up,
            )
            own = Path(folder) if world.kills_every else None
            main = Program("a", service, world, loop, flights, chance, folder=own)
            other = Program("b", service, world, loop, flights, chance)
            by_key: dict[str, Sibling] = {}
            around = Surroundings(service, loop, chance, by_key)
            run = Soak(world, loop, chance, around, main, other, by_key, left=writes)
            try:
                await run.run()
            finally:
                await main.aclose()
                await other.aclose()
            requests, ledger = service.arrivals(), service.ledger.entries
    return Soaked(
        siblings=run.siblings,
        truth=Truth(
            ledger, initial, run.siblings, lag=world.lag, echoes=world.stores.echoes
        ),
        requests=requests,
        most_hooks=around.most_hooks,
        kills=run.kills,
        raised=run.raised,
        seconds=loop.time() - begun,
    )


def _seeded(service: Simulator) -> dict[str, dict[str, Any]]:  # Any: JSON
    """Create the things that are never deleted, and return their states."""
    for known_as in JOURNEYS:
        service.seed_journey(id=known_as, status="draft")
    for known_as in HOOKS:
        service.seed_webhook(
            id=known_as, url=f"https://stable.example/{known_as}", description="start"
        )
    book = service.book()
    return {
        each: dict(shelf.items[each])
        for shelf, names in ((book.journeys, JOURNEYS), (book.webhooks, HOOKS))
        for each in names
    }
