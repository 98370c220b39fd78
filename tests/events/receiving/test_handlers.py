"""Several handlers for one event: which get it, when, how often, and what happens if one fails."""

from __future__ import annotations

import asyncio
import functools
from typing import TYPE_CHECKING, Any

import pytest

from invsvc_async import events
from invsvc_async.errors import ConfigurationError, MalformedEventError
from invsvc_async.events.receiving.handlers import Pace
from invsvc_async.events.stores import open_store
from tests.events.bodies import (
    HEADER,
    SECRET,
    SHARED,
    SIGNED_TYPES,
    encoded,
    headers_of,
    signed_body,
    v1,
    v2,
)
from tests.events.receiving.test_receiver import FAST, eventually, until_none_is_open
from tests.support.waiting import forever

if TYPE_CHECKING:
    from collections.abc import Callable

    from invsvc_async.events.stores import Delivery, Entry, Standing

pytestmark = pytest.mark.one_python


def receiver_of(mode: Any = "inbox", **settings: Any) -> events.Receiver:
    settings = {"secrets": [SECRET], "shared_header": HEADER, "inbox": FAST} | settings
    settings.setdefault("store", events.MemoryStore())
    return events.Receiver(mode=mode, **settings)


async def deliver(
    receiver: events.Receiver, body: dict[str, Any], **headers: bool
) -> events.Receipt:
    raw = encoded(body)
    return await receiver.receive(raw, headers_of(raw, **(headers or {"shared": True})))


class Calls(list[tuple[str, str | None]]):
    """Names of handlers and keys of events, in the order of the calls, each of which may fail first."""

    def __init__(self, receiver: events.Receiver, **failures: int) -> None:
        super().__init__()
        self.receiver = receiver
        self.failures = failures

    def add(self, name: str, *types: Any, **settings: Any) -> None:
        """Register a handler that records its calls."""

        async def handle(event: events.Event) -> None:
            self.append((name, event.dedupe_key))
            await asyncio.sleep(0)
            if self.failures.get(name, 0) > 0:
                self.failures[name] -= 1
                raise RuntimeError(f"{name} fails")

        self.receiver.on(*(types or ("invoice.created",)), name=name, **settings)(
            handle
        )

    def of(self, name: str) -> list[str | None]:
        """Return the keys that one handler was called with."""
        return [key for called, key in self if called == name]


async def settled(receiver: events.Receiver, *, dead: int = 0) -> None:
    """Wait until nothing is open."""
    await until_none_is_open(receiver.store)
    await eventually(lambda: not receiver.stats().running)
    assert (await receiver.store.counts())["dead"] == dead


@pytest.mark.parametrize("mode", ["inline", "inbox"])
async def test_handlers_by_pattern_and_predicate(mode: str) -> None:
    """All handlers that match get the event; those of all other events only if none matches."""
    receiver = receiver_of(mode)
    calls = Calls(receiver)
    calls.add("type", "invoice.created", "payment.created")
    calls.add("family", "invoice.*")
    calls.add("large", "invoice.*", where=lambda event: event.data.total > 100)
    calls.add("nothing", "service.*", where=lambda _: False)
    calls.add("sat", "sat.*")
    calls.add("rest", "*")
    calls.add("rest_of_two", "*", where=lambda event: event.type != "robot.painted")

    async with receiver:
        for number, name in enumerate(
            [
                "invoice.created",
                "invoice.failed",
                "payment.created",
                "service.created",
                "robot.painted",
            ]
        ):
            assert (await deliver(receiver, v2(name, number=number))).status == 200
        large = v2(
            "invoice.failed", number=9, data={"object": {"uuid": "U-9", "total": 100.5}}
        )
        await deliver(receiver, large)
        await deliver(receiver, signed_body("sat.invoice.synced"), signed=True)
        await settled(receiver)

    assert sorted((key[-1] if key else "", name) for name, key in calls) == [
        ("0", "family"), ("0", "type"),
        ("1", "family"), ("1", "sat"),
        ("2", "type"),
        ("3", "rest"), ("3", "rest_of_two"),
        ("4", "rest"),
        ("9", "family"), ("9", "large"),
    ]  # fmt: skip


async def test_handler_that_fails_beside_another() -> None:
    """It is tried again alone, and its dead letter names it."""
    receiver = receiver_of()
    calls = Calls(receiver, broken=3, shaky=1)
    for name in ("steady", "broken", "shaky"):
        calls.add(name)

    async with receiver:
        await deliver(receiver, v2("invoice.created"))
        await settled(receiver, dead=1)

    assert {name: len(calls.of(name)) for name in ("steady", "broken", "shaky")} == {
        "steady": 1,
        "broken": 3,
        "shaky": 2,
    }
    (letter,) = await receiver.store.events(state="dead")
    assert (letter.handler, letter.reason, letter.attempts) == (
        "broken",
        "RuntimeError: broken fails",
        3,
    )


