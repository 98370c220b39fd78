"""
Call the peers at their best settings, where they are installed (extra ``bench``).

Each talks to the same service, with its retries as they are by default and its telemetry off.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from contextlib import AsyncExitStack

__all__ = ["MISSING", "openai_get", "stripe_get"]

MISSING = "not installed: extra `bench`"


async def stripe_get(base: str, undo: AsyncExitStack) -> Callable[[], Awaitable[object]] | None:
    """Give a small GET by stripe's async client on aiohttp, its quickest transport."""
    try:
        import stripe
    except ImportError:
        return None
    stripe.enable_telemetry = False
    transport = stripe.AIOHTTPClient()
    undo.push_async_callback(transport.close_async)
    client = stripe.StripeClient(
        "sk_test_key", http_client=transport, base_addresses={"api": base.removesuffix("/v2")}
    )

    async def get() -> object:
        return await client.raw_request_async("get", "/v2/webhooks/wh_1")

    return get


async def openai_get(base: str, undo: AsyncExitStack) -> Callable[[], Awaitable[object]] | None:
    """Give a small GET by openai's async client on aiohttp, its quickest transport, as a model."""
    try:
        import openai
    except ImportError:
        return None
    transport = openai.DefaultAioHttpClient()
    client = await undo.enter_async_context(
        openai.AsyncOpenAI(api_key="key", base_url=base, http_client=transport)
    )

    class Answer(openai.BaseModel):
        success: bool
        timestamp: int

    async def get() -> object:
        return await client.get("/webhooks/wh_1", cast_to=Answer)

    return get
