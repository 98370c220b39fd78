"""Measure the import of the package, with the client and all that it stands on, against that of aiohttp."""

from __future__ import annotations

import os
import subprocess
import sys

from benchmarks.harness import Row, Samples, ratio_of

_WAYS = {
    # The names are loaded when they are first used: an import that uses none would measure nothing.
    "ours": "from invsvc_async import ApiKey, Client",
    "aiohttp": "import aiohttp",
}
_MEASURED = "import time; t = time.process_time(); {}; print(time.process_time() - t)"


def rows(*, rounds: int = 11) -> list[Row]:
    """Measure this file's row."""
    for name in _WAYS:
        _spent(name)  # so that both are compiled
    samples: Samples = {name: [] for name in _WAYS}
    for _ in range(rounds):
        for name, spent in samples.items():
            spent.append(_spent(name))
    ratio = ratio_of(samples, "ours", "aiohttp")
    return [
        Row(what="import of client and key", against="import aiohttp", limit=1.15, reach=1.10, ratio=ratio)
    ]


def _spent(name: str) -> float:
    """Return the CPU seconds of one import, in a process that reads and writes compiled code as usual."""
    command = [sys.executable, "-c", _MEASURED.format(_WAYS[name])]
    settings = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    return float(subprocess.run(command, check=True, capture_output=True, text=True, env=settings).stdout)
