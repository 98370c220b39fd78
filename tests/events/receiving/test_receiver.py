"""What a receiver answers, keeps and hands to handlers; time does not really pass here."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Any

import pytest

from invsvc_async import events
from invsvc_async.errors import ConfigurationError, JournalError, MalformedEventError
from tests.events.bodies import (
    HEADER,
    RESOURCE_TYPES,
    SECRET,
    SHARED,
    SIGNED_TYPES,
    VERSIONS,
    encoded,
    headers_of,
    signature,
    signed_body,
    v1,
    v2,
    v11,
)
from tests.support.waiting import forever, until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.one_python

FAST = events.InboxPolicy(initial=1e-6, maximum=1e-6, poll=0.01, attempts=3)


class Service:
    """A receiver with a handler that records its calls, and fails as often as set."""

    def __init__(self, **settings: Any) -> None:
        settings = {
            "secrets": [SECRET],
            "shared_header": HEADER,
            "inbox": FAST,
        } | settings
        self.receiver = events.Receiver(**settings)
        self.seen: list[events.Event] = []
        self.tests: list[events.Event] = []
        self.failures = 0
        self.receiver.on("*")(self.handle)
        self.receiver.on_test(self.handle_test)

    async def handle(self, event: events.Event) -> None:
        self.seen.append(event)
        if self.failures:
            self.failures -= 1
            raise RuntimeError("the handler fails")

    async def handle_test(self, event: events.Event) -> None:
        self.tests.append(event)

    async def deliver(self, body: object, **headers: bool) -> events.Receipt:
        raw = body if isinstance(body, bytes) else encoded(body)
        return await self.receiver.receive(raw, headers_of(raw, **headers))


async def eventually(
    condition: Callable[[], object], *, within: float = 30.0, every: float = 0.01
) -> None:
    """Wait until *condition* holds, for less time than a lease, after which a worker takes what was not released."""
    await until(condition, within=within, every=every)


async def until_none_is_open(store: events.Store, **times: float) -> None:
    """Wait until each event in *store* is handled or a dead letter."""

    async def none_is_open() -> bool:
        return not (await store.counts())["open"]

    await eventually(none_is_open, **times)


RESOURCES = [(name, version) for name in RESOURCE_TYPES for version in VERSIONS]
CASES = [*RESOURCES, *((name, "signed") for name in SIGNED_TYPES)]


@pytest.mark.parametrize("test", [True, False])
@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize(("name", "version"), CASES)
async def test_delivery_of_every_kind(
    name: str, version: str, shared: bool, signed: bool, test: bool
) -> None:
    """Every type, version, signed or not, test or not, gets its own answer, and reaches its own handler."""
    service = Service()
    make = signed_body if version == "signed" else VERSIONS[version]
    body = make(name, test=True) if test else make(name)

    receipt = await service.deliver(body, signed=signed, shared=shared, test=test)

    trusted = signed or (shared and version != "signed")
    expected = (
        (200, "test") if test else (200, "handled") if trusted else (401, "refused")
    )
    assert (receipt.status, receipt.outcome) == expected
    assert [event.type for event in service.tests] == ([name] if test else [])
    assert [event.type for event in service.seen] == (
        [name] if trusted and not test else []
    )


@pytest.mark.parametrize(
    ("in_body", "in_headers"), [(True, False), (False, True), (False, False)]
)
@pytest.mark.parametrize("make", [v1, v11, v2])
async def test_test_event_that_says_so_once(
    make, in_body: bool, in_headers: bool
) -> None:
    """Without both marks nothing is waived, and only the body makes an authentic event a test."""
    service = Service()
    body = make("invoice.created", test=True) if in_body else make("invoice.created")

    refused = await service.deliver(body, test=in_headers)
    taken = await service.deliver(body, test=in_headers, shared=True)

    assert (refused.status, taken.status) == (401, 200)
    assert (len(service.tests), len(service.seen)) == ((1, 0) if in_body else (0, 1))


async def test_test_event_that_is_forged() -> None:
    """A wrong signature is refused, test or not."""
    body = encoded(signed_body("sat.invoice.synced", test=True))

    receipt = await Service().receiver.receive(
        body, headers_of(body, test=True) | signature(body, "another")
    )

    assert receipt.status == 401


@pytest.mark.parametrize(
    ("body", "headers", "words"),
    [
        (v2("invoice.created"), {}, "header in the dashboard"),
        (signed_body("sat.invoice.synced"), {}, "webhook has a secret"),
        (
            signed_body("sat.invoice.synced"),
            {"X-Service-Signature": "sha256=0"},
            "secret is among",
        ),
    ],
)
async def test_log_of_a_refusal(
    caplog, body: object, headers: dict[str, str], words: str
) -> None:
    """It says what an operator can check if the delivery came from the service."""
    receipt = await Service().receiver.receive(encoded(body), headers)

    assert receipt.status == 401
    assert words in caplog.text


async def test_test_event_whose_handler_fails_or_is_missing(caplog) -> None:
    """A test is answered 2xx whatever becomes of it."""
    receiver = events.Receiver(secrets=SECRET)
    body = encoded(v2("invoice.created", test=True))
    assert (await receiver.receive(body, headers_of(body, test=True))).status == 200

    @receiver.on_test
    async def fail(event: events.Event) -> None:
        raise RuntimeError(event.type)

    assert (await receiver.receive(body, headers_of(body, test=True))).status == 200
    assert "test events failed" in caplog.text


@pytest.mark.parametrize("mode", ["inline", "inbox"])
async def test_test_event_that_comes_again(mode: str) -> None:
    """A sample with the same id is shown each time, and is kept nowhere."""
    service = Service(mode=mode, store=events.MemoryStore())

    for _ in range(2):
        await service.deliver(v2("invoice.created", test=True), test=True)

    assert len(service.tests) == 2
    assert (await service.receiver.store.counts())["open"] == 0


async def test_three_kinds_of_bad_news() -> None:
    """A forged event, an authentic unreadable one and a well-formed unknown one get different answers."""
    receiver = events.Receiver(secrets=SECRET, shared_header=HEADER)
    forged = encoded(signed_body("sat.invoice.synced"))
    unknown = encoded(v2("robot.painted"))

    answers = [
        await receiver.receive(forged, signature(forged, "guessed")),
        await receiver.receive(b"{", signature(b"{")),
        await receiver.receive(b"{", dict([SHARED])),
        await receiver.receive(unknown, dict([SHARED])),
        await receiver.receive(b"{", {}),
    ]

    assert [(answer.status, answer.outcome) for answer in answers] == [
        (401, "refused"),
        (202, "dead letter"),
        (202, "dead letter"),
        (200, "unknown"),
        (400, "unreadable"),
    ]
    assert [letter.body for letter in await receiver.store.events(state="dead")] == [
        b"{",
        b"{",
    ]
    assert isinstance(answers[1].error, MalformedEventError)


async def test_unreadable_body_that_anybody_may_send() -> None:
    """An explicit word that accepts unsigned events authenticates nothing: what cannot be read is not kept."""
    receiver = events.Receiver(secrets=(), accept_unsigned=True)

    receipt = await receiver.receive(b"{", {})

    assert (receipt.status, await receiver.store.events(state="dead")) == (400, [])


async def test_known_event_without_a_handler() -> None:
    """An event without a handler is acknowledged and ignored."""
    receiver = events.Receiver(secrets=SECRET, shared_header=HEADER)

    receipt = await receiver.receive(encoded(v2("payment.created")), dict([SHARED]))

    assert (receipt.status, receipt.outcome) == (200, "ignored")


@pytest.mark.parametrize(
    "settings",
    [
        {"secrets": ()},
        {"secrets": [""]},
        {"secrets": SECRET, "mode": "inbox"},
        {"secrets": SECRET, "mode": "outbox"},
        {"secrets": SECRET, "deadline": 10.0},
        {"secrets": SECRET, "deadline": 0},
        {"secrets": SECRET, "deadline": "8"},
        {"secrets": SECRET, "max_body_bytes": "1000"},
        {"secrets": SECRET, "max_body_bytes": 0},
        {"secrets": SECRET, "inbox": {"attempts": 3}},
        {"secrets": SECRET, "accept_unsigned": "false"},
        {"secrets": SECRET, "accept_unsigned": None},
        {"secrets": SECRET, "store": 5},
        {"secrets": SECRET, "store": events.MemoryStore},
        {"secrets": SECRET, "store": b"events.db"},
        {"secrets": SECRET, "store": "a.db", "dedupe": "b.db"},
        {
            "secrets": SECRET,
            "store": "postgresql://h/d",
            "dedupe": events.MemoryStore(),
        },
    ],
)
def test_receiver_that_cannot_start(settings: dict[str, Any]) -> None:
    """A receiver without authentication, or with contradictory arguments, is refused when it is created."""
    with pytest.raises(ConfigurationError):
        events.Receiver(**settings)


@pytest.mark.parametrize(
    "field",
    ["attempts", "timeout", "initial", "maximum", "concurrency", "poll", "keep"],
)
@pytest.mark.parametrize("value", [0, -1, "1", float("inf"), float("nan")])
def test_policy_out_of_bounds(field: str, value: object) -> None:
    """Each bound must be positive, and none may be endless: a killed process's lease would never end."""
    with pytest.raises(ConfigurationError, match=field):
        events.InboxPolicy(**{field: value})


