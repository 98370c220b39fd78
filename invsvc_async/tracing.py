"""
OpenTelemetry spans and metrics of a client's calls and a receiver's deliveries.

They contain no bodies, credentials, ids or queries.  Without `instrument` this module is not imported and
costs nothing.  Spans are created by the hooks of the client's state.
"""

from __future__ import annotations

from collections import OrderedDict
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from contextvars import ContextVar
from functools import partial
from hashlib import sha256
from time import time_ns
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import urlsplit

import attrs

from invsvc_async._version import __version__
from invsvc_async.client import Client, options_of
from invsvc_async.durable.backlog import Backlogs
from invsvc_async.durable.keyed_run import KeyTakenError
from invsvc_async.errors import (
    ConfigurationError,
    NotSentError,
    ServiceError,
    TransportError,
)

try:
    from opentelemetry import metrics, trace
    from opentelemetry.metrics import Observation
    from opentelemetry.trace.propagation.tracecontext import (
        TraceContextTextMapPropagator,
    )
except ModuleNotFoundError:
    raise ConfigurationError(
        "tracing: needs opentelemetry-api. Install invsvc-async with its extra 'otel'."
    ) from None

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable

    from opentelemetry.context import Context
    from opentelemetry.metrics import Histogram, Meter, MeterProvider
    from opentelemetry.trace import Span, SpanContext, TracerProvider

    from invsvc_async.concurrency.clock import Clock
    from invsvc_async.events import Event, Handling, Receipt, Receiver
    from invsvc_async.events.receiving.admission import Arrival
    from invsvc_async.reconcile.intent import Intent
    from invsvc_async.reconcile.outcome import Outcome
    from invsvc_async.transport.client_core import (
        AttemptReport,
        DecisionReport,
        Request,
    )
    from invsvc_async.transport.transport import Download

    Opening = AbstractAsyncContextManager[Download]

__all__ = ["instrument", "instrument_receiver"]

R = TypeVar("R")

_REMEMBERED: Final = 10_000  # deliveries whose handlers' spans can be linked to
_UNSETTLED: Final = "unsettled"  # verdict of a write cancelled in flight
_SCOPE: Final = ("invsvc_async", __version__)
_CONTEXT: Final = TraceContextTextMapPropagator()
# seconds, from OpenTelemetry's semantic conventions
_BUCKETS: Final = (
    0.005,
    0.01,
    0.025,
    0.05,
    0.075,
    0.1,
    0.25,
    0.5,
    0.75,
    1,
    2.5,
    5,
    7.5,
    10,
)


def instrument(
    client: Client,
    *,
    tracer_provider: TracerProvider | None = None,
    meter_provider: MeterProvider | None = None,
) -> None:
    """
    Trace all further calls of *client* and its views: a span for each call, with an event for each request.

    Spans follow OpenTelemetry's conventions for HTTP clients and are named by method and path template.
    The attribute ``invsvc.verdict`` is set for writes.  Each request has the header ``traceparent``.  An
    intent has it too: the span of a later run of its write, as by an outbox or after a kill, has a link to
    the trace in which it was made.  Metrics: ``http.client.request.duration`` (s) for
    each request; ``invsvc.writes``, counted by verdict; ``invsvc.replays``, keyed writes whose outcome was
    stored already, counted by its verdict.  For each kind of store that is open, ``invsvc.store``:
    ``invsvc.store.open`` (writes without a verdict) and ``invsvc.store.untold`` (verdicts that nobody has
    acknowledged), counted up to 100,000, ``invsvc.store.oldest`` (s), ``invsvc.store.lanes`` (those of this
    process).  They tell what each reading before has asked the store for.  The client's own hooks are still
    called.  The default providers are the global ones.

    Raises:
        ConfigurationError: The client is already traced.

    Spec: Endpoints.
    """
    core = options_of(client).core
    if core.on_call is not None:
        raise ConfigurationError(
            "instrument: this client is already traced. Call it once; views are included."
        )
    meter = metrics.get_meter(*_SCOPE, meter_provider)
    tracing = _Tracing(tracer_provider, meter, core.base_url)
    for name in ("on_attempt", "on_decision", "on_unsettled"):
        hooks = [
            each
            for each in (getattr(tracing, name), getattr(core, name))
            if each is not None
        ]
        setattr(core, name, partial(_call_each, hooks))
    core.on_replay = tracing.on_replay
    core.on_call = tracing.on_call
    core.trace = tracing.headers
    core.on_stream = partial(tracing.stream, clock=core.clock)
    backlogs = Backlogs(core.stores)
    for field, unit in (
        ("open", "{write}"),
        ("oldest", "s"),
        ("untold", "{verdict}"),
        ("lanes", "{lane}"),
    ):
        meter.create_observable_gauge(
            f"invsvc.store.{field}", [partial(_stored, backlogs, field)], unit
        )


