"""
A typical client on plain aiohttp: it sends, and sends again after a failure, without checking the state.

The demo compares against it, so it is not handicapped: connections are reused, backoff has jitter, each
attempt has a timeout, and an error after the last attempt counts as "unknown", not as "not applied".
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

import aiohttp

from invsvc_async.conformance.judge import Answer
from invsvc_async.reconcile.history import Verdict
from invsvc_async.simulator.json_records import is_object, read_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from invsvc_async.codec.exact_json import Wire

__all__ = ["POLICY", "NaiveClient"]

ATTEMPTS = 3
PAUSE = 0.2  # s before the second attempt, doubled before the third, with jitter
TIMED_OUT = 408
POLICY = (
    f"plain aiohttp, connections reused; up to {ATTEMPTS} attempts on 5xx, 408, timeouts, lost connections,"
    " like common SDKs"
)


class NaiveClient:
    """One session and one retry policy; ``attempt_timeout`` is in seconds."""

    def __init__(
        self, base_url: str, api_key: str, *, concurrency: int, attempt_timeout: float, seed: int
    ) -> None:
        self._base_url = base_url
        self._jitter = random.Random(seed)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=concurrency),
            timeout=aiohttp.ClientTimeout(total=attempt_timeout),
            headers={"Authorization": f"Bearer {api_key}"},
        )

    async def aclose(self) -> None:
        """Close the session."""
        await self._session.close()

    async def write(self, request: Mapping[str, Wire]) -> Answer:
        """Send *request*, as ``workload.request_of`` returns it, up to three times."""
        url = self._base_url + request["path"]
        sent = {"params": request["query"], "headers": request["headers"], "json": request["body"]}
        for attempt in range(ATTEMPTS):
            if attempt:
                await asyncio.sleep(PAUSE * 2 ** (attempt - 1) * (0.5 + self._jitter.random()))
            try:
                async with self._session.request(request["method"], url, **sent) as response:
                    status, body = response.status, await response.read()
            except (aiohttp.ClientError, TimeoutError):
                continue
            if status < 500 and status != TIMED_OUT:
                return _believed(status, body)
        return Answer(Verdict.UNKNOWN, f"gave up after {ATTEMPTS} attempts")


def _believed(status: int, body: bytes) -> Answer:
    if status >= 400:
        return Answer(Verdict.REFUSED, f"HTTP {status}")
    try:
        answer = read_json(body)
    except ValueError:
        return Answer(Verdict.UNKNOWN, "the answer could not be read")
    thing = answer.get("data") if is_object(answer) else None
    return Answer(Verdict.APPLIED, f"HTTP {status}", thing.get("id") if is_object(thing) else None)