@pytest.mark.parametrize("name", ["store", "dedupe"])
async def test_store_at_a_path(name: str, tmp_path: Path) -> None:
    """A ``Path`` means the same file as its text."""
    receiver = events.Receiver(secrets=SECRET, **{name: tmp_path / "events.db"})  # type: ignore[arg-type]
    async with receiver:
        assert (tmp_path / "events.db").exists()

    assert isinstance(receiver.store, events.SqliteStore)


@pytest.mark.parametrize("mode", ["inline", "inbox"])
@pytest.mark.parametrize(
    ("make", "times"),
    [
        (lambda: v2("invoice.created"), 1),
        (lambda: v1("invoice.created"), 2),
        (lambda: v11("invoice.created"), 2),
    ],
)
async def test_delivery_that_comes_again(mode: str, make, times: int) -> None:
    """What has a key is handled once; for v1 and v1.1 the specification forbids to guess."""
    service = Service(mode=mode, store=events.MemoryStore())

    async with service.receiver:
        for _ in range(2):
            assert (await service.deliver(make(), shared=True)).status == 200
            await until_none_is_open(service.receiver.store)

    assert len(service.seen) == times


@pytest.mark.parametrize("make", [v1, v2])
async def test_inline_handler_that_fails_on_a_resource_event(make) -> None:
    """The failure is answered 500, however often, so that the event is sent again, and is then let in."""
    service = Service()
    service.failures = 16

    answers = [
        await service.deliver(make("invoice.created"), shared=True) for _ in range(17)
    ]

    assert [(each.status, each.outcome) for each in answers] == [
        (500, "failed")
    ] * 16 + [(200, "handled")]
    assert await service.receiver.store.events(state="dead") == []