def _call_each(hooks: Iterable[Callable[[Any], None]], report: object) -> None:
    for hook in hooks:
        hook(report)


def _stored(
    backlogs: Backlogs,
    field: str,
    _options: object,
) -> Iterable[Observation]:
    if field == "open":  # the first of them
        backlogs.ask()
    found = backlogs.found().items()
    return [
        Observation(getattr(each, field), {"invsvc.store": kind})
        for kind, each in found
    ]


def instrument_receiver(
    receiver: Receiver,
    *,
    tracer_provider: TracerProvider | None = None,
    meter_provider: MeterProvider | None = None,
) -> None:
    """
    Trace the further deliveries of *receiver*: one span for each delivery, one for each call of a handler.

    The span of a handler that runs later, in the inbox or in a retry, has a link to that of the delivery, if
    both are in this process.  Metrics: ``invsvc.events.answers`` by status and outcome,
    ``invsvc.events.answer.duration`` (s); ``invsvc.events.call.duration`` (s), with the name of the handler;
    ``invsvc.events.ended`` (leases lost and dead letters); and what waits in the store:
    ``invsvc.events.due``, ``invsvc.events.late`` (s), ``invsvc.events.dead_letters``, read every few seconds
    while the worker runs.

    Raises:
        ConfigurationError: The receiver is already traced.

    Spec: Events.
    """
    if receiver.on_delivery is not None:
        raise ConfigurationError(
            "instrument_receiver: this receiver is already traced. Call it once."
        )
    meter = metrics.get_meter(*_SCOPE, meter_provider)
    tracing = _Receiving(tracer_provider, meter)
    gauges = (
        ("due", "{event}", "due"),
        ("late", "s", "late"),
        ("dead_letters", "{event}", "dead"),
    )
    for name, unit, field in gauges:
        meter.create_observable_gauge(
            f"invsvc.events.{name}", [partial(_waiting, receiver, field)], unit
        )
    receiver.on_delivery = tracing.on_delivery
    receiver.on_handling = tracing.on_handling
    receiver.observe(tracing)


def _waiting(
    receiver: Receiver,
    field: str,
    _options: object,
) -> Iterable[Observation]:
    backlog = receiver.stats().backlog
    if backlog is None:
        return []
    return [Observation(getattr(backlog, field))]


def _histogram(meter: Meter, name: str, words: str) -> Histogram:
    return meter.create_histogram(
        name, "s", words, explicit_bucket_boundaries_advisory=_BUCKETS
    )


