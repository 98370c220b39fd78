"""The record of one request and its answer."""

from __future__ import annotations

from math import inf, isnan, nan
from typing import TYPE_CHECKING

import msgspec

from invsvc_async.reconcile.enums import End

if TYPE_CHECKING:
    from collections.abc import Mapping

    from multidict import CIMultiDictProxy
    from yarl import URL

    from invsvc_async.concurrency.adaptive_limit import AdaptiveLimit
    from invsvc_async.concurrency.limiter import Lane


class Exchange(msgspec.Struct, eq=False):  # made for every call
    """
    A request, and its answer once the answer has arrived.

    ``deadline`` is a time of the event loop's clock; ``not_after``, ``started`` and ``ended`` are times of
    the transport's. All are in seconds. The transport decompresses gzip and deflate.

    Whether bytes can have been sent, by who asks:

    - After the request: ``end``, which is set even if ``Transport.send`` is cancelled.
    - While it is under way: ``may_have_left``, which becomes true as the gate opens.
    - ``end`` is None although the caller has gone on: ``was_begun``. If the transport never had the request,
      no byte was sent; if it had, count the request as lost.
    - Within the transport: the gate's own ``opened``, from which ``end`` is made.
    """

    method: str
    url: URL  # whole and encoded, with its query
    headers: Mapping[str, str]  # they contain the credential
    content: bytes | None = None
    write: bool = False
    deadline: float = inf
    connect_timeout: float = 10.0
    # The gate does not open later: then the proof that allows a re-send, or the lease of the write, expires.
    not_after: float | None = None
    lane: Lane = "call"  # or "settle", of a read that settles a write
    end: End | None = None  # how it ended
    # set even if only the head arrived; then it is not an answer
    status: int | None = None
    answer_headers: CIMultiDictProxy[str] | None = None
    answer: bytes = b""  # that of a create contains the webhook's secret
    # only a message: the original refers to headers and frames
    error: Exception | None = None
    # When `send` was called; from the opening of the gate on, that moment: waits are no part of an attempt.
    started: float = nan
    ended: float = nan  # when it ended
    timed_out: bool = False
    may_have_left: bool = False  # a byte of it may have been sent
    given_up: bool = False  # its answer is not needed any more

    @property
    def was_begun(self) -> bool:
        """Whether the request was handed to the transport. If not, no byte of it was sent."""
        return not isnan(self.started)

    def note_load(self, limit: AdaptiveLimit, in_flight: int) -> None:
        """Record in *limit* how long the answer took while *in_flight* requests were in flight."""
        # The time of a 5xx says nothing about the load: it is quick in an outage, and slow at a gateway.
        answered = self.end is End.ANSWERED and (self.status or 0) < 500
        timed_out = self.end is End.LOST and self.timed_out
        if answered or timed_out:
            limit.note(
                self.started,
                self.ended,
                in_flight,
                refused=self.status == 429,
                timed_out=timed_out,
            )

    def __repr__(self) -> str:
        return f"<Exchange {self.method} {self.url}: {self.end or 'under way'}>"
