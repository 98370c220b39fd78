"""
A request of a client: how to build the request, send it once, and read the answer.

``ClientCore`` is what all views of a client share. ``ClientOptions`` adds the options of one view.
"""

from __future__ import annotations

import asyncio
import logging
import random
import re
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Protocol, TypeAlias, TypeVar
from urllib.parse import quote, urlencode
from weakref import WeakKeyDictionary, WeakSet

import msgspec
from aiohttp import hdrs
from multidict import CIMultiDict, CIMultiDictProxy, istr
from yarl import URL

from invsvc_async.api.operations import Operation, OperationKind
from invsvc_async.codec import envelope as wire
from invsvc_async.errors import (
    NotSentError,
    ResponseLostError,
    ServiceError,
    UnreadableResponseError,
)
from invsvc_async.reconcile.enums import End
from invsvc_async.reconcile.server_clock import ServerClock
from invsvc_async.settings import Timeouts
from invsvc_async.transport.transport import Exchange, Transport

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from contextlib import AbstractAsyncContextManager

    from invsvc_async.codec.envelope import Envelope
    from invsvc_async.codec.exact_json import Wire
    from invsvc_async.concurrency.clock import Clock
    from invsvc_async.concurrency.limiter import Lane
    from invsvc_async.concurrency.pace import SharedPace
    from invsvc_async.reconcile.intent import Intent
    from invsvc_async.reconcile.outcome import Outcome
    from invsvc_async.settings import (
        CallOptions,
        OnSecret,
        ParameterNames,
        ReadRetries,
        ReconcilePolicy,
    )
    from invsvc_async.transport.credentials import Credential
    from invsvc_async.transport.response_body import Download
    from invsvc_async.transport.under_way import UnderWay
    from invsvc_async.writes.journal import WriteJournal
    from invsvc_async.writes.register import WriteRegister


log: logging.Logger = logging.getLogger("invsvc_async")

T = TypeVar("T")

NO_TOKEN = "TokenProvider's source returned no token in time"
_TWO_LINES = (
    "writes: some to one path have team=…, and others do not. Where that is the credential's own team, they "
    "may be sent in any order, because this token does not say which team it is of. Always pass team=…, or "
    "never."
)
# The codings that a request accepts, by whether it writes.
CODINGS = {True: "identity", False: "gzip, deflate"}
# characters: shorter ones are test values, and could be part of any word
_SHORTEST_TOKEN = 10
_ANY = "surrogateescape"  # as aiohttp reads headers
# On 3.11, access to an enum's member through its class takes as long as a call.
_WRITE = OperationKind.WRITE
_ANSWERED = End.ANSWERED
# Characters that quoting does not change: nearly all ids consist of them.
_UNRESERVED = re.compile(r"[A-Za-z0-9_-]+").fullmatch


# made for every call
class Request(msgspec.Struct, frozen=True, kw_only=True, eq=False, weakref=True):
    """An operation with its values, without headers."""

    operation: Operation
    # the ids in the path, by their names in the operation's path; unquoted
    path: Mapping[str, str] = {}
    query: Mapping[str, str] = {}  # wire names
    body: Wire = None
    has_body: bool = False
    team: str | None = None  # the value of the Connect parameter, if it is sent
    method: str | None = None  # of an unlisted operation
    raw_path: str | None = None  # the same: relative to the base URL

    def __repr__(self) -> str:
        return f"<Request {self.operation.name}>"


class AttemptReport(msgspec.Struct, frozen=True, kw_only=True):
    """One request that was sent, as reported to ``on_attempt``. Contains no body and no credential."""

    operation: str
    method: str
    end: End
    status: int | None
    seconds: float
    lane: Literal["call", "settle"]


class DecisionReport(msgspec.Struct, frozen=True, kw_only=True):
    """
    One decision about a write, as reported to ``on_decision``: what is done next, and why.

    ``verdict`` is set on the last one.
    """

    operation: str
    key: str
    decision: Literal["send", "read", "wait", "done"]
    reason: str
    verdict: str | None = None


# Hooks around each call, which is a read with its retries or a write until its verdict, and around each
# download. Tracing is made of them.
#
# A hook gets a call, and returns an awaitable in its place. That awaits the call once, in the caller's task,
# and returns or raises the same. Of a download, a hook gets and returns the context manager. The last
# argument of `Around` is the trace context (W3C's `traceparent`) of a write that was begun earlier, perhaps
# elsewhere. Any: whatever the call returns.
Around: TypeAlias = "Callable[[Request, Awaitable[Any], str | None], Awaitable[Any]]"
Streamed: TypeAlias = "AbstractAsyncContextManager[Download]"
AroundStream: TypeAlias = "Callable[[Request, Streamed], Streamed]"


