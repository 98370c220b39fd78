"""
Reads with retries, within one deadline, and within a quota of retries that all reads of a client share.

A read that succeeds at once makes no tenacity object and no task.
"""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, NoReturn, TypeVar

import attrs

from invsvc_async.errors import (
    DeadlineExceededError,
    InvalidRequestError,
    ServiceError,
    TransportError,
    UnreadableResponseError,
)
from invsvc_async.reconcile.enums import End

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tenacity import RetryCallState

    from invsvc_async.codec.envelope import Envelope
    from invsvc_async.transport.client_core import ClientOptions, Request
    from invsvc_async.transport.transport import Exchange

NOT_A_CONDITION = "must be a function that is not async"

T = TypeVar("T")

_TRANSIENT = frozenset({408, 425, 500, 502, 503, 504})
_MOST_DOUBLINGS = 32


def read(
    view: ClientOptions,
    request: Request,
    *,
    deadline: float | None = None,
) -> Awaitable[Envelope]:
    """
    Send *request* until it is answered, the retries are used up, or *deadline* has passed.

    *deadline* is a time of the event loop (default: ``Timeouts.call`` from now).

    Raises:
        ServiceError: The service refused it, or did not succeed before retries or their quota ran out.
        TransportError: No usable answer arrived before retries or their quota ran out.
        DeadlineExceededError: The deadline passed first. The last error is its cause.

    Spec: Errors, Status codes.
    """
    running = _read(view, request, deadline)
    on_call = view.core.on_call
    if on_call is None:
        return running
    return on_call(request, running, None)


async def _read(
    view: ClientOptions,
    request: Request,
    deadline: float | None,
) -> Envelope:
    now = asyncio.get_running_loop().time()
    if deadline is None:
        deadline = now + view.timeouts.call
    exchange = await view.attempt(
        request, deadline=min(deadline, now + view.timeouts.attempt)
    )
    if (
        exchange.end is End.ANSWERED
        and exchange.status is not None
        and exchange.status < 300
    ):
        envelope = view.parse_answer(request, exchange)
    else:
        envelope = await _RetriedRead(view, request, deadline).after(exchange)
    if view.core.retries_spent:
        view.core.retries_spent = max(0.0, view.core.retries_spent - view.reads.refund)
    return envelope


def is_true(
    name: str,
    condition: Callable[[T], object],
    value: T,
) -> bool:
    """
    Return whether *condition* is true of *value*.

    Raises:
        InvalidRequestError: It returned an awaitable.  *name* is that of the argument.
    """
    result = condition(value)
    if inspect.isawaitable(result):
        raise InvalidRequestError(
            f"{name}: {NOT_A_CONDITION}", hint="Correct it and call again."
        )
    return bool(result)


def is_transient(error: BaseException) -> bool:
    """Return whether a read that failed with *error* may succeed if it is sent again."""
    if isinstance(error, ServiceError):
        # without Retry-After, or under another code: credits or a daily limit
        if error.status == 429:
            return error.code == "rate_limit_exceeded" and error.retry_after is not None
        return error.status in _TRANSIENT
    if isinstance(error, UnreadableResponseError):
        return False
    return isinstance(error, TransportError)


@attrs.define(eq=False)
class _RetriedRead:
    """One read whose first request failed."""

    view: ClientOptions
    request: Request
    deadline: float
    timed_out: bool = False  # the last request
    token_renewed: bool = False
    failure: BaseException | None = None  # the last one that was retried

    async def after(self, exchange: Exchange) -> Envelope:
        """Parse the answer to the first request, and retry if that may help."""
        from tenacity import AsyncRetrying, retry_if_exception

        # As tenacity's documentation shows it, with plain functions for what to retry, when and how often.
        # The first request was sent without it, because most succeed, and counts as attempt 1.
        self.timed_out = exchange.timed_out
        retrying = AsyncRetrying(
            sleep=self.view.core.clock.sleep,
            wait=self._pause,
            stop=self._is_over,
            retry=retry_if_exception(is_transient),
            retry_error_callback=self._give_up,
        )
        async for attempt in retrying:
            with attempt:
                if attempt.retry_state.attempt_number > 1:
                    exchange = await self._attempt()
                return await self._parsed(exchange)
        raise AssertionError  # pragma: no cover - tenacity returns or raises

    async def _parsed(self, exchange: Exchange) -> Envelope:
        """Parse an answer. If the token was stale, send one more request."""
        if exchange.status == 401 and not self.token_renewed:
            within = min(self.view.timeouts.attempt, self._left())
            if await self.view.renew_token(exchange, within=within):
                self.token_renewed = True
                exchange = await self._attempt()
        return self.view.parse_answer(self.request, exchange)

    async def _attempt(self) -> Exchange:
        left = self._left()
        if left <= 0:
            raise self._out_of_time() from self.failure
        until = self.deadline - left + min(self.view.timeouts.attempt, left)
        exchange = await self.view.attempt(self.request, deadline=until)
        self.timed_out = exchange.timed_out
        return exchange

    def _left(self) -> float:
        return self.deadline - asyncio.get_running_loop().time()

    def _pause(self, state: RetryCallState) -> float:
        self.failure = state.outcome.exception() if state.outcome else None
        reads = self.view.reads
        highest = min(
            reads.maximum,
            reads.initial * 2.0 ** min(state.attempt_number - 1, _MOST_DOUBLINGS),
        )
        return max(self.view.core.random() * highest, self._retry_after())

    def _retry_after(self) -> float:
        """Return the Retry-After of the last failure in seconds, or 0."""
        return getattr(self.failure, "retry_after", None) or 0.0

    def _is_over(self, state: RetryCallState) -> bool:
        reads = self.view.reads
        if state.attempt_number >= reads.attempts:
            return True
        if state.upcoming_sleep >= self._left():
            return True
        cost = 1.0
        if self.timed_out:
            cost = reads.timeout_cost
        spent = self.view.core.retries_spent + cost
        if spent > reads.quota:
            return True
        self.view.core.retries_spent = spent
        return False

    def _give_up(self, state: RetryCallState) -> NoReturn:
        if self._was_cut_short(state):
            raise self._out_of_time() from self.failure
        raise self.failure or AssertionError  # tenacity gives up on failures only

    def _was_cut_short(self, state: RetryCallState) -> bool:
        """Return whether the read ends for want of time, not for a Retry-After that asks for more."""
        left = self._left()
        if left <= 0:
            return True
        if state.attempt_number >= self.view.reads.attempts:
            return False
        if state.upcoming_sleep < left:
            return False
        return not self._retry_after()

    def _out_of_time(self) -> DeadlineExceededError:
        return DeadlineExceededError(
            f"{self.request.operation.name}: no answer before the deadline of the call. "
            "Reading changes nothing: call again, or allow more time with Timeouts(call=…)."
        )
