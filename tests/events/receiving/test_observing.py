"""What a receiver tells of its work: counts, health, and OpenTelemetry."""

from __future__ import annotations

import hashlib
import sqlite3
from collections import Counter
from contextlib import asynccontextmanager, closing
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from invsvc_async import ConfigurationError, events, tracing
from invsvc_async.errors import JournalError
from tests.events.bodies import (
    HEADER,
    SECRET,
    SHARED,
    encoded,
    filled,
    headers_of,
    signature,
    signed_body,
    v2,
)
from tests.events.receiving.test_receiver import FAST, Service, eventually
from tests.support.database import connected

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.one_python


class Traced:
    """The exporters of a traced receiver."""

    def __init__(self, receiver: events.Receiver) -> None:
        self.exporter, self.reader = InMemorySpanExporter(), InMemoryMetricReader()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        meters = MeterProvider([self.reader])
        tracing.instrument_receiver(
            receiver, tracer_provider=provider, meter_provider=meters
        )

    def spans(self, name: str) -> list[Any]:
        return [
            span for span in self.exporter.get_finished_spans() if span.name == name
        ]

    def metric(self, name: str) -> list[tuple[dict[str, Any], Any]]:
        found = (
            self.reader.get_metrics_data().resource_metrics[0].scope_metrics[0].metrics
        )
        points = next(each for each in found if each.name == name).data.data_points
        return [
            (dict(one.attributes), getattr(one, "value", getattr(one, "count", None)))
            for one in points
        ]


@pytest.mark.parametrize("mode", ["inline", "inbox"])
async def test_observer_that_fails(mode: str, caplog: pytest.LogCaptureFixture) -> None:
    """Its errors are logged; no handler is called again for them, and each answer is sent."""

    class Broken:
        def answered(self, *_: object) -> None:
            raise ZeroDivisionError("answered")

        def called(self, *_: object) -> None:
            raise ZeroDivisionError("called")

        def ended(self, *_: object) -> None:
            raise ZeroDivisionError("ended")

    service = Service(mode=mode, store=events.MemoryStore())
    service.receiver.observe(Broken())
    async with service.receiver:
        assert (await service.deliver(v2("invoice.created"), shared=True)).status == 200
        assert (await service.deliver(b"{", shared=True)).outcome == "dead letter"
        await eventually(lambda: service.receiver.stats().calls)

    assert len(service.seen) == 1
    assert await service.receiver.store.counts() == {"open": 0, "handled": 1, "dead": 1}
    assert {str(record.exc_info[1]) for record in caplog.records if record.exc_info} == {
        "answered", "called", "ended",
    }  # fmt: skip


async def test_counts_of_answers_and_calls() -> None:
    """Answers by status and outcome, calls, failures and dead letters are counted."""
    service = Service(mode="inline", store=events.MemoryStore())
    async with service.receiver:
        await service.deliver(v2("invoice.created"), shared=True)
        await service.deliver(v2("invoice.created"), shared=True)
        await service.deliver(v2("invoice.created"))
        await service.deliver(b"{", shared=True)
        service.failures = 1
        await service.deliver(v2("invoice.created", number=2), shared=True)
        service.failures = 3
        await service.deliver(signed_body("sat.invoice.synced"), signed=True)
        await eventually(lambda: service.receiver.stats().dead_letters == 2)
        found = service.receiver.stats()

    assert found.answers == {
        (200, "handled"): 1, (200, "duplicate"): 1, (401, "refused"): 1, (202, "dead letter"): 1,
        (500, "failed"): 2,
    }  # fmt: skip
    assert (found.calls, found.failed_calls, found.leases_lost) == (5, 4, 0)
    assert 0 < found.slowest_answer <= found.answer_seconds


async def test_every_answer_is_counted() -> None:
    """Also what is refused by its head, comes too late, is cut off, or finds no room."""
    receiver = events.Receiver(secrets=(), shared_header=HEADER, max_body_bytes=2000)
    headers = {"Content-Type": "application/json", **dict([SHARED])}

    async def broken(by: Exception) -> AsyncIterator[bytes]:
        yield b"{"
        raise by

    given = [
        await receiver.answer("GET", headers, b""),
        await receiver.answer("POST", headers, broken(TimeoutError())),
        await receiver.answer("POST", headers, broken(ConnectionResetError())),
        await receiver.answer("POST", {"Content-Type": "application/json"}, b"{}"),
    ]
    with filled(receiver.room):
        given.append(await receiver.answer("POST", headers, broken(EOFError())))

    assert [each.status for each in given] == [405, 408, 400, 401, 503]
    assert receiver.stats().answers == Counter(
        (each.status, each.outcome) for each in given
    )