class PreparedHeaders(dict[tuple[str | None, bool, bool], CIMultiDictProxy[str]]):
    """
    The headers of requests, by the Authorization header, whether they write, and whether they have a body.

    *own* are the headers that all requests have. Most requests have the same headers as the request before,
    so prepared headers are kept here. If there are none yet, :meth:`prepare` makes them.
    """

    _MOST = 16  # entries: those with a token that was renewed are never asked for again

    def __init__(self, own: Mapping[str, str]) -> None:
        super().__init__()
        self._own = own

    def __repr__(self) -> str:
        return object.__repr__(self)  # without the credential

    def prepare(self, key: tuple[str | None, bool, bool]) -> CIMultiDictProxy[str]:
        """Make the headers of *key*, and keep them."""
        authorization, write, has_body = key
        headers = CIMultiDict({istr(name): value for name, value in self._own.items()})
        headers[hdrs.ACCEPT_ENCODING] = CODINGS[write]
        if authorization is not None:
            headers[hdrs.AUTHORIZATION] = authorization
        if has_body:
            headers[hdrs.CONTENT_TYPE] = "application/json"
        if len(self) >= self._MOST:
            self.clear()
        prepared = self[key] = CIMultiDictProxy(headers)
        return prepared


class NotesReplacements(Protocol):
    """A store of webhooks' creates that can note which webhook replaced one whose secret was lost."""

    async def note(self, key: str, old: str, new: str) -> None:
        """Note that the webhook *new* stands in the place of *old*, which the create *key* made."""


class ClientCore(msgspec.Struct, kw_only=True, eq=False, weakref=True):
    """What all views of one client share: connections, credential, clocks, hooks, writes."""

    transport: Transport
    clock: Clock
    base_url: str
    credential: Credential
    # Any: a Client, which is above this folder
    client_of: Callable[[ClientOptions], Any]
    headers: PreparedHeaders
    writes: WriteRegister
    under_way: UnderWay
    on_attempt: Callable[[AttemptReport], None] | None = None
    on_decision: Callable[[DecisionReport], None] | None = None
    on_unsettled: Callable[[Intent], None] | None = None
    on_secret: OnSecret | None = None
    on_replay: Callable[[Outcome[Any]], None] | None = None
    on_call: Around | None = None
    # the headers of the trace context of a call
    trace: Callable[[], dict[str, str]] | None = None
    on_stream: AroundStream | None = None
    pace: SharedPace | None = None  # of new writes
    random: Callable[[], float] = random.random
    server_clock: ServerClock = msgspec.field(default_factory=ServerClock)
    livemode: bool | None = None  # as answers showed it
    retries_spent: float = 0.0  # of the quota that all views share, so that retries do not amplify an outage
    # The kind and the loop of each open store, by its leases, which stand for the store. The references are
    # weak: nothing has to be told of a store that ended.
    stores: WeakKeyDictionary[Any, tuple[str, asyncio.AbstractEventLoop]] = (
        msgspec.field(default_factory=WeakKeyDictionary)
    )  # Any: Leases, which are above this folder
    warned: set[str] = msgspec.field(default_factory=set)
    # whether writes to what a team has one of named the team: both, if some did and others did not
    named_a_team: set[bool] = msgspec.field(default_factory=set)
    # of open batches and outboxes
    replacements: WeakSet[NotesReplacements] = msgspec.field(default_factory=WeakSet)

    def __repr__(self) -> str:
        return object.__repr__(self)  # without the credential

    # Clients, resources and writes refer to a core, so pickling any of them ends here.
    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "Client: cannot be pickled, because its connections belong to this process. Make a client in the "
            "other one, and give it a write as write.to_line(), for client.write_from(line)."
        )

    async def aclose(self) -> None:
        """
        Close connections and journal, and end all waits of writes. Intents in doubt are kept.

        A hook ``on_secret`` that is under way has ``TO_KEEP_SECRETS`` more seconds, and is cancelled then. A
        hook that goes on after that is not waited for. Called within a write, as a user's reader may do, this
        does not wait for writes to end, because that write would wait for itself.
        """
        self.transport.check_loop(closing=True)
        self.under_way.closed = True
        try:
            await self.transport.aclose()
            self.under_way.end_waits()
            await self.under_way.wait_for_runs()
        finally:  # also if cancelled: nobody may call this again, and the journal would keep its file open
            if self.writes.journal is not None:
                await self.writes.journal.aclose()

    def leave_unsettled(
        self,
        intent: Intent,
        line: str | None,
        *,
        in_journal: bool = False,
    ) -> None:
        """Keep an intent with an unknown outcome, on the *line* of its thing, and call the user's hook."""
        self.writes.leave_open(intent, line, in_journal=in_journal)
        self.tell(self.on_unsettled, intent)

    def tell(self, hook: Callable[[T], None] | None, report: T) -> None:
        """Call a user-supplied hook. If it raises, that is logged and nothing else."""
        if hook is None:
            return
        try:
            hook(report)
        except Exception:
            log.exception(
                "a hook of the client raised an exception; the call continues"
            )

    def note_store(self, kind: str, leases: object) -> None:
        """Note a store that was opened: a *journal*, *batch* or *outbox*."""
        self.stores[leases] = kind, asyncio.get_running_loop()

    def members(self) -> int:
        """Return how many living processes have the journal of the client open, this one included."""
        found = [
            leases.living
            for leases, (kind, _) in self.stores.items()
            if kind == "journal"
        ]
        return max(found, default=1)

    def saw(self, livemode: object) -> None:
        """Note the data mode that an answer showed, unless it may change between calls."""
        if isinstance(livemode, bool) and self.writes.is_of_one_mode:
            self.livemode = livemode

    def other_team(self, named: str | None) -> str | None:
        """
        Return the team that a write *named*; ``None`` if it is the credential's own.

        Only API keys act for others: if another credential names one, the service refuses the write.  A key
        that does not say its team may write to one thing by two names, of which a warning tells.
        """
        if self.credential.kind != "api_key":
            return None
        own = self.credential.team
        if own is None:
            self.named_a_team.add(named is not None)
            if len(self.named_a_team) > 1:
                self.warn_once("lines of a team", _TWO_LINES)
        return None if named == own else named

    def warn_once(self, topic: str, message: str) -> None:
        """Log a warning once for each client."""
        if topic not in self.warned:
            self.warned.add(topic)
            log.warning("%s", message)


