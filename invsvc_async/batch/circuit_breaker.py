"""
The circuit breaker of a batch.

While the service is away (a connection fails, or several writes in a row have no definite answer) or refuses
the credential, no write starts. A cheap read shows when it is back. A refused credential ends the run if no
fresh one can come.

A request that failed shows that the service is away only if it began after the last one that was answered:
those that began earlier, and hang, say nothing about a service that has answered later ones.
"""

from __future__ import annotations

import asyncio
import logging
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

from invsvc_async.api.operations import TEAMS_CREATE, WEBHOOKS_GET
from invsvc_async.errors import (
    BatchStoppedError,
    ConfigurationError,
    InvsvcError,
    NotSentError,
    ResponseLostError,
    ServiceError,
    UnreadableResponseError,
)
from invsvc_async.reconcile.facts import time_of
from invsvc_async.reconcile.history import Attempt, End, Reading, Resumed, Verdict
from invsvc_async.transport.client_core import NO_TOKEN, ClientOptions, Request
from invsvc_async.transport.send_gate import TOO_LATE

if TYPE_CHECKING:
    from collections.abc import Callable

    from invsvc_async.reconcile.outcome import AnyOutcome, Outcome
    from invsvc_async.transport.transport import Exchange


log: logging.Logger = logging.getLogger("invsvc_async.batch")

FIRST_PAUSE = 1.0  # s before a probe; doubled until a write succeeds
LONGEST_PAUSE = 60.0  # s
IN_A_ROW = 5  # writes that end in a 5xx or without an answer, one after the other, before the batch pauses
_PROBE_TIME = 10.0  # s for one probe, or for a new token
_MOST_AWAY = 10  # how often one write is put back because the service was away
_MOST_LATE = 100  # how often because its lease ended before it left: this machine was slow, or slept
# how often because its credential was refused, though the probe then succeeded
_MOST_REFUSED = 3
_REFUSED = (401, 403)
_FAULTS = {  # by the class of aiohttp's error, which is all that is kept of it
    "ClientConnectorError": "connection failed",
    "ClientConnectorDNSError": "DNS lookup failed",
    "ClientConnectorSSLError": "TLS handshake failed",
    "ClientConnectorCertificateError": "TLS certificate not valid",
}
_AWAY = "the service cannot be reached"
_AWAITED = "a token of TokenProvider's source is awaited"
# errors of requests that did not leave
_UNSENT = (NotSentError.__name__, ConfigurationError.__name__)
# any answer of the service will do
_PROBE = Request(operation=WEBHOOKS_GET, path={"id": "none"})
_CLOSED = (
    "client: it was closed before all writes had their verdicts. They stay open. Run again with an open "
    "client."
)


class Cause(NamedTuple):
    """Why a write failed, if the write itself is not the reason."""

    why: str
    most: int = _MOST_AWAY  # how often it may put the same write back
    at_once: bool = False  # the first probe needs no pause
    stops: bool = False  # a pause does not help: the run ends
    # of the client's clock: when the request began that failed, if it matters
    began: float = inf
    pauses: bool = True  # the other writes wait, too


def cause_of(outcome: AnyOutcome, outage: Cause | None) -> Cause | None:
    """
    Return what explains *outcome*: the service, the network or the credential. ``None`` if nothing does.

    *outage* is the pause during which the write ran, if any. Failures that prove nothing alone need one.
    """
    sent = _last(outcome, Attempt)
    match outcome.verdict:
        case Verdict.REFUSED:
            return _cause_of_refusal(outcome, sent)
        case Verdict.NOT_APPLIED if not _may_be_overtaken(outcome):
            return _cause_of_no_effect(outcome, sent, outage)
        case Verdict.UNKNOWN:
            return _cause_of_doubt(_last(outcome, Reading), sent, outage)
        case _:
            return None


