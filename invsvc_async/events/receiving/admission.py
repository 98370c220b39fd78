"""
The admission of a delivery by the secrets and headers that are valid now, and the answer.

A forged event, an authentic one that cannot be parsed, and a well-formed one of an unknown type get three
different answers.

Secrets and shared headers are fixed values, or come from functions that ask a vault.  What a function
returned is used for a while, then replaced in the background.  If a delivery fits nothing, it is asked once
more, because a rotation may just have happened.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar

import attrs
import msgspec

from invsvc_async.concurrency import threads
from invsvc_async.concurrency.cancellation import raise_if_cancelled
from invsvc_async.errors import (
    ConfigurationError,
    EventError,
    MalformedEventError,
    SignatureMismatchError,
    UnauthenticatedEventError,
    without_frames,
)
from invsvc_async.events.event import (
    SIGNATURE,
    Event,
    Head,
    ResourceEvent,
    check_delivered,
    parse,
    says_test,
)
from invsvc_async.events.verify import (
    Secret,
    Trust,
    check_flag,
    check_form,
    is_retired,
    keys_of,
    shared_headers_of,
    unauthenticated,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from invsvc_async.events.verify import (
        Credential,
        SecretsSource,
        SharedHeader,
        SharedHeadersSource,
    )

C = TypeVar("C", "Secret", "SharedHeader")

_Accepted: TypeAlias = Literal[
    "handled", "stored", "duplicate", "ignored", "unknown", "test", "dead letter"
]
Outcome: TypeAlias = (
    _Accepted | Literal["refused", "unreadable", "busy", "failed", "unavailable"]
)

_log: Final = logging.getLogger("invsvc_async.events")
_NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})
COME_BACK: Final[Mapping[str, str]] = MappingProxyType({"Retry-After": "5"})
# s at least between two fetches, however many forged deliveries come
_PAUSE: Final = 1.0
_LIMIT: Final = 5.0  # s for one fetch: the sender waits 10 s
_NOTHING: Final = (
    "secrets: nothing authenticates events. Pass secrets or a SharedHeader."
)
_NO_BODY: Final = (
    "An authentic delivery came without a body. Check that nothing reads it before the receiver, and that "
    "the server accepts bodies in chunks."
)
_FAILED: Final = "secrets: the function that returns them failed. The log says why."


@attrs.frozen
class Receipt:
    """
    The answer to the sender, and the reason.

    ``status`` is the HTTP status; ``outcome`` is one word for it, safe to send as the body; ``event`` is the
    event, if it could be read; ``error`` is why it was refused; ``headers`` are those of the answer.

    An event that is ``handled`` or ``stored`` cannot be lost any more; a ``duplicate`` was one of these
    before.  An ``ignored`` event has no handler, and the type of an ``unknown`` one is not in the
    specification.  A ``dead letter`` is authentic but could not be read, and was stored.  ``busy`` (429),
    ``failed`` (500) and ``unavailable`` (503) make the service send a resource event again.

    Spec: Events, Delivery behavior.
    """

    status: int
    outcome: Outcome
    event: Event | None = None
    error: EventError | None = None
    headers: Mapping[str, str] = _NO_HEADERS


# something is full: the sender is to come back
FULL: Final = Receipt(503, "unavailable", headers=COME_BACK)


def unavailable(
    what: str,
    failure: Exception,
    event: Event | None = None,
) -> Receipt:
    """Return the answer that makes the sender come back, because *what* failed."""
    _log.error("%s failed: %s", what, type(failure).__name__, exc_info=failure)
    return Receipt(503, "unavailable", event, headers=COME_BACK)


@attrs.frozen(eq=False)
class Arrival:
    """
    A delivery as it arrived.

    Its repr shows nothing of the body, and of the headers only the names: functions that wait, or that may
    raise, hold a delivery in this form alone, because error trackers record local variables.
    """

    body: bytes = attrs.field(repr=False)
    head: Head


# Without the garbage collector, because nothing that it has refers back to it.
class Admitted(msgspec.Struct, frozen=True, eq=False, gc=False):
    """
    An event to be handled; one sent ``as a test`` only by the handler of tests.

    ``sent`` says how often the service will send it: ``"once"``, or ``"until acknowledged"``. ``by`` is what
    authenticates it.
    """

    event: Event
    sent: Literal["once", "until acknowledged", "as a test"]
    by: Credential | None


class Unreadable(msgspec.Struct, frozen=True, eq=False):
    """An authentic body that is not an event."""

    error: MalformedEventError
    by: Credential


Verdict: TypeAlias = Admitted | Unreadable | Receipt


def judge(trust: Trust, arrival: Arrival, now: float) -> Verdict:
    """
    Classify a delivery at *now*, in seconds since the epoch; a ``Receipt`` refuses it.

    - A signature authenticates any event.
    - A shared header authenticates a resource event, which the service does not sign.
    - An event of a family that the service signs, without a signature, and an event without any proof are
      admitted only if ``accept_unsigned`` allows that for their family (``Trust.admit``).
    - A test from the dashboard has no proof. It is admitted if both body and headers mark it as a test.
    """
    proof = None
    try:
        proof = trust.prove(arrival.body, arrival.head, now)
        # Headers may mark a test, but no proof covers them: whoever captured an event could add the mark. So
        # ``is_test`` of an event that is proved is by its body alone, and of any other by both.
        if proof:
            event = parse(arrival.body)
        else:
            event = parse(arrival.body, arrival.head)
        check_delivered(event)
    except SignatureMismatchError as error:
        return Receipt(401, "refused", error=without_frames(error))
    except MalformedEventError as error:
        return _judge_malformed(
            without_frames(error), proof, has_body=bool(arrival.body)
        )
    try:
        trust.admit(event, proof)
    except EventError as error:
        # Without a proof, one mark is not enough: a test of the dashboard has both.
        is_test_of_dashboard = event.body_says_test and says_test(arrival.head)
        if not is_test_of_dashboard:
            return Receipt(401, "refused", event, without_frames(error))
    if event.is_test:
        return Admitted(event, "as a test", proof)
    # The service repeats resource events, which it does not sign, and sends signed events once. ``parse``
    # makes a resource event of an unknown family, too: if such an event is signed, it may come only once.
    if isinstance(event, ResourceEvent) and not isinstance(proof, Secret):
        return Admitted(event, "until acknowledged", proof)
    return Admitted(event, "once", proof)


def _judge_malformed(
    error: MalformedEventError,
    proof: Credential | None,
    *,
    has_body: bool,
) -> Verdict:
    """Classify a malformed delivery; *proof* authenticates the body."""
    if proof is None:
        return Receipt(400, "unreadable", error=error)
    if not has_body:  # The sender has sent a body, so the delivery is to come back.
        _log.error(_NO_BODY)
        return Receipt(503, "unavailable", error=error, headers=COME_BACK)
    return Unreadable(error, proof)


def judge_head(
    trust: Trust,
    head: Head,
    now: float,
    *,
    takes_tests: bool,
) -> Receipt | None:
    """
    Return the answer to a delivery that no body can change, or ``None`` if the body has to be read.

    *takes_tests* is whether there is a handler of tests from the dashboard, which nothing authenticates.
    Without one, a test is answered as a test: nothing is done with it, whatever its body is.
    """
    signature = head.get(SIGNATURE)
    if trust.keys and signature is not None:
        try:
            check_form(signature)
        except SignatureMismatchError as error:
            return Receipt(401, "refused", error=without_frames(error))
        return None
    try:
        # There is no signature, or no secret. So only a shared header can prove it.
        proof = trust.prove(b"", head, now)
    except SignatureMismatchError as error:
        return Receipt(401, "refused", error=without_frames(error))
    # With a secret, signed families need a signature (``Trust.admit``); with a shared header, all others need
    # that header. So with both, ``accept_unsigned`` admits nothing that has neither.
    authenticates_all = bool(trust.keys and trust.shared_headers)
    accepts_without_proof = trust.accept_unsigned and not authenticates_all
    if proof is not None or accepts_without_proof:
        return None
    if says_test(head):
        if takes_tests:
            return None
        return Receipt(200, "test")
    return Receipt(401, "refused", error=unauthenticated(trust.shared_headers))


def check_age(
    event: Event,
    now: float,
    max_age: float | None,
) -> Receipt | None:
    """
    Return the refusal of a signed event that is older than *max_age* seconds at *now*, s since the epoch.

    A store forgets keys in time. Without this check, a body that somebody captured would then be handled
    again.

    Spec: Events, Tax-authority sync body, Invoice batch body.
    """
    if max_age is None or isinstance(event, ResourceEvent):
        return None
    if event.created_at is None:
        return None
    age = now - event.created_at.timestamp()
    if age <= max_age:
        return None
    error = UnauthenticatedEventError(
        f"{event.type}: it was made {age / 86400:.0f} days ago, so it may be a copy that somebody sends "
        "again. Do not handle it, unless you deliver it again yourself: then raise max_age."
    )
    return Receipt(401, "refused", event, error)


def retired_match(
    trust: Trust,
    arrival: Arrival,
    now: float,
) -> Credential | None:
    """Return what would have authenticated a refused delivery, if it were not retired."""
    keys = tuple(_retired(trust.keys, now))
    shared = tuple(_retired(trust.shared_headers, now))
    # ``prove`` passes over what is retired by its *now*: at the epoch, nothing is retired yet.
    all_are_valid = Trust(keys, shared, accept_unsigned=False)
    try:
        return all_are_valid.prove(arrival.body, arrival.head, now=0.0)
    except SignatureMismatchError:
        return None


def _retired(credentials: Iterable[C], now: float) -> Iterator[C]:
    """Yield those of *credentials* that are no longer accepted at *now*."""
    for credential in credentials:
        if is_retired(credential, now):
            yield credential


class TrustSource:
    """
    The trust in deliveries, fetched anew after *refresh_after* seconds if an argument is a function.

    A function that fails is reported in the log, and what it returned before stays valid.

    - ``known`` is what was fetched last. It stays the same object as long as a fetch changes nothing.
    - ``at_hand`` returns it without waiting, and begins a fetch if it is old.
    - ``newer`` waits for a fetch that begins after the call; all callers who wait for its begin share it.

    Fetches run one after the other, with a pause between. At most one waits for its turn: calls join it until
    it begins.
    """

    def __init__(
        self,
        secrets: SecretsSource,
        shared: SharedHeadersSource,
        *,
        accept_unsigned: bool,
        refresh_after: float,
    ) -> None:
        check_flag(accept_unsigned)
        self._accept_unsigned = accept_unsigned
        self._refresh_after = refresh_after
        # Each is the user's function, or the values that were given instead, which are checked once.
        self._secrets = secrets if callable(secrets) else keys_of(secrets)
        self._shared = shared if callable(shared) else shared_headers_of(shared)
        self.known: Trust | None = None
        if not (callable(self._secrets) or callable(self._shared)):
            self.known = self._checked_trust(self._secrets, self._shared)
        self._is_fixed = self.known is not None
        # Times of the loop: when the last fetch began, and when the one began that ``known`` is of.
        self._last_began = float("-inf")
        self._known_since = float("-inf")
        self._one_at_a_time = asyncio.Lock()
        self._waiting: asyncio.Task[bool] | None = None  # the fetch that calls may join
        self._fetches: set[asyncio.Task[bool]] = set()  # all that have not ended
        self._is_function_running = False  # in its thread, which cannot be ended

    def at_hand(self) -> Trust | None:
        """Return the trust as known now, or ``None``; fetch it anew in the background if it is old."""
        if self._is_fixed:
            return self.known
        if self.known is None:
            return None
        now = asyncio.get_running_loop().time()
        if now > self._known_since + self._refresh_after:
            self._joined_fetch()
        return self.known

    async def newer(self, used: Trust | None) -> Trust | None:
        """
        Return another trust than *used*, fetched after this call, or ``None`` if nothing has changed.

        If another call has fetched a trust since *used* was known, that is returned at once.

        Raises:
            ConfigurationError: The fetch has failed, or was stopped.
        """
        if self.known is used and not self._is_fixed:
            try:
                is_fetched = await asyncio.shield(self._joined_fetch())
            except asyncio.CancelledError:
                raise_if_cancelled()
                raise ConfigurationError(
                    "receiver: it was stopped. Start it again."
                ) from None
            if not is_fetched:
                raise ConfigurationError(_FAILED)
        if self.known is used:
            return None
        return self.known

    async def stop(self) -> None:
        """Cancel fetches that are under way; the next may be in another event loop."""
        if fetches := list(self._fetches):
            for task in fetches:
                task.cancel()
            await asyncio.wait(fetches)
        self._waiting = None
        self._one_at_a_time = asyncio.Lock()

    def _joined_fetch(self) -> asyncio.Task[bool]:
        """Return the fetch that waits to begin; start the task of a new fetch if there is none."""
        if self._waiting is None or self._waiting.done():
            self._waiting = asyncio.create_task(
                self._fetch(), name="invsvc events secrets"
            )
            self._fetches.add(self._waiting)
            self._waiting.add_done_callback(self._fetches.discard)
        return self._waiting

    async def _fetch(self) -> bool:
        """Wait for the turn of this fetch, then fetch the trust anew; return whether that succeeded."""
        loop = asyncio.get_running_loop()
        async with self._one_at_a_time:
            await asyncio.sleep(max(0.0, self._last_began + _PAUSE - loop.time()))
            # From here on, a call of ``newer`` needs another fetch: what the functions return may be older
            # than the call. Until here, calls could join this fetch.
            self._waiting = None
            self._last_began = loop.time()
            try:
                async with asyncio.timeout(_LIMIT):
                    keys = keys_of(await self._asked(self._secrets))
                    headers = shared_headers_of(await self._asked(self._shared))
                trust = self._checked_trust(keys, headers)
            except Exception as error:  # noqa: BLE001 - a vault's client may raise anything, also secrets
                # Not what it says: that may be a secret.
                _log.error(
                    "The function for secrets or headers failed with %s",
                    type(error).__name__,
                )
                return False
            self._known_since = self._last_began
            if trust != self.known:  # Otherwise ``known`` stays the same object.
                self.known = trust
            return True

    def _checked_trust(
        self, keys: tuple[Secret, ...], headers: tuple[SharedHeader, ...]
    ) -> Trust:
        """Return the trust by *keys* and *headers*; raise ``ConfigurationError`` if it admits nothing."""
        if not (keys or headers or self._accept_unsigned):
            raise ConfigurationError(_NOTHING)
        return Trust(keys, headers, self._accept_unsigned)

    async def _asked(self, source: object) -> Any:  # Any: it is checked afterwards
        """Return *source*, or the result of the function *source*, which runs in a thread: it may hang."""
        if not callable(source):
            return source
        if self._is_function_running:
            raise TimeoutError  # The call before has not ended yet.

        def call() -> object:
            self._is_function_running = True
            try:
                return source()
            finally:
                self._is_function_running = False

        found = await threads.called(call, "invsvc events secrets")
        if inspect.isawaitable(found):
            return await found
        return found