async def test_inline_handler_that_is_too_slow() -> None:
    """A handler is stopped at the deadline, and the next delivery is let in."""
    service = Service(deadline=0.5)
    slow = [True]
    stopped = []

    @service.receiver.on("payment.created")
    async def sleep(_: events.Event) -> None:
        try:
            if slow.pop():
                await forever()
        except asyncio.CancelledError:
            stopped.append(True)
            raise

    first = await service.deliver(v2("payment.created"), shared=True)
    slow.append(False)
    service.receiver.deadline = 60.0
    second = await service.deliver(v2("payment.created"), shared=True)

    assert (first.status, second.outcome, stopped) == (500, "handled", [True])


@pytest.mark.parametrize("name", SIGNED_TYPES)
async def test_inline_handler_of_a_signed_event_whose_process_dies(
    tmp_path, name: str
) -> None:
    """The event is on the disk before its handler begins, and the next process finds it when the lease ran out."""
    receiver = events.Receiver(secrets=SECRET, store=str(tmp_path / "events.db"))
    later = events.SqliteStore(
        tmp_path / "events.db", steady=lambda: time.monotonic() + 60
    )
    body = encoded(signed_body(name))
    found: list[events.Entry] = []

    @receiver.on(name)
    async def look(_: events.Event) -> None:
        found.extend(await later.take(limit=9, lease=60))

    await receiver.receive(body, signature(body))

    assert [entry.body for entry in found] == [body]
    await later.close()
    await receiver.store.close()