class _Receiving:
    """Hooks of one receiver."""

    def __init__(self, provider: TracerProvider | None, meter: Meter) -> None:
        self.tracer = trace.get_tracer(*_SCOPE, provider)
        self.answers = meter.create_counter(
            "invsvc.events.answers", "{answer}", "Answers to deliveries."
        )
        self.answer_seconds = _histogram(
            meter,
            "invsvc.events.answer.duration",
            "Time from a delivery's headers to its answer.",
        )
        self.call_seconds = _histogram(
            meter, "invsvc.events.call.duration", "Duration of calls of handlers."
        )
        self.ends = meter.create_counter(
            "invsvc.events.ended", "{event}", "Leases lost, and dead letters."
        )
        self._contexts: OrderedDict[bytes, SpanContext] = OrderedDict()

    async def on_delivery(
        self, arrival: Arrival, running: Awaitable[Receipt]
    ) -> Receipt:
        with self.tracer.start_as_current_span(
            "receive", kind=trace.SpanKind.CONSUMER
        ) as span:
            digest = sha256(arrival.body).digest()
            first = (
                self._contexts.setdefault(digest, context := span.get_span_context())
                is context
            )
            while len(self._contexts) > _REMEMBERED:
                self._contexts.popitem(last=False)
            receipt = await running
            # nobody handles it later
            if first and receipt.outcome not in {"stored", "failed"}:
                self._contexts.pop(digest, None)
            kind = _type_of(receipt.event)
            span.update_name(f"receive {kind}")
            facts = {
                "invsvc.outcome": receipt.outcome,
                "http.response.status_code": receipt.status,
            }
            span.set_attributes({"invsvc.event.type": kind, **facts})
            if receipt.status >= 400:
                span.set_status(trace.StatusCode.ERROR, receipt.outcome)
            return receipt

    async def on_handling(self, handling: Handling, running: Awaitable[None]) -> None:
        event = handling.event
        here = trace.get_current_span().get_span_context()
        context = self._contexts.get(sha256(event.raw).digest())
        links: list[trace.Link] = []
        if context is not None and context.trace_id != here.trace_id:
            links.append(trace.Link(context))
        kind = _type_of(event)
        facts = {"invsvc.event.type": kind, "invsvc.handler": handling.handler}
        settings: dict[str, Any] = {
            "kind": trace.SpanKind.CONSUMER,
            "attributes": facts,
            "links": links,
        }
        settings |= {"record_exception": False, "set_status_on_exception": False}
        with self.tracer.start_as_current_span(f"handle {kind}", **settings) as span:
            try:
                await running
            except BaseException as error:
                span.set_attribute("error.type", type(error).__name__)
                # the message may contain data
                span.set_status(trace.StatusCode.ERROR, type(error).__name__)
                raise

    def answered(self, receipt: Receipt, seconds: float) -> None:
        facts = {
            "http.response.status_code": receipt.status,
            "invsvc.outcome": receipt.outcome,
        }
        self.answers.add(1, facts)
        self.answer_seconds.record(seconds, facts)

    def called(
        self,
        handling: Handling,
        seconds: float,
        error: BaseException | None,
    ) -> None:
        facts = {
            "invsvc.event.type": _type_of(handling.event),
            "invsvc.handler": handling.handler,
        }
        if error is not None:
            facts["error.type"] = type(error).__name__
        self.call_seconds.record(seconds, facts)

    def ended(self, how: str) -> None:
        self.ends.add(1, {"invsvc.end": how})


def _type_of(event: Event | None) -> str:
    """Return the type, if the specification lists it: others would be without number."""
    if event is None or not event.is_known:
        return "unknown"
    return event.type


@attrs.define(eq=False)
class _TracedCall:
    """The call that runs in a task.  ``own`` is its operation; all further operations are settling reads."""

    span: Span
    own: str
    requests: int = 0
    # of the last request
    last: dict[str, str | int] = attrs.field(factory=dict[str, "str | int"])
    verdict: str | None = None


_CALL: ContextVar[_TracedCall | None] = ContextVar("invsvc_call", default=None)


def _within() -> Context | None:
    call = _CALL.get()
    if call is None:
        return None
    return trace.set_span_in_context(call.span)


