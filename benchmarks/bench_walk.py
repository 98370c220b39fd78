"""
Measure a walk over 10,000 invoices, one page ahead, against the decoding of its 100 pages alone.

Each invoice has five unknown fields.
"""

from __future__ import annotations

import asyncio
import gc
import time

from benchmarks import bodies
from benchmarks.bench_page import decode
from benchmarks.harness import Row, Samples, ratio_of
from benchmarks.service import UNKNOWN, service
from invsvc_async import ApiKey, Client

_PAGES = 100


async def _measure(rounds: int) -> Samples:
    samples: Samples = {"walk": [], "decode": []}
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
                gc.collect()
                started = time.process_time()
                for _ in range(_PAGES):
                    decode(body)
                samples["decode"].append(time.process_time() - started)
    return samples


def rows(*, rounds: int = 7) -> list[Row]:
    """Measure this file's row."""
    found = asyncio.run(_measure(rounds))
    ratio = ratio_of(found, "walk", "decode")
    return [Row(what="walking 10,000 invoices", against="the decoding alone", limit=1.3, ratio=ratio)]