HUGE = b'{"id":"dlv_1","type":"invoice.created","created":1,"data":{"object":{"total":1e99999999999999999999}}}'
HUGE_V1 = b'{"event":"invoice.created","data":{"total":1e99999999999999999999}}'


@pytest.mark.parametrize("mode", ["inline", "inbox"])
@pytest.mark.parametrize("body", [HUGE, HUGE_V1])
async def test_event_whose_data_cannot_be_read(mode: str, body: bytes) -> None:
    """An authentic event that proves unreadable in the handler's hands is kept raw, once, and not sent again."""
    receiver = events.Receiver(
        secrets=(),
        shared_header=HEADER,
        mode=mode,
        store=events.MemoryStore(),
        inbox=FAST,
    )

    @receiver.on("invoice.created")
    async def handle(event: events.Event) -> None:
        assert event.data

    async with receiver:
        receipt = await receiver.receive(body, dict([SHARED]))
        await until_none_is_open(receiver.store)

    expected = (202, "dead letter") if mode == "inline" else (200, "stored")
    assert (receipt.status, receipt.outcome) == expected
    (letter,) = await receiver.store.events(state="dead")
    assert (letter.body, letter.type) == (body, "invoice.created")
    assert await receiver.store.counts() == {"open": 0, "handled": 0, "dead": 1}


async def test_worker_that_was_cancelled() -> None:
    """It does not run any more, as the health check says, and it can be started again."""
    service = Service(mode="inbox", store=events.MemoryStore())
    async with service.receiver as receiver:
        for task in asyncio.all_tasks():
            if task.get_name() == "invsvc events worker":
                task.cancel()
                await asyncio.wait([task])
        assert "no worker runs" in (await receiver.health()).problems[0]
        await receiver.__aenter__()
        assert (await receiver.health()).problems == ()


class Odd(BaseException):
    """Derived from the wrong class."""


class UnprintableError(Exception):
    """Its text is an error of its own."""

    def __str__(self) -> str:
        raise ValueError("no text")


async def cancels_itself() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel("by the handler")
    await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (asyncio.CancelledError, "cancelled"),
        (Odd, "raised Odd"),
        (lambda name: BaseExceptionGroup(name, [Odd()]), "raised BaseExceptionGroup"),
        (GeneratorExit, "raised GeneratorExit"),
        (UnprintableError, "UnprintableError"),
        (None, "cancelled"),
    ],
)
@pytest.mark.parametrize("kind", ["real", "test"])
@pytest.mark.parametrize("mode", ["inline", "inbox"])
async def test_handler_that_raises_no_exception(
    kind: str, mode: str, error: Any, words: str
) -> None:
    """What it raises, a cancellation inside it too, is a failure like any other, and does not end the request."""
    receiver = events.Receiver(
        secrets=(),
        shared_header=HEADER,
        mode=mode,
        store=events.MemoryStore(),
        inbox=FAST,
    )

    async def failing(event: events.Event) -> None:
        if error is None:
            await cancels_itself()
        raise error(event.type)

    receiver.on("*")(failing)
    receiver.on_test(failing)
    body = encoded(v2("invoice.created", test=True if kind == "test" else ...))

    async with receiver:
        receipt = await receiver.receive(body, dict([SHARED]))
        expected = (
            "test" if kind == "test" else "failed" if mode == "inline" else "stored"
        )
        assert receipt.outcome == expected
        if expected == "stored":
            await eventually(lambda: receiver.stats().dead_letters)
            (letter,) = await receiver.store.events(state="dead")
            assert (letter.attempts, words in letter.reason) == (3, True)


