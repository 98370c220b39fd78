"""Rounds of answers, whose mean latencies tell whether more requests in flight cost latency."""

from __future__ import annotations

from math import log, sqrt
from typing import NamedTuple

# Tuned on simulated services: capacity 1 to 200, 5 to 500 ms, constant to exponential (see the tests).
# Growth of latency per growth in flight above which more in flight is not worth it.
QUEUES = 0.65
APART = 0.08  # two rounds are compared if the logarithms of their requests in flight differ this much
_FULL = 0.9  # used share of the limit above which there is demand for more
_SURE = 2.5  # standard errors beyond which a difference is no chance


class Round(NamedTuple):
    """Means over the answers of one round: requests in flight, and the logarithm of the latency (s)."""

    in_flight: float
    latency: float  # of logarithms, so a few slow answers hardly move it
    error: float = 0.0  # the square of the standard error of that mean

    def is_full(self, size: int) -> bool:
        """Return whether so much of the limit *size* was used that there is demand for more."""
        return self.in_flight >= _FULL * size

    def slope_from(self, before: Round | None) -> float | None:
        """
        Return the growth of latency per growth of requests in flight since the round *before*, 0 to 1.

        ``None`` if the rounds cannot be compared.
        """
        if before is None or min(before.in_flight, self.in_flight) <= 0:
            return None
        growth = log(self.in_flight / before.in_flight)
        if abs(growth) < APART:
            return None
        return (self.latency - before.latency) / growth

    def chance_beside(self, other: Round) -> float:
        """Return how large a difference in latency to the round *other* may be by chance."""
        return _SURE * sqrt(self.error + other.error)


class AnswerSums:
    """Sums over answers, from which the means of a round are made."""

    def __init__(self) -> None:
        self.answers: float = 0  # how many
        self._used = 0.0  # sum of the requests in flight
        self._logs = 0.0  # sum of the logarithms of latencies, and of their squares
        self._squares = 0.0

    def add(self, in_flight: int, latency: float) -> None:
        """Add the answer to a request with *in_flight* in flight; *latency* is a logarithm."""
        self.answers += 1
        self._used += in_flight
        self._logs += latency
        self._squares += latency * latency

    def absorb(self, newer: AnswerSums) -> None:
        """Add the answers of *newer*; those that were there before count half from now on."""
        self.answers = self.answers / 2 + newer.answers
        self._used = self._used / 2 + newer._used
        self._logs = self._logs / 2 + newer._logs
        self._squares = self._squares / 2 + newer._squares

    def round(self) -> Round:
        """Return the round of these answers, which are one at least."""
        mean = self._logs / self.answers
        variance = max(self._squares / self.answers - mean * mean, 0.0)
        return Round(self._used / self.answers, mean, variance / self.answers)


class QuickRound(AnswerSums):
    """
    A round that is complete after *fewest* answers to requests that began from *since* on.

    It does not wait for slow answers.  Those that come later are added to *earlier* of the next round.
    """

    def __init__(
        self,
        since: float,
        fewest: int,
        earlier: AnswerSums | None,
    ) -> None:
        super().__init__()
        self._since = since
        self._fewest = fewest
        self._earlier = earlier

    def take(
        self,
        started: float,
        _ended: float,
        in_flight: int,
        latency: float,
    ) -> Round | None:
        """Add an answered request; return the round if that makes it complete."""
        if started < self._since:
            if self._earlier is not None:
                self._earlier.add(in_flight, latency)
            return None
        self.add(in_flight, latency)
        if self.answers >= self._fewest:
            return self.round()
        return None


class SettledRound(AnswerSums):
    """
    A round whose answers all tell about one size of the limit.

    It has the requests that began in an interval from *since* on: counting those that end favours quick ones.
    It has *fewest* answers, and takes *shortest* seconds, so that a pause of this process does not fill it.
    """

    def __init__(
        self,
        since: float,
        fewest: int,
        shortest: float,
    ) -> None:
        super().__init__()
        self.since: float = since
        self._fewest = fewest
        self._shortest = shortest
        self._until = since  # what begins from then on is of the next round

    def take(
        self,
        started: float,
        ended: float,
        in_flight: int,
        latency: float,
    ) -> Round | None:
        """Add an answered request, or return the round if it is complete without it."""
        if started < self.since:
            return None  # it was made under an earlier size
        if started >= self._until:
            in_time = ended - self.since >= self._shortest
            if in_time and self.answers >= self._fewest:
                return self.round()
            self._until = ended
        self.add(in_flight, latency)
        return None
