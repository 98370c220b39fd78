"""
Whether deliveries are genuine, by secrets that may be renewed meanwhile.

``admission`` has the rules, for given secrets; this asks for the secrets, and judges again by newer ones.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, TypeVar

from invsvc_async.concurrency.deadline import Deadline, Deadlines
from invsvc_async.errors import ConfigurationError
from invsvc_async.events.receiving.admission import (
    Admitted,
    Arrival,
    Receipt,
    TrustSource,
    Verdict,
    judge,
    judge_head,
    retired_match,
)
from invsvc_async.events.receiving.stats import SECRETS, Tally

if TYPE_CHECKING:
    from collections.abc import Callable

    from invsvc_async.events.event import Head
    from invsvc_async.events.verify import Trust

V = TypeVar("V", bound="Verdict")

_log: Final = logging.getLogger("invsvc_async.events")


class AnswerTimes:
    """
    The times by which deliveries are to be answered.

    All deliveries of an event loop share one timer. Only that of the loop which was used last is kept.
    """

    def __init__(self) -> None:
        self._deadlines: Deadlines | None = None

    def within(self, until: float) -> Deadline:
        """Return the context manager of a block that ends at the loop time *until*."""
        loop = asyncio.get_running_loop()
        if self._deadlines is None or self._deadlines.loop is not loop:
            self._deadlines = Deadlines(loop)
        return Deadline(loop, until, self._deadlines)


class Judge:
    """
    Judges deliveries by the secrets of *source*.

    A refusal by secrets that may be old is not the last word: newer ones are asked for. ``takes_tests`` is
    whether test events are answered, which nothing authenticates.
    """

    def __init__(
        self,
        source: TrustSource,
        tally: Tally,
        times: AnswerTimes,
    ) -> None:
        self._source = source
        self._tally = tally
        self._times = times
        self.takes_tests: bool = False

    def doubts(self, head: Head) -> bool:
        """
        Return whether these headers rule a delivery out, by the secrets that are known now.

        It is a doubt, because newer secrets may admit the delivery: ``refusal`` asks for them.
        """
        known = self._source.known
        if known is None:
            return False
        return self._judge_head(known, head) is not None

    async def refusal(self, until: float, arrival: Arrival) -> Receipt | None:
        """Return the refusal of a delivery by the headers alone, if any. Waits until *until*."""
        receipt = await self._judged(until, arrival, self._judge_head_of)
        if isinstance(receipt, Receipt):
            return receipt
        return None

    async def verdict(self, until: float, arrival: Arrival) -> Verdict:
        """Return the verdict on a delivery, of which the body is there. Waits until the loop time *until*."""
        source = self._source
        # Fixed secrets need no look at their age; most deliveries are admitted by what is known.
        trust = source.known if source.is_fixed else source.at_hand()
        verdict: Verdict | None = None
        if trust is not None:
            self._tally.failing.pop(SECRETS, None)
            verdict = self._judge_whole(trust, arrival)
        if isinstance(verdict, Admitted):
            return verdict
        verdict = await self._judged(until, arrival, self._judge_whole, verdict)
        assert verdict is not None  # Of a delivery with a body, there is one.
        return verdict

    def _judge_head(self, trust: Trust, head: Head) -> Receipt | None:
        """Return the answer that no body can change, if any."""
        return judge_head(
            trust, head, self._tally.clock(), takes_tests=self.takes_tests
        )

    def _judge_head_of(self, trust: Trust, arrival: Arrival) -> Receipt | None:
        """Return the same for an arrival whose body is not looked at."""
        return self._judge_head(trust, arrival.head)

    def _judge_whole(self, trust: Trust, arrival: Arrival) -> Verdict:
        """Return the verdict on a delivery by its head and its body."""
        return judge(trust, arrival, self._tally.clock())

    async def _judged(
        self,
        until: float,
        arrival: Arrival,
        judging: Callable[[Trust, Arrival], V | None],
        verdict: V | None = None,
    ) -> V | Receipt | None:
        """
        Return the verdict of *judging*, by newer secrets if those that are known refuse the delivery.

        *verdict* is the one by the known secrets, if there is one yet. First the secrets are fetched, if none
        are known. Then the delivery is judged by them. If they refuse it, newer ones are fetched, and if
        these differ, it is judged by them.
        """
        trust = self._source.at_hand()
        try:
            with self._times.within(until):
                if trust is None:
                    trust = await self._source.newer(None)
                    assert trust is not None  # ``newer`` raises otherwise.
                if verdict is None:
                    verdict = judging(trust, arrival)
                newer = None
                if _is_refusal(verdict):
                    newer = await self._source.newer(trust)
        except (ConfigurationError, TimeoutError) as failure:
            # The secrets are not known, or newer ones cannot be asked for.
            return self._tally.unavailable(SECRETS, failure)
        if newer is not None:
            trust = newer
            verdict = judging(newer, arrival)
        if _is_refusal(verdict):
            self._note_retired(trust, arrival)
        return verdict

    def _note_retired(self, trust: Trust, arrival: Arrival) -> None:
        """Count a refused delivery that a retired secret or header would have authenticated."""
        retired = retired_match(trust, arrival, self._tally.clock())
        if retired is None:
            return
        use = self._tally.uses[retired]
        use.refused += 1
        if use.refused == 1:
            _log.warning(
                "A delivery was refused: it came with %r, which is retired", retired
            )


def _is_refusal(verdict: object) -> bool:
    """Return whether *verdict* says that the delivery is not genuine."""
    return isinstance(verdict, Receipt) and verdict.status == 401