class _Tracing:
    """Hooks of one client."""

    def __init__(
        self,
        provider: TracerProvider | None,
        meter: Meter,
        base_url: str,
    ) -> None:
        self.tracer = trace.get_tracer(*_SCOPE, provider)
        self.seconds = _histogram(
            meter, "http.client.request.duration", "Duration of HTTP client requests."
        )
        self.writes = meter.create_counter(
            "invsvc.writes", "{write}", "Writes by verdict."
        )
        self.replays = meter.create_counter(
            "invsvc.replays", "{write}", "Keyed writes that had an outcome."
        )
        parts = urlsplit(base_url)
        usual_port = 443 if parts.scheme == "https" else 80
        self.server: dict[str, str | int] = {
            "server.address": parts.hostname or "",
            "server.port": parts.port or usual_port,
        }

    def headers(self) -> dict[str, str]:
        """Return the headers that link a request to the call of the current task."""
        carrier: dict[str, str] = {}
        _CONTEXT.inject(carrier, _within())
        return carrier

    @contextmanager
    def _span(
        self, request: Request, begun: str | None = None
    ) -> Generator[_TracedCall]:
        """
        Start the span of a call, and end it with the block.  Closing a generator early is not an error.

        *begun* is the trace in which its write was begun, to which it links.
        """
        operation = request.operation
        method = request.method or operation.method
        attributes = {
            "http.request.method": method,
            "invsvc.operation": operation.name,
            **self.server,
        }
        if operation.path:
            attributes["url.template"] = operation.path
        name = f"{method} {operation.path}".rstrip()
        links: list[trace.Link] = []
        if begun is not None:
            first = trace.get_current_span(_CONTEXT.extract({"traceparent": begun}))
            links.append(trace.Link(first.get_span_context()))
        span = self.tracer.start_span(
            name, _within(), trace.SpanKind.CLIENT, attributes, links
        )
        call = _TracedCall(span, operation.name)
        try:
            yield call
        except (
            GeneratorExit,
            KeyTakenError,
        ):  # the latter: another run has the outcome of its key
            raise
        except BaseException as error:
            kind = type(error).__name__
            if isinstance(error, ServiceError):
                kind = str(error.status)
                call.last["http.response.status_code"] = error.status
            call.last["error.type"] = kind
            # the message may contain an id
            span.set_status(trace.StatusCode.ERROR, call.verdict or kind)
            raise
        finally:
            span.set_attributes(call.last)
            if call.requests > 1:
                span.set_attribute("http.request.resend_count", call.requests - 1)
            span.end(time_ns())

    def on_attempt(self, report: AttemptReport) -> None:
        """Record one request in its call's span and in the histogram."""
        facts: dict[str, str | int] = {"http.request.method": report.method}
        if report.end.value != "answered":
            facts["error.type"] = report.end.value.replace(" ", "_")
        if report.status is not None:
            facts["http.response.status_code"] = report.status
            if report.status >= 400:
                facts["error.type"] = str(report.status)
        self.seconds.record(report.seconds, {**facts, **self.server})
        call = _CALL.get()
        if call is None:
            return
        what = "attempt" if report.operation == call.own else "read"
        attributes = {
            **facts,
            "invsvc.end": report.end.value,
            "invsvc.seconds": report.seconds,
        }
        call.span.add_event(what, {**attributes, "invsvc.operation": report.operation})
        if what == "attempt":
            call.requests += 1
            call.last = facts

    def on_decision(self, report: DecisionReport) -> None:
        if report.verdict is not None:
            self._judge(report.operation, report.verdict)

    def on_replay(self, outcome: Outcome[Any]) -> None:
        facts = {
            "invsvc.operation": outcome.started_as.operation,
            "invsvc.verdict": str(outcome.verdict),
        }
        self.replays.add(1, facts)

    def on_unsettled(self, intent: Intent) -> None:
        """Record a write cancelled in flight; an unknown verdict was recorded before."""
        call = _CALL.get()
        if call is not None and call.verdict is None:
            self._judge(intent.operation, _UNSETTLED)

    def _judge(self, operation: str, verdict: str) -> None:
        self.writes.add(1, {"invsvc.operation": operation, "invsvc.verdict": verdict})
        if (call := _CALL.get()) is not None:
            call.verdict = verdict
            call.span.set_attribute("invsvc.verdict", verdict)
            if verdict == "applied":
                call.last.pop("error.type", None)  # of a request whose answer was lost
            else:
                call.span.set_status(trace.StatusCode.ERROR, verdict)

    async def on_call(
        self,
        request: Request,
        running: Awaitable[R],
        begun: str | None,
    ) -> R:
        with self._span(request, begun) as call:
            outer = _CALL.set(call)
            try:
                return await running
            finally:
                _CALL.reset(outer)

    @asynccontextmanager
    async def stream(
        self,
        request: Request,
        opening: Opening,
        clock: Clock,
    ) -> AsyncGenerator[Download]:
        """Trace a download up to its last byte.  Without attempts, the duration is measured here."""
        facts: dict[str, str | int] = {"http.request.method": "GET"}
        begun = clock.now()
        try:
            with self._span(request) as call:
                async with opening as body:
                    facts["http.response.status_code"] = body.status
                    call.span.set_attributes(facts)
                    yield body
        except ServiceError as error:
            facts |= {
                "http.response.status_code": error.status,
                "error.type": str(error.status),
            }
            raise
        except NotSentError:
            facts["error.type"] = "not_sent"
            raise
        except TransportError:
            facts["error.type"] = "lost"
            raise
        finally:
            self.seconds.record(clock.now() - begun, {**facts, **self.server})
