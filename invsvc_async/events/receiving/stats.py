"""The counts of a receiver's work since the receiver was created."""

from __future__ import annotations

import logging
import threading
from collections import Counter, defaultdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Literal, Protocol

import attrs

from invsvc_async.events.receiving.admission import Receipt, unavailable
from invsvc_async.events.receiving.unread import Unread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from invsvc_async.events.event import Event
    from invsvc_async.events.receiving.handlers import Handling
    from invsvc_async.events.stores import Backlog
    from invsvc_async.events.verify import Credential, Trust

SECRETS: Final = "The source of secrets"  # what may fail for a delivery
STORE: Final = "The event store"

_log: Final = logging.getLogger("invsvc_async.events")


@attrs.frozen(kw_only=True)
class CredentialStats:
    """
    How often a secret or shared header authenticated a delivery, and when last (in UTC).

    ``label`` is the one given, or its position, from 1.  ``refused`` counts deliveries that came with it
    after ``retires_at``.
    """

    kind: Literal["secret", "shared header"]
    label: str
    matched: int
    last_matched_at: datetime | None
    refused: int
    retires_at: datetime | None


@attrs.frozen(kw_only=True)
class ReceiverStats:
    """
    The work of a receiver since it was created, in this process.

    ``answers`` counts by HTTP status and outcome.  ``answer_seconds`` is the sum of the times from a
    delivery's headers to its answer, and ``slowest_answer`` the longest, in seconds.  ``calls`` and
    ``failed_calls`` count calls of handlers, ``leases_lost`` events whose handler took longer than the lease,
    and ``dead_letters`` what became one.  ``running`` is how many handlers the worker runs now.  ``backlog``
    is what waited in the store when it was read last, or ``None``.  ``credentials`` lists what authenticates
    deliveries.
    """

    answers: Mapping[tuple[int, str], int]
    answer_seconds: float
    slowest_answer: float
    calls: int
    failed_calls: int
    leases_lost: int
    dead_letters: int
    running: int
    backlog: Backlog | None
    credentials: tuple[CredentialStats, ...]


@attrs.frozen(kw_only=True)
class Health:
    """Whether a receiver keeps up; ``problems`` says in words why not, and ``backlog`` is what waits."""

    problems: tuple[str, ...]
    backlog: Backlog | None

    @property
    def ok(self) -> bool:
        """Whether there is no problem."""
        return not self.problems


class Observer(Protocol):
    """
    An observer of a receiver's work, for metrics.  Errors that it raises are logged, and change no result.

    Under a server that is not async, its threads call ``answered`` for what they refuse themselves.
    """

    def answered(self, receipt: Receipt, seconds: float) -> None:
        """Count an answer."""

    def called(
        self,
        handling: Handling,
        seconds: float,
        error: BaseException | None,
    ) -> None:
        """Count a call of a handler."""

    def ended(self, how: Literal["lease lost", "dead letter"]) -> None:
        """Count an event that was not simply handled."""


@attrs.define
class Use:
    """How often something authenticated a delivery, when last, and how often it came once retired."""

    matched: int = 0
    last: float | None = None
    refused: int = 0


class Tally:
    """
    The counters of one receiver, and its ``clock``, which returns seconds since the epoch.

    What fails for a delivery, ``SECRETS`` or ``STORE``, is a problem from ``unavailable`` to ``works_again``.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock: Final = clock
        self.observers: list[Observer] = []
        self.backlog: Backlog | None = None
        # a server that is not async answers in several threads
        self._answering = threading.Lock()
        self._answers: Counter[tuple[int, str]] = Counter()
        self._answer_seconds = self._slowest_answer = 0.0
        self._calls = self._failed_calls = 0
        self._ends: Counter[str] = Counter()
        self.uses: defaultdict[Credential, Use] = defaultdict(Use)
        self.unread: Final = Unread()
        # by what failed: how often in a row, and how last
        self.failing: dict[str, tuple[int, str]] = {}

    def unavailable(
        self,
        what: str,
        failure: Exception,
        event: Event | None = None,
    ) -> Receipt:
        """Note the failure of *what*, and return the answer that makes the sender come back."""
        times, _ = self.failing.get(what, (0, ""))
        self.failing[what] = times + 1, type(failure).__name__
        return unavailable(what, failure, event)

    def works_again(self, what: str) -> None:
        """Note that *what* has worked for a delivery: earlier failures are no problem any more."""
        self.failing.pop(what, None)

    def used(self, credential: Credential | None) -> None:
        """Count a delivery that *credential* has authenticated."""
        if credential is not None:
            use = self.uses[credential]
            use.matched += 1
            use.last = self.clock()

    @property
    def problems(self) -> list[str]:
        """The failures of the last deliveries, in words."""
        return [
            f"{what.lower()} failed for the last deliveries, which were answered 503 "
            f"({times} times, last {error})"
            for what, (times, error) in self.failing.items()
        ]

    def answered(self, receipt: Receipt, seconds: float) -> None:
        """Count an answer that took so long."""
        with self._answering:
            self._answers[receipt.status, receipt.outcome] += 1
            self._answer_seconds += seconds
            self._slowest_answer = max(self._slowest_answer, seconds)
        for observer in self.observers:
            _notify(observer.answered, receipt, seconds)

    def called(
        self,
        handling: Handling,
        seconds: float,
        error: BaseException | None,
    ) -> None:
        """Count a call of a handler."""
        self._calls += 1
        self._failed_calls += error is not None
        for observer in self.observers:
            _notify(observer.called, handling, seconds, error)

    def ended(self, how: Literal["lease lost", "dead letter"]) -> None:
        """Count an event that was not simply handled."""
        self._ends[how] += 1
        for observer in self.observers:
            _notify(observer.ended, how)

    def stats(self, trust: Trust | None, *, running: int) -> ReceiverStats:
        """Return the counts, and among them those of the secrets and headers in *trust*."""
        return ReceiverStats(
            answers=dict(self._answers),
            answer_seconds=self._answer_seconds,
            slowest_answer=self._slowest_answer,
            calls=self._calls,
            failed_calls=self._failed_calls,
            leases_lost=self._ends["lease lost"],
            dead_letters=self._ends["dead letter"],
            running=running,
            backlog=self.backlog,
            credentials=tuple(self._stats_of_all(trust)),
        )

    def _stats_of_all(self, trust: Trust | None) -> Iterator[CredentialStats]:
        """Yield the counts of each secret, then of each shared header in *trust*."""
        if trust is None:
            return
        for number, secret in enumerate(trust.keys, 1):
            yield self._stats_of("secret", secret, number)
        for number, header in enumerate(trust.shared_headers, 1):
            yield self._stats_of("shared header", header, number)

    def _stats_of(
        self,
        kind: Literal["secret", "shared header"],
        credential: Credential,
        number: int,
    ) -> CredentialStats:
        """Return the counts of *credential*, with the *number* that it has among those of its *kind*."""
        use = self.uses.get(credential, Use())
        last_matched_at = None
        if use.last is not None:
            last_matched_at = datetime.fromtimestamp(use.last, UTC)
        return CredentialStats(
            kind=kind,
            label=credential.label or str(number),
            matched=use.matched,
            last_matched_at=last_matched_at,
            refused=use.refused,
            retires_at=credential.retires_at,
        )


def _notify(observe: Callable[..., None], *facts: object) -> None:
    """Call *observe*, a method of an observer; log what it raises."""
    try:
        observe(*facts)
    except Exception as error:  # noqa: BLE001 - an observer may raise anything
        _log.error(
            "An observer of the receiver failed: %s",
            type(error).__name__,
            exc_info=error,
        )
