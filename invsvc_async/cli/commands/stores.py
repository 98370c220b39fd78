"""Commands that batches, outboxes and journals have in common (list, show, retry), and ``invsvc journal``."""

from __future__ import annotations

import asyncio
import os
import re
import sys
import time
from contextlib import aclosing, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import attrs

from invsvc_async.cli.commands.report import (
    plain,
    show as show_report,
    write_failed,
    write_results,
)
from invsvc_async.cli.files import check_outputs
from invsvc_async.cli.options import (
    Calling,
    CommandGroup,
    Port,
    Yes,
    argument,
    confirm,
    misuse,
    number,
    option,
)
from invsvc_async.cli.output import (
    Exit,
    age,
    as_json,
    counted,
    emitted,
    fail,
    note,
    print_facts,
    table,
    tell,
)
from invsvc_async.cli.signals import stopping
from invsvc_async.reconcile.enums import Verdict
from invsvc_async.storage.address import is_postgres
from invsvc_async.storage.private_file import write_private
from invsvc_async.writes.labels import labels_in, problems_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence

    from invsvc_async.batch.run_status import Status
    from invsvc_async.codec.exact_json import WireObject
    from invsvc_async.durable.entries import Entries
    from invsvc_async.durable.entry import Entry

PAGE = ("invsvc_async.cli", "batch_watch.html")
# the fact with the last error of an outbox's on_result
_UNTOLD = "untold {0.done_at} {0.key}".format
_MOST = 100_000  # writes that are counted
_JSONL = "Write each outcome as a line of JSON here; - is stdout."
_FAILED = "Write what is not applied here, as lines of a batch's input; - is stdout."
_RETRIED = "not-applied, refused, superseded or unknown; repeatable."
_OPENED = "Open the page in a browser, or only print its address."
_STATE = "open (to do or sending), untold, applied, not-applied, refused, superseded or unknown."
_LABEL = "With this label of .keyed(…); repeatable: with all of them."
_DAY = 86_400  # s
_APPLIED = "It was applied: the id of what it made or changed; - if there is none, or you do not know it."
_SCREENS = ("DISPLAY", "WAYLAND_DISPLAY")  # variables of the environment
_KEPT = {  # why a write was not pruned
    "open": "not finished",
    "unknown": "unknown, so their content is needed to settle them",
    "other": "finished later than that, not acknowledged yet, or empty already",
}

_AGE = "Finished at least so long ago."
Place = Annotated[
    str, argument("A file, or postgresql://…", "PLACE", show_default=False)
]


@attrs.frozen
class StoreKind:
    """A kind of store, with the words, and the missing commands and options, in which it differs."""

    name: str
    example: str  # of a place, in the help
    again: str  # what sends a write again that was marked so
    lacks: str = "team"
    resent: str = "mark it with `retry`"  # what marks one that was not applied


BATCH = StoreKind("batch", "run.db", "run the batch", "team profile unacknowledged")
OUTBOX = StoreKind("outbox", "outbox.db", "whoever sends its writes does it")
_ONCE = "run the same write under its key"
JOURNAL = StoreKind("journal", "journal.db", _ONCE, "team verdict force failed", _ONCE)


@attrs.frozen
class StoreOptions(Calling):
    """A store; where it is, and whose, are options of each command."""

    place: Place
    kind: StoreKind

    @asynccontextmanager
    async def opened(self, *, reading: bool = False) -> AsyncGenerator[Entries]:
        """Open the store, which must exist; with *reading*, also while another process has it."""
        is_shared = is_postgres(self.place)
        given = {"create": False, "reading": reading}
        if self.kind is BATCH:
            from invsvc_async.batch.entries import entries_of

            entries: Entries = entries_of(self.place, **given)
        elif self.kind is OUTBOX:
            from invsvc_async.outbox.outbox import outbox_at

            # Nothing is sent, so the credential need not be that of the writes in a file.
            entries = outbox_at(self.place, self.core, same_mode=not is_shared, **given)
        else:
            from invsvc_async.durable.entries import JournalEntries

            entries = JournalEntries(
                self.place, self.core if is_shared else None, reading=reading
            )
        await entries.open()
        async with aclosing(entries):
            yield entries


