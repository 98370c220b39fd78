"""What OpenTelemetry is told of calls, and what it is not."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from invsvc_async import (
    ApiKey,
    Client,
    ConfigurationError,
    Intent,
    NotFoundError,
    NotSentError,
    ResponseLostError,
    TokenProvider,
    TransportError,
    tracing,
)
from invsvc_async.testing import quick_client
from invsvc_async.transport.transport import Transport

pytestmark = pytest.mark.one_python

HOOK = {"url": "https://me.example/in", "events": ["invoice.created"]}


class Seen:
    """A client that is traced, and what its exporters were given."""

    def __init__(self, client):
        self.exporter, self.reader = InMemorySpanExporter(), InMemoryMetricReader()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.meters = MeterProvider([self.reader])
        tracing.instrument(
            client, tracer_provider=self.provider, meter_provider=self.meters
        )

    @property
    def spans(self):
        return self.exporter.get_finished_spans()

    def metric(self, name):
        found = (
            self.reader.get_metrics_data().resource_metrics[0].scope_metrics[0].metrics
        )
        return next(each for each in found if each.name == name).data.data_points


@pytest.fixture
def seen(client):
    return Seen(client)


def events_of(span):
    return [
        (event.name, event.attributes.get("http.response.status_code"))
        for event in span.events
    ]


async def test_write_that_is_answered(client, seen):
    """A write is one span of the HTTP conventions with one attempt and its verdict."""
    hook = await client.webhooks.create(**HOOK)
    seen.exporter.clear()
    await client.webhooks.update(hook, description="x")
    (span,) = seen.spans

    assert (span.name, span.kind.name) == ("PUT /webhooks/{id}", "CLIENT")
    assert events_of(span) == [("attempt", 200)]
    assert span.attributes["invsvc.verdict"] == "applied"
    assert span.attributes["server.address"] == "127.0.0.1"
    assert span.attributes["http.response.status_code"] == 200
    assert span.status.is_ok


async def test_trace_context_of_requests_and_of_later_runs(
    client, seen, service, monkeypatch
):
    """Each request has the context of its call; a later run of a write links to the trace in which it was made."""
    sent = []
    send = Transport.send

    def noted(transport, exchange):
        sent.append(exchange.headers.get("traceparent"))
        return send(transport, exchange)

    # reaches: what is sent is noted with the span of that moment
    monkeypatch.setattr(Transport, "send", noted)
    service.script("webhooks.create", "apply, then hang")
    running = asyncio.create_task(client.webhooks.create(**HOOK).outcome())
    await service.arrived("webhooks.create")
    running.cancel()
    await asyncio.wait([running])
    (intent,) = client.unsettled
    (first,) = seen.spans
    seen.exporter.clear()
    assert (await client.settle(Intent.from_json(intent.to_json()))).applied
    (later,) = seen.spans

    def named(span):
        context = span.context
        return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"

    assert {*sent} == {named(first), named(later)}
    assert intent.trace == named(first)
    assert [link.context.span_id for link in later.links] == [first.context.span_id]


async def test_write_whose_answer_is_lost(client, seen, service):
    """The attempt and the reads before and after it are events of the one span."""
    hook = service.seed_webhook()
    service.script("webhooks.delete", "apply, then reset")
    await client.webhooks.delete(hook["id"])
    (span,) = seen.spans

    # The first 404 may show a state from before the webhook was made: it is read again once none can.
    assert events_of(span) == [
        ("read", 200),
        ("attempt", None),
        ("read", 404),
        ("read", 404),
    ]
    assert span.events[1].attributes["error.type"] == "lost"
    assert span.attributes["invsvc.verdict"] == "applied"
    assert "error.type" not in span.attributes


async def test_read_that_is_retried(client, seen, service):
    """A read with its retries is one span that counts them."""
    service.script("users.get", "503", "503")
    await client.users.get("usr_1")
    (span,) = seen.spans

    assert events_of(span) == [("attempt", 503), ("attempt", 503), ("attempt", 200)]
    assert span.attributes["http.request.resend_count"] == 2
    assert span.attributes["url.template"] == "/users/{id}"


async def test_error_of_an_earlier_attempt(client, seen, service):
    """A call that succeeded in the end has no error; one that did not has that of its last attempt alone."""
    service.script("users.get", "503", "reset")
    await client.users.get("usr_1")
    service.script("users.get", "503", *["reset"] * 9)
    with pytest.raises(TransportError):
        await client.users.get("usr_1")
    well, failed = (span.attributes for span in seen.spans)

    assert well["http.response.status_code"] == 200
    assert "error.type" not in well
    assert failed["error.type"] == "ResponseLostError"
    assert "http.response.status_code" not in failed


async def test_read_that_is_refused(client, seen):
    """A refusal is the span's error by its status, and its message is not told."""
    with pytest.raises(NotFoundError):
        await client.users.get("nobody")
    (span,) = seen.spans

    assert (span.status.is_ok, span.attributes["error.type"]) == (False, "404")
    assert "nobody" not in span.to_json()