async def test_inline_handler_that_fails_beside_another() -> None:
    """The service sends the event again, and only the handler that failed gets it."""
    receiver = receiver_of("inline")
    calls = Calls(receiver, shaky=1)
    calls.add("steady")
    calls.add("shaky")
    body = v2("invoice.created")

    answers = [await deliver(receiver, body) for _ in range(3)]

    assert [(one.status, one.outcome) for one in answers] == [
        (500, "failed"), (200, "handled"), (200, "duplicate"),
    ]  # fmt: skip
    assert sorted(name for name, _ in calls) == ["shaky", "shaky", "steady"]


@pytest.mark.parametrize("name", SIGNED_TYPES)
async def test_inline_handler_that_fails_on_a_signed_event(name: str) -> None:
    """What is sent only once is tried again from the store, by the handler that failed."""
    receiver = receiver_of("inline")
    calls = Calls(receiver, shaky=2)
    calls.add("steady", "*")
    calls.add("shaky", "*")

    async with receiver:
        assert (await deliver(receiver, signed_body(name), signed=True)).status == 500
        await settled(receiver)

    assert (len(calls.of("steady")), len(calls.of("shaky"))) == (1, 3)


@pytest.mark.parametrize("name", SIGNED_TYPES)
async def test_inline_handler_that_ends_the_process(place: str, name: str) -> None:
    """What is sent only once is stored for each handler before any of them begins, as that may be its end."""
    store: Any = open_store(place)
    claim, claimed, may_claim = store.claim, asyncio.Event(), asyncio.Event()
    stored: list[list[str]] = []

    async def claimed_with_a_pause(
        delivery: Delivery, *, lease: float
    ) -> Entry | Standing:
        if delivery.handler == "second":
            await may_claim.wait()
        found: Entry | Standing = await claim(delivery, lease=lease)
        claimed.set()
        return found

    store.claim = claimed_with_a_pause
    receiver = receiver_of("inline", store=store)

    @receiver.on("*")
    async def first(_: events.Event) -> None:
        stored.append(sorted(one.handler for one in await store.events()))

    Calls(receiver).add("second", "*")
    receiving = asyncio.create_task(deliver(receiver, signed_body(name), signed=True))
    await claimed.wait()
    await asyncio.sleep(0.05)  # sleeps: in which handlers would begin
    may_claim.set()
    answer = await receiving
    await store.close()

    assert stored == [["first", "second"]]
    assert answer.outcome == "handled"


async def test_inline_handlers_of_which_one_is_busy() -> None:
    """A second copy is asked for later, and then finds both done."""
    receiver = receiver_of("inline")
    gate = asyncio.Event()
    calls = Calls(receiver)
    calls.add("quick")

    @receiver.on("invoice.created")
    async def wait(_: events.Event) -> None:
        await gate.wait()

    first = asyncio.create_task(deliver(receiver, v2("invoice.created")))
    await eventually(lambda: calls)
    second = await deliver(receiver, v2("invoice.created"))
    gate.set()

    assert ((await first).outcome, second.outcome) == ("handled", "busy")
    assert (second.status, second.headers["Retry-After"]) == (429, "5")
    assert (await deliver(receiver, v2("invoice.created"))).outcome == "duplicate"