@pytest.mark.parametrize(
    ("mode", "make", "name"),
    [
        ("inbox", v2, "invoice.created"),
        ("inline", signed_body, "sat.invoice.synced"),
        # signed, it counts as sent once, though no specification has it
        ("inline", v1, "robot.painted"),
    ],
)
async def test_event_that_waits_where_no_worker_runs(
    caplog, mode: str, make, name: str
) -> None:
    """It stays in the store, and the log says once that no worker runs: another process has to handle it."""
    service = Service(mode=mode, store=events.MemoryStore())
    service.failures = 2

    for number in (1, 2):
        await service.deliver(make(name, number=number), signed=True)

    assert caplog.text.count("no worker runs here") == 1
    assert (await service.receiver.store.counts())["open"] == 2


@pytest.mark.parametrize("failures", [0, 2])
async def test_inbox_answers_before_the_work_is_done(failures: int) -> None:
    """The answer needs no handler; the handler runs afterwards, until it succeeds."""
    service = Service(mode="inbox", store=events.MemoryStore())
    service.failures = failures

    receipt = await service.deliver(v2("invoice.created"), shared=True)
    assert (receipt.status, receipt.outcome, service.seen) == (200, "stored", [])

    async with service.receiver:
        await eventually(lambda: len(service.seen) == failures + 1)
        await eventually(lambda: not service.receiver.stats().running)
    assert await service.receiver.store.counts() == {"open": 0, "handled": 1, "dead": 0}


@pytest.mark.parametrize(
    ("timeout", "reason"),
    [(0.01, "the handler did not end within 0.01 s"), (60.0, "the ledger")],
)
async def test_inbox_handler_whose_time_is_over(timeout: float, reason: str) -> None:
    """It is stopped, which counts as a failure; a timeout within it is reported as it was raised."""
    policy = events.InboxPolicy(timeout=timeout, attempts=1, poll=0.01)
    service = Service(mode="inbox", store=events.MemoryStore(), inbox=policy)

    @service.receiver.on("payment.created")
    async def hang(_: events.Event) -> None:
        if timeout < 1:
            await forever()
        raise TimeoutError("the ledger")

    async with service.receiver:
        await service.deliver(v2("payment.created"), shared=True)
        await eventually(lambda: service.receiver.stats().dead_letters)

    (letter,) = await service.receiver.store.events(state="dead")
    assert letter.reason == f"TimeoutError: {reason}"


async def test_inbox_event_whose_handler_kills_the_process() -> None:
    """An event whose leases run out again and again is put aside, unhandled."""
    now = [0.0]
    store = events.MemoryStore(steady=lambda: now[0])
    service = Service(mode="inbox", store=store)
    await service.deliver(v2("invoice.created"), shared=True)
    for _ in range(3):
        assert await store.take(limit=1, lease=1)
        now[0] += 2

    async with service.receiver:
        await until_none_is_open(store)

    assert service.seen == []
    (letter,) = await store.events(state="dead")
    assert letter.reason == "not handled in 3 attempts"


async def test_inbox_body_that_can_no_longer_be_read() -> None:
    """A body that a later version cannot read becomes a dead letter at once."""
    store = events.MemoryStore()
    await store.put(events.Delivery(key="a", type="t", body=b"{"))
    service = Service(mode="inbox", store=store)

    async with service.receiver:
        await until_none_is_open(store)

    (letter,) = await store.events(state="dead")
    assert (letter.attempts, letter.reason.split(":")[0]) == (1, "MalformedEventError")


