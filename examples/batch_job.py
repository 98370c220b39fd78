"""
A job that renames many journeys.  It can be killed and started again: each journey is renamed once.

``INVSVC_BASE_URL=… INVSVC_API_KEY=… python examples/batch_job.py journeys.csv run.db``, where each line of
the file is ``id,new name``.  Exits with 1 if a write was not applied, and with 3 if a result is unknown.
"""

from __future__ import annotations

import asyncio
import csv
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from invsvc_async import Batch, Client, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator

    from invsvc_async import Write


def writes(client: Client, rows: Path) -> Iterator[Write[Any]]:
    """Yield one write per line, with the key that identifies it in the journal."""
    with rows.open(newline="", encoding="utf-8") as file:
        for journey, name in csv.reader(file):
            yield client.journeys.update(journey, name=name).keyed(journey)


async def main(rows: Path, journal: Path) -> int:
    """Run or resume the job."""
    async with (
        Client.from_env() as client,
        Batch.open(journal, client, concurrency=50) as batch,
    ):
        async for result in batch.run(writes(client, rows)):
            if result.verdict is not Verdict.APPLIED:
                print(result.key, result.verdict, result.message)
        summary = await batch.summary()
    print(summary)
    verdicts = summary.verdicts
    if verdicts.get(Verdict.UNKNOWN):
        return 3
    return 0 if set(verdicts) <= {Verdict.APPLIED} else 1


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("arguments: are missing. Pass JOURNEYS.csv and JOURNAL.db.")
    sys.exit(asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2]))))