def _cause_of_refusal(outcome: AnyOutcome, sent: Attempt | None) -> Cause | None:
    """Return what explains a refusal that says nothing of the write: the credential, or the plan."""
    if sent is not None and sent.status in _REFUSED and not sent.own_envelope:
        return Cause(_refused(sent.status), _MOST_REFUSED, at_once=True)
    error = outcome.error
    # The specification shows only for these that every write of theirs needs the feature.
    if outcome.started_as.operation != TEAMS_CREATE.name:
        return None
    if not isinstance(error, ServiceError):
        return None
    if error.status == 401 or (error.status, error.code) == (
        403,
        "insufficient_permissions",
    ):
        return Cause(
            f"the plan lacks a feature (HTTP {error.status}: {error.message})",
            stops=True,
        )
    return None


def _may_be_overtaken(outcome: AnyOutcome) -> bool:
    """Return whether a newer write to the thing was sent, or may have been."""
    resumed = _last(outcome, Resumed)
    if resumed is None:
        return False
    return resumed.newest is False or not resumed.is_place_known


def _cause_of_no_effect(
    outcome: AnyOutcome,
    sent: Attempt | None,
    outage: Cause | None,
) -> Cause | None:
    """Return the reason why a write had no effect, though no newer write has overtaken it."""
    if sent is not None and sent.end is End.NOT_SENT:
        if TOO_LATE in str(outcome.error):
            return Cause(TOO_LATE, _MOST_LATE, pauses=False)
        return Cause(_unreachable(outcome.error), began=sent.started)
    if outcome.evidence.basis == "absence" and _may_be_sent_again(outcome):
        return outage  # which left no time to send it again
    return None


def _may_be_sent_again(outcome: AnyOutcome) -> bool:
    """Return whether the policy lets the write be sent again at all; sends during an outage do not count."""
    policy = outcome.started_as.policy
    return policy.resend != "never" and policy.max_resends > 0


def _cause_of_doubt(
    reading: Reading | None,
    sent: Attempt | None,
    outage: Cause | None,
) -> Cause | None:
    """Return what explains that no read showed whether the write was applied."""
    if reading is None:
        return None
    if sent is not None and reading.started < sent.ended:
        return None
    if reading.status in _REFUSED and not reading.own_envelope:
        return Cause(_refused(reading.status), at_once=True)
    if reading.error is not None and reading.error.kind in _UNSENT:
        why = _why_unsent(reading.error.kind, reading.error.message)
        return outage or Cause(why, began=reading.started)
    if reading.finding is not None:
        return None
    if reading.status is None or reading.status >= 500:
        return outage
    return None


# Any: an event of that kind, or None
def _last(outcome: Outcome[Any], kind: type[Any]) -> Any:
    for event in reversed(outcome.history):
        if isinstance(event, kind):
            return event
    return None


def _refused(status: int | None) -> str:
    return f"the service refuses the credential (HTTP {status})"


def _failure(exchange: Exchange) -> str:
    """Return in a few words how a request failed that may have arrived."""
    if exchange.end is End.ANSWERED:
        return f"the service answers HTTP {exchange.status}"
    if exchange.timed_out:
        return "the service does not answer (timed out)"
    return "the service does not answer (connection lost)"


def _unreachable(error: BaseException | None) -> str:
    """Return in a few words why a request did not leave."""
    cause = None if error is None else error.__cause__
    why: str | None
    if isinstance(cause, TimeoutError):
        why = "timed out"
    else:
        why = _FAULTS.get(str(cause).partition(":")[0])
    if why:
        return f"{_AWAY} ({why})"
    return _why_unsent(type(error).__name__, str(error))


def _why_unsent(kind: str, message: str) -> str:
    """Return why a request was not sent, by the class and the message of the error."""
    if kind == ConfigurationError.__name__:  # of a TokenProvider
        return message
    if NO_TOKEN in message:
        return NO_TOKEN
    return _AWAY