async def test_inbox_that_is_told_of_a_delivery() -> None:
    """The worker need not wait for its next look at the store."""
    service = Service(
        mode="inbox", store=events.MemoryStore(), inbox=events.InboxPolicy(poll=3600.0)
    )

    async with service.receiver:
        await asyncio.sleep(0.01)  # sleeps: so that the worker waits; nothing tells
        await service.deliver(v2("invoice.created"), shared=True)
        await eventually(lambda: service.seen)


async def test_inbox_within_its_concurrency() -> None:
    """Never are more handlers running than the policy allows, and all events are handled."""
    policy = events.InboxPolicy(concurrency=3, poll=0.01)
    service = Service(mode="inbox", store=events.MemoryStore(), inbox=policy)
    running: list[int] = []
    now = 0

    @service.receiver.on("payment.created")
    async def count(_: events.Event) -> None:
        nonlocal now
        now += 1
        running.append(now)
        await asyncio.sleep(0.001)  # sleeps: in which another could begin
        now -= 1

    async with service.receiver:
        for number in range(30):
            await service.deliver(v2("payment.created", number=number), shared=True)
        await eventually(lambda: len(running) == 30 and now == 0)

    assert max(running) == 3


async def test_receiver_that_stops_with_work_in_hand(tmp_path) -> None:
    """A handler that does not end in time is cancelled, and its event waits for the next start."""
    store = events.SqliteStore(tmp_path / "events.db")
    service = Service(mode="inbox", store=store, deadline=9.9)
    started = asyncio.Event()

    @service.receiver.on("payment.created")
    async def hang(_: events.Event) -> None:
        started.set()
        await forever()

    async with service.receiver:
        await service.deliver(v2("payment.created"), shared=True)
        await started.wait()
        service.receiver.deadline = 0.5

    (entry,) = await store.take(limit=1, lease=1)
    assert entry.attempts == 2
    await store.close()


async def test_receiver_that_stops_while_it_takes() -> None:
    """An event that is just being taken is handled, and need not wait out a lease."""

    class Slow(events.MemoryStore):
        async def take(self, **arguments: Any) -> list[events.Entry]:
            taken = await super().take(**arguments)
            await asyncio.sleep(0.01)  # sleeps: in which the receiver stops
            return taken

    service = Service(mode="inbox", store=Slow())
    await service.deliver(v2("invoice.created"), shared=True)

    async with service.receiver:
        await asyncio.sleep(0)

    assert await service.receiver.store.counts() == {"open": 0, "handled": 1, "dead": 0}


async def test_receiver_that_stops_while_its_store_hangs() -> None:
    """A store that hangs holds the end up no longer than the deadline."""

    class Hanging(events.MemoryStore):
        async def take(self, **_: object) -> list[events.Entry]:  # type: ignore[override]
            await forever()

    service = Service(mode="inbox", store=Hanging(), deadline=0.02)
    async with asyncio.timeout(300), service.receiver:
        await asyncio.sleep(0)


@pytest.mark.parametrize("mode", ["inline", "inbox"])
@pytest.mark.parametrize("how", ["done", "hangs"])
async def test_receiver_that_stops_while_its_store_records_nothing(
    mode: str, how: str, caplog, monkeypatch
) -> None:
    """Ends that cannot be recorded hold the stop up for a few deadlines at most, and the log says so."""
    monkeypatch.setattr("invsvc_async.events.receiving.worker._SOON", 0.01)

    class Hanging(events.MemoryStore):
        async def handled(self, *_: object, **__: object) -> bool:
            await forever()

        release = handled  # type: ignore[assignment]

    service = Service(mode=mode, store=Hanging(), deadline=0.3)
    started = asyncio.Event()

    @service.receiver.on("payment.created")
    async def work(_: events.Event) -> None:
        started.set()
        if how != "done":
            await forever()

    async with asyncio.timeout(300):
        async with service.receiver:
            await service.deliver(v2("payment.created"), shared=True)
            await started.wait()

    assert "did not end" in caplog.text


