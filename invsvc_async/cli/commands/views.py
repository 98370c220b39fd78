"""Commands that show the writes in a batch, an outbox or the journal of a client."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from invsvc_async.cli.commands.stores import At, Kind, opened
from invsvc_async.cli.options import number
from invsvc_async.cli.output import (
    DONE,
    FAILED,
    UNKNOWN,
    age,
    console,
    emit_json,
    fail,
    note,
    print_facts,
    table,
)
from invsvc_async.reconcile.enums import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from invsvc_async.durable.entries import Entries
    from invsvc_async.durable.entry import Entry

__all__ = ["UNTOLD", "list_", "show", "verdict_in", "workers"]

UNTOLD = "untold "  # facts that begin so, by key: the last error of an outbox's on_result
_MOST = 100_000  # writes that are counted
_STATES = ("to do", "sending")

Row = dict[str, Any]  # Any: JSON values


async def list_(
    kind: Kind,
    at: At,
    *,
    state: Annotated[
        str | None,
        typer.Option(
            metavar="STATE",
            help="open (to do or sending), untold, applied, not-applied, refused, superseded or unknown.",
        ),
    ] = None,
    limit: Annotated[int, number(int, "How many at most.", least=1)] = 100,
) -> None:
    """
    List writes, the oldest first, and count them: `invsvc KIND list PLACE --state open`.

    Works beside a process that has the file.  A write is untold while nobody has acknowledged its verdict.
    The age is the time since its verdict, or else since it was stored.
    """
    wanted = state if state in (None, "open", "untold") else verdict_in(state, "--state")
    async with opened(kind, at, reading=True) as entries:
        found, (count, first) = await entries.first(limit, wanted), await entries.count(wanted, _MOST)
        errors = await entries.facts.of(f"{UNTOLD}{each.key}" for each in found if not each.heard)
        rows = [_row(entries, entry, errors.get(f"{UNTOLD}{entry.key}")) for entry in found]
    total, oldest = max(count, len(rows)), _since(first)
    more = total >= _MOST
    if at.json_:
        emit_json({"total": total, "at_least": more, "oldest": oldest, "writes": rows})
        return
    titles = ("namespace", "key", "operation", "thing", "state", "attempts", "age", "")
    hidden = 0 if kind.name == "journal" else 1
    cells = [[*map(str, _cells(each))][hidden:] for each in rows]
    table(titles[hidden:], cells, right=(5 - hidden, 6 - hidden))
    note(
        f"{total:,}{' or more' if more else ''} in all"
        + (f", {total - len(rows):,} of them not shown: see --limit" if total > len(rows) else "")
        + ("" if oldest is None else f"; the oldest was stored {age(oldest)} ago")
    )


async def show(
    kind: Kind, at: At, key: Annotated[str, typer.Argument(help="The key of the write.", metavar="KEY")]
) -> None:
    """
    Show one write: `invsvc KIND show PLACE row-17`.

    Its verdict is shown, or why it waits, and which process has it.

    Works beside a process that has the file.  Exits with 0 if it is applied, 3 if the result is unknown, and
    1 otherwise, also while it is open.
    """
    from invsvc_async.batch.reports.not_applied import result_of
    from invsvc_async.cli.commands.report import plain_result

    async with opened(kind, at, reading=True) as entries:
        entry = await entries.entry(await entries.named(key))
        if entry is None:
            fail(f"{key}: the {kind.name} has no write under this key")
            raise typer.Exit(FAILED)
        row = _row(entries, entry, await entries.facts.get(f"{UNTOLD}{entry.key}"))
        if entry.verdict is None:
            row |= await _waits(kind, entries, entry)
        else:
            row = plain_result(result_of(entries, entry)) | row
    if at.json_:
        emit_json(row)
    else:
        print_facts(console(), [(name.replace("_", " "), words) for name, words in _facts(row)])
    raise typer.Exit({Verdict.APPLIED: DONE, Verdict.UNKNOWN: UNKNOWN}.get(row["state"], FAILED))


def _row(entries: Entries, entry: Entry, error: str | None) -> Row:
    """Return what a list says of *entry*; *error* is the last one of ``on_result``."""
    from invsvc_async.durable.entries import attempts_of

    since = entry.done_at or entry.added_at
    key = entries.key_of(entry)
    row: Row = {
        "key": key,
        "namespace": entry.key.removesuffix(key).rstrip() or None,
        "operation": entry.operation,
        "thing": None if entry.thing is None else entry.thing.partition("?")[0],  # a query may have a token
        "state": entry.verdict or _STATES[entry.state],
        "attempts": attempts_of(entry),
        "since": None if since is None else datetime.fromtimestamp(since // 1000, UTC).isoformat(),
        "age": _since(since),
    }
    if entry.verdict is not None:
        row["told"] = entry.heard
        row |= {} if entry.heard or error is None else {"last_error": error}
    return row


def _since(then: int | None) -> float | None:
    """Return the seconds since a time in epoch ms."""
    return None if then is None else max(round(time.time() - then / 1000, 3), 0.0)


def _cells(row: Row) -> Sequence[object]:
    named = [row[name] or "" for name in ("namespace", "key", "operation", "thing", "state")]
    why = f": {row['last_error']}" if "last_error" in row else ""
    return [*named, row["attempts"], age(row["age"]), "" if row.get("told", True) else f"untold{why}"]


def _facts(row: Row) -> Iterator[tuple[str, str]]:
    """Yield what people are shown of a write: nothing empty, nothing twice, and times as dates."""
    for name, value in row.items():
        if name == "done_at":
            yield name, datetime.fromtimestamp(value / 1000, UTC).isoformat(sep=" ", timespec="milliseconds")
        elif value not in (None, "", [], False) and not ("verdict" in row and name in ("state", "since")):
            yield name, _words(value)
    if not row.get("told", True):
        yield "told", "no: nobody has acknowledged the verdict"


def _words(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name.replace('_', ' ')} {_words(each)}" for name, each in value.items())
    if isinstance(value, float):
        return age(value) if value > 1 else f"{value:.3f} s"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def verdict_in(word: str, option: str) -> Verdict:
    """
    Return the verdict that *word* names, in any of its spellings.

    Raises:
        typer.BadParameter: There is none.

    """
    try:
        return Verdict(re.sub("[-_]", " ", word))
    except ValueError:
        raise typer.BadParameter(
            f"must be one of {', '.join(Verdict)}, not {word!r}", param_hint=option
        ) from None


# --- why it waits


async def _waits(kind: Kind, entries: Entries, entry: Entry) -> Row:
    """Return why an open write has no verdict yet, and who has it."""
    from invsvc_async.batch.run_status import RUN, statuses_in

    ahead, owner = await entries.ahead_of(entry), await entries.owner_of(entry.lane)
    runs = statuses_in(await entries.facts.beginning(RUN))[: None if entries.lanes > 1 else 1]
    limits = sorted({each.limited_by for each in runs if each.limited_by is not None and each.is_current})
    if entry.state:
        why = "it may have been sent: its answer is awaited, or its fate is found out by reads"
    elif ahead:
        why = "earlier writes to the same thing are open"
    else:
        why = "its turn has not come"
    if owner is None or not owner.alive:
        why += "; no process has it" if kind.name == "journal" else "; no process sends it: start one"
    elif limits:
        why += f"; limited by {', '.join(limits)}"
    return {"waits": why, "after": ahead, "process": None if owner is None else owner._asdict()}


# --- workers


async def workers(kind: Kind, at: At) -> None:
    """
    List the processes that send: `invsvc KIND workers "postgresql://db.example/orders"`.

    It shows where they run, how much and how fast they send, and their last sign of life.
    """
    from invsvc_async.batch.entries import workers_of
    from invsvc_async.batch.reports.live import plain_worker

    async with opened(kind, at, reading=True) as entries:
        found = [plain_worker(each) for each in await workers_of(entries)]
    if at.json_:
        emit_json(found)
        return
    titles = ["host", "pid", "state", "done", "per second", "lanes", "seconds since a sign of life"]
    rows = [
        [each["host"], str(each["pid"]), each["state"], f"{each['done']:,}", f"{each['rate']:.1f}",
         str(each["lanes"]), f"{each['silent']:.0f}"]
        for each in found
    ]  # fmt: skip
    table(titles, rows, right=(1, 3, 4, 5, 6))