class CircuitBreaker:
    """
    Decides whether writes may start, and which of them are put back instead of finished.

    It is closed at first. An outage or a refused credential opens it; then it probes with one read at growing
    intervals. When a probe succeeds, one write at a time may start, until one is answered.

    *on_change* is called when it opens, and when writes may start again. *on_stop* is called with the error
    if waiting cannot help.
    """

    def __init__(
        self,
        view: ClientOptions,
        *,
        on_change: Callable[[], None],
        on_stop: Callable[[Exception], None],
    ) -> None:
        self._view = view.without_team()
        self._core = view.core
        self._on_change = on_change
        self._on_stop = on_stop
        self._pause = FIRST_PAUSE
        self._trying = False  # a probe succeeded, and no write has been answered since
        # keys of writes that failed since the last answer
        self._failing: set[str] = set()
        # of the client's clock: when the latest request began that was answered
        self._answered_from = -inf
        self._probing: asyncio.Task[None] | None = None
        self._next_probe = 0.0  # of the client's clock
        self._away_until = -inf  # of the client's clock: the end of the last pause
        self.why: str | None = None  # why the batch is paused

    @property
    def pause(self) -> tuple[str | None, float | None]:
        """Why nothing can be sent now, and the seconds until the service is tried again, if that is known."""
        if self._core.credential.is_fetching:
            return _AWAITED, None
        if self.why is None:
            return None, None
        return self.why, self._seconds_to_probe

    @property
    def _seconds_to_probe(self) -> float:
        return max(self._next_probe - self._core.clock.now(), 0.0)

    def allows(self, in_flight: int) -> bool:
        """Return whether a write may start, with *in_flight* others being sent."""
        if self.why is not None:
            return False
        return not (self._trying and in_flight)

    def learn(self, key: str, exchange: Exchange) -> None:
        """Note how one request of the write *key* ended."""
        if (
            exchange.end is End.NOT_SENT
            or exchange.status in _REFUSED
            or exchange.given_up
            or self._core.under_way.closed
        ):
            return
        if exchange.end is End.ANSWERED and (exchange.status or 0) < 500:
            self._note_answer(exchange)
            self._answered()
            return
        if self._is_outdated(exchange.started):
            return
        self._failing.add(key)
        if self._trying or len(self._failing) >= IN_A_ROW:
            self._open(Cause(_failure(exchange)))

    def holds_back(self, outcome: AnyOutcome, times: int) -> bool:
        """
        Return whether a write with *outcome* is to be run again, because the write is not the reason for it.

        *times* is how often that was so before: one write must not keep the batch from its end.
        """
        if outcome.verdict is Verdict.APPLIED:
            return False
        if self._core.under_way.closed:
            is_why = outcome.evidence.cause == "client closed"
            if is_why:
                self.stop_closed()
            return is_why
        outage = self._outage_during(outcome)
        cause = cause_of(outcome, outage)
        if cause is None or times >= cause.most:
            if outcome.verdict is Verdict.REFUSED:
                self._answered()
            return False
        if cause.stops:
            reason = (
                f"{outcome.started_as.operation}: {cause.why}. No write was marked as refused because of it. "
                "Run again once the plan has it, or run the other writes with another journal."
            )
            self._on_stop(BatchStoppedError(reason))
        elif cause is not outage:  # which is known already, and perhaps over
            self._pause_for(cause)
        return True

    def _outage_during(self, outcome: AnyOutcome) -> Cause | None:
        """Return the pause during which the write of *outcome* ran, if any."""
        began = time_of(outcome.history[0]) if outcome.history else inf
        was_away = self.why is not None or began < self._away_until
        if was_away:
            return Cause(self.why or "the service was away")
        return None

    def _pause_for(self, cause: Cause) -> None:
        """Pause because of *cause*, if other writes have to wait, and the service has not answered since."""
        if cause.pauses and not self._is_outdated(cause.began):
            self._open(cause)

    def stop_closed(self) -> None:
        """End the run, because the client was closed too early."""
        self._on_stop(BatchStoppedError(_CLOSED))

    async def close(self) -> None:
        """Stop probing."""
        if self._probing is not None:
            self._probing.cancel()
            await asyncio.wait([self._probing])

    def _note_answer(self, exchange: Exchange) -> None:
        self._answered_from = max(self._answered_from, exchange.started)

    def _is_outdated(self, began: float) -> bool:
        """Return whether a request that began after *began* was answered: then a failure says nothing."""
        return began < self._answered_from

    def _answered(self) -> None:
        self._failing.clear()
        if self._trying:
            self._trying = False
            self._pause = FIRST_PAUSE
            self._on_change()

    def _open(self, cause: Cause) -> None:
        if self.why is not None:
            return
        self._trying = False
        self._failing.clear()
        self._wait_for_probe(cause.why, at_once=cause.at_once)
        self._probing = asyncio.get_running_loop().create_task(self._probe_until_back())
        self._on_change()

    def _wait_for_probe(self, why: str, *, at_once: bool = False) -> None:
        if at_once:
            seconds = 0.0
        else:
            seconds = self._pause * (0.75 + self._core.random() / 2)
            self._pause = min(2 * self._pause, LONGEST_PAUSE)
        self.why = why
        self._next_probe = self._core.clock.now() + seconds
        when = f"in {seconds:.1f} s" if seconds else "now"
        log.warning("the batch is paused: %s. Next probe %s.", why, when)

    # --- probing

    async def _probe_until_back(self) -> None:
        try:
            while True:
                if not await self._core.under_way.pause(self._seconds_to_probe):
                    paused = f"the client was closed while the batch was paused because {self.why}"
                    self._on_stop(
                        BatchStoppedError(
                            f"batch: {paused}. Run again with an open client."
                        )
                    )
                    return
                try:
                    why = await self._probe(renews=True)
                except BatchStoppedError:
                    raise
                except InvsvcError as error:
                    why = _unreachable(error)
                if why is None:
                    break
                self._wait_for_probe(why)
        except Exception as error:  # noqa: BLE001 - without probes the batch would stay paused
            self._on_stop(error)
            return
        self.why = None
        self._trying = True
        self._away_until = self._core.clock.now()
        log.info("the batch continues: a probe was answered")
        self._on_change()

    async def _probe(self, *, renews: bool) -> str | None:
        """
        Read once, and return what is wrong, or ``None`` if nothing is.

        A refused token is fetched anew, if it can be, and then tried once.
        """
        deadline = asyncio.get_running_loop().time() + min(
            self._view.timeouts.attempt, _PROBE_TIME
        )
        exchange = await self._view.attempt(_PROBE, deadline=deadline, lane="settle")
        try:
            self._view.parse_answer(_PROBE, exchange)
        except ServiceError as error:
            if error.status in _REFUSED and not error.own_envelope:
                if renews and await self._renewed(exchange, error):
                    return await self._probe(renews=False)
                return _refused(error.status)
            is_back = error.status == 429 or (error.own_envelope and error.status < 500)
            if not is_back:
                return _failure(exchange)
        except ResponseLostError:
            return _failure(exchange)
        except UnreadableResponseError:
            return f"the service's answer cannot be read (HTTP {exchange.status})"
        self._note_answer(exchange)
        return None

    async def _renewed(self, exchange: Exchange, refusal: ServiceError) -> bool:
        """
        Ask for a fresh token, and return whether there is one.

        Raises:
            BatchStoppedError: The credential has a fixed token.
        """
        credential = self._core.credential
        if not credential.renewable:
            raise BatchStoppedError(
                f"credential: {_refused(refusal.status)}: {refusal.message}. No write was marked as refused "
                "because of it. Run again with a valid credential; if its token is another one for the same "
                "team and data mode, pass same_mode=True (invsvc: --same-mode)."
            ) from refusal
        try:
            async with asyncio.timeout(_PROBE_TIME):
                return await credential.renew(exchange.headers.get("Authorization"))
        except TimeoutError:
            return False