# --- that show writes


async def list_(
    at: StoreOptions,
    *,
    state: Annotated[str | None, option(_STATE, "STATE")] = None,
    label: Annotated[list[str] | None, option(_LABEL, "NAME=VALUE")] = None,
    limit: Annotated[int, number(int, "How many at most.", least=1)] = 100,
) -> None:
    """
    List writes, the oldest first, and count them: `invsvc KIND list PLACE --state open`.

    Works beside a process that has the file.  A write is untold while nobody has acknowledged its verdict.
    The age is the time since its verdict, or else since it was stored.
    """
    wanted = (
        state if state in (None, "open", "untold") else _verdict_in(state, "--state")
    )
    labels = _labels_in(label or ())
    async with at.opened(reading=True) as entries:
        found = await entries.first(limit, wanted, labels)
        count, first = await entries.count(wanted, _MOST, labels)
        errors = await entries.facts.of(
            _UNTOLD(each) for each in found if not each.heard
        )
        rows = [_row(entries, entry, errors.get(_UNTOLD(entry))) for entry in found]
    total = max(count, len(rows))
    oldest = _since(first)
    more = total >= _MOST
    if emitted({"total": total, "at_least": more, "oldest": oldest, "writes": rows}):
        return
    names = _columns(at.kind, rows)
    table(
        [*names, "age", ""],
        [_cells(row, names) for row in rows],
        right=(len(names) - 1, len(names)),
    )
    note(_count_of(total, shown=len(rows), more=more, oldest=oldest))


def _count_of(total: int, *, shown: int, more: bool, oldest: float | None) -> str:
    words = f"{total:,} or more in all" if more else f"{total:,} in all"
    if total > shown:
        words += f", {total - shown:,} of them not shown: see --limit"
    return (
        words if oldest is None else f"{words}; the oldest was stored {age(oldest)} ago"
    )


def _columns(kind: StoreKind, rows: Iterable[WireObject]) -> list[str]:
    """Return the names of the columns of a list: labels only if a write has some."""
    names = ["namespace"] if kind is JOURNAL else []
    names += ["key", "operation", "thing", "state"]
    names += ["labels"] if any("labels" in row for row in rows) else []
    return [*names, "attempts"]


def _labels_in(words: Iterable[str]) -> dict[str, str]:
    """Return the labels in *words* of the form NAME=VALUE."""
    labels = dict[str, str]()
    for word in words:
        name, sign, value = word.partition("=")
        if not sign or labels.setdefault(name, value) != value:
            why = "has two values" if sign else "must be NAME=VALUE"
            raise misuse(f"{word!r} {why}", "--label")
    if problems := problems_of(labels):
        raise misuse("; ".join(problems), "--label")
    return labels


def _cells(row: WireObject, names: Sequence[str]) -> list[str]:
    """Return the cells of a write in the list: the members *names*, the age, and whether it is untold."""
    labels = row.get("labels", {})
    told = {**row, "labels": " ".join(f"{name}={labels[name]}" for name in labels)}
    shown = ["" if told[name] is None else str(told[name]) for name in names]
    is_told = row.get("told", True)
    error = f": {row['last_error']}" if "last_error" in row else ""
    return [*shown, age(row["age"]), "" if is_told else f"untold{error}"]


