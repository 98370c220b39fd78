"""
Call the peers at their best settings, where they are installed (extra ``bench``).

Each talks to the same service, with its retries as they are by default and its telemetry off.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import time
from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, get_args, get_origin

from invsvc_async.codec.fields import enum_in, fields_of
from invsvc_async.models import Invoice
from invsvc_async.models.common import Model

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from contextlib import AsyncExitStack

__all__ = [
    "MISSING",
    "dbos_create",
    "httpx_get",
    "niquests_get",
    "openai_get",
    "openai_page",
    "procrastinate_create",
    "pydantic_page",
    "stripe_event",
    "stripe_get",
    "stripe_page",
]

MISSING = "not installed: extra `bench`"


async def stripe_get(
    base: str, undo: AsyncExitStack
) -> Callable[[], Awaitable[object]] | None:
    """Return a small GET by stripe's async client on aiohttp, its fastest transport, as an object."""
    try:
        import stripe
    except ImportError:
        return None
    stripe.enable_telemetry = False
    transport = stripe.AIOHTTPClient()
    undo.push_async_callback(transport.close_async)
    client = stripe.StripeClient(
        "sk_test_key",
        http_client=transport,
        base_addresses={"api": base.removesuffix("/v2")},
    )

    async def get() -> object:
        return await client.v1.webhook_endpoints.retrieve_async("wh_1")

    return get


async def openai_get(
    base: str, undo: AsyncExitStack
) -> Callable[[], Awaitable[object]] | None:
    """Return a small GET by openai's async client on aiohttp, its fastest transport, as a model."""
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


async def httpx_get(
    base: str, undo: AsyncExitStack
) -> Callable[[], Awaitable[object]] | None:
    """Return a small GET by httpx, as plain data."""
    try:
        import httpx
    except ImportError:
        return None
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    client = await undo.enter_async_context(
        httpx.AsyncClient(headers={"Authorization": "Bearer key"}, limits=limits)
    )

    async def get() -> object:
        return (await client.get(f"{base}/webhooks/wh_1")).json()

    return get


async def niquests_get(
    base: str, undo: AsyncExitStack
) -> Callable[[], Awaitable[object]] | None:
    """Return a small GET by niquests, as plain data."""
    try:
        import niquests
    except ImportError:
        return None
    session = await undo.enter_async_context(
        niquests.AsyncSession(headers={"Authorization": "Bearer key"}, pool_maxsize=100)
    )

    async def get() -> object:
        return (await session.get(f"{base}/webhooks/wh_1")).json()

    return get


async def dbos_create(
    post: Callable[[int], Awaitable[None]], database: str, undo: AsyncExitStack
) -> Callable[[int], Awaitable[object]] | None:
    """Return a workflow of DBOS, with an id of its own, whose one step is *post*."""
    try:
        import dbos
    except ImportError:
        return None
    dbos.DBOS(
        config={
            "name": "bench",
            "system_database_url": database,
            "log_level": "ERROR",
            "sys_db_pool_size": 20,
        }
    )
    undo.callback(dbos.DBOS.destroy)

    @dbos.DBOS.step()
    async def step(number: int) -> None:
        await post(number)

    @dbos.DBOS.workflow()
    async def workflow(number: int) -> None:
        await step(number)

    dbos.DBOS.launch()

    async def create(number: int) -> object:
        with dbos.SetWorkflowID(f"key {number}"):
            return await workflow(number)

    return create


async def procrastinate_create(
    post: Callable[[int], Awaitable[None]], database: str, undo: AsyncExitStack
) -> Callable[[int], Awaitable[object]] | None:
    """Return the deferring of a task of procrastinate that does *post*, until its worker has done it."""
    try:
        import procrastinate
    except ImportError:
        return None
    app = procrastinate.App(
        connector=procrastinate.PsycopgConnector(
            conninfo=database, min_size=10, max_size=10
        )
    )
    ends: dict[int, asyncio.Future[None]] = {}

    @app.task(name="create")
    async def task(number: int) -> None:
        await post(number)
        ends.pop(number).set_result(None)

    await undo.enter_async_context(app.open_async())
    await app.schema_manager.apply_schema_async()
    worker = asyncio.create_task(
        app.run_worker_async(concurrency=50, install_signal_handlers=False)
    )

    async def stop() -> None:
        worker.cancel()
        await asyncio.wait([worker])

    undo.push_async_callback(stop)

    async def create(number: int) -> object:
        ends[number] = done = asyncio.get_running_loop().create_future()
        await task.configure(queueing_lock=f"key {number}").defer_async(number=number)
        return await done

    return create


def pydantic_page(body: bytes) -> Callable[[], object] | None:
    """Return the decoding of a page by pydantic's own parser, straight from the bytes."""
    try:
        import pydantic
    except ImportError:
        return None

    class Open(pydantic.BaseModel):
        # openai's and stripe's objects keep unknown fields
        model_config = pydantic.ConfigDict(extra="allow")

    page = _page_of(Open)
    return lambda: page.model_validate_json(body)


def openai_page(body: bytes) -> Callable[[], object] | None:
    """
    Return the decoding of a page as openai's client does it when it validates, in the faster of its ways.
    """
    try:
        import openai
        from openai._models import validate_type
    except ImportError:
        return None
    page = _page_of(openai.BaseModel)
    return lambda: validate_type(type_=page, value=json.loads(body))


def stripe_page(body: bytes) -> Callable[[], object] | None:
    """Return the decoding of a page into stripe's objects."""
    try:
        import stripe
    except ImportError:
        return None
    return lambda: stripe.StripeObject.construct_from(json.loads(body), "sk_test_key")


# Any: a model class of a peer that may not be installed
def _page_of(base: type[Any]) -> type[Any]:
    """Make the page's model on *base* from our own, so that no second list of fields is kept."""
    import pydantic

    @cache
    def like(model: type[Any]) -> type[Any]:
        fields = {
            field.name: (
                _like(field.type, like),
                pydantic.Field(default=None, alias=field.wire),
            )
            for field in fields_of(model)
        }
        return pydantic.create_model(model.__name__, __base__=base, **fields)

    return pydantic.create_model(
        "Page",
        __base__=base,
        success=(bool, ...),
        data=(list[like(Invoice)], ...),
        next=(str | None, None),
    )


# Any: types as values
def _like(hint: Any, like: Callable[[type[Any]], type[Any]]) -> Any:
    """Return the type that a peer's model has for *hint* of ours; null is allowed everywhere."""
    arguments = get_args(hint)
    if isinstance(hint, type) and issubclass(hint, Model):
        hint = like(hint)
    elif get_origin(hint) is tuple:
        hint = list[_like(arguments[0], like)]  # type: ignore[misc]
    elif get_origin(hint) is Mapping:
        hint = dict[str, Any]
    elif enum_in(hint):
        hint = str
    return hint | None if hint is not Any else hint


def stripe_event(body: bytes, secret: str) -> Callable[[], object] | None:
    """Return stripe's way to verify and parse an event."""
    try:
        import stripe
    except ImportError:
        return None
    now = int(time.time())
    signed = hmac.new(secret.encode(), b"%d." % now + body, hashlib.sha256).hexdigest()
    header = f"t={now},v1={signed}"
    return lambda: stripe.Webhook.construct_event(body, header, secret, tolerance=3600)
