"""``invsvc batch workers``: who works on a shared batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from invsvc_async.cli.options import JournalArgument, JournalOption, Json, one_journal
from invsvc_async.cli.output import emit_json, table
from invsvc_async.concurrency.event_loop import until_done

if TYPE_CHECKING:
    from invsvc_async.batch.worker import Worker

__all__ = ["plain_worker", "state_of", "workers"]


def workers(journal: JournalArgument = None, *, journal_: JournalOption = None, json_: Json = False) -> None:
    """
    List the workers of a shared batch: where they run, how much and how fast, and their last sign of life.
    """
    found = until_done(_workers(one_journal(journal, journal_)))
    if json_:
        emit_json([plain_worker(each) for each in found])
        return
    titles = ["host", "pid", "state", "done", "per second", "lanes", "seconds since a sign of life"]
    rows = [
        [each.host, str(each.pid), state_of(each), f"{each.done:,}", f"{each.rate:.1f}", str(each.lanes),
         f"{each.silent:.0f}"]
        for each in found
    ]  # fmt: skip
    table(titles, rows, right=(1, 3, 4, 5, 6))


async def _workers(journal: str) -> list[Worker]:
    from invsvc_async.batch.places import entries_of

    entries = entries_of(journal, reading=True)
    await entries.open()
    try:
        return await entries.workers()
    finally:
        await entries.aclose()


def plain_worker(worker: Worker) -> dict[str, Any]:  # Any: JSON values
    """Return a worker as JSON values; times in seconds, and in ISO 8601."""
    fields: dict[str, Any] = {name: getattr(worker, name) for name in attrs.fields_dict(type(worker))}
    return fields | {"begun": worker.begun.isoformat(), "seen": worker.seen.isoformat()}


def state_of(worker: Worker) -> str:
    """Return in a word what a worker does."""
    if worker.ended:
        return "ended"
    if not worker.alive:
        return "silent"
    return "working" if worker.lanes else "idle"