async def test_write_whose_key_has_an_outcome(service, tmp_path):
    """Its run that found the outcome is no error, at once or after it waited for the one that was under way."""
    async with quick_client(
        service, journal=tmp_path / "calls.db", on_secret=lambda *_: None
    ) as client:
        seen = Seen(client)
        for _ in range(2):
            await client.webhooks.create(**HOOK).keyed("one")
        await asyncio.gather(
            *(client.webhooks.create(**HOOK).keyed("two") for _ in range(3))
        )

    assert [
        span.attributes.get("error.type")
        for span in seen.spans
        if not span.status.is_ok
    ] == []
    verdicts = [span.attributes.get("invsvc.verdict") for span in seen.spans]
    assert verdicts.count("applied") == 2


async def test_write_that_is_cancelled_in_flight(client, seen, service):
    """A cancelled write's span ends, as unsettled."""
    service.script("webhooks.create", "apply, then hang")
    task = asyncio.create_task(client.webhooks.create(**HOOK).outcome())
    await service.arrived("webhooks.create")
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

    assert seen.spans[-1].attributes["invsvc.verdict"] == "unsettled"


async def test_write_that_is_cancelled_before_it_is_sent(service):
    """A write that waited for its token has a span that ends with it, and no verdict."""
    waits = asyncio.Event()

    async def token():
        await waits.wait()
        return service.api_key

    async with quick_client(
        service, credential=TokenProvider(token, kind="api_key")
    ) as client:
        seen = Seen(client)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await client.journeys.update("jrn_1", name="first")
        assert len(seen.spans) == 1
        waits.set()
        await client.journeys.update("jrn_1", name="second")

    assert [span.attributes.get("invsvc.verdict") for span in seen.spans] == [
        None,
        "applied",
    ]
    assert {span.parent for span in seen.spans} == {None}


async def test_read_behind_a_write(client, seen):
    """A read of the same task is not part of the write before it."""
    await client.journeys.update("jrn_1", name="first")
    await client.users.get("usr_1")

    assert seen.spans[-1].name == "GET /users/{id}"
    assert seen.spans[-1].parent is None


async def test_many_writes_at_once(client, seen, service):
    """Spans of writes that run side by side keep their own events."""
    hooks = [
        service.seed_webhook(url=f"https://me.example/{number}")["id"]
        for number in range(20)
    ]
    await asyncio.gather(*(client.webhooks.delete(hook).outcome() for hook in hooks))

    assert len(seen.spans) == 20
    assert all(events_of(span).count(("attempt", 200)) == 1 for span in seen.spans)


