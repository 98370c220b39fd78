"""
Run every client in this folder and write the table for the docs: ``docs/_generated/conformance.{json,md}``.

``python examples/conformance/table.py --writes 2000``; the same seed and faults for each client.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

from invsvc_async.cli.options import FAULTS
from invsvc_async.conformance import conform

HERE = Path(__file__).parent
TARGET = HERE.parents[1] / "docs" / "_generated"
CLIENTS = {
    "sdk": "invsvc_async",
    "plain_aiohttp": "plain aiohttp, a loop of 3 tries",
    "tenacity_aiohttp": "tenacity around aiohttp",
    "httpx_retries": "httpx, a transport that retries",
}
COLUMNS = (
    "duplicates",
    "wrong",
    "lost",
    "unknown",
    "webhooks_left",
    "sends",
    "reads",
    "seconds",
)
TITLES = (
    "second effects", "wrong reports", "lost", "unknown", "webhooks left", "sends", "reads", "seconds",
)  # fmt: skip


BASELINES = """\
An update of a webhook is settled by comparing it with its earlier state. If all three reads before the
write fail (one in ten does here), and the write fails as well, no earlier state is known, and the verdict
of `invsvc_async` is `unknown`. Pass the webhook that you have read, as in `webhooks.update(hook, …)`; then
its earlier state is always known."""


async def judged(writes: int, seed: int) -> dict[str, dict[str, Any]]:
    """Run each client in turn."""
    found: dict[str, dict[str, Any]] = {}
    for name in CLIENTS:
        command = [sys.executable, str(HERE / f"{name}.py")]
        outcome = await conform(
            command, writes=writes, seed=seed, faults=FAULTS, timeout=900
        )
        found[name] = outcome.counts()
        print(name, found[name])
    return found


def _reasons(counts: dict[str, Any]) -> str:
    """Return what the client itself reports as unknown."""
    told = counts["unknown_reasons"]
    return (
        "; ".join(f"{count} unknown: {why}" for why, count in told.items())
        or "nothing is unknown"
    )


def markdown(found: dict[str, dict[str, Any]], facts: dict[str, Any]) -> str:
    """Return the table, with the versions in use."""
    head = ["client", *TITLES]
    rows = [
        [CLIENTS[name], *(str(counts[column]) for column in COLUMNS)]
        for name, counts in found.items()
    ]
    lines = [
        f"| {' | '.join(row)} |"
        for row in (head, ["---"] + ["--:"] * len(COLUMNS), *rows)
    ]
    lines += [
        "",
        *(f"- {CLIENTS[name]}: {_reasons(counts)}" for name, counts in found.items()),
    ]
    made = ", ".join(f"{name} {value}" for name, value in facts.items())
    return (
        "\n".join(lines)
        + f"\n\n{BASELINES}\n\nMade by `examples/conformance/table.py`: {made}.\n"
    )


def main() -> None:
    """Run the clients and write the table."""
    asked = argparse.ArgumentParser()
    asked.add_argument("--writes", type=int, default=2000)
    asked.add_argument("--seed", type=int, default=1)
    given = asked.parse_args()
    found = asyncio.run(judged(given.writes, given.seed))
    facts = {
        "writes": given.writes, "seed": given.seed, "faults": f"`{FAULTS}`",
        "Python": platform.python_version(),
        **{name: version(name) for name in ("aiohttp", "httpx", "tenacity")},
    }  # fmt: skip
    TARGET.mkdir(parents=True, exist_ok=True)
    plain = {"made_with": facts, "clients": found}
    (TARGET / "conformance.json").write_text(
        json.dumps(plain, indent=2) + "\n", encoding="utf-8"
    )
    (TARGET / "conformance.md").write_text(markdown(found, facts), encoding="utf-8")


if __name__ == "__main__":
    main()
