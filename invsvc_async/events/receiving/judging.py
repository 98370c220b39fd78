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
    FULL,
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

V = TypeVar("V", bound="Verdict | None")

_log: Final = logging.getLogger("invsvc_async.events")
# The first or newer secrets cannot be had, or not in time.
_NOT_FETCHED: Final = (ConfigurationError, TimeoutError)
# bytes of bodies that wait for newer secrets at the same time
_MOST_WAITING: Final = 4 << 20


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
        self._waiting = 0  # bytes of bodies
        self.takes_tests: bool = False

    def doubts(self, head: Head) -> bool:
        """
        Return whether these headers decide the answer, by the secrets that are known now.

        It is a doubt, because newer secrets may admit the delivery: ``answer_by_head`` asks for them.
        """
        known = self._source.known
        if known is None:
            return False
        return self._judge_head(known, head) is not None

    async def answer_by_head(self, until: float, arrival: Arrival) -> Receipt | None:
        """
        Return the answer to a delivery if the headers alone decide it: a refusal, or that to a test.

        ``None``: the body has to be read. Waits until the loop time *until*.
        """
        try:
            trust = self._source.at_hand()
            if trust is None:
                trust = await self._first_trust(until)
            answer = self._judge_head_of(trust, arrival)
            if not _is_refusal(answer):
                return answer
            return await self._judged_again(
                until,
                arrival,
                self._judge_head_of,
                refused_by=trust,
                refusal=answer,
            )
        except _NOT_FETCHED as failure:
            return self._tally.unavailable(SECRETS, failure)

    async def verdict(self, until: float, arrival: Arrival) -> Verdict:
        """Return the verdict on a delivery, of which the body is there. Waits until the loop time *until*."""
        try:
            trust = self._source.at_hand()
            if trust is None:
                trust = await self._first_trust(until)
            else:
                self._tally.works_again(SECRETS)
            verdict = self._judge_whole(trust, arrival)
            if not _is_refusal(verdict):
                return verdict
            return await self._judged_whole_again(until, arrival, trust, verdict)
        except _NOT_FETCHED as failure:
            return self._tally.unavailable(SECRETS, failure)

    async def _judged_whole_again(
        self,
        until: float,
        arrival: Arrival,
        refused_by: Trust,
        refusal: Verdict,
    ) -> Verdict:
        """
        Judge *arrival* again by newer secrets; its sender is to come back if too many bodies wait for those.

        A whole body keeps its room while it waits, and anybody can send one whose signature fits nothing.
        """
        size = len(arrival.body)
        if self._waiting and self._waiting + size > _MOST_WAITING:
            return FULL
        self._waiting += size
        try:
            return await self._judged_again(
                until,
                arrival,
                self._judge_whole,
                refused_by=refused_by,
                refusal=refusal,
            )
        finally:
            self._waiting -= size

    def _judge_head(self, trust: Trust, head: Head) -> Receipt | None:
        """Return the answer that no body can change, if the headers decide it."""
        return judge_head(
            trust, head, self._tally.clock(), takes_tests=self.takes_tests
        )

    def _judge_head_of(self, trust: Trust, arrival: Arrival) -> Receipt | None:
        """Return the answer by the head of *arrival*, whose body is not looked at."""
        return self._judge_head(trust, arrival.head)

    def _judge_whole(self, trust: Trust, arrival: Arrival) -> Verdict:
        """Return the verdict on a delivery by its head and its body."""
        return judge(trust, arrival, self._tally.clock())

    async def _first_trust(self, until: float) -> Trust:
        """Return the trust where none has been known; raise one of ``_NOT_FETCHED`` if that fails."""
        with self._times.within(until):
            trust = await self._source.newer(None)
        assert trust is not None  # ``newer`` raises otherwise.
        return trust

    async def _judged_again(
        self,
        until: float,
        arrival: Arrival,
        judging: Callable[[Trust, Arrival], V],
        *,
        refused_by: Trust,
        refusal: V,
    ) -> V:
        """
        Return the verdict of *judging* by a newer trust than *refused_by*; the *refusal* if there is none.

        Raises one of ``_NOT_FETCHED``.
        """
        with self._times.within(until):
            newer = await self._source.newer(refused_by)
        if newer is None:
            self._note_retired(refused_by, arrival)
            return refusal
        verdict = judging(newer, arrival)
        if _is_refusal(verdict):
            self._note_retired(newer, arrival)
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
