"""Leases while a handler blocks the event loop, of which others wait for their turn."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from invsvc_async import events
from tests.events.bodies import SHARED, encoded, v2
from tests.events.receiving.test_handlers import Plain
from tests.events.receiving.test_receiver import until_none_is_open
from tests.support.virtual_time import VirtualTimeLoop

pytestmark = pytest.mark.one_python

POLICY = events.InboxPolicy(timeout=4.0, initial=0.01, maximum=0.01)  # so that a lease is of 9 s


class Handler:
    """It takes 3.5 s, and blocks the event loop before that when it is called first."""

    def __init__(self, blocked: float) -> None:
        self.blocked = blocked
        self.running: Counter[str | None] = Counter()
        self.most = 0
        self.handled: Counter[str | None] = Counter()

    async def __call__(self, event: events.Event) -> None:
        """Handle an event."""
        loop, key = asyncio.get_running_loop(), event.dedupe_key
        assert isinstance(loop, VirtualTimeLoop)
        self.running[key] += 1
        self.most = max(self.most, self.running[key])
        try:
            loop._now += self.blocked  # as time.sleep would
            self.blocked = 0.0
            await asyncio.sleep(3.5)
            self.handled[key] += 1
        finally:
            self.running[key] -= 1


async def run(handler: Handler, *, is_plain: bool) -> None:
    """Handle three events in two receivers with one store."""
    memory = events.MemoryStore(steady=asyncio.get_running_loop().time)
    store: Any = Plain(memory) if is_plain else memory
    for number in (1, 2, 3):
        body = encoded(v2("invoice.created", number=number))
        await memory.put(events.Delivery(key=f"dlv_{number}", type="invoice.created", body=body))
    header = events.SharedHeader(*SHARED)
    one, two = (
        events.Receiver(secrets=(), shared_header=header, mode="inbox", store=store, inbox=POLICY)
        for _ in range(2)
    )
    for receiver in (one, two):
        receiver.on("invoice.created")(handler)
    async with one, two:
        await until_none_is_open(memory, every=0.5, within=300)


@pytest.mark.parametrize("blocked", [0.0, 20.0])
@pytest.mark.parametrize("is_plain", [False, True])
def test_store_that_is_slow(blocked: float, is_plain: bool) -> None:
    """Its time is not the handler's; but what blocks the loop until it answers counts, as leases go on."""

    class Store(events.MemoryStore):
        async def take(self, **arguments: Any) -> list[events.Entry]:
            await asyncio.sleep(4.8)
            entries = await super().take(**arguments)
            if entries and self.blocked:
                loop._now += self.blocked
                self.blocked = 0.0
                await asyncio.sleep(0.001)
            return entries

    async def receive() -> tuple[int, list[int]]:
        store = Store(steady=loop.time)
        store.blocked = blocked  # type: ignore[attr-defined]
        policy = events.InboxPolicy(timeout=1.0)
        header = events.SharedHeader(*SHARED)
        receiver = events.Receiver(
            secrets=(), shared_header=header, mode="inbox", store=store if not is_plain else Plain(store),
            inbox=policy,
        )  # fmt: skip
        attempts: list[int] = []

        @receiver.middleware
        async def look(handling: events.Handling, _proceed: Any) -> None:
            attempts.append(handling.attempt)

        receiver.on("invoice.created", name="h")(handler)
        body = encoded(v2("invoice.created"))
        name = "" if is_plain else "h"
        await store.put(events.Delivery(key="dlv_1", type="invoice.created", body=body, handler=name))
        async with receiver:
            await until_none_is_open(store, every=0.5, within=300)
        return (await store.stats())["handled"].count, attempts

    handler = Handler(0.0)
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, VirtualTimeLoop)
        assert runner.run(receive()) == (1, [2 if blocked else 1])


def test_inline_event_whose_handler_would_begin_late() -> None:
    """It is not called once the deadline is over: the lease may be over, too, and the event another's."""

    class Store(events.MemoryStore):
        async def claim(self, delivery: events.Delivery, *, lease: float) -> events.Entry | events.Standing:
            claimed = await super().claim(delivery, lease=lease)
            loop._now += 20.0  # as if another handler had blocked the loop meanwhile
            return claimed

    async def receive() -> events.Receipt:
        header = events.SharedHeader(*SHARED)
        receiver = events.Receiver(secrets=(), shared_header=header, store=Store(steady=loop.time))
        receiver.on("invoice.created")(handler)
        return await receiver.receive(encoded(v2("invoice.created")), dict([SHARED]))

    handler = Handler(0.0)
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, VirtualTimeLoop)
        assert runner.run(receive()).outcome == "failed"

    assert handler.most == 0


@pytest.mark.parametrize("is_plain", [False, True])
@pytest.mark.parametrize("blocked", [1.0, 6.0, 10.0])
def test_events_that_wait_while_a_handler_blocks(blocked: float, is_plain: bool) -> None:
    """Each is handled once, and by one receiver at a time, although its lease began before the block."""
    handler = Handler(blocked)
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(run(handler, is_plain=is_plain))

    assert handler.handled == {"dlv_1": 1, "dlv_2": 1, "dlv_3": 1}
    assert handler.most == 1
