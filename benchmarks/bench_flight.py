"""
Measure 10,000 calls in flight to a service that answers after one second: wall time, and memory a call.

Each wave runs in a process of its own, ours and raw aiohttp's in turn, for memory is a process's.
"""

from __future__ import annotations

from benchmarks.bench_scale import in_a_process
from benchmarks.harness import Row, Samples, ratio_of
from benchmarks.service import service

_CALLS = 10_000


def rows(*, rounds: int = 2) -> list[Row]:
    """Measure this file's rows."""
    walls: Samples = {"ours": [], "raw": []}
    memory: Samples = {"ours": [], "raw": []}
    for at in range(rounds):
        for way in ("ours", "raw") if at % 2 else ("raw", "ours"):
            with service(1.0) as base:
                _, each, wall = in_a_process(way, base, _CALLS)
            walls[way].append(wall)
            memory[way].append(each)
    what, against = "10,000 calls in flight", "raw aiohttp without limit"
    return [
        Row(
            what=f"{what}, wall",
            against=against,
            limit=1.3,
            ratio=ratio_of(walls, "ours", "raw"),
        ),
        Row(
            what=f"{what}, memory",
            against=against,
            limit=1.4,
            ratio=ratio_of(memory, "ours", "raw"),
        ),
    ]
