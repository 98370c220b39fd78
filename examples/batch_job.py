"""
A job that renames many journeys.  It can be killed and started again: each journey is renamed once.

``INVSVC_BASE_URL=… INVSVC_API_KEY=… python examples/batch_job.py journeys.csv run.db``, where each line of
the file is ``id,new name``.  Lines that are no write are named, and the others written.  Exits with 1 if
there are such lines or a write was not applied, and with 3 if a result is unknown.
"""

from __future__ import annotations

import asyncio
import csv
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from invsvc_async import Batch, Client, InvalidRequestError, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator

    from invsvc_async import Write


def writes(client: Client, rows: Path, bad: list[str]) -> Iterator[Write[Any]]:
    """Yield one write per line, with the key that identifies it in the journal; note *bad* lines."""
    with rows.open(newline="", encoding="utf-8") as file:
        reader = csv.reader(file)
        for row in reader:
            try:
                journey, name = row
                write = client.journeys.update(journey, name=name).keyed(journey)
            except (ValueError, InvalidRequestError) as error:
                bad.append(f"line {reader.line_num}: {error}")
            else:
                yield write


async def main(rows: Path, journal: Path) -> int:
    """Run or resume the job."""
    async with (
        Client.from_env() as client,
        Batch.open(journal, client, concurrency=50) as batch,
    ):
        bad: list[str] = []
        async for result in batch.run(writes(client, rows, bad)):
            if result.verdict is not Verdict.APPLIED:
                print(result.key, result.verdict, result.message)
        summary = await batch.summary()
    print(*bad, summary, sep="\n")
    verdicts = summary.verdicts
    if verdicts.get(Verdict.UNKNOWN):
        return 3
    return 0 if set(verdicts) <= {Verdict.APPLIED} and not bad else 1


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("arguments: are missing. Pass JOURNEYS.csv and JOURNAL.db.")
    sys.exit(asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2]))))
