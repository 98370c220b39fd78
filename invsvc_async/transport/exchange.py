"""
Record one request and what became of it; never send, or outlive its caller's interest.
"""

from __future__ import annotations

from math import inf, nan
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from multidict import CIMultiDictProxy
    from yarl import URL

    from invsvc_async.concurrency.limiter import Lane
    from invsvc_async.reconcile.enums import End

__all__ = ["Exchange"]


class Exchange(msgspec.Struct, eq=False):  # made for every call
    """
    One request, and what became of it.

    The caller owns it: ``end`` is set even where ``Transport.send`` is cancelled.  ``deadline`` is of the
    event loop's clock, ``not_after``, ``started`` and ``ended`` of the transport's; all in seconds.
    Accept-Encoding, where ``headers`` has none, is the transport's; it unfolds gzip and deflate.
    """

    method: str
    url: URL  # whole and encoded, with its query
    headers: Mapping[str, str]  # they hold the credential
    content: bytes | None = None
    write: bool = False
    deadline: float = inf
    connect_timeout: float = 10.0
    not_after: float | None = None  # when the proof that allows a re-send expires
    lane: Lane = "call"
    end: End | None = None
    status: int | None = None  # also where only the head arrived: then a hint, not an answer
    answer_headers: CIMultiDictProxy[str] | None = None
    answer: bytes = b""  # that of a create holds the webhook's secret
    error: Exception | None = None  # in words: no headers, no frames, nothing of the original
    started: float = nan  # when the first byte may have left, else when `send` began
    ended: float = nan
    timed_out: bool = False

    def __repr__(self) -> str:
        return f"<Exchange {self.method} {self.url}: {self.end or 'under way'}>"
