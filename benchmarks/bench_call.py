"""Measure small calls, 50 at once: against raw aiohttp, and a write against a read."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from itertools import cycle
from typing import TYPE_CHECKING

import aiohttp

from benchmarks.harness import Row, Samples, at_once, ratio_of
from benchmarks.service import service
from invsvc_async import ApiKey, Client

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    _Ways = dict[str, Callable[[], Awaitable[object]]]

_TOGETHER = 50
_CALLS = 500
_PATH = "/webhooks/wh_1"
_HOOKS = 64  # that are changed in turn: changes of one webhook wait for each other


async def _own_ways(base: str, undo: AsyncExitStack) -> tuple[_Ways, _Ways]:
    """Return ways to make a call, and ways to make so many writes of one webhook."""
    client = await undo.enter_async_context(Client(base, ApiKey("key")))
    raw = await undo.enter_async_context(
        aiohttp.ClientSession(headers={"Authorization": "Bearer key"})
    )
    hooks = cycle(
        [await client.webhooks.get(f"wh_{number}") for number in range(1, _HOOKS + 1)]
    )
    paths = cycle([f"/webhooks/wh_{number}" for number in range(1, _HOOKS + 1)])

    async def raw_get() -> object:
        async with raw.get(base + _PATH) as response:
            return json.loads(await response.read())

    async def raw_put() -> object:
        async with raw.put(
            base + next(paths), json={"description": "changed"}
        ) as response:
            return json.loads(await response.read())

    async def get() -> object:
        return await client.webhooks.get("wh_1")

    async def put() -> object:
        return await client.webhooks.update(next(hooks), description="changed")

    async def raw_in_turn() -> None:
        for _ in range(_TOGETHER):
            async with raw.put(
                base + _PATH, json={"description": "changed"}
            ) as response:
                json.loads(await response.read())

    async def of_one_thing() -> None:
        changes = [
            client.webhooks.update("wh_1", description="changed")
            for _ in range(_TOGETHER)
        ]
        await asyncio.gather(*changes)

    ways = {"raw GET": raw_get, "raw PUT": raw_put, "GET": get, "PUT": put}
    return ways, {"raw PUTs in turn": raw_in_turn, "PUTs of one thing": of_one_thing}


async def _measure(rounds: int) -> list[Row]:
    with service() as base:
        async with AsyncExitStack() as undo:
            ways, of_one_thing = await _own_ways(base, undo)
            found = await at_once(ways, rounds=rounds, calls=_CALLS, together=_TOGETHER)
            found |= await at_once(
                of_one_thing, rounds=rounds, calls=_CALLS // _TOGETHER, together=1
            )
    return [
        _against_raw("GET", found, limit=1.20, reach=1.12),
        _against_raw("PUT", found, limit=1.45, reach=1.20),  # see benchmarks/profile.md
        Row(
            what="a write",
            against="the bare GET of the SDK",
            limit=1.25,
            ratio=ratio_of(found, "PUT", "GET"),
        ),
        Row(
            what=f"{_TOGETHER} writes of one thing at once",
            against="raw PUTs, one after the other",
            limit=1.60,
            reach=1.20,
            ratio=ratio_of(found, "PUTs of one thing", "raw PUTs in turn"),
        ),
    ]


def _against_raw(method: str, found: Samples, *, limit: float, reach: float) -> Row:
    ratio = ratio_of(found, method, f"raw {method}")
    return Row(
        what=f"small {method}",
        against="raw aiohttp + json.loads",
        limit=limit,
        reach=reach,
        ratio=ratio,
    )


def rows(*, rounds: int = 16) -> list[Row]:
    """Measure this file's rows."""
    return asyncio.run(_measure(rounds))
