"""A conformance client: httpx with a transport that retries failed sends."""

from __future__ import annotations

import asyncio

import httpx
import lines


class Retrying(httpx.AsyncHTTPTransport):
    """Send again on 5xx, 408, timeouts and lost connections."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Make up to three attempts; return the last answer, or raise the last error."""
        for tried in range(1, lines.TRIES + 1):
            try:
                response = await super().handle_async_request(request)
                await response.aread()
            except httpx.TransportError:
                if tried == lines.TRIES:
                    raise
            else:
                if tried == lines.TRIES or (
                    response.status_code < 500 and response.status_code != 408
                ):
                    return response
            await asyncio.sleep(0.2 * 2 ** (tried - 1))
        raise AssertionError


async def main() -> None:
    """Share one client."""
    limits = httpx.Limits(max_connections=lines.CONCURRENCY)
    async with httpx.AsyncClient(
        transport=Retrying(limits=limits),
        timeout=lines.ATTEMPT,
        headers={"Authorization": f"Bearer {lines.API_KEY}"},
    ) as client:

        async def write(task: lines.Task) -> tuple[str, str]:
            url = lines.BASE_URL + task["path"]
            try:
                response = await client.request(
                    task["method"],
                    url,
                    params=task["query"],
                    headers=task["headers"],
                    json=task["body"],
                )
            except httpx.HTTPError as error:
                return "unknown", type(error).__name__
            if response.status_code >= 500 or response.status_code == 408:
                return "unknown", f"gave up after {lines.TRIES} tries"
            return lines.believed(response.status_code, response.content)

        await lines.each(write)


asyncio.run(main())