class BrokenStore(events.MemoryStore):
    """A store of one's own that raises what it likes, or hangs."""

    def __init__(self, error: Exception | None) -> None:
        super().__init__()
        self.error = error

    async def _break(self) -> None:
        if self.error is None:
            await forever()
        else:
            raise self.error

    async def put(self, *_: object, **__: object) -> bool:
        await self._break()
        return True

    claim = bury = put  # type: ignore[assignment]


@pytest.mark.parametrize(
    "error", [JournalError("down"), RuntimeError("bug"), OSError(5, "io"), None]
)
@pytest.mark.parametrize("mode", ["inline", "inbox"])
async def test_store_that_is_down(mode: str, error: Exception | None) -> None:
    """A store that fails or hangs is answered 503, so that the service comes back."""
    service = Service(mode=mode, store=BrokenStore(error), deadline=0.05)

    for body, headers in (
        (v2("invoice.created"), {"shared": True}),
        (signed_body("sat.invoice.synced"), {"signed": True}),
        (b"{", {"signed": True}),
    ):
        receipt = await service.deliver(body, **headers)
        assert (receipt.status, receipt.outcome, receipt.headers["Retry-After"]) == (
            503,
            "unavailable",
            "5",
        )
    assert service.seen == []


async def test_store_that_cannot_record_the_end(caplog) -> None:
    """An event that was handled is acknowledged though that could not be recorded."""

    class Forgetful(events.MemoryStore):
        async def handled(self, entry: object) -> bool:
            raise JournalError("down")

    service = Service(store=Forgetful())

    receipt = await service.deliver(v2("invoice.created"), shared=True)

    assert (receipt.status, receipt.outcome) == (200, "handled")
    assert "could not be stored" in caplog.text


async def test_store_that_takes_long_to_record_the_end(monkeypatch) -> None:
    """The end is recorded though the answer does not wait for it."""
    monkeypatch.setattr("invsvc_async.events.receiving.worker._SOON", 0.001)
    answered = asyncio.Event()

    class Slow(events.MemoryStore):
        async def handled(self, entry: Any) -> bool:
            await answered.wait()
            return await super().handled(entry)

    service = Service(store=Slow())
    async with service.receiver:
        await service.deliver(v2("invoice.created"), shared=True)
        assert (await service.receiver.store.counts())["handled"] == 0
        asyncio.get_running_loop().call_later(0.02, answered.set)

    assert (await service.receiver.store.counts())["handled"] == 1


async def test_worker_whose_store_fails_for_a_while() -> None:
    """The worker outlives a store that is down, or in which something was cancelled, and goes on."""
    failures = [RuntimeError("down"), asyncio.CancelledError(), RuntimeError("down")]

    class Flaky(events.MemoryStore):
        async def take(self, **arguments: Any) -> list[events.Entry]:
            if failures:
                raise failures.pop()
            return await super().take(**arguments)

    service = Service(mode="inbox", store=Flaky())
    async with service.receiver as receiver:
        await service.deliver(v2("invoice.created"), shared=True)
        await eventually(lambda: service.seen)
        assert (await receiver.health()).problems == ()


@pytest.mark.parametrize("mode", ["inline", "inbox"])
async def test_handler_that_lost_its_lease(mode: str, caplog) -> None:
    """An event that was handled twice is logged and counted."""

    class Lost(events.MemoryStore):
        async def handled(self, entry: object) -> bool:
            return False

    service = Service(mode=mode, store=Lost())
    async with service.receiver:
        await service.deliver(v2("invoice.created"), shared=True)
        await eventually(lambda: "after its lease" in caplog.text)
    assert service.receiver.stats().leases_lost == 1


def test_delay_between_attempts() -> None:
    """Delays double up to their maximum, times chance, and do not overflow."""
    policy = events.InboxPolicy(initial=1.0, maximum=60.0)

    assert [policy.delay(number, 1.0) for number in (1, 2, 3, 7, 10**6)] == [
        1.0,
        2.0,
        4.0,
        60.0,
        60.0,
    ]
    assert policy.delay(3, 0.25) == 1.0