async def show(
    at: StoreOptions, key: Annotated[str, argument("The key of the write.", "KEY")]
) -> int:
    """
    Show one write: `invsvc KIND show PLACE row-17`.

    Its verdict is shown, or why it waits, and which process has it, also beside a process that has the file.

    Exits with 0 if it is applied, 3 if the result is unknown, and 1 otherwise, also while it is open.
    """
    from invsvc_async.batch.entries import result_of
    from invsvc_async.batch.reports.not_applied import plain_result

    async with at.opened(reading=True) as entries:
        entry = await entries.entry(await entries.named(key))
        if entry is None:
            fail(f"{key}: the {at.kind.name} has no write under this key")
            return Exit.FAILED
        row = _row(entries, entry, await entries.facts.get(_UNTOLD(entry)))
        if entry.verdict is None:
            row |= await _waits(at.kind, entries, entry)
        else:
            row = plain_result(result_of(entries, entry)) | row
    if not emitted(row):
        print_facts({name.replace("_", " "): words for name, words in _facts(row)})
    return {Verdict.APPLIED: Exit.DONE, Verdict.UNKNOWN: Exit.UNKNOWN}.get(
        row["state"], Exit.FAILED
    )


def _row(entries: Entries, entry: Entry, error: str | None) -> WireObject:
    """Return what a list says of *entry*; *error* is the last one of ``on_result``."""
    from invsvc_async.durable.entries import attempts_of

    since = entry.done_at or entry.added_at
    key = entries.key_of(entry)
    thing = entry.thing
    row: WireObject = {
        "key": key,
        "namespace": entry.key.removesuffix(key).rstrip() or None,
        "operation": entry.operation,
        # A query may have a token.
        "thing": None if thing is None else thing.partition("?")[0],
        "state": entry.verdict or ("to do", "sending")[entry.state],
        "attempts": attempts_of(entry),
        "since": None if since is None else _as_date(since),
        "age": _since(since),
    }
    if labels := labels_in(entry.labels):
        row["labels"] = labels
    if entry.verdict is not None:
        row["told"] = entry.heard
        if not entry.heard and error is not None:
            row["last_error"] = error
    return row