async def test_inline_handlers_of_a_sender_that_went_away() -> None:
    """All are cancelled, and the event is accepted again."""
    receiver = receiver_of("inline")
    started, first = [], [True]

    async def hang(event: events.Event) -> None:
        started.append(event)
        if first:
            await forever()

    for name in ("one", "two"):
        receiver.on("invoice.created", name=name)(hang)
    task = asyncio.create_task(deliver(receiver, v2("invoice.created")))
    await eventually(lambda: len(started) == 2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    first.clear()
    await receiver._lifetime.inline.stop(grace=30)

    assert (await deliver(receiver, v2("invoice.created"))).outcome == "handled"
    assert len(started) == 4


@pytest.mark.parametrize("mode", ["inline", "inbox"])
async def test_deployment_of_a_new_handler(mode: str) -> None:
    """What the new process stored waits for it; the old one does not touch it, and repeats nothing."""
    store = events.MemoryStore()
    old, new = receiver_of(mode, store=store), receiver_of(mode, store=store)
    of_old, of_new = Calls(old), Calls(new)
    of_old.add("first")
    of_new.add("added")
    of_new.add("first")
    of_new.add("of_payments", "payment.created")

    async with old:
        if mode == "inline":
            await deliver(old, v2("invoice.created"))
            assert (await deliver(new, v2("invoice.created"))).outcome == "handled"
            assert (of_old.of("first"), of_new) == (["dlv_1"], [("added", "dlv_1")])
            return
        await deliver(new, v2("invoice.created"))
        await deliver(new, v2("payment.created", number=2))
        await eventually(lambda: of_old)
        await eventually(lambda: not old.stats().running)
        await asyncio.sleep(0.05)  # sleeps: in which it could take the others
        assert (await store.counts())["open"] == 2
    async with new:
        await settled(new)

    assert of_old == [("first", "dlv_1")]
    assert sorted(of_new) == [("added", "dlv_1"), ("of_payments", "dlv_2")]


async def test_handler_that_was_removed() -> None:
    """Its events wait, are listed with its name, and can be dropped; health says that they wait."""
    store = events.MemoryStore()
    before, after = receiver_of(store=store), receiver_of(store=store)
    Calls(before).add("removed")
    Calls(after).add("other")
    await deliver(before, v2("invoice.created"))

    async with after:
        await asyncio.sleep(0.05)  # sleeps: so that the event waits for longer
        assert not (await after.health(behind=0.01)).ok
        (event,) = await store.events(state="open")
        assert event.handler == "removed"
        assert await store.drop(event)
        assert (await after.health(behind=0.01)).ok


@pytest.mark.parametrize("mode", ["inline", "inbox"])
async def test_ids_that_look_like_those_of_copies(mode: str) -> None:
    """An id cannot be taken for that of another family, nor for a handler's copy of another event."""
    receiver = receiver_of(mode)
    calls = Calls(receiver)
    calls.add("one", "*")
    calls.add("two", "*")
    ids = (
        "x",
        "handler:two:x",
        "sat:x",
        "invoice_batch:x",
        "resource:x",
        "handler:one:x",
    )
    async with receiver:
        for _ in range(2):
            for key in reversed(ids):
                await deliver(receiver, v2("invoice.created", id=key))
            for name in SIGNED_TYPES:
                await deliver(receiver, signed_body(name, id="x"), signed=True)
        await settled(receiver)

    assert sorted(calls) == sorted(
        (name, key) for name in ("one", "two") for key in (*ids, "x", "x")
    )


async def test_predicate_that_fails() -> None:
    """It is a failed attempt of its handler, and of no other; no event is skipped."""
    receiver = receiver_of()
    calls = Calls(receiver)
    failing = [True, True]

    def where(_: events.Event) -> bool:
        if failing and failing.pop():
            raise ZeroDivisionError
        return True

    calls.add("shaky", where=where)
    calls.add("broken", where=lambda event: event.nothing)
    calls.add("steady")

    async with receiver:
        assert (await deliver(receiver, v2("invoice.created"))).outcome == "stored"
        await settled(receiver, dead=1)

    assert sorted(name for name, _ in calls) == ["shaky", "steady"]
    (letter,) = await receiver.store.events(state="dead")
    assert (letter.handler, letter.reason.split(":")[0]) == ("broken", "AttributeError")


@pytest.mark.parametrize("signed", [False, True])
async def test_inline_predicate_that_fails(signed: bool) -> None:
    """Its handler is not called with an event that may not be for it; the event is sent or tried again."""
    receiver = receiver_of("inline")
    calls = Calls(receiver)
    name = "sat.invoice.synced" if signed else "invoice.created"
    calls.add("broken", name, where=lambda event: event.nothing)
    calls.add("steady", name)
    body = signed_body(name) if signed else v2(name)

    async with receiver:
        for _ in range(2):
            answer = await deliver(receiver, body, signed=signed, shared=not signed)
            assert answer.outcome == "failed" or signed
        if signed:
            await settled(receiver, dead=1)

    assert [name for name, _ in calls] == ["steady"]


async def async_predicate(_: object) -> bool:
    return False


@pytest.mark.parametrize("mode", ["inline", "inbox"])
async def test_predicate_whose_result_must_be_awaited(mode: str) -> None:
    """It is a failed attempt of its handler: a coroutine, never awaited, would count as true."""
    receiver = receiver_of(mode)
    calls = Calls(receiver)
    calls.add("wrong", where=lambda event: async_predicate(event.type))
    calls.add("steady")

    async with receiver:
        await deliver(receiver, v2("invoice.created"))
        if mode == "inbox":
            await settled(receiver, dead=1)

    assert [name for name, _ in calls] == ["steady"]


class Ordered:
    """A receiver with a handler in the order of the invoice's uuid, and events of two invoices."""

    def __init__(self, **failures: int) -> None:
        self.receiver = receiver_of()
        self.calls = Calls(self.receiver, **failures)
        self.calls.add("in_order", key=lambda event: event.data.uuid)

    async def deliver(self, *numbers: int) -> None:
        for number in numbers:
            uuid = "even" if number % 2 == 0 else "odd"
            body = v2("invoice.created", number=number, data={"object": {"uuid": uuid}})
            assert (await deliver(self.receiver, body)).outcome == "stored"


async def test_handler_in_order() -> None:
    """Events of one invoice are handled one after the other as they came, also after a retry."""
    ordered = Ordered(in_order=2)
    running: list[str] = []

    @ordered.receiver.middleware
    async def watch(handling: events.Handling, proceed: Any) -> None:
        uuid = handling.event.data.uuid
        assert uuid not in running
        running.append(uuid)
        try:
            await proceed()
        finally:
            running.remove(uuid)

    async with ordered.receiver:
        await ordered.deliver(*range(12))
        await settled(ordered.receiver)

    for parity in (0, 1):
        keys = [
            key
            for key in ordered.calls.of("in_order")
            if int((key or "")[4:]) % 2 == parity
        ]
        assert list(dict.fromkeys(keys)) == [
            f"dlv_{number}" for number in range(parity, 12, 2)
        ]
        assert keys == sorted(keys, key=lambda key: int((key or "")[4:]))
    assert len(ordered.calls) == 14


async def test_handler_in_order_whose_event_dies() -> None:
    """The later events go on after a dead letter; once revived, it is handled like a new one."""
    ordered = Ordered(in_order=3)
    async with ordered.receiver:
        await ordered.deliver(0)
        await ordered.deliver(2, 4)
        await settled(ordered.receiver, dead=1)
        assert ordered.calls.of("in_order") == ["dlv_0"] * 3 + ["dlv_2", "dlv_4"]
        (letter,) = await ordered.receiver.store.events(state="dead")
        assert await ordered.receiver.store.revive(letter)
        await settled(ordered.receiver)

    assert ordered.calls.of("in_order")[-1] == "dlv_0"


async def test_handler_in_order_beside_another() -> None:
    """Only the handler that asks for it waits; events for which the key is None do not."""
    receiver = receiver_of()
    calls = Calls(receiver)
    gate = asyncio.Event()
    calls.add("any_order")

    @receiver.on(
        "invoice.created", key=lambda event: None if event.dedupe_key == "dlv_3" else 1
    )
    async def in_order(event: events.Event) -> None:
        calls.append(("in_order", event.dedupe_key))
        await gate.wait()

    async with receiver:
        for number in range(1, 4):
            await deliver(receiver, v2("invoice.created", number=number))
        await eventually(lambda: len(calls) == 5)
        assert sorted(calls.of("in_order")) == ["dlv_1", "dlv_3"]
        gate.set()
        await settled(receiver)

    assert sorted(calls.of("in_order")) == ["dlv_1", "dlv_2", "dlv_3"]


@pytest.mark.parametrize("value", [1.5, ["x"], object()])
async def test_key_that_is_not_one(value: object) -> None:
    """A function that returns something else makes a dead letter, and the event is not handled unordered."""
    receiver = receiver_of()
    calls = Calls(receiver)
    calls.add("in_order", key=lambda _: value)

    async with receiver:
        await deliver(receiver, v2("invoice.created"))
        await settled(receiver, dead=1)

    (letter,) = await receiver.store.events(state="dead")
    assert (calls, letter.reason.startswith("TypeError: key:"), letter.attempts) == (
        [],
        True,
        3,
    )


async def test_key_that_fails_at_first() -> None:
    """The event takes its place in the order once the key is known."""
    receiver = receiver_of()
    calls = Calls(receiver)
    failing = [True, True]
    calls.add("in_order", key=lambda _: 1 / 0 if failing and failing.pop() else "k")

    async with receiver:
        await deliver(receiver, v2("invoice.created"))
        await settled(receiver)

    assert calls == [("in_order", "dlv_1")]


@pytest.mark.parametrize("ordered", [True, False])
async def test_event_given_to_a_new_handler(ordered: bool) -> None:
    """Only the new handler is called, in order if it asks for that; what it is not for is done."""
    policy = events.InboxPolicy(initial=1e-6, maximum=1e-6, poll=0.01, keep_bodies=99.0)
    running: list[events.Handling] = []
    together: list[int] = []
    receiver = receiver_of(inbox=policy)
    calls = Calls(receiver)
    calls.add("old", "*")
    async with receiver:
        for number in range(4):
            await deliver(receiver, v2("invoice.created", number=number))
        await deliver(receiver, v2("payment.created", number=9))
        await settled(receiver)
        calls.clear()
        calls.add("new", "invoice.*", key=(lambda _: "k") if ordered else None)

        @receiver.middleware
        async def watch(handling: events.Handling, proceed: Any) -> None:
            together.append(len(running))
            running.append(handling)
            await asyncio.sleep(0.01)  # sleeps: in which another could begin
            await proceed()
            running.remove(handling)

        found = await receiver.store.events()
        assert [await receiver.store.give(event, "new") for event in found] == [
            True
        ] * 5  # type: ignore[attr-defined]
        await settled(receiver)

    assert sorted(calls) == [("new", f"dlv_{number}") for number in range(4)]
    assert (max(together) == 0) is ordered


async def test_handler_that_is_registered_while_events_come() -> None:
    """It gets the next event, also of a type that was seen before."""
    receiver = receiver_of("inline")
    calls = Calls(receiver)
    calls.add("first")
    await deliver(receiver, v2("invoice.created", number=1))
    calls.add("second")
    await deliver(receiver, v2("invoice.created", number=2))

    assert sorted(calls) == [
        ("first", "dlv_1"),
        ("first", "dlv_2"),
        ("second", "dlv_2"),
    ]


async def test_event_stored_for_no_handler() -> None:
    """An event that was stored for no handler is given to all that it is for."""
    receiver = receiver_of()
    calls = Calls(receiver, shaky=1)
    calls.add("shaky")
    calls.add("steady", key=lambda _: "k")
    raw = encoded(v2("invoice.created"))
    for key, body in (("a", raw), ("b", encoded(v2("payment.created")))):
        await receiver.store.put(events.Delivery(key=key, type="t", body=body))

    async with receiver:
        await settled(receiver)

    assert sorted(name for name, _ in calls) == ["shaky", "shaky", "steady"]
    assert await receiver.store.counts() == {"open": 0, "handled": 3, "dead": 0}


async def test_limits_of_one_handler() -> None:
    """Attempts, timeout and delays of a handler replace those of the policy; leases fit the timeouts."""
    leases: set[tuple[tuple[str, ...], float]] = set()

    class Watched(events.MemoryStore):
        async def take(
            self, *, handlers: Any = None, lease: float, **more: Any
        ) -> list[events.Entry]:
            leases.add((tuple(handlers), lease))
            return await super().take(handlers=handlers, lease=lease, **more)

    receiver = receiver_of(store=Watched())
    calls = Calls(receiver, once=9, usual=9)
    calls.add("once", attempts=1)
    calls.add("usual")
    tried: list[str] = []

    @receiver.on("invoice.created", timeout=0.01, attempts=2)
    async def hangs(_: events.Event) -> None:
        tried.append("hangs")
        await asyncio.Event().wait()

    async with receiver:
        await deliver(receiver, v2("invoice.created"))
        await settled(receiver, dead=3)

    assert (len(calls.of("once")), len(calls.of("usual")), len(tried)) == (1, 3, 2)
    assert leases == {(("", "once", "usual"), 65.0), (("hangs",), 5.01)}
    reasons = {
        letter.handler: letter.reason.split(":")[0]
        for letter in await receiver.store.events(state="dead")
    }
    assert reasons == {
        "once": "RuntimeError",
        "usual": "RuntimeError",
        "hangs": "TimeoutError",
    }


async def test_inline_timeout_of_one_handler() -> None:
    """It ends before the deadline, and the service sends the event again."""
    receiver = receiver_of("inline")

    @receiver.on("invoice.created", timeout=0.01)
    async def hangs(_: events.Event) -> None:
        await asyncio.Event().wait()

    far = asyncio.get_running_loop().time() + 3600
    receipt = await receiver.receive(
        encoded(v2("invoice.created")), dict([SHARED]), until=far
    )

    assert receipt.outcome == "failed"


async def test_handlers_with_limits_of_their_own_take_turns() -> None:
    """A backlog of one handler does not keep those with another timeout waiting until it is done."""
    receiver = receiver_of(inbox=events.InboxPolicy(poll=0.01, concurrency=1))
    calls = Calls(receiver)
    calls.add("usual")
    calls.add("longer", timeout=90.0)
    for number in range(10):
        await deliver(receiver, v2("invoice.created", number=number))

    async with receiver:
        await settled(receiver)

    assert {name for name, _ in calls[:6]} == {"usual", "longer"}


async def test_handlers_that_never_return_do_not_hold_others_up() -> None:
    """With less concurrency than such handlers, their timeouts let others have their turn."""
    policy = events.InboxPolicy(timeout=0.02, attempts=1, poll=0.01, concurrency=2)
    receiver = receiver_of(inbox=policy)
    calls = Calls(receiver)

    @receiver.on("invoice.created")
    async def hangs(_: events.Event) -> None:
        await asyncio.Event().wait()

    calls.add("quick")
    async with receiver:
        for number in range(6):
            await deliver(receiver, v2("invoice.created", number=number))
        await settled(receiver, dead=6)

    assert len(calls) == 6


async def test_handler_that_ignores_its_end(monkeypatch) -> None:
    """Health tells of a handler that catches its cancellation; the receiver stops all the same."""
    monkeypatch.setattr("invsvc_async.events.receiving.worker._MARGIN", 0.5)
    receiver = receiver_of(deadline=0.05)
    gate = asyncio.Event()

    @receiver.on("invoice.created", timeout=0.01, attempts=1)
    async def stubborn(_: events.Event) -> None:
        while not gate.is_set():
            try:
                await gate.wait()
            except asyncio.CancelledError:
                continue

    async with receiver:
        await deliver(receiver, v2("invoice.created"))

        async def is_told() -> bool:
            problems = (await receiver.health()).problems
            return "handlers that did not end at their timeout: 1" in problems

        await eventually(is_told)
    gate.set()


@pytest.mark.parametrize("mode", ["inline", "inbox"])
async def test_middleware(mode: str) -> None:
    """It is around each call, sees event, handler and attempt, and what the handler raised."""
    receiver = receiver_of(mode)
    calls = Calls(receiver, shaky=1)
    calls.add("shaky", "*")
    seen: list[tuple[str, str, int, str]] = []

    @receiver.middleware
    async def outer(handling: events.Handling, proceed: Any) -> None:
        seen.append(("outer", handling.handler, handling.attempt, handling.event.type))
        await proceed()

    @receiver.middleware
    async def inner(handling: events.Handling, proceed: Any) -> None:
        assert seen[-1][0] == "outer"
        try:
            await proceed()
        except RuntimeError as error:
            seen.append(
                (
                    f"inner {error}",
                    handling.handler,
                    handling.attempt,
                    handling.event.type,
                )
            )
            raise

    async with receiver:
        await deliver(receiver, signed_body("sat.invoice.synced"), signed=True)
        await settled(receiver)

    kind = "sat.invoice.synced"
    assert seen == [
        ("outer", "shaky", 1, kind), ("inner shaky fails", "shaky", 1, kind), ("outer", "shaky", 2, kind),
    ]  # fmt: skip


async def test_middleware_that_does_not_proceed() -> None:
    """The handler is not called, and the event counts as handled."""
    receiver = receiver_of()
    calls = Calls(receiver)
    calls.add("skipped")

    @receiver.middleware
    async def skip(handling: events.Handling, proceed: Any) -> None: ...

    async with receiver:
        await deliver(receiver, v2("invoice.created"))
        await settled(receiver)

    assert (calls, await receiver.store.counts()) == (
        [],
        {"open": 0, "handled": 1, "dead": 0},
    )


def test_pace() -> None:
    """Calls are spread evenly; time that nobody used is not saved up."""
    slow, quick = Pace(2), Pace(100)
    assert (slow.free(0.0), quick.free(0.0)) == (1, 6)
    slow.use(1, 0.0)
    assert (slow.free(0.4), slow.wait(0.25)) == (0, 0.2)
    assert slow.free(100.0) == 1

    begun, now = 0, 0.0
    while now < 10:
        number = quick.free(now)
        quick.use(number, now)
        begun += number
        now += 0.003
    assert 995 <= begun <= 1006


async def test_rate_of_a_handler() -> None:
    """A handler with a rate is called that often; others are not, and its events wait without a lease."""
    receiver = receiver_of(inbox=events.InboxPolicy(poll=3600.0))
    calls = Calls(receiver)
    calls.add("slow", rate=50)
    calls.add("quick")
    loop = asyncio.get_running_loop()
    times: list[float] = []

    @receiver.middleware
    async def clock(handling: events.Handling, proceed: Any) -> None:
        if handling.handler == "slow":
            times.append(loop.time())
        await proceed()

    begun = loop.time()
    async with receiver:
        for number in range(12):
            await deliver(receiver, v2("invoice.created", number=number))
        await eventually(lambda: len(calls.of("quick")) == 12)
        await settled(receiver)

    assert len(calls.of("slow")) == 12
    assert times[-1] - begun >= 11 / 50 - 0.051  # those of 0.05 s may begin at once


async def test_rate_that_allows_a_call_before_the_worker_waits(monkeypatch) -> None:
    """On a busy machine that happens in between; the worker then looks again at once, not at the next poll."""
    # reaches: its pauses are drawn at random, and not to be waited for
    monkeypatch.setattr(Pace, "wait", lambda *_: 0.0)
    receiver = receiver_of(inbox=events.InboxPolicy(poll=3600.0))
    calls = Calls(receiver)
    calls.add("slow", rate=50)

    async with receiver:
        for number in range(6):
            await deliver(receiver, v2("invoice.created", number=number))
        await settled(receiver)

    assert len(calls) == 6


class AsyncCall:
    async def __call__(self, _: object) -> bool:
        return False


def test_type_that_is_misspelt() -> None:
    """The error names the type that was probably meant, if one is like it."""
    inbox = receiver_of()
    for given, words in (
        ("invoice.create", "Did you mean 'invoice.created'"),
        ("robot.*", r"specification\. Use on\('\*'\)"),
    ):
        with pytest.raises(ConfigurationError, match=words):
            inbox.on(given)  # type: ignore[arg-type]


def test_registration_that_is_refused() -> None:
    """What could not work is refused when it is registered."""
    inbox, inline = receiver_of(), receiver_of("inline")

    async def handle(event: events.Event) -> None: ...

    async def another(event: events.Event) -> None: ...

    inbox.on("invoice.created", attempts=2)(handle)
    inbox.on_test(handle)
    refused: list[Callable[[], object]] = [
        lambda: inbox.on("invoice.*", name="handle")(another),
        lambda: inbox.on("payment.created", attempts=3)(handle),
        lambda: inbox.on("payment.created", attempts=2, rate=5)(handle),
        lambda: inbox.on("payment.created", attempts=2, timeout=60.0)(handle),
        lambda: inbox.on("payment.created", attempts=2, where=lambda _: True)(handle),
        lambda: inbox.on("payment.created", attempts=2, key=lambda _: 1)(handle),
        lambda: inbox.on("invoice.created", name="a:b")(another),
        lambda: inbox.on("invoice.created", name="")(another),
        lambda: inbox.on("invoice.created", name=5)(another),  # type: ignore[arg-type]
        lambda: inbox.on()(another),
        lambda: inbox.on("robot.*")(another),  # type: ignore[arg-type]
        lambda: inbox.on("invoices.*")(another),  # type: ignore[arg-type]
        lambda: inbox.on("invoice.creatd")(another),  # type: ignore[arg-type]
        lambda: inbox.on("invoice*")(another),  # type: ignore[arg-type]
        lambda: inbox.on(".*")(another),  # type: ignore[arg-type]
        lambda: inbox.on(5)(another),  # type: ignore[arg-type]
        lambda: inbox.on("invoice.*", where=another)(another),  # type: ignore[arg-type]
        lambda: inbox.on("invoice.*", where=AsyncCall())(another),  # type: ignore[arg-type]
        lambda: inbox.on("invoice.*", where="total > 5")(another),  # type: ignore[arg-type]
        lambda: inbox.on("invoice.*", key=another)(another),  # type: ignore[arg-type]
        lambda: inbox.on("invoice.*", attempts=0)(another),
        lambda: inbox.on("invoice.*", timeout=-1)(another),
        lambda: inbox.on("invoice.*", rate=0)(another),
        lambda: inbox.on("invoice.*", rate="5")(another),  # type: ignore[arg-type]
        lambda: inline.on("invoice.*", rate=5)(another),
        lambda: inline.on("invoice.*", key=lambda _: 1)(another),
        lambda: inbox.middleware(print),  # type: ignore[type-var]
        lambda: inbox.on("invoice.*")(print),  # type: ignore[type-var]
        lambda: inbox.on("invoice.*", name="class")(AsyncCall),  # type: ignore[type-var]
        lambda: inline.on_test(print),  # type: ignore[type-var]
        lambda: inbox.on_test(another),
    ]
    for register in refused:
        with pytest.raises(ConfigurationError):
            register()
    with pytest.raises(
        TypeError, match=r"on\(\) got an unexpected keyword argument 'retries'"
    ):
        inbox.on("invoice.created", retries=3)(another)  # type: ignore[call-overload]


async def test_one_function_for_more_types() -> None:
    """Decorators may be stacked; the name is that of the function, or of the class of an object."""
    receiver = receiver_of("inline")
    seen: list[str] = []

    @receiver.on("invoice.created")
    @receiver.on("payment.created", "payment.*")
    async def handle(event: events.Event) -> None:
        seen.append(event.type)

    class Receipts:
        async def __call__(self, event: events.Event) -> None:
            seen.append(event.type)

    receiver.on("receipt.*")(Receipts())
    receiver.on("service.*", name="partial")(functools.partial(handle))
    names = ["invoice.created", "payment.created", "receipt.created", "service.created"]
    for number, name in enumerate(names):
        await deliver(receiver, v2(name, number=number))

    assert seen == names
    handlers = [event.handler for event in await receiver.store.events()]
    assert handlers == ["handle", "handle", "Receipts", "partial"]


class Plain:
    """A store of the plain protocol, which knows no handlers."""

    def __init__(self, store: events.MemoryStore | None = None) -> None:
        self._store = store or events.MemoryStore()

    def __getattr__(self, name: str) -> Any:
        if name in {"assign", "give"}:
            raise AttributeError(name)
        return getattr(self._store, name)

    async def put(self, delivery: events.Delivery) -> bool:
        return await self._store.put(
            events.Delivery(key=delivery.key, type=delivery.type, body=delivery.body)
        )

    async def take(self, *, limit: int, lease: float) -> list[events.Entry]:
        return await self._store.take(limit=limit, lease=lease)


async def test_store_that_does_not_know_handlers() -> None:
    """One handler for each type works with limits of its own; what needs more is refused."""
    receiver = receiver_of(store=Plain(), inbox=FAST)
    calls = Calls(receiver, first=1)
    calls.add("first", timeout=90.0)
    calls.add("second", "payment.*")
    calls.add("rest", "*")
    for settings in ({"name": "third"}, {"key": lambda _: 1}, {"rate": 5.0}):
        with pytest.raises(ConfigurationError, match="HandlerStore"):
            calls.add(**{"name": "fourth"} | settings)
    with pytest.raises(ConfigurationError, match="HandlerStore"):
        calls.add("more", "*")

    async with receiver:
        for number, name in enumerate(
            ["invoice.created", "payment.created", "receipt.created"]
        ):
            await deliver(receiver, v2(name, number=number))
        await settled(receiver)

    assert sorted(calls) == [
        ("first", "dlv_0"),
        ("first", "dlv_0"),
        ("rest", "dlv_2"),
        ("second", "dlv_1"),
    ]


@pytest.mark.parametrize("mode", ["inline", "inbox"])
async def test_limits_in_a_store_that_does_not_know_handlers(mode: str) -> None:
    """Attempts of a handler are its own, also those of the rest; a failing where is an attempt."""
    receiver = receiver_of(mode, store=Plain(), inbox=FAST)
    calls = Calls(receiver, once=9, rest=9)
    calls.add("once", "sat.invoice.synced", attempts=1)
    calls.add("broken", "invoice_batch.completed", where=lambda event: event.nothing)
    calls.add("rest", "*", attempts=2)

    async with receiver:
        await deliver(receiver, signed_body("sat.invoice.synced"), signed=True)
        await deliver(receiver, signed_body("invoice_batch.completed"), signed=True)
        await deliver(
            receiver, signed_body("sat.invoice.deleted", number=2), signed=True
        )
        await settled(receiver, dead=3)

    assert sorted(name for name, _ in calls) == ["once", "rest", "rest"]


@pytest.mark.parametrize("version", ["v1", "v2"])
async def test_inline_event_that_one_handler_cannot_read(version: str) -> None:
    """Its dead letter is for that handler: a revival does not call the other one again."""
    receiver = receiver_of("inline")
    seen: list[str] = []

    @receiver.on("invoice.created")
    async def first(_: events.Event) -> None:
        seen.append("first")

    @receiver.on("invoice.created")
    async def second(_: events.Event) -> None:
        seen.append("second")
        if seen.count("second") == 1:
            raise MalformedEventError("a number has too many digits")

    receipt = await deliver(
        receiver, (v1 if version == "v1" else v2)("invoice.created")
    )
    (letter,) = await receiver.store.events(state="dead")
    assert (receipt.outcome, letter.handler) == ("dead letter", "second")
    if version == "v2":  # which has an id
        assert (await deliver(receiver, v2("invoice.created"))).outcome == "duplicate"

    assert await receiver.store.revive(letter)
    async with receiver:
        await eventually(lambda: len(seen) == 3)
    assert seen == ["first", "second", "second"]