async def test_backlog(kept) -> None:
    """What is due and not held counts, with its age; what is leased, delayed or only claimed does not."""
    assert await kept.store.backlog() == events.Backlog(0, 0.0, 0)
    for key in ("late", "leased", "delayed", "dead"):
        await kept.store.put(events.Delivery(key=key, type="t", body=b"{}"))
    entries = {entry.key: entry for entry in await kept.store.take(limit=9, lease=1000)}
    await kept.store.release(entries["late"], delay=0)
    await kept.store.release(entries["delayed"], delay=1000)
    await kept.store.bury(entries["dead"], reason="x")
    await kept.store.claim(
        events.Delivery(key="claimed", type="t", body=None), lease=0.0
    )
    await kept.pass_time(100)

    found = await kept.store.backlog()

    assert (found.due, found.dead) == (1, 1)
    assert 100 <= found.late < 130
    await kept.pass_time(1000)
    assert (await kept.store.backlog()).due == 3


async def test_health() -> None:
    """It is well while it keeps up; a missing worker, a late event and a store that fails are told."""
    now = [1000.0]
    service = Service(
        mode="inbox", store=events.MemoryStore(steady=lambda: now[0]), inbox=FAST
    )
    await service.deliver(v2("invoice.created"), shared=True)
    now[0] += 100

    behind = await service.receiver.health()
    assert not behind.ok
    assert behind.backlog == events.Backlog(1, 100.0, 0)
    assert any("worker" in problem for problem in behind.problems)
    assert any(
        "1 events are due, for up to 100 s" in problem for problem in behind.problems
    )

    async with service.receiver:
        await eventually(lambda: service.seen)
        well = await service.receiver.health()
    assert (well.ok, well.problems, well.backlog) == (
        True,
        (),
        events.Backlog(0, 0.0, 0),
    )


@pytest.mark.parametrize("mode", ["inline", "inbox"])
@pytest.mark.parametrize("end", ["drop", "revive"])
async def test_health_with_an_event_that_cannot_be_read(
    mode: Any, end: str, tmp_path, caplog
) -> None:
    """It is logged as an error and a problem, after a restart too, until somebody drops or revives it."""
    path = str(tmp_path / "events.db")
    async with Service(mode=mode, store=path).receiver as receiver:
        body = b'{"event": "sat.invoice.synced"'
        assert (
            await receiver.receive(body, headers_of(body, signed=True))
        ).status == 202
        [problem] = (await receiver.health()).problems
        assert "could not be read" in problem
    assert [each.levelname for each in caplog.records] == ["ERROR"]
    assert hashlib.sha256(body).hexdigest()[:16] in caplog.text

    async with Service(mode=mode, store=path).receiver as receiver:
        [problem] = (await receiver.health()).problems
        assert "could not be read" in problem
        [letter] = await receiver.store.events(state="dead")
        assert await getattr(receiver.store, end)(letter)
        if end == "revive":  # it cannot be read again
            await eventually(lambda: receiver.stats().dead_letters)
            assert (await receiver.health()).problems
            [letter] = await receiver.store.events(state="dead")
            assert await receiver.store.drop(letter)
        assert (await receiver.health()).ok


async def test_health_with_dead_letters_of_handlers(tmp_path) -> None:
    """An event whose handler failed is no problem of health: it was told each time it failed."""
    service = Service(mode="inbox", store=str(tmp_path / "events.db"))
    service.failures = 3
    async with service.receiver:
        await service.deliver(v2("invoice.created"), shared=True)
        await eventually(lambda: service.receiver.stats().dead_letters)

        assert (await service.receiver.health()).ok


async def test_health_while_the_store_is_away() -> None:
    """It is told, and no exception is raised."""

    class Away(events.MemoryStore):
        async def backlog(self) -> events.Backlog:
            raise JournalError("away")

    service = Service(mode="inbox", store=Away(), inbox=FAST)
    async with service.receiver:
        found = await service.receiver.health()
    assert (found.ok, found.backlog) == (False, None)
    assert "JournalError" in found.problems[0]


async def test_spans_and_metrics_of_the_inbox() -> None:
    """The delivery is one span, and the handler's, later, has a link to it."""
    service = Service(mode="inbox", store=events.MemoryStore(), inbox=FAST)
    traced = Traced(service.receiver)
    service.failures = 1
    async with service.receiver:
        await service.deliver(v2("invoice.created"), shared=True)
        await service.deliver(v2("invoice.created"))
        await eventually(lambda: len(service.seen) == 2)
        await service.receiver.health()
        await eventually(lambda: len(traced.spans("handle invoice.created")) == 2)
        due = traced.metric("invsvc.events.due")

    stored, refused = traced.spans("receive invoice.created")
    assert dict(stored.attributes) == {
        "invsvc.event.type": "invoice.created", "invsvc.outcome": "stored", "http.response.status_code": 200,
    }  # fmt: skip
    assert (refused.status.is_ok, refused.attributes["http.response.status_code"]) == (
        False,
        401,
    )
    failed, done = traced.spans("handle invoice.created")
    for span in (failed, done):
        assert [link.context.span_id for link in span.links] == [stored.context.span_id]
        assert span.attributes["invsvc.handler"] == "handle"
    assert (failed.attributes["error.type"], done.status.is_ok) == (
        "RuntimeError",
        True,
    )
    assert not failed.events, "no message of an exception"
    assert traced.metric("invsvc.events.answers") == [
        ({"http.response.status_code": 200, "invsvc.outcome": "stored"}, 1),
        ({"http.response.status_code": 401, "invsvc.outcome": "refused"}, 1),
    ]
    assert len(traced.metric("invsvc.events.answer.duration")) == 2
    assert [
        facts.get("error.type")
        for facts, _ in traced.metric("invsvc.events.call.duration")
    ] == [
        "RuntimeError",
        None,
    ]
    assert {
        facts["invsvc.handler"]
        for facts, _ in traced.metric("invsvc.events.call.duration")
    } == {"handle"}
    assert due == [({}, 0)]


