"""A conformance client: tenacity's decorator around an aiohttp request."""

from __future__ import annotations

import asyncio

import aiohttp
import lines
import tenacity


class TryAgainError(Exception):
    """An answer after which the request is repeated."""


async def main() -> None:
    """Share one session."""
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=lines.CONCURRENCY),
        timeout=aiohttp.ClientTimeout(total=lines.ATTEMPT),
        headers={"Authorization": f"Bearer {lines.API_KEY}"},
    ) as session:

        @tenacity.retry(
            retry=tenacity.retry_if_exception_type(
                (aiohttp.ClientError, TimeoutError, TryAgainError)
            ),
            stop=tenacity.stop_after_attempt(lines.TRIES),
            wait=tenacity.wait_random_exponential(multiplier=0.2, max=2),
        )
        async def send(task: lines.Task) -> tuple[int, bytes]:
            url, body = (
                lines.BASE_URL + task["path"],
                {"json": task["body"]} if task["body"] else {},
            )
            sent = {"params": task["query"], "headers": task["headers"], **body}
            async with session.request(task["method"], url, **sent) as response:
                if response.status >= 500 or response.status == 408:
                    raise TryAgainError
                return response.status, await response.read()

        async def write(task: lines.Task) -> tuple[str, str]:
            try:
                return lines.believed(*await send(task))
            except tenacity.RetryError:
                return "unknown", f"gave up after {lines.TRIES} tries"

        await lines.each(write)


asyncio.run(main())