class ClientOptions(msgspec.Struct, kw_only=True, eq=False):
    """
    The options of a view of a client, and the core that all views share.

    Batches, outboxes and rows of engines have subclasses, which override ``on_secret``, ``pace``,
    ``gives_values``, :meth:`check_start` and :meth:`send`; here stands what holds for a client itself.
    """

    core: ClientCore
    timeouts: Timeouts
    reads: ReadRetries
    reconcile: ReconcilePolicy
    names: ParameterNames
    team: str | None = None
    # overrides that of the core (a batch has its own)
    journal: WriteJournal | None = None
    headers: dict[str, str] | None = None  # of one call

    def __repr__(self) -> str:
        return object.__repr__(self)  # without headers, which may have secrets

    @property
    def on_secret(self) -> OnSecret | None:
        """What gets the secret of each new webhook; a batch has its own."""
        return self.core.on_secret

    @property
    def pace(self) -> SharedPace | None:
        """The pace at which new writes begin; a batch has its own."""
        return self.core.pace

    @property
    def gives_values(self) -> bool:
        """Whether who awaits a write gets its value, and with it the secret of a new webhook."""
        return True

    def check_start(self) -> None:
        """Raise if the key of a write must not be claimed after all. For a client itself, it always may."""

    def for_call(self, options: CallOptions) -> ClientOptions:
        """Return these options with those of one call."""
        timeouts = self.timeouts
        timeout = options.timeout
        if isinstance(timeout, Timeouts):
            timeouts = timeout
        elif timeout is not None:
            attempt = min(timeouts.attempt, timeout)
            connect = min(timeouts.connect, timeout)
            timeouts = Timeouts(
                attempt=attempt,
                connect=connect,
                call=timeout,
            )
        headers = {**(self.headers or {}), **options.headers}
        return msgspec.structs.replace(self, timeouts=timeouts, headers=headers or None)

    def without_team(self) -> ClientOptions:
        """Return these options without the team, for intents: each contains its own, or none."""
        return msgspec.structs.replace(self, team=None)

    def attempt(
        self,
        request: Request,
        *,
        deadline: float,
        lane: Lane = "call",
    ) -> Awaitable[Exchange]:
        """
        Send a read once, after its token is fetched; return the record of it. Raises no network errors.

        *deadline* is a time of the event loop's clock. A write makes its exchange before, because the journal
        must have its time limit, and calls :meth:`send`. With a token at hand, this makes no coroutine of its
        own, because each one on the way costs time when the answer arrives.
        """
        if self.core.credential.ready is None and request.operation.credentials:
            return self._attempt_with_token(request, deadline, lane)
        sending = self.core.transport.send(self.exchange(request, deadline, lane))
        if self.core.on_attempt is None:
            return sending
        return self._reported(request, sending)

    def send(self, request: Request, exchange: Exchange) -> Awaitable[Exchange]:
        """
        Send *exchange*, made of *request* by :meth:`exchange`; no token is fetched.

        The ``end`` of the exchange is set even if the caller is cancelled.
        """
        sending = self.core.transport.send(exchange)
        if self.core.on_attempt is None:
            return sending
        return self._reported(request, sending)

    async def _attempt_with_token(
        self,
        request: Request,
        deadline: float,
        lane: Lane,
    ) -> Exchange:
        """Send *request* once, after its token is fetched."""
        await self.fetch_token(request, deadline)
        return await self.send(request, self.exchange(request, deadline, lane))

    async def _reported(
        self, request: Request, sending: Awaitable[Exchange]
    ) -> Exchange:
        """Wait until *request* was sent, then report that to ``on_attempt``; return the record of it."""
        exchange = await sending
        assert exchange.end is not None
        report = AttemptReport(
            operation=request.operation.name,
            method=exchange.method,
            end=exchange.end,
            status=exchange.status,
            seconds=exchange.ended - exchange.started,
            lane=exchange.lane,
        )
        self.core.tell(self.core.on_attempt, report)
        return exchange

    async def fetch_token(self, request: Request, deadline: float) -> None:
        """
        Fetch a token, if *request* needs one and there is none.

        Raises:
            ConfigurationError: The token could not be fetched.
            NotSentError: No token arrived by *deadline*.
        """
        if request.operation.credentials and self.core.credential.ready is None:
            try:
                async with asyncio.timeout_at(deadline):
                    await self.core.credential.header()
            except TimeoutError:
                reason = f"{NO_TOKEN}. Nothing was sent: check the source."
                raise NotSentError(f"{request.operation.name}: {reason}") from None

    def exchange(
        self,
        request: Request,
        deadline: float,
        lane: Lane = "call",
        *,
        not_after: float | None = None,
    ) -> Exchange:
        """Make the record of one request, with URL, headers and body."""
        core = self.core
        operation = request.operation
        write = operation.kind is _WRITE
        authorization = core.credential.ready if operation.credentials else None
        key = authorization, write, request.has_body
        try:
            headers = core.headers[key]
        except KeyError:
            headers = core.headers.prepare(key)
        if self.headers is not None or core.trace is not None:
            with_own = CIMultiDict(headers)
            if self.headers is not None:
                with_own.update(self.headers)
            if core.trace is not None:
                with_own.update(core.trace())
            headers = CIMultiDictProxy(with_own)
        return Exchange(
            method=request.method or operation.method,
            url=self.url(request),
            headers=headers,
            content=wire.dumps(request.body) if request.has_body else None,
            write=write,
            deadline=deadline,
            connect_timeout=self.timeouts.connect,
            not_after=not_after,
            lane=lane,
        )

    def url(self, request: Request) -> URL:
        """Return the whole URL. Every value is percent-encoded."""
        path = request.raw_path
        if path is None:
            values = request.path
            if not all(map(_UNRESERVED, values.values())):
                values = {name: quote(value, safe="") for name, value in values.items()}
            path = request.operation.path.format_map(values)
        if request.team is None:
            query = request.query
        else:
            query = {**request.query, "team": request.team}
        if query:
            text = f"{self.core.base_url}{path}?{urlencode(query)}"
        else:
            text = f"{self.core.base_url}{path}"
        return URL(text, encoded=True)

    def parse_answer(self, request: Request, exchange: Exchange) -> Envelope:
        """
        Return the envelope of an answer, and note the service's time from it.

        Raises:
            NotSentError, ResponseLostError: There is no complete answer.
            UnreadableResponseError: The answer does not have the specified form.
            ServiceError: The answer is an error.
        """
        name = request.operation.name
        if (
            exchange.end is not _ANSWERED
            or exchange.status is None
            or exchange.answer_headers is None
        ):
            raise _no_answer(name, exchange) from exchange.error
        if not 200 <= exchange.status < 300:
            raise self._error_in(request, exchange)
        try:
            envelope = wire.read_success(
                exchange.answer,
                status=exchange.status,
                headers=exchange.answer_headers,
                shape=request.operation.shape,
                operation=name,
            )
        except UnreadableResponseError as error:
            error.raw = _without_token(exchange, error.raw)
            raise error.with_traceback(None)  # noqa: B904 - its cause is set; its frames refer to the whole body
        if envelope.stamp is not None:
            self.core.server_clock.learn(
                envelope.stamp, exchange.started, exchange.ended
            )
        return envelope

    def _error_in(self, request: Request, exchange: Exchange) -> ServiceError:
        """Return the error that *exchange* was answered, and note the service's time from it."""
        error = error_of(exchange, request.operation.name)
        # The specification has the path, and no id in the path can be unknown: then the base URL is wrong.
        is_always_found = request.operation.listed and not request.path
        if error.status == 404 and is_always_found:
            self._blame_base_url(error)
        stamp = stamp_of(error)
        if stamp is not None:
            self.core.server_clock.learn(stamp, exchange.started, exchange.ended)
        return error

    def _blame_base_url(self, error: ServiceError) -> None:
        """Replace the hint at the end of the message of *error* with the advice to check the base URL."""
        url = self.core.base_url
        message = str(error.args[0]).removesuffix(error.hint)
        before = URL(url).path.rstrip("/").rpartition("/")[0]
        words = ""
        if before:
            words = f" It has {before} before the version, which only a gateway needs."
        error.args = (
            f"{message}Check the base URL {url}: the service has this path.{words}",
        )

    async def renew_token(
        self, exchange: Exchange, *, within: float | None = None
    ) -> bool:
        """
        Get a fresh token after a 401 of the authentication layer.

        Return ``False`` if none arrives *within* so many seconds (default: those of an attempt). A 401 in the
        standard envelope means a missing plan feature, not a stale token.
        """
        credential = self.core.credential
        if not credential.renewable:
            return False
        if exchange.status != 401 or exchange.answer_headers is None:
            return False
        if error_of(exchange, "").own_envelope:
            return False
        if within is None:
            within = self.timeouts.attempt
        try:
            async with asyncio.timeout(within):
                return await credential.renew(exchange.headers.get("Authorization"))
        except TimeoutError:
            return False


