"""A conformance client: aiohttp in a common retry loop."""

from __future__ import annotations

import asyncio
import random

import aiohttp
import lines


async def main() -> None:
    """Share one session."""
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=lines.CONCURRENCY),
        timeout=aiohttp.ClientTimeout(total=lines.ATTEMPT),
        headers={"Authorization": f"Bearer {lines.API_KEY}"},
    ) as session:

        async def once(task: lines.Task) -> tuple[int, bytes]:
            url, body = (
                lines.BASE_URL + task["path"],
                {"json": task["body"]} if task["body"] else {},
            )
            sent = {"params": task["query"], "headers": task["headers"], **body}
            async with session.request(task["method"], url, **sent) as response:
                return response.status, await response.read()

        async def write(task: lines.Task) -> tuple[str, str]:
            for tried in range(lines.TRIES):
                if tried:
                    jitter = 0.5 + random.random()
                    await asyncio.sleep(0.2 * 2 ** (tried - 1) * jitter)
                try:
                    status, body = await once(task)
                except (aiohttp.ClientError, TimeoutError):
                    continue
                if status < 500 and status != 408:
                    return lines.believed(status, body)
            return "unknown", f"gave up after {lines.TRIES} tries"

        await lines.each(write)


asyncio.run(main())
