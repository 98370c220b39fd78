"""
Measure against the peers: a small GET, a page of 100 invoices from bytes to objects, an event, a keyed write.

    python -m benchmarks.bench_peers [RUNS]

Calls are 50 at once.  Each invoice has five unknown fields, and peers that can keep them do.  A keyed write
is a create that happens once for each key, also through kills: in the peers by a workflow, or a task in a
queue, that posts with plain aiohttp.  All store it in PostgreSQL, whose own work is not counted.
"""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import AsyncExitStack
from importlib.metadata import version
from importlib.util import find_spec
from itertools import count
from typing import TYPE_CHECKING, Any

import aiohttp
import attrs

from benchmarks import bodies, peers
from benchmarks.bench_events import BODY, verify_and_parse
from benchmarks.bench_page import decode
from benchmarks.harness import Ratio, Row, alternate, at_once, ratio_of
from benchmarks.runs import combined, measured_once
from benchmarks.service import service
from invsvc_async import ApiKey, Client
from tests.events.bodies import SECRET

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import TypeAlias

    _Keyed: TypeAlias = Callable[[int], Awaitable[object]]
    Maker: TypeAlias = Callable[
        [Callable[[int], Awaitable[None]], str, AsyncExitStack],
        Awaitable[_Keyed | None],
    ]

_PEERS = (
    "stripe",
    "openai",
    "pydantic",
    "httpx",
    "niquests",
    "dbos",
    "procrastinate",
)
_TOGETHER = 50
_CALLS = 500


def rows(*, rounds: int = 4) -> list[Row]:
    """Measure this file's rows."""
    return [
        *asyncio.run(_calls(rounds)),
        *_pages(rounds),
        _event(rounds),
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
                ("httpx", 0.25, peers.httpx_get),
                ("niquests", 0.25, peers.niquests_get),
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


def _event(rounds: int) -> Row:
    row = Row(
        what="verify and parse an event",
        against="stripe's construct_event",
        limit=0.125,
        note=peers.MISSING,
    )
    theirs = peers.stripe_event(BODY, SECRET)
    if theirs is None:
        return row
    ways = {"ours": verify_and_parse, "theirs": theirs}
    found = alternate(ways, rounds=5 * rounds, calls=500)
    return attrs.evolve(row, ratio=ratio_of(found, "ours", "theirs"), note="")


async def _keyed(rounds: int) -> list[Row]:
    """Compare keyed creates with what DBOS and procrastinate do for the same end."""
    rows: list[Row] = []
    for name, limit, make in (
        ("a workflow of DBOS", 0.25, peers.dbos_create),
        ("a task of procrastinate", 0.25, peers.procrastinate_create),
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


def main(runs: int = 3) -> None:
    """Print the table, and what was compared."""
    print("What", "against", "ratio", "95 % interval", "target", sep="  ")
    for row in combined(row for _ in range(runs) for row in measured_once("peers")):
        ratio = row.ratio
        found = (
            (f"{ratio.median:.2f}", f"{ratio.low:.2f} to {ratio.high:.2f}")
            if ratio
            else ("none", row.note)
        )
        print(row.what, row.against, *found, f"≤ {row.limit:g}", sep="  ")
    versions = [f"{name} {version(name)}" for name in _PEERS if find_spec(name)]
    print(f"Peers: {', '.join(versions)}.")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
