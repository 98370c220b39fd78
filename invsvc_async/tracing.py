"""
OpenTelemetry spans and metrics of a client's calls.

They contain no bodies, credentials, ids or queries.  Without `instrument` this module is not imported and
costs nothing.  Spans are created by the hooks of the client's state.
"""

from __future__ import annotations

from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from functools import partial
from time import time_ns
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import urlsplit
from weakref import WeakSet

import attrs

from invsvc_async._errors import ConfigurationError, ServiceError
from invsvc_async._version import __version__
from invsvc_async.api.operations import BY_NAME
from invsvc_async.client import options_of

try:
    from opentelemetry import metrics, trace
except ModuleNotFoundError:
    raise ConfigurationError(
        "tracing: needs opentelemetry-api. Install the extra: pip install 'invsvc-async[otel]'."
    ) from None

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
    from contextlib import AbstractAsyncContextManager

    from opentelemetry.metrics import Counter, Histogram, MeterProvider
    from opentelemetry.trace import Span, Tracer, TracerProvider

    from invsvc_async.client import Client
    from invsvc_async.concurrency.clock import Clock
    from invsvc_async.reconcile.intent import Intent
    from invsvc_async.transport.session import AttemptReport, ClientState, DecisionReport, Request
    from invsvc_async.transport.transport import Download

    Opening = AbstractAsyncContextManager[Download]

__all__ = ["instrument"]

R = TypeVar("R")

_UNSETTLED: Final = "unsettled"  # verdict of a write cancelled in flight
# seconds, from OpenTelemetry's semantic conventions
_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)


def instrument(
    client: Client,
    *,
    tracer_provider: TracerProvider | None = None,
    meter_provider: MeterProvider | None = None,
) -> None:
    """
    Trace all further calls of *client* and its views: one span for each call, with one event for each
    request.

    Spans follow OpenTelemetry's conventions for HTTP clients and are named by method and path template.
    The attribute ``invsvc.verdict`` is set for writes.  Metrics: ``http.client.request.duration`` (s) for
    each request, and ``invsvc.writes``, counted by verdict.  The client's own hooks are still called.  The
    default providers are the global ones.

    Raises:
        ConfigurationError: The client is already traced.

    Spec: Endpoints.
    """
    session = options_of(client).session
    if session in _TRACED:
        raise ConfigurationError(
            "instrument: this client is already traced. Call it once; views are included."
        )
    tracer = trace.get_tracer("invsvc_async", __version__, tracer_provider)
    meter = metrics.get_meter("invsvc_async", __version__, meter_provider)
    tracing = _Tracing(
        tracer=tracer,
        seconds=meter.create_histogram(
            "http.client.request.duration", "s", "Duration of HTTP client requests.",
            explicit_bucket_boundaries_advisory=_BUCKETS,
        ),
        writes=meter.create_counter("invsvc.writes", "{write}", "Writes by verdict."),
        server=_server(session.base_url),
    )  # fmt: skip
    session.on_attempt = _both(tracing.on_attempt, session.on_attempt)
    session.on_decision = _both(tracing.on_decision, session.on_decision)
    session.on_unsettled = _both(tracing.on_unsettled, session.on_unsettled)
    session.on_call = tracing.on_call
    session.on_stream = partial(tracing.stream, clock=session.clock)
    _TRACED.add(session)


@attrs.define(eq=False)
class _Call:
    """The call that runs in this task.  ``own`` is its operation; other operations are its settling reads."""

    span: Span
    own: str
    requests: int = 0
    verdict: str | None = None


_CALL: ContextVar[_Call | None] = ContextVar("invsvc_call", default=None)


