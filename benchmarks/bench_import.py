"""Measure the import of the package, with the client and all that it stands on, against that of aiohttp."""

from __future__ import annotations

import subprocess
import sys

from benchmarks.harness import Row, Samples, ratio_of

_WAYS = {
    # The names are loaded when they are first used: an import that uses none would measure nothing.
    "ours": "from invsvc_async import ApiKey, Client",
    "aiohttp": "import aiohttp",
}
_MEASURED = "import time; t = time.process_time(); {}; print(time.process_time() - t)"


def rows(*, rounds: int = 21) -> list[Row]:
    """Measure this file's row."""
    samples: Samples = {name: [] for name in _WAYS}
    for _ in range(rounds):
        for name, statement in _WAYS.items():
            command = [sys.executable, "-c", _MEASURED.format(statement)]
            said = subprocess.run(command, check=True, capture_output=True, text=True)
            samples[name].append(float(said.stdout))
    ratio = ratio_of(samples, "ours", "aiohttp")
    return [
        Row(what="import of client and key", against="import aiohttp", limit=1.15, reach=1.10, ratio=ratio)
    ]