async def test_spans_of_inline_mode() -> None:
    """There, the handler's span is a child of the delivery's; unknown types do not become names."""
    service = Service()
    traced = Traced(service.receiver)
    await service.deliver(v2("invoice.created"), shared=True)
    await service.deliver(v2("made.up"), shared=True)

    (outer,), (inner,) = (
        traced.spans("receive invoice.created"),
        traced.spans("handle invoice.created"),
    )
    assert inner.parent.span_id == outer.context.span_id
    assert not inner.links
    assert len(traced.spans("receive unknown")) == 1
    with pytest.raises(ConfigurationError, match="already traced"):
        tracing.instrument_receiver(service.receiver)


async def test_dead_letters_in_metrics() -> None:
    """What became a dead letter is counted as it happens."""
    service = Service(mode="inbox", store=events.MemoryStore(), inbox=FAST)
    traced = Traced(service.receiver)
    service.failures = 3
    async with service.receiver:
        await service.deliver(v2("invoice.created"), shared=True)
        await eventually(lambda: service.receiver.stats().dead_letters)
    assert traced.metric("invsvc.events.ended") == [({"invsvc.end": "dead letter"}, 1)]


@asynccontextmanager
async def refusing_writes(place: str) -> AsyncIterator[None]:
    """Let the store at *place* take no writes in the block, while it still answers reads."""
    if not place.startswith("postgresql"):
        with closing(sqlite3.connect(place, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            yield
        return
    others = "datname = current_database() AND pid <> pg_backend_pid()"
    end_others = (
        f"SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE {others}"
    )
    async with connected(place) as admin:
        name = await admin.fetchval("SELECT current_database()")
        await admin.execute(
            f"ALTER DATABASE {name} SET default_transaction_read_only = on"
        )
        await admin.execute(end_others)
        yield
        await admin.execute("SET default_transaction_read_only = off")
        await admin.execute(
            f"ALTER DATABASE {name} RESET default_transaction_read_only"
        )
        await admin.execute(end_others)


@pytest.mark.parametrize("mode", ["inline", "inbox"])
async def test_health_while_the_store_takes_no_deliveries(
    place: str, mode: str
) -> None:
    """A store that answers reads but took none of the last deliveries is told, until it takes one."""
    body = signed_body("sat.invoice.synced")
    service = Service(mode=mode, store=place, inbox=FAST, deadline=9.9)
    async with service.receiver:
        assert (await service.deliver(body, signed=True)).status == 200
        assert (await service.receiver.health()).ok
        async with refusing_writes(place):
            # which a busy machine needs for what the store does take
            service.receiver.deadline = 0.5
            for _ in range(2):
                assert (await service.deliver(body, signed=True)).status == 503
            found = await service.receiver.health()
        service.receiver.deadline = 9.9
        assert not found.ok
        assert "the event store failed for the last deliveries" in found.problems[0]
        assert "2 times" in found.problems[0]
        while (await service.deliver(body, signed=True)).status != 200:
            pass
        assert (await service.receiver.health()).ok


@pytest.mark.loop_time
async def test_health_while_the_secrets_are_away() -> None:
    """A delivery that only newer secrets could authenticate is answered 503: that is told, until one is taken."""
    failing = False

    async def secrets() -> list[str]:
        if failing:
            raise ConfigurationError("the vault is away")
        return [SECRET]

    service = Service(secrets=secrets)
    body = encoded(signed_body("sat.invoice.synced"))
    async with service.receiver:
        failing = True
        receipt = await service.receiver.receive(
            body, headers_of(body) | signature(body, "whsec_newer")
        )
        assert receipt.status == 503
        found = await service.receiver.health()
        assert (
            "the source of secrets failed for the last deliveries" in found.problems[0]
        )
        assert (
            await service.deliver(signed_body("sat.invoice.synced"), signed=True)
        ).status == 200
        assert (await service.receiver.health()).ok