def _as_date(at: int) -> str:
    """Format a time in epoch ms as a date and time in UTC, to the second."""
    return datetime.fromtimestamp(at // 1000, UTC).isoformat()


def _since(then: int | None) -> float | None:
    """Return the seconds since a time in epoch ms."""
    if then is None:
        return None
    return max(round(time.time() - then / 1000, 3), 0.0)


def _facts(row: WireObject) -> Iterator[tuple[str, str]]:
    """Yield what people are shown of a write: nothing empty, nothing twice, and times as dates."""
    is_finished = "verdict" in row
    for name, value in row.items():
        is_told_twice = is_finished and name in ("state", "since")
        if name == "done_at":
            at = datetime.fromtimestamp(value / 1000, UTC)
            yield name, at.isoformat(sep=" ", timespec="milliseconds")
        elif value not in (None, "", [], False) and not is_told_twice:
            yield name, _words(value)
    if not row.get("told", True):
        yield "told", "no: nobody has acknowledged the verdict"


def _words(value: object) -> str:
    match value:
        case dict():
            parts = value.items()
            words = [f"{name.replace('_', ' ')} {_words(each)}" for name, each in parts]
            return ", ".join(words)
        case float():
            return age(value) if value > 1 else f"{value:.3f} s"
        case list():
            return ", ".join(map(str, value))
        case _:
            return str(value)


def _verdict_in(word: str, option: str) -> Verdict:
    """Return the verdict that *word* names, in any of its spellings."""
    try:
        return Verdict(re.sub("[-_]", " ", word))
    except ValueError:
        raise misuse(
            f"must be one of {', '.join(Verdict)}, not {word!r}", option
        ) from None


async def _waits(kind: StoreKind, entries: Entries, entry: Entry) -> WireObject:
    """Return why an open write has no verdict yet, and who has it."""
    from invsvc_async.batch.run_status import RUN, statuses_in

    ahead = await entries.ahead_of(entry)
    owner = await entries.owner_of(entry.lane)
    runs = statuses_in(await entries.facts.beginning(RUN))[
        : None if entries.lanes > 1 else 1
    ]
    limits = sorted(_limits_of(runs))
    if entry.state:
        why = "it may have been sent: its answer is awaited, or its fate is found out by reads"
    elif ahead:
        why = "earlier writes to the same thing are open"
    else:
        why = "its turn has not come"
    if owner is None or not owner.alive:
        why += (
            "; no process has it"
            if kind is JOURNAL
            else "; no process sends it: start one"
        )
    elif limits:
        why += f"; limited by {', '.join(limits)}"
    return {
        "waits": why,
        "after": ahead,
        "process": None if owner is None else owner._asdict(),
    }


def _limits_of(runs: Iterable[Status]) -> set[str]:
    """Return what limits the current *runs*."""
    return {
        each.limited_by
        for each in runs
        if each.limited_by is not None and each.is_current
    }


async def report(
    at: StoreOptions,
    *,
    html: Annotated[Path | None, option("Write an HTML page here.", "FILE")] = None,
    jsonl: Annotated[Path | None, option(_JSONL, "FILE")] = None,
    failed: Annotated[Path | None, option(_FAILED, "FILE")] = None,
) -> None:
    """
    Report verdicts, durations, and what to do about each write that is not applied:
    `invsvc KIND report PLACE --html report.html`.

    The number of requests is without those that a killed process sent for writes which it did not finish.

    The lines of `--failed` can be edited, and run as a batch with another journal.  A line whose write may be
    applied, or would overwrite a newer one, has a member "check" that says so.  It is not valid until that is
    deleted.
    """
    from invsvc_async.batch.entries import name_of
    from invsvc_async.batch.reports.summary import report_of

    named = {"outbox" if at.kind is OUTBOX else "journal": at.place}
    check_outputs({"--html": html, "--jsonl": jsonl, "--failed": failed}, **named)
    async with at.opened(reading=True) as entries:
        if jsonl is not None:
            await write_results(entries, jsonl)
        if failed is not None:
            await write_failed(entries, failed)
        only_files = (
            (jsonl or failed) is not None and html is None and not as_json.get()
        )
        if only_files:
            return
        found = await report_of(entries, name_of(at.place), at.kind.name)
    if html is not None:
        from invsvc_async.batch.reports.html import page_of

        write_private(html, page_of(found))
        note(f"wrote {html}")
    if not emitted(plain(found)) and html is None:
        show_report(found)


async def watch(
    at: StoreOptions,
    *,
    port: Port = 0,
    open_: Annotated[bool, option(_OPENED, names=("--open/--no-open",))] = True,
) -> None:
    """
    Watch the writes on a page: `invsvc KIND watch PLACE`.  Stop with Ctrl-C.

    The page shows progress, rate, pauses, workers and failures.
    It only reads, so it can run beside those who send.  The page answers only to this machine.
    """
    import webbrowser

    from invsvc_async.batch.reports.live import Watch
    from invsvc_async.simulator.loopback_page import serving_page

    try:
        async with at.opened(reading=True) as entries:
            watched = Watch(entries, at.place, at.kind.name)
            async with serving_page(PAGE, watched.data, port=port) as address:
                words = f"Watching {watched.name}; press Ctrl-C to stop.\n  watch_url   {address}\n"
                words += f"  data_url    {address}data (what the page reads, as JSON)"
                is_json = tell(
                    {"watch_url": address, "data_url": f"{address}data"}, words
                )
                sys.stdout.flush()
                has_screen = sys.platform in {"darwin", "win32"} or any(
                    map(os.environ.get, _SCREENS)
                )
                # a browser for terminals would take over this one
                if open_ and has_screen and not is_json:
                    await asyncio.to_thread(webbrowser.open, address)
                with stopping() as stopped:
                    await stopped.wait()
    except OSError as error:
        raise misuse(
            f"--port: {error.strerror or error}. Use another one, or 0."
        ) from error


async def workers(at: StoreOptions) -> None:
    """
    List the processes that send: `invsvc KIND workers "postgresql://db.example/orders"`.

    It shows where they run, how much and how fast they send, and their last sign of life.
    """
    from invsvc_async.batch.entries import workers_of
    from invsvc_async.batch.reports.live import plain_worker

    async with at.opened(reading=True) as entries:
        found = [plain_worker(each) for each in await workers_of(entries)]
    if emitted(found):
        return
    titles = [
        "host",
        "pid",
        "state",
        "done",
        "per second",
        "lanes",
        "seconds since a sign of life",
    ]
    forms = {
        "host": "",
        "pid": "",
        "state": "",
        "done": ",",
        "rate": ".1f",
        "lanes": "",
        "silent": ".0f",
    }
    rows = [
        [format(each[name], form) for name, form in forms.items()] for each in found
    ]
    table(titles, rows, right=(1, 3, 4, 5, 6))


# --- that change writes


async def retry(
    at: StoreOptions,
    keys: Annotated[list[str] | None, argument("Keys of writes.", "KEY")] = None,
    *,
    verdict: Annotated[list[str] | None, option(_RETRIED, "VERDICT")] = None,
    force: Annotated[
        bool, option("Send them even over newer writes to the same resource.")
    ] = False,
) -> int:
    """
    Mark finished writes as to be done again, by key or verdict: `invsvc KIND retry PLACE row-17`.

    Unknown ones are settled first.  A write is not sent over a newer one to the same resource.

    Exits with 1 if keys are given, and none of them was marked.
    """
    if not (keys or verdict):
        raise misuse(
            "give keys" if "verdict" in at.kind.lacks else "give keys or --verdict"
        )
    wanted = _retried_verdicts(verdict or ())
    async with at.opened() as entries:
        if keys:
            count = await _retry_keys(entries, keys, wanted, force=force)
        else:
            count = await entries.reopen_all(wanted, newest=force)
    advice = f": {at.kind.again}" if count else ""
    tell({"to_do": count}, f"{counted(count, 'write')} to be done again{advice}")
    return Exit.FAILED if keys and not count else Exit.DONE


async def _retry_keys(
    entries: Entries, keys: Sequence[str], verdicts: Sequence[Verdict], *, force: bool
) -> int:
    """Mark the writes of *keys*, and name the keys that have no such write; return how many were marked."""
    named = {key: await entries.named(key) for key in keys}
    marked = await entries.do_again(named.values(), verdicts=verdicts, newest=force)
    for key, whole in named.items():
        if whole not in marked:
            fail(
                f"{key}: not marked: there is no such write, it is applied or open, or has another verdict"
            )
    return len(marked)


def _retried_verdicts(words: Sequence[str]) -> list[Verdict]:
    """Return the verdicts in *words*, or all that can be retried."""
    verdicts = [_verdict_in(each, "--verdict") for each in words]
    if Verdict.APPLIED in verdicts:
        raise misuse(
            "applied writes are done, and sending them again would have a second effect"
        )
    return sorted(verdicts or {*Verdict} - {Verdict.APPLIED})


def _found(applied: str | None) -> bool | str:
    """Return a person's finding: the id of what was made, true if it has none, false if not applied."""
    if applied is None:
        return False
    return True if applied == "-" else applied


async def resolve(
    at: StoreOptions,
    key: Annotated[str, argument("The key of the write.", "KEY")],
    *,
    because: Annotated[str, option("How you know it.", "TEXT")],
    applied: Annotated[str | None, option(_APPLIED, "ID")] = None,
    not_applied: Annotated[bool, option("It did not happen.")] = False,
    by: Annotated[
        str | None, option("Who found it out; by default, who runs this.", "NAME")
    ] = None,
) -> None:
    """
    Store what you have found out about a write that is unknown:
    `invsvc KIND resolve PLACE row-17 --applied wh_17 --because "seen in the dashboard"`.

    That becomes its verdict, with who, when and why.  A write that was applied is never sent again.  One that
    was not is sent once you AGAIN.  Nothing is read, and nothing is sent.

    Refused if a living process has the write, its verdict is final, or nothing of it was sent.
    """
    from invsvc_async.durable.resolve import resolution, resolve as store_finding

    if (applied is None) != not_applied:
        raise misuse("give either --applied or --not-applied")
    finding = resolution(_found(applied), because, by)
    async with at.opened() as entries:
        _, outcome = await store_finding(
            entries.store, await entries.named(key), finding, key=key
        )
    person = outcome.evidence.person
    assert person is not None
    told = {
        "key": key,
        "verdict": str(outcome.verdict),
        "message": outcome.message,
        "by": person.by,
    }
    tell(
        told | {"because": person.because, "at": person.at},
        f"{key}: {outcome.verdict}: {outcome.message}",
    )


async def drop(
    at: StoreOptions,
    keys: Annotated[list[str], argument("Keys, as `list` shows them.", "KEY")],
    *,
    yes: Yes = False,
) -> int:
    """
    Delete writes that were not sent yet: `invsvc KIND drop PLACE row-17`.

    They are not sent then.  Of a batch, take them out of its input, too: it may add them again.  Of an outbox
    or a journal, finished writes can be deleted, too: a write under such a key is then a new one, so resolve
    what is unknown instead.  Asks before on a terminal.

    Exits with 1 if one was not deleted: it is not there, or it may have been sent and has no verdict yet.
    """
    if not yes:
        confirm(f"{at.kind.name} drop: delete {', '.join(keys)}?")
    dropped = list[str]()
    missed = list[str]()
    why = "there is no such write, or it may have been sent and has no verdict yet"
    why += (
        ", or it is finished: its input would send it again" if at.kind is BATCH else ""
    )
    async with at.opened() as entries:
        for key in dict.fromkeys(keys):
            if await entries.drop(await entries.named(key)):
                dropped.append(key)
            else:
                missed.append(key)
                fail(f"{key}: not dropped: {why}")
    tell(
        {"dropped": dropped, "kept": missed},
        f"{counted(len(dropped), 'write')} dropped",
    )
    return Exit.FAILED if missed else Exit.DONE


async def prune(
    at: StoreOptions,
    *,
    days: Annotated[float, number(float, _AGE, least=0, most=100_000, metavar="DAYS")],
    unacknowledged: Annotated[
        bool, option("Also those whose verdict nobody has acknowledged.")
    ] = False,
) -> None:
    """
    Delete finished writes: `invsvc KIND prune PLACE --days 30`.

    Of a batch, only their bodies, evidence and stories are deleted.
    Keys and verdicts of a batch stay, so that the same input is still skipped.  Elsewhere a write under the
    key of a deleted one is sent as a new one.  Open and unknown writes stay whole.
    """
    from invsvc_async.batch.entries import summary_of

    async with at.opened() as entries:
        pruned = await entries.prune(
            await entries.ago(days * _DAY), unacknowledged=unacknowledged
        )
        summary = await summary_of(entries)
    left = summary.to_do + summary.sending
    done = summary.done - summary.unknown
    others = max(done - pruned, 0) if at.kind is BATCH else done
    kept = {"open": left, "unknown": summary.unknown, "other": others}
    lines = [
        f"  {count:,} left as they are: {_KEPT[why]}"
        for why, count in kept.items()
        if count
    ]
    tell(
        {"pruned": pruned, "kept": kept},
        "\n".join([f"{counted(pruned, 'write')} pruned", *lines]),
    )


def attach(group: CommandGroup, kind: StoreKind) -> CommandGroup:
    """Add the commands of one kind of store to *group*, and return the group."""
    for command in (list_, show, report, watch, workers, retry, resolve, drop, prune):
        if command.__name__ not in kind.lacks.split():
            words = (
                (command.__doc__ or "")
                .replace("KIND", kind.name)
                .replace("PLACE", kind.example)
            )
            words = words.replace("AGAIN", kind.resent)
            group.add(command, words=words, lacks=kind.lacks, kind=kind)
    return group


journal: CommandGroup = attach(CommandGroup(), JOURNAL)
