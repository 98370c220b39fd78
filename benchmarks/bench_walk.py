"""
Measure a walk over 10,000 invoices, one page ahead.

It is compared with the decoding of its 100 pages alone, and with the least that any client on aiohttp does:
plain aiohttp, with the same decoding of each page.  Each invoice has five unknown fields.
"""

from __future__ import annotations

import asyncio
import gc
import time

import aiohttp

from benchmarks import bodies
from benchmarks.bench_page import decode
from benchmarks.harness import Row, Samples, ratio_of
from benchmarks.service import UNKNOWN, service
from invsvc_async import ApiKey, Client

_PAGES = 100


async def _measure(rounds: int) -> Samples:
    samples: Samples = {"walk": [], "plain": [], "decode": []}
    body = bodies.page(following=None, unknown=UNKNOWN)
    with service() as base:
        async with Client(base, ApiKey("key")) as client:
            for _ in range(rounds):
                gc.collect()
                started, count = time.process_time(), 0
                async for _invoice in client.invoices.egress(limit=100, prefetch=True):
                    count += 1
                samples["walk"].append(time.process_time() - started)
                assert count == 100 * _PAGES
                samples["plain"].append(await _plain(base))
                gc.collect()
                started = time.process_time()
                for _ in range(_PAGES):
                    decode(body)
                samples["decode"].append(time.process_time() - started)
    return samples


async def _plain(base: str) -> float:
    """Return the CPU seconds of reading and decoding the same pages with plain aiohttp."""
    async with aiohttp.ClientSession(
        headers={"Authorization": "Bearer key"}
    ) as session:
        gc.collect()
        started = time.process_time()
        for number in range(_PAGES):
            async with session.get(
                f"{base}/invoices/egress?next=c{number}"
            ) as response:
                decode(await response.read())
        return time.process_time() - started


def rows(*, rounds: int = 7) -> list[Row]:
    """Measure this file's row."""
    found = asyncio.run(_measure(rounds))
    what = "walking 10,000 invoices"
    return [
        Row(
            what=what,
            against="the decoding alone",
            limit=1.3,
            ratio=ratio_of(found, "walk", "decode"),
        ),
        Row(
            what=what,
            against="plain aiohttp and the same decoding",
            limit=1.1,
            ratio=ratio_of(found, "walk", "plain"),
        ),
    ]