def error_of(exchange: Exchange, operation: str) -> ServiceError:
    """Parse an answer that is an error. A token in its body or headers is replaced by asterisks."""
    assert exchange.status is not None
    assert exchange.answer_headers is not None
    return wire.read_error(
        _without_token(exchange, exchange.answer),
        status=exchange.status,
        headers=_headers_without_token(exchange, exchange.answer_headers),
        operation=operation,
    )


def _headers_without_token(
    exchange: Exchange, headers: CIMultiDictProxy[str]
) -> CIMultiDict[str]:
    """Return a copy of *headers* with asterisks in place of the token that *exchange* was sent with."""
    # One look at all values, because nearly no answer repeats the token.
    values = "\n".join(headers.values()).encode("utf-8", _ANY)
    if _without_token(exchange, values) == values:
        return CIMultiDict(headers)
    return CIMultiDict(
        (
            name,
            _without_token(exchange, value.encode("utf-8", _ANY)).decode("utf-8", _ANY),
        )
        for name, value in headers.items()
    )


def _without_token(exchange: Exchange, content: bytes) -> bytes:
    """Return *content* with asterisks in place of the token that *exchange* was sent with."""
    token = (
        exchange.headers.get(hdrs.AUTHORIZATION, "").removeprefix("Bearer ").encode()
    )
    if len(token) < _SHORTEST_TOKEN:
        return content
    return content.replace(token, b"***").replace(token.replace(b"/", rb"\/"), b"***")


def stamp_of(error: ServiceError) -> int | None:
    """Return the service's time of an error answer, in whole ms. The time of a gateway is no such time."""
    if error.timestamp is None or not error.own_envelope:
        return None
    return round(error.timestamp.timestamp() * 1000)


def _no_answer(operation: str, exchange: Exchange) -> NotSentError | ResponseLostError:
    """Return the error for an *exchange* that has no complete answer."""
    why = "no answer"
    if exchange.error:
        why = str(exchange.error) or type(exchange.error).__name__
    if exchange.timed_out:
        why = f"timed out ({why})"
    if exchange.end is End.NOT_SENT:
        advice = "Check the address and the network, then call again."
        return NotSentError(
            f"{operation}: the request was not sent: {why}. {advice}",
            operation=operation,
        )
    advice = "Reads can be called again. A write is settled by reading."
    words = (
        f"{operation}: the request was sent and its answer was lost: {why}. {advice}"
    )
    return ResponseLostError(words, operation=operation, status=exchange.status)
