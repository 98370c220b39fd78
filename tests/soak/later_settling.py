"""
What programs do with writes that were cancelled or killed: settle, resume and recover them, here or elsewhere.
"""

from __future__ import annotations

import asyncio
import traceback
from typing import TYPE_CHECKING, Any

import attrs

from invsvc_async import Intent, Outcome, Verdict
from tests.soak.program import KilledError

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable

    from tests.soak.program import Program
    from tests.soak.records import Run, Sibling
    from tests.soak.rivals import Surroundings
    from tests.soak.world import World
    from tests.support.virtual_time import JumpingLoop

__all__ = ["TakingUp"]


@attrs.define(eq=False)
class TakingUp:
    """The writes of a soak, and all that brings one to a verdict that its own await did not give."""

    world: World
    loop: JumpingLoop
    chance: random.Random
    around: Surroundings
    main: Program
    other: Program  # on another machine
    by_key: dict[str, Sibling]
    # runs of the main client, by thing
    active: dict[str, int] = attrs.field(factory=dict)
    # things that are another client's for now
    handed: dict[str, asyncio.Event] = attrs.field(factory=dict)
    raised: list[str] = attrs.field(factory=list)  # by recoveries, with tracebacks

    async def heard_of(
        self,
        sibling: Sibling,
        run: Run,
        program: Program,
        begin: Callable[[], Awaitable[Outcome[Any]]],
    ) -> None:
        """Await the outcome that *begin* leads to; what it raises is a fault, unless its process is dead."""
        try:
            outcome = await begin()
        except Exception as error:
            if run.client != program.name:
                raise KilledError from error
            sibling.raised.append("".join(traceback.format_exception(error)))
        else:
            sibling.hear(outcome, run, self.loop.time(), program.ahead)

    def finish(self, sibling: Sibling) -> None:
        """Note that nobody takes the write up any more."""
        last = sibling.heard[-1] if sibling.heard else None
        is_open = (
            last is not None
            and last.verdict is Verdict.UNKNOWN
            and bool(self.world.kills_every)
        )
        sibling.over = not is_open  # what is open in the journal is recovered again
        creates = sibling.operation == "webhooks.create"
        if (
            creates
            and last is not None
            and last.verdict is Verdict.APPLIED
            and last.value_id
        ):
            self.around.made.append(last.value_id)
        self.around.tidy()

    async def take_up(self, sibling: Sibling) -> None:
        """Bring a cancelled write to a verdict, in one of the ways that programs have."""
        intent = self.main.unsettled.pop(sibling.key, None)
        if intent is None:  # its process was killed meanwhile
            return
        bare = Intent.from_json(intent.to_json())
        sibling.holder = self.main.name
        try:
            await self._in_some_way(sibling, intent, bare)
            await self._once_more(sibling, bare)
        except KilledError:
            return
        self.finish(sibling)

    async def _in_some_way(
        self, sibling: Sibling, intent: Intent, bare: Intent
    ) -> None:
        way = self.chance.random()
        if way < 0.25:
            await self._settle(sibling, intent, self.main)
        elif way < 0.45:
            await self._settle(sibling, bare, self.other)
            if self.world.kills_every:  # its journal still has it
                await self._settle(sibling, intent, self.main)
        elif way < 0.55:
            here, elsewhere = (
                self._settle(sibling, intent, self.main),
                self._settle(sibling, bare, self.other),
            )
            await asyncio.gather(here, elsewhere)
        elif (
            way < 0.80 or self.world.kills_every
        ):  # the owner of its journal alone sends it
            await self._resume(sibling, intent, self.main)
        elif way < 0.85:
            twice = (
                self._resume(sibling, intent, self.main),
                self._resume(sibling, bare, self.main),
            )
            await asyncio.gather(*twice)
        else:
            await self._hand_over(sibling, bare)

    async def _once_more(self, sibling: Sibling, bare: Intent) -> None:
        """Send it now if it was not applied, or look again if nobody knows; not always."""
        last = sibling.heard[-1] if sibling.heard else None
        if last is None:
            return
        if last.verdict is Verdict.NOT_APPLIED and last.run.client == self.main.name:
            if self.chance.random() < 0.3:
                await self._resume(sibling, bare, self.main)
        elif last.verdict is Verdict.UNKNOWN and self.chance.random() < 0.1:
            await asyncio.sleep(30.0)
            await self._settle(sibling, bare, self.other)

    async def _alive(self, sibling: Sibling, program: Program) -> None:
        """Wait until *program* runs; what the process that held the intent would have done dies with it."""
        await program.alive.wait()
        if program is self.main and sibling.holder != program.name:
            raise KilledError

    async def _settle(self, sibling: Sibling, intent: Intent, program: Program) -> None:
        await self._alive(sibling, program)
        run = sibling.begin("settle", program.name, self.loop.time())
        client = program.client
        await program.call(
            lambda: self.heard_of(sibling, run, program, lambda: client.settle(intent))
        )

    async def _resume(
        self,
        sibling: Sibling,
        intent: Intent,
        program: Program,
        *,
        beside: bool = False,
    ) -> None:
        await self._alive(sibling, program)
        run = sibling.begin("resume", program.name, self.loop.time(), beside=beside)
        client = program.client
        await program.call(
            lambda: self.heard_of(
                sibling, run, program, lambda: client.resume(intent).outcome()
            )
        )

    async def _hand_over(self, sibling: Sibling, bare: Intent) -> None:
        """Resume elsewhere; this client leaves the thing alone meanwhile, unless the world has it otherwise."""
        thing = sibling.thing
        # An update of a webhook has no time: nobody can tell a state that was left from one that came back.
        if (
            sibling.operation != "webhooks.update"
            and self.chance.random() < self.world.beside
        ):
            await self._resume(sibling, bare, self.other, beside=True)
            return
        while (event := self.handed.get(thing)) is not None:
            await event.wait()
        event = self.handed[thing] = asyncio.Event()
        try:
            while self.active.get(thing):  # noqa: ASYNC110 - what runs now ends soon, in virtual time
                await asyncio.sleep(1.0)
            await self._resume(sibling, bare, self.other)
        finally:
            del self.handed[thing]
            event.set()

    async def recover(self) -> None:
        """Hear of all that the process before has left; a kill of this one leaves it to the next."""
        main, name, began = self.main, self.main.name, self.loop.time()

        async def recovered() -> None:
            for outcome in await main.client.recover():
                sibling = self.by_key[outcome.started_as.key]
                run = sibling.begin("recover", name, began)
                sibling.hear(outcome, run, self.loop.time(), main.ahead)
                self.finish(sibling)

        try:
            await main.call(recovered)
        except KilledError:
            pass
        except Exception as error:  # noqa: BLE001 - whatever it is, it is a fault
            if name == main.name:
                self.raised.append("".join(traceback.format_exception(error)))
