"""
Raw requests to the receiver in each server, and trouble for the server's workers.

    python -m tests.soak.servers [TROUBLES [NAME …]]

Prints a line for each server, and exits with 1 if an event was lost after a 2xx, begun twice without a kill,
or a raw request was answered as it must not be.
"""

from __future__ import annotations

import asyncio
import random
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from tests.soak.servers.chaos import Found, Part
from tests.soak.servers.probes import PROBES, wrong_answers
from tests.soak.servers.setups import NOT_HERE, SET_UPS, SOON, Server, SetUp
from tests.support.database import Database, database

if TYPE_CHECKING:
    from collections.abc import Sequence

_TROUBLES = 8  # of each of the two parts


@attrs.frozen(kw_only=True)
class Judged:
    """What was found in one server."""

    wrong: list[str]  # answers to raw requests, in words
    gentle: Found
    killed: Found

    @property
    def is_broken(self) -> bool:
        """Return whether a promise was broken."""
        parts = (self.gentle, self.killed)
        return bool(self.wrong) or any(
            each.lost or each.again or each.strange for each in parts
        )


async def judged(set_up: SetUp, store: Database, folder: Path, troubles: int) -> Judged:
    """Run one server through raw requests, gentle trouble and kills."""
    number = SET_UPS.index(set_up)
    notes = folder / f"notes-{number}"
    environment = {
        "STORE": store.address,
        "TABLE": f"chaos_{number}",
        "NOTES": str(notes),
    }
    chance = random.Random(number)
    log = folder / f"log-{number}"
    # A worker that ends while half of a head has come closes the connection, whoever has sent it.
    async with Server(set_up, environment, log, recycled_after=NOT_HERE) as server:
        wrong = await wrong_answers(server.port, notes)
    async with Server(set_up, environment, log, recycled_after=SOON) as server:
        gentle = await Part(server, store, notes, chance).run(
            first=10_000, kinds=["renew", "renew", "database"], troubles=troubles
        )
        killed = await Part(server, store, notes, chance).run(
            first=50_000,
            kinds=["kill", "kill", "renew", "kill", "database"],
            troubles=troubles,
        )
    return Judged(wrong=wrong, gentle=gentle, killed=killed)


_HEAD = (
    "server", "raw requests", "events", "answered 2xx", "not answered", "recycles and SIGHUPs",
    "restarts of the database", "kills", "lost after a 2xx", "begun twice without a kill",
    "begun again after a kill",
)  # fmt: skip


def row(set_up: SetUp, found: Judged) -> str:
    """Return a line of the table."""
    parts = (found.gentle, found.killed)
    restarts = sum(each.troubles["database"] for each in parts)
    new_workers = sum(
        max(each.troubles["workers"], each.troubles["starts"]) for each in parts
    )
    cells = [
        set_up.name,
        f"{len(PROBES) - len(found.wrong)} of {len(PROBES)}",
        sum(each.sent for each in parts),
        sum(each.acknowledged for each in parts),
        sum(each.unanswered for each in parts),
        new_workers - found.killed.troubles["kill"],
        restarts,
        found.killed.troubles["kill"],
        sum(each.lost for each in parts),
        sum(each.again for each in parts),
        found.killed.after_kill,
    ]
    return "  ".join(map(str, cells))


async def main(troubles: int, names: Sequence[str]) -> int:
    """Run all servers, or those of *names*; return 1 if a promise was broken."""
    store = database()
    is_broken = False
    print("  ".join(_HEAD), flush=True)  # noqa: T201 - a command
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        for set_up in SET_UPS:
            if names and set_up.name not in names:
                continue
            found = await judged(set_up, store, Path(folder), troubles)
            print(row(set_up, found), flush=True)  # noqa: T201 - the same
            for each in (*found.wrong, found.gentle, found.killed):
                print(f"{set_up.name}: {each}", file=sys.stderr, flush=True)  # noqa: T201 - the same
            is_broken = is_broken or found.is_broken
    return 1 if is_broken else 0


if __name__ == "__main__":
    given = sys.argv[1:]
    sys.exit(asyncio.run(main(int(given[0]) if given else _TROUBLES, given[1:])))
