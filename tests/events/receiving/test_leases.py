"""Leases while a handler blocks the event loop, of which others wait for their turn."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from invsvc_async import events
from tests.events.bodies import encoded, v2
from tests.events.receiving.test_handlers import Plain, deliver, receiver_of
from tests.events.receiving.test_receiver import until_none_is_open
from tests.support.virtual_time import VirtualTimeLoop

if TYPE_CHECKING:
    from collections.abc import Sequence

pytestmark = [pytest.mark.one_python, pytest.mark.loop_time]

# so that a lease is of 9 s
POLICY = events.InboxPolicy(timeout=4.0, initial=0.01, maximum=0.01)


def block(seconds: float) -> None:
    """Block the event loop, as ``time.sleep`` would."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    loop.clockwork.now += seconds


def memory(kind: type[events.MemoryStore] = events.MemoryStore) -> events.MemoryStore:
    """Return a store whose leases are timed by the event loop."""
    return kind(steady=asyncio.get_running_loop().time)


def stored(number: int = 1, handler: str = "") -> events.Delivery:
    body = encoded(v2("invoice.created", number=number))
    return events.Delivery(
        key=f"dlv_{number}", type="invoice.created", body=body, handler=handler
    )


class Handler:
    """It takes 3.5 s, and blocks the event loop before that when it is called first."""

    def __init__(self, blocked: float = 0.0) -> None:
        self.blocked = blocked
        self.running: Counter[str | None] = Counter()
        self.most = 0
        self.handled: Counter[str | None] = Counter()

    async def __call__(self, event: events.Event) -> None:
        """Handle an event."""
        key = event.dedupe_key
        self.running[key] += 1
        self.most = max(self.most, self.running[key])
        try:
            block(self.blocked)
            self.blocked = 0.0
            await asyncio.sleep(3.5)
            self.handled[key] += 1
        finally:
            self.running[key] -= 1


@pytest.mark.parametrize("blocked", [0.0, 20.0])
@pytest.mark.parametrize("is_plain", [False, True])
async def test_store_that_is_slow(blocked: float, is_plain: bool) -> None:
    """Its time is not the handler's; but what blocks the loop until it answers counts, as leases go on."""
    blocks, attempts = [blocked] if blocked else [], list[int]()

    class Slow(events.MemoryStore):
        async def take(self, **arguments: Any) -> list[events.Entry]:
            await asyncio.sleep(4.8)
            entries = await super().take(**arguments)
            if entries and blocks:
                block(blocks.pop())
                await asyncio.sleep(0.001)
            return entries

    store = memory(Slow)
    policy = events.InboxPolicy(timeout=1.0)
    receiver = receiver_of(store=Plain(store) if is_plain else store, inbox=policy)

    @receiver.middleware
    async def look(handling: events.Handling, _proceed: Any) -> None:
        attempts.append(handling.attempt)

    receiver.on("invoice.created", name="h")(Handler())
    await store.put(stored(handler="" if is_plain else "h"))
    async with receiver:
        await until_none_is_open(store, every=0.5, within=300)

    assert attempts == [2 if blocked else 1]
    assert (await store.counts())["handled"] == 1


async def test_store_whose_answer_comes_after_the_lease() -> None:
    """The event is released, and handled once by one handler: a disk may take long to flush a commit."""
    stalls = [12.0]

    class Stalling(events.MemoryStore):
        async def take(self, **arguments: Any) -> list[events.Entry]:
            entries = await super().take(**arguments)
            if entries and stalls:
                await asyncio.sleep(stalls.pop())
            return entries

    store, handler = memory(Stalling), Handler()
    receiver = receiver_of(store=store, inbox=POLICY)
    receiver.on("invoice.created", name="h")(handler)
    await store.put(stored(handler="h"))
    async with receiver:
        await until_none_is_open(store, every=0.5, within=300)

    assert (handler.most, handler.handled) == (1, {"dlv_1": 1})
    assert not stalls


async def test_events_are_assigned_in_their_order() -> None:
    """The first one of an ordering key is handled first, however long the store takes for each."""
    pauses, seen = [3.0, 0.0], list[str | None]()

    class Uneven(events.MemoryStore):
        async def assign(
            self, entry: events.Entry, deliveries: Sequence[events.Delivery]
        ) -> bool:
            await asyncio.sleep(pauses.pop(0))
            return await super().assign(entry, deliveries)

    store = memory(Uneven)
    receiver = receiver_of(store=store, inbox=POLICY)

    @receiver.on("invoice.created", name="h", key=lambda _: "one")
    async def note(event: events.Event) -> None:
        seen.append(event.dedupe_key)

    for number in (1, 2):
        await store.put(stored(number))
    async with receiver:
        await until_none_is_open(store, every=0.5, within=300)

    assert seen == ["dlv_1", "dlv_2"]


async def test_inline_event_whose_handler_would_begin_late() -> None:
    """It is not called once the deadline is over: the lease may be over, too, and the event another's."""

    class Blocked(events.MemoryStore):
        async def claim(
            self, delivery: events.Delivery, *, lease: float
        ) -> events.Entry | events.Standing:
            claimed = await super().claim(delivery, lease=lease)
            block(20.0)  # as another handler may meanwhile
            return claimed

    receiver, handler = receiver_of("inline", store=memory(Blocked)), Handler()
    receiver.on("invoice.created")(handler)

    assert (await deliver(receiver, v2("invoice.created"))).outcome == "failed"
    assert handler.most == 0


@pytest.mark.parametrize("is_plain", [False, True])
@pytest.mark.parametrize("blocked", [1.0, 6.0, 10.0])
async def test_events_that_wait_while_a_handler_blocks(
    blocked: float, is_plain: bool
) -> None:
    """Each is handled once, and by one receiver at a time, although its lease began before the block."""
    handler, store = Handler(blocked), memory()
    for number in (1, 2, 3):
        await store.put(stored(number))
    one, two = (
        receiver_of(store=Plain(store) if is_plain else store, inbox=POLICY)
        for _ in range(2)
    )
    for receiver in (one, two):
        receiver.on("invoice.created")(handler)
    async with one, two:
        await until_none_is_open(store, every=0.5, within=300)

    assert handler.handled == {"dlv_1": 1, "dlv_2": 1, "dlv_3": 1}
    assert handler.most == 1