async def test_download(client, seen, service):
    """A download is one span and one measurement, however it is read, and one that is refused has failed."""
    request_id = service.seed_download()["request_id"]
    package = (await client.invoices.download_status(request_id)).packages[0].id
    seen.exporter.clear()
    path = f"/invoices/download/package/{package}"
    await client.download(path).read()
    async with contextlib.aclosing(aiter(client.download(path))) as parts:
        async for _ in parts:
            break
    with pytest.raises(NotFoundError):
        await client.download("/invoices/download/package/none").read()

    assert [span.status.is_ok for span in seen.spans] == [True, True, False]
    assert [
        span.attributes.get("http.response.status_code") for span in seen.spans
    ] == [200, 200, 404]
    measured = seen.metric("http.client.request.duration")
    assert sum(point.count for point in measured) == 4


async def test_download_that_is_lost(client, seen, service):
    """It is measured as an error, like any request, whether or not its answer had begun."""
    package = service.seed_download()["packages"][0]["id"]
    service.script("invoices.download_package", "truncate", "reset")
    for _ in range(2):
        with pytest.raises(ResponseLostError):
            await client.download(f"/invoices/download/package/{package}").read()

    measured = [
        point.attributes for point in seen.metric("http.client.request.duration")
    ]
    ends = [
        (each.get("http.response.status_code"), each.get("error.type"))
        for each in measured
    ]
    assert ends == [(200, "lost"), (None, "lost")]


async def test_download_that_is_not_sent():
    """It is measured, too, as what it was."""
    async with Client("http://127.0.0.1:1/v2", ApiKey("eyJ.a.b")) as client:
        seen = Seen(client)
        with pytest.raises(NotSentError):
            await client.download("/invoices/download/package/any").read()

    (measured,) = seen.metric("http.client.request.duration")
    assert measured.attributes["error.type"] == "not_sent"


async def test_pages_are_reads(client, seen):
    """Each page of a list is a span of its own, under the application's span."""
    with seen.provider.get_tracer("application").start_as_current_span("job") as outer:
        await client.invoices.egress(limit=5).collect()

    pages = [span for span in seen.spans if span.name == "GET /invoices/egress"]
    assert len(pages) == 3
    assert {span.parent.span_id for span in pages} == {outer.get_span_context().span_id}


async def test_secrets_and_bodies(client, seen, service):
    """Nothing that is told holds the token, the webhook's secret, its URL or its id."""
    hook = await client.webhooks.create(**HOOK)
    await client.webhooks.get(hook.id)
    told = "".join(span.to_json() for span in seen.spans)

    assert not any(
        each in told for each in (service.api_key, hook.secret, "me.example", hook.id)
    )


async def test_metrics(client, seen, service):
    """Requests are measured in seconds by status, writes counted by verdict."""
    service.script("webhooks.create", "400")
    await client.webhooks.create(**HOOK).outcome()
    await client.users.get("usr_1")

    verdicts = {
        point.attributes["invsvc.verdict"]: point.value
        for point in seen.metric("invsvc.writes")
    }
    durations = {
        point.attributes["http.response.status_code"]: point
        for point in seen.metric("http.client.request.duration")
    }
    assert verdicts == {"refused": 1}
    assert durations[400].count == 1
    assert 0 < durations[200].sum < 10


async def test_hooks_of_the_application(service):
    """The application's own hooks are called as before."""
    told = []
    async with quick_client(service, on_attempt=told.append) as client:
        Seen(client)
        await client.users.get("usr_1")

    assert [report.operation for report in told] == ["users.get"]


async def test_client_that_is_not_traced(seen, service):
    """A client beside a traced one tells nothing."""
    async with quick_client(service) as other:
        await other.users.get("usr_1")

    assert seen.spans == ()


async def test_client_that_is_traced_twice(client, seen):
    """Tracing a client twice would tell everything twice, and is refused, for a view of it too."""
    with pytest.raises(ConfigurationError, match="already traced"):
        tracing.instrument(client.for_team("team_2"))
