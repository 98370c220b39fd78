"""
Tell OpenTelemetry of a client's calls, when asked to; never of a body, a credential, an id or a query.

Off, it costs nothing: nothing on the way of a request knows of this module.  Spans are drawn by the hooks of
the client's session; a download has none, so the first client that is traced has ``ByteStream`` look for a
tracer of its session.
"""

from __future__ import annotations

from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from functools import wraps
from time import time_ns
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

import attrs

from invsvc_async._errors import ConfigurationError, ServiceError
from invsvc_async._version import __version__
from invsvc_async.api.operations import BY_NAME
from invsvc_async.resources.unlisted import ByteStream

try:
    from opentelemetry import metrics, trace
except ModuleNotFoundError:
    raise ConfigurationError(
        "tracing needs opentelemetry-api, of the extra `otel`: pip install 'invsvc-async[otel]'"
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

_OPENED: Final = ByteStream._opened  # noqa: SLF001 - a room of the same house
_UNSETTLED: Final = "unsettled"  # the verdict of a write that was cancelled in flight
# s, of the conventions
_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)


def instrument(
    client: Client,
    *,
    tracer_provider: TracerProvider | None = None,
    meter_provider: MeterProvider | None = None,
) -> None:
    """
    Trace every call of *client* and its views from now on: one span a call, one event for each request of it.

    Spans follow the conventions of HTTP clients, their names being method and path template; the attribute
    ``invsvc.verdict`` is a write's.  Metrics: ``http.client.request.duration`` (s) of each request, and
    ``invsvc.writes``, counted by verdict.  The client's own hooks go on being called.  The providers are the
    application's global ones unless given.

    Raises:
        ConfigurationError: The client is traced already.

    Spec: Endpoints.
    """
    session = client._view.session  # noqa: SLF001 - a room of the same house
    if session in _TRACERS:
        raise ConfigurationError("this client is traced already: once is enough, for its views too")
    tracer = trace.get_tracer("invsvc_async", __version__, tracer_provider)
    meter = metrics.get_meter("invsvc_async", __version__, meter_provider)
    tracing = _Tracing(
        tracer=tracer,
        seconds=meter.create_histogram(
            "http.client.request.duration", "s", "Duration of HTTP client requests.",
            explicit_bucket_boundaries_advisory=_BUCKETS,
        ),
        writes=meter.create_counter("invsvc.writes", "{write}", "Writes by what became of them."),
        server=_server(session.base_url),
    )  # fmt: skip
    session.on_attempt = _both(tracing.on_attempt, session.on_attempt)
    session.on_decision = _both(tracing.on_decision, session.on_decision)
    session.on_unsettled = _both(tracing.on_unsettled, session.on_unsettled)
    session.on_call = tracing.on_call
    _TRACERS[session] = tracing
    setattr(ByteStream, "_opened", _traced_stream(_OPENED))  # noqa: B010 - a method


@attrs.define(eq=False)
class _Call:
    """A call under way in this task; ``own`` is its operation: others in it are reads that settle."""

    span: Span
    own: str
    requests: int = 0
    verdict: str | None = None


_CALL: ContextVar[_Call | None] = ContextVar("invsvc_call", default=None)


@attrs.frozen(kw_only=True)
class _Tracing:
    """The hooks of one session."""

    tracer: Tracer
    seconds: Histogram
    writes: Counter
    server: dict[str, str | int]

    def begin(self, operation: str, *, method: str | None = None) -> _Call:
        """Open the span of a call."""
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
        """Note one request: in the span of its call, and in the histogram."""
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
        told = {**facts, "invsvc.end": report.end.value, "invsvc.seconds": report.seconds}
        call.span.add_event(what, {**told, "invsvc.operation": report.operation})
        if what == "attempt":
            call.requests += 1
            call.span.set_attributes(facts)

    def on_decision(self, report: DecisionReport) -> None:
        """Note the verdict of a write."""
        if report.verdict is not None:
            self._judge(report.operation, report.verdict)

    def on_unsettled(self, intent: Intent) -> None:
        """Note that a write was cancelled in flight; one whose verdict is unknown has had that noted."""
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
        """Span one call: a read with its retries, a write until its verdict."""
        call = self.begin(request.operation.name, method=request.method)
        outer = _CALL.set(call)
        try:
            with _ended(call):
                return await running
        finally:
            _CALL.reset(outer)

    @asynccontextmanager
    async def stream(self, request: Request, opening: Opening, clock: Clock) -> AsyncGenerator[Download]:
        """Span one download, until its last byte; it is told of no attempt, so it is measured here."""
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


_TRACERS: WeakKeyDictionary[ClientState, _Tracing] = WeakKeyDictionary()


def _traced_stream(opened: Callable[[ByteStream], Opening]) -> Callable[[ByteStream], Opening]:
    @wraps(opened)
    def traced(stream: ByteStream) -> Opening:
        session, request = stream._view.session, stream._request  # noqa: SLF001 - a room of the same house
        tracing = _TRACERS.get(session)
        opening = opened(stream)
        return opening if tracing is None else tracing.stream(request, opening, session.clock)

    return traced


@contextmanager
def _ended(call: _Call) -> Generator[None]:
    """End the span with the block, as failed where that fails; one who stops reading is no failure."""
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
        call.span.set_status(trace.StatusCode.ERROR, call.verdict or kind)  # the message could hold an id
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
