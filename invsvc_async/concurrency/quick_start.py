"""The start of an adaptive limit: it grows with the answers, as long as these are as quick as before."""

from __future__ import annotations

from math import exp, log

from invsvc_async.concurrency.rounds import (
    APART,
    QUEUES,
    AnswerSums,
    QuickRound,
    Round,
)

# Tuned on simulated services: capacity 20 to 2,000, constant to heavy-tailed latencies (see the tests).
_FEWEST = 4  # answers in a round
_SLOWER = 0.3  # rise of a round's latency above which it is looked at closely: many of its requests queued
_STEADY = 0.15  # a rise that is surely below this lets the size leap
_LEAP = 4  # growth of the size by a leap; otherwise it doubles


class QuickStart:
    """
    Determine how the size of a limit grows from *first* on: after each round of as many answers as its size.

    Its rounds do not wait for slow answers, and so seem quicker than they are: it may grow once too often.
    It does not end by chance: a rise of latency counts only if the spread of the answers does not explain it.
    And it does not decide about the limit: what seems slower is looked at closely, in settled rounds.
    """

    def __init__(self, first: int) -> None:
        self._first = first
        # the largest size that was used in full and cost no latency; 0: none yet
        self.good: int = 0
        self._known = AnswerSums()  # to requests that began under such sizes

    @property
    def has_learnt(self) -> bool:
        """Whether it has had a round."""
        return self._known.answers > 0

    def next_round(
        self,
        since: float,
        size: int,
        *,
        grew: bool,
    ) -> QuickRound:
        """Return an empty round of *size*; if it just *grew*, late answers are those of a good size."""
        return QuickRound(
            since, max(size, _FEWEST), earlier=self._known if grew else None
        )

    def is_slower(self, this: Round) -> bool:
        """Return whether the round *this* is slower than those before, because more are in flight."""
        if not self.good or this.in_flight <= self.good:
            return False
        growth = log(this.in_flight / self.good)
        before = self._known.round()
        rise = this.latency - before.latency
        allowed = max(min(_SLOWER, QUEUES * growth), this.chance_beside(before))
        return growth >= APART and rise > allowed

    def next_size(
        self,
        this: Round,
        answers: AnswerSums,
        size: int,
    ) -> int:
        """Return the size after *size*, whose round *this*, with *answers*, was not slower."""
        if not this.is_full(size):
            # A leap that is not used is taken back: it would hide from which size on latency rises.
            return min(size, max(2 * self.good, self._first))
        before = self._known.round() if self.has_learnt else this
        # Falling latency is that of the quick answers, which come first.
        rise = max(this.latency - before.latency, 0.0)
        is_steady = rise + this.chance_beside(before) < _STEADY
        self._known.absorb(answers)
        self.good = size
        return size * (_LEAP if is_steady else 2)

    def baseline(self) -> Round | None:
        """Return what to compare with later; ``None`` if even the first size may have had a queue."""
        if self.good <= self._first:
            return None
        return self._known.round()._replace(in_flight=float(self.good))

    def size_to_look_at(self, this: Round) -> int:
        """Return the size after the slower round *this*: what did not queue, but more than was good."""
        if self.good <= self._first:
            return self._first
        rise = this.latency - self._known.round().latency
        return max(int(this.in_flight * exp(-rise)), self.good + max(1, self.good // 4))
