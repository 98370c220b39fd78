"""
Measure against the peers: a small GET, 50 at once, and a page of 100 invoices, bytes to objects.

Each invoice has five unknown fields.  Peers that can keep unknown fields do.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

from benchmarks import bodies, peers
from benchmarks.bench_page import decode
from benchmarks.harness import Row, alternate, at_once, ratio_of
from benchmarks.service import service
from invsvc_async import ApiKey, Client

_TOGETHER = 50
_CALLS = 500


def rows(*, rounds: int = 4) -> list[Row]:
    """Measure this file's rows."""
    return [*asyncio.run(_calls(rounds)), *_pages(rounds)]


async def _calls(rounds: int) -> list[Row]:
    rows: list[Row] = []
    with service() as base:
        async with AsyncExitStack() as undo:
            client = await undo.enter_async_context(Client(base, ApiKey("key")))
            for name, limit, make in (
                ("stripe on aiohttp", 0.5, peers.stripe_get),
                ("openai on aiohttp", 0.25, peers.openai_get),
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