async def test_body_beyond_the_limit() -> None:
    """A body that is too large is refused unread."""
    service = Service(max_body_bytes=100)

    assert (
        await service.deliver(v2("invoice.created", more="x" * 100), shared=True)
    ).status == 413


async def test_logs_of_a_receiver(caplog) -> None:
    """No secret, signature or body reaches the log or a repr of what is at hand."""
    caplog.set_level(logging.DEBUG)
    service = Service(mode="inbox", store=events.MemoryStore())
    body = encoded(signed_body("sat.invoice.synced"))
    given = [
        signature(body),
        signature(body, "guessed"),
        dict([SHARED]),
        {SHARED[0]: "guessed-value"},
    ]
    service.failures = 9

    receipts = [await service.receiver.receive(body, headers) for headers in given]
    receipts += [
        await service.receiver.receive(encoded(v2("invoice.created")), headers)
        for headers in given
    ]
    receipts += [
        await service.receiver.receive(b'{"personal":', signature(b'{"personal":'))
    ]
    async with service.receiver:
        await eventually(lambda: "dead letter" in caplog.text)

    text = (
        caplog.text
        + repr(receipts)
        + repr(service.receiver.__dict__)
        + repr(await service.receiver.store.events(state="dead"))
    )
    for hidden in (SECRET, SHARED[1], "guessed", "sha256=", "AAA010101AAA", "personal"):
        assert hidden not in text
    assert len(receipts) == 9


async def test_worker_handles_while_its_store_prunes() -> None:
    """Pruning may take long; no event waits for it, and neither does the end."""
    pruning: list[str] = []

    class Large(events.MemoryStore):
        async def prune(self, *, older_than: float) -> int:
            pruning.append("began")
            try:
                await asyncio.Event().wait()
            finally:
                pruning.append("ended")
            return 0

    service = Service(mode="inbox", store=Large())
    async with service.receiver:
        await service.deliver(v2("invoice.created"), shared=True)
        await eventually(lambda: service.seen)
        assert pruning == ["began"]

    assert pruning == ["began", "ended"]


async def test_worker_whose_store_cannot_prune(caplog) -> None:
    """A failed prune is logged, and events are handled."""

    class Broken(events.MemoryStore):
        async def prune(self, *, older_than: float) -> int:
            raise JournalError("the disk is full")

    service = Service(mode="inbox", store=Broken())
    async with service.receiver:
        await service.deliver(v2("invoice.created"), shared=True)
        await eventually(lambda: service.seen)

    assert "disk is full" in caplog.text


@pytest.mark.parametrize(
    ("settings", "days", "expected"),
    [
        ({}, 28.4, "handled"),
        ({}, 28.6, "refused"),  # keys are kept for 30 days
        ({"inbox": events.InboxPolicy(keep=86400.0)}, 1.0, "refused"),
        ({"max_age": 3600.0}, 0.05, "refused"),
        ({"max_age": None}, 1000, "handled"),
        ({}, -3, "handled"),
    ],
)
async def test_signed_event_that_is_sent_again_late(
    settings: Any, days: float, expected: str
) -> None:
    """One whose key may be forgotten is refused: somebody may have captured its body."""
    now = 1_900_000_000.0
    service = Service(clock=lambda: now, **settings)

    receipt = await service.deliver(
        signed_body("sat.invoice.synced", created_at=int(now - days * 86400)),
        signed=True,
    )

    assert (receipt.outcome, len(service.seen)) == (
        expected,
        int(expected == "handled"),
    )
    if expected == "refused":
        assert (receipt.status, "days ago" in str(receipt.error)) == (401, True)


async def test_unsigned_event_of_any_age() -> None:
    """What is not signed tells no time that could be trusted."""
    service = Service(max_age=1.0)

    assert (
        await service.deliver(v2("invoice.created"), shared=True)
    ).outcome == "handled"
    with pytest.raises(ConfigurationError, match="max_age"):
        Service(max_age=0)