@attrs.frozen(kw_only=True)
class _Tracing:
    """Hooks of one session."""

    tracer: Tracer
    seconds: Histogram
    writes: Counter
    server: dict[str, str | int]

    def begin(self, operation: str, *, method: str | None = None) -> _Call:
        """Start the span of a call."""
        row = BY_NAME[operation]
        method = method or row.method
        attributes = {"http.request.method": method, "invsvc.operation": operation, **self.server}
        if row.path:
            attributes["url.template"] = row.path
        outer = _CALL.get()
        within = None if outer is None else trace.set_span_in_context(outer.span)
        name = f"{method} {row.path}".rstrip()
        span = self.tracer.start_span(name, within, trace.SpanKind.CLIENT, attributes)
        return _Call(span, operation)

    def on_attempt(self, report: AttemptReport) -> None:
        """Record one request in its call's span and in the histogram."""
        facts: dict[str, str | int] = {"http.request.method": report.method}
        if report.status is not None:
            facts["http.response.status_code"] = report.status
        if (kind := _failure(report)) is not None:
            facts["error.type"] = kind
        self.seconds.record(report.seconds, {**facts, **self.server})
        call = _CALL.get()
        if call is None:
            return
        what = "attempt" if report.operation == call.own else "read"
        attributes = {**facts, "invsvc.end": report.end.value, "invsvc.seconds": report.seconds}
        call.span.add_event(what, {**attributes, "invsvc.operation": report.operation})
        if what == "attempt":
            call.requests += 1
            call.span.set_attributes(facts)

    def on_decision(self, report: DecisionReport) -> None:
        """Record the verdict of a write."""
        if report.verdict is not None:
            self._judge(report.operation, report.verdict)

    def on_unsettled(self, intent: Intent) -> None:
        """Record a write cancelled in flight; an unknown verdict was recorded before."""
        call = _CALL.get()
        if call is not None and call.verdict is None:
            self._judge(intent.operation, _UNSETTLED)

    def _judge(self, operation: str, verdict: str) -> None:
        self.writes.add(1, {"invsvc.operation": operation, "invsvc.verdict": verdict})
        call = _CALL.get()
        if call is None:
            return
        call.verdict = verdict
        call.span.set_attribute("invsvc.verdict", verdict)
        if verdict != "applied":
            call.span.set_status(trace.StatusCode.ERROR, verdict)

    async def on_call(self, request: Request, running: Awaitable[R]) -> R:
        """Trace one call: a read with its retries, or a write until its verdict."""
        call = self.begin(request.operation.name, method=request.method)
        outer = _CALL.set(call)
        try:
            with _ended(call):
                return await running
        finally:
            _CALL.reset(outer)

    @asynccontextmanager
    async def stream(self, request: Request, opening: Opening, clock: Clock) -> AsyncGenerator[Download]:
        """Trace one download up to its last byte.  It has no attempts, so the duration is measured here."""
        call, begun = self.begin(request.operation.name, method=request.method), clock.now()
        facts: dict[str, str | int] = {"http.request.method": "GET"}
        try:
            with _ended(call):
                async with opening as body:
                    facts["http.response.status_code"] = body.status
                    call.span.set_attributes(facts)
                    yield body
        except ServiceError as error:
            facts |= {"http.response.status_code": error.status, "error.type": str(error.status)}
            raise
        finally:
            self.seconds.record(clock.now() - begun, {**facts, **self.server})


_TRACED: WeakSet[ClientState] = WeakSet()


@contextmanager
def _ended(call: _Call) -> Generator[None]:
    """End the span with the block and mark errors.  Closing a generator early is not an error."""
    try:
        yield
    except GeneratorExit:
        raise
    except BaseException as error:
        kind = type(error).__name__
        if isinstance(error, ServiceError):
            kind = str(error.status)
            call.span.set_attribute("http.response.status_code", error.status)
        call.span.set_attribute("error.type", kind)
        call.span.set_status(trace.StatusCode.ERROR, call.verdict or kind)  # the message may contain an id
        raise
    finally:
        if call.requests > 1:
            call.span.set_attribute("http.request.resend_count", call.requests - 1)
        call.span.end(time_ns())


def _failure(report: AttemptReport) -> str | None:
    if report.status is not None and report.status >= 400:
        return str(report.status)
    return None if report.end.value == "answered" else report.end.value.replace(" ", "_")


def _server(base_url: str) -> dict[str, str | int]:
    parts = urlsplit(base_url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return {"server.address": parts.hostname or "", "server.port": port}


def _both(ours: Callable[[Any], None], theirs: Callable[[Any], None] | None) -> Callable[[Any], None]:
    if theirs is None:
        return ours

    def call(report: Any) -> None:
        ours(report)
        theirs(report)

    return call
