"""
Measure against the peers: a small GET, 50 at once; a page of 100 invoices, bytes to objects; a keyed write.

Each invoice has five unknown fields.  Peers that can keep unknown fields do.  A keyed write is a create, 50
at once, that happens once for each key, also through kills: in the peers by a workflow, or a task in a queue,
that posts with plain aiohttp.  All store it in PostgreSQL, whose own work is not counted.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from itertools import count
from typing import TYPE_CHECKING, Any

import aiohttp
import attrs

from benchmarks import bodies, peers
from benchmarks.bench_page import decode
from benchmarks.harness import Ratio, Row, alternate, at_once, ratio_of
from benchmarks.service import service
from invsvc_async import ApiKey, Client

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import TypeAlias

    _Keyed: TypeAlias = Callable[[int], Awaitable[object]]
    Maker: TypeAlias = Callable[
        [Callable[[int], Awaitable[None]], str, AsyncExitStack],
        Awaitable[_Keyed | None],
    ]

_TOGETHER = 50
_CALLS = 500


def rows(*, rounds: int = 4) -> list[Row]:
    """Measure this file's rows."""
    return [
        *asyncio.run(_calls(rounds)),
        *_pages(rounds),
        *asyncio.run(_keyed(rounds)),
    ]


async def _calls(rounds: int) -> list[Row]:
    rows: list[Row] = []
    with service() as base:
        async with AsyncExitStack() as undo:
            client = await undo.enter_async_context(Client(base, ApiKey("key")))
            for name, limit, make in (
                ("stripe on aiohttp", 0.5, peers.stripe_get),
                ("openai on aiohttp", 0.25, peers.openai_get),
                ("httpx", 0.4, peers.httpx_get),
                ("niquests", 0.4, peers.niquests_get),
            ):
                theirs = await make(base, undo)
                ratio = None
                if theirs is not None:
                    ways = {"GET": lambda: client.webhooks.get("wh_1"), name: theirs}
                    found = await at_once(
                        ways, rounds=rounds, calls=_CALLS, together=_TOGETHER
                    )
                    ratio = ratio_of(found, "GET", name)
                note = "" if ratio else peers.MISSING
                rows.append(
                    Row(
                        what="small GET",
                        against=name,
                        limit=limit,
                        ratio=ratio,
                        note=note,
                    )
                )
    return rows


def _pages(rounds: int) -> list[Row]:
    rows: list[Row] = []
    body = bodies.page(following=None, unknown=5)
    for name, limit, make in (
        ("pydantic's model_validate_json", 0.75, peers.pydantic_page),
        ("openai's objects", 0.4, peers.openai_page),
        ("stripe's objects", 0.05, peers.stripe_page),
    ):
        theirs = make(body)
        ratio = None
        if theirs is not None:
            found = alternate(
                {"ours": lambda: decode(body), name: theirs}, rounds=rounds, calls=2
            )
            ratio = ratio_of(found, "ours", name)
        note = "" if ratio else peers.MISSING
        rows.append(
            Row(
                what="a page of 100 invoices",
                against=name,
                limit=limit,
                ratio=ratio,
                note=note,
            )
        )
    return rows


async def _keyed(rounds: int) -> list[Row]:
    """Compare keyed creates with what DBOS and procrastinate do for the same end."""
    rows: list[Row] = []
    for name, limit, make in (
        ("a workflow of DBOS", 0.5, peers.dbos_create),
        ("a task of procrastinate", 0.5, peers.procrastinate_create),
    ):
        ratio = await _keyed_against(make, rounds)
        row = Row(
            what="a keyed write, PostgreSQL", against=name, limit=limit, ratio=ratio
        )
        rows.append(row if ratio else attrs.evolve(row, note=peers.MISSING))
    return rows


async def _keyed_against(make: Maker, rounds: int) -> Ratio | None:
    from tests.support.database import database

    numbers = count()
    async with AsyncExitStack() as undo:
        base = undo.enter_context(service())
        fresh = await undo.enter_async_context(database().fresh("peers"))
        raw = await undo.enter_async_context(
            aiohttp.ClientSession(headers={"Authorization": "Bearer key"})
        )

        async def post(number: int) -> None:
            text = json.dumps(_body(number), separators=(",", ":"))
            async with raw.post(f"{base}/webhooks", data=text) as response:
                assert json.loads(await response.read())["success"]

        theirs = await make(post, fresh, undo)
        if theirs is None:
            return None
        client = await undo.enter_async_context(
            Client(
                base,
                ApiKey("key"),
                journal=database().at(journal="peers"),
                on_secret=lambda _key, _hook: None,
            )
        )

        async def keyed() -> None:
            number = next(numbers)
            created = client.webhooks.create(**_body(number))
            await created.keyed(f"key {number}").outcome()

        ways = {"ours": keyed, "theirs": lambda: theirs(next(numbers))}
        found = await at_once(ways, rounds=rounds, calls=200, together=_TOGETHER)
    return ratio_of(found, "ours", "theirs")


def _body(number: int) -> dict[str, Any]:  # Any: arguments of a create
    url = f"https://me.example/{number}"
    return {"url": url, "events": ["invoice.created"]}
