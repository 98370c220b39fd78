"""
Measure the start: the import of the client, and whole runs of the command line, in CPU time.

The help is compared with the import of the libraries that it needs; ``invsvc get`` with a script that reads
the same webhook and prints it.
"""

from __future__ import annotations

import os
import random
import resource
import subprocess
import sys
from functools import cache
from typing import TYPE_CHECKING

from benchmarks import meter
from benchmarks.harness import Row, Samples, ratio_of
from benchmarks.service import service

if TYPE_CHECKING:
    from collections.abc import Mapping

_SCRIPT = """
import asyncio, sys
from invsvc_async import Client, unstructure
from invsvc_async.codec.exact_json import dumps

async def main():
    async with Client.from_env() as client:
        sys.stdout.write(dumps(unstructure(await client.webhooks.get("wh_1"))).decode() + "\\n")

asyncio.run(main())
"""
_IMPORT = "import time; t = time.process_time(); {}; print(time.process_time() - t)"
_COMMANDS: Mapping[str, list[str]] = {
    # The names are loaded when they are first used: an import that uses none would measure nothing.
    "client": ["-c", _IMPORT.format("from invsvc_async import ApiKey, Client")],
    "aiohttp": ["-c", _IMPORT.format("import aiohttp")],
    "help": ["-m", "invsvc_async.cli", "--help"],
    "libraries": ["-c", "import attrs, typer, typer.main"],
    "get": ["-m", "invsvc_async.cli", "get", "webhooks", "wh_1", "--json"],
    "script": ["-c", _SCRIPT],
}
_ROWS = (  # what, against, limit, reach
    ("import of client and key", "client", "import aiohttp", "aiohttp", 1.10, None),
    ("invsvc --help", "help", "import of typer and attrs", "libraries", 2.0, None),
    ("invsvc get --json", "get", "a script that does the same", "script", 1.3, None),
)


def rows(*, rounds: int = 11) -> list[Row]:
    """Measure this file's rows."""
    samples: Samples = {name: [] for name in _COMMANDS}
    with service() as base:
        settings = _settings(base)
        for name in samples:
            _run(name, settings)  # so that all are compiled
        order = random.Random(rounds)
        for _ in range(1 if meter.IS_COUNTED else rounds):  # counts hardly vary
            for name in order.sample(list(samples), len(samples)):
                samples[name].append(_spent(name, settings))
    return [
        Row(
            what=what,
            against=against,
            limit=limit,
            reach=reach,
            ratio=ratio_of(samples, way, base),
        )
        for what, way, against, base, limit, reach in _ROWS
    ]


def _settings(base: str) -> dict[str, str]:
    """Return the environment of a process that stores and uses compiled code, as any does."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name != "PYTHONDONTWRITEBYTECODE"
    }
    return kept | {"INVSVC_BASE_URL": base, "INVSVC_API_KEY": "key"}


def _spent(name: str, settings: Mapping[str, str]) -> float:
    """Return the cost of an import, or of a whole process from its start to its end."""
    is_import = _COMMANDS[name][1].startswith("import time")
    if meter.IS_COUNTED:
        beside = _nothing(tuple(settings.items())) if is_import else 0
        return (meter.instructions_of(_COMMANDS[name], settings) - beside) / 1e9
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    printed = _run(name, settings)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if is_import:
        return float(printed)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@cache
def _nothing(settings: tuple[tuple[str, str], ...]) -> int:
    """Return the instructions of a program that imports nothing, from its start to its end."""
    return meter.instructions_of(["-c", _IMPORT.format("pass")], dict(settings))


def _run(name: str, settings: Mapping[str, str]) -> str:
    """Run the command *name*; return what it printed."""
    command = [sys.executable, *_COMMANDS[name]]
    return subprocess.run(
        command, check=True, capture_output=True, text=True, env=settings
    ).stdout
