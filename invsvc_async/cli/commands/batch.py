"""``invsvc batch``: run batches, and look after them."""

from __future__ import annotations

import asyncio
from codecs import BOM_UTF8
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import attrs
from typer.core import TyperGroup

from invsvc_async.cli.commands.report import counts_of, show_groups
from invsvc_async.cli.commands.stores import attach
from invsvc_async.cli.files import check_outputs, existing_file
from invsvc_async.cli.options import (
    CommandGroup,
    Concurrency,
    SendingOptions,
    argument,
    misuse,
    option,
)
from invsvc_async.cli.output import (
    Exit,
    counted,
    emit_json,
    emitted,
    fail,
    note,
    print_facts,
    reporting,
)
from invsvc_async.cli.progress import batch_bar, store_progress
from invsvc_async.cli.report_views import INPUT_INCOMPLETE
from invsvc_async.cli.signals import handled, interruptible, stop_signals
from invsvc_async.cli.store_options import BATCH, Place, StoreOptions
from invsvc_async.errors import BatchStoppedError
from invsvc_async.reconcile.enums import Verdict
from invsvc_async.storage.address import is_postgres

if TYPE_CHECKING:
    from collections.abc import Generator

    from invsvc_async.batch import Batch, Progress, Summary
    from invsvc_async.batch.file_check import FileWrites
    from invsvc_async.batch.reports.not_applied import Group
    from invsvc_async.client import Client

_CORRECT = "Correct these lines, or skip them with --skip-bad"
_FORM = (
    'The input must have one write per line: {"operation": …, "arguments": {…}, "key": …}. '
    "Of a table, --operation says what its rows are"
)
# bad lines that are shown; 2 if no line is good, as in a file of another format
_NAMED = 20
_FIRST_LINE = 10_000  # bytes of it that are looked at
_GRACE = 10.0  # s for writes in flight to finish after an interrupt

_SECRETS = "some create webhooks: a run needs --secrets-to FILE, or --no-secrets"
_TABLE = (
    "is a table, not lines of JSON. Say what its rows are, and which columns are arguments, such as "
    "--operation webhooks.update --map webhook=hook_id --map description=note --key order_id"
)

_INPUT = "One write per line, as JSON, or a table; - is stdin."
_OPERATION = "The input is a CSV table; each row is such a write."
_MAP = "Of a table: one argument; repeatable."
_TAG = "Tag new webhooks, so that they can be identified."
_STOP_AFTER = "Stop after so many writes, or such a share (0.05), with another verdict than applied."


def _limit(text: str) -> float:
    try:
        if text.isdecimal():
            return int(text)
        return float(text)
    except ValueError:
        raise misuse("must be a number of writes, or a share below 1") from None


@attrs.frozen
class _BatchSending(SendingOptions):
    """The options of commands that send a batch; a worker has not all of them."""

    concurrency: Concurrency = 200
    tag: Annotated[bool, option(_TAG, names=("--tag/--no-tag",))] = True
    stop_after: Annotated[float | None, option(_STOP_AFTER, "N", parser=_limit)] = None


class _Group(TyperGroup):
    """Treats ``invsvc batch FILE …`` as ``invsvc batch run FILE …``."""

    # Any: newer typer brings its own click
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert the command ``run`` if the first word is not a command."""
        if args and args[0] not in (*self.commands, "-h", "--help"):
            from invsvc_async.resources.by_name import did_you_mean

            if not Path(args[0]).exists() and (
                words := did_you_mean(args[0], self.commands)
            ):
                ctx.fail(f"No such file or command {args[0]!r}. {words}")
            args = ["run", *args]
        return list(super().parse_args(ctx, args))


batch: CommandGroup = CommandGroup(
    cls=_Group,
    help="Run the writes of a file, one per line. Safe to kill at any moment: nothing is lost or sent twice."
    "\n\nBegin or resume one with `invsvc batch FILE.jsonl --journal run.db`. A line of the file is "
    '{"operation": "webhooks.create", "arguments": {…}, "key": "row-17"}. A file can be a table in CSV, too: '
    "see `invsvc batch run --help`.",
)


@batch.add
async def run(
    file: Annotated[Path, argument(_INPUT, "FILE", callback=existing_file)],
    *,
    journal: Annotated[str, option("The journal: a file, or postgresql://…", "FILE")],
    dry_run: Annotated[
        bool, option("Check the file, and show its first writes.")
    ] = False,
    skip_bad: Annotated[bool, option("Skip invalid lines and list them.")] = False,
    operation: Annotated[str | None, option(_OPERATION, "NAME")] = None,
    map_: Annotated[list[str] | None, option(_MAP, "ARGUMENT=COLUMN")] = None,
    key: Annotated[str | None, option("Of a table: the keys.", "COLUMN")] = None,
    options: _BatchSending,
) -> int:
    """
    Start or resume a batch: `invsvc batch writes.jsonl --journal run.db --dry-run`.

    A line is {"operation": "webhooks.create", "arguments": {…}, "key": "row-17"}.  Of a table in CSV each row
    is a write of the --operation: `invsvc batch orders.csv --journal run.db --operation webhooks.update
    --map webhook=hook_id --map description=note --key order_id`.  An empty cell leaves its argument out; with
    ARGUMENT:=COLUMN cells are JSON, such as null.

    Nothing is sent unless all lines are valid, and if lines create webhooks, --secrets-to or --no-secrets
    says what becomes of their secrets.  After a kill, or to run lines added to the file, repeat the command
    with the same file and journal.

    Exits with 3 if the result of a write is unknown, 1 if a write was not applied, 4 if that is only because
    newer writes to the same resources were sent, and 0 otherwise.  5 means that nothing is wrong, except that
    another process has not read its input to its end yet, or that invalid lines were skipped.
    """
    from invsvc_async.batch.entries import checkpoint_at
    from invsvc_async.batch.file_check import (
        FileWrites,
        check_file,
        read_lines,
        rereadable,
    )
    from invsvc_async.cli.table_input import InputTable

    check_outputs({"--secrets-to": options.secrets_to}, input=file, journal=journal)
    if operation is None and (map_ or key is not None):
        raise misuse(
            "--map and --key need --operation, which says that the input is a table"
        )
    with interruptible():  # a pipe may give nothing
        opened = rereadable(file)
    with opened as lines:
        async with options.client_for(options.concurrency) as client:
            how: dict[str, Any] = {"name": str(file), "skips_bad": skip_bad}
            if operation is None:
                writes = FileWrites(lines, client, read=read_lines, form=b"", **how)
            else:
                rows = InputTable(lines, client, operation, map_ or (), key)
                writes = FileWrites(
                    lines, client, read=rows.lines, form=rows.form, **how
                )
            checkpoint = None if dry_run else await checkpoint_at(journal)
            with interruptible():  # a large file takes minutes
                check_file(writes, checkpoint, note)
            if operation is None:
                _check_no_table(file, lines, writes)
            if skip_bad and not dry_run:  # before the list, which may be long
                options.check_secrets(may_create=writes.has_secrets)
            is_sound = _tell_problems(file, writes, skip_bad=skip_bad)
            if dry_run:
                return _tell_check(
                    writes, may_lose_secrets=options.lacks_place_for_secrets
                )
            if not is_sound:
                fail(f"nothing was sent. {_CORRECT if writes.good else _FORM}")
                return Exit.USAGE
            return await _run_file(journal, options, client, writes)


def _check_no_table(
    file: Path,
    lines: BinaryIO,
    writes: FileWrites,
) -> None:
    """Check that an input in which no line is a write is no table: a table needs ``--operation``."""
    if writes.good:
        return
    if _is_table(file, lines):
        raise misuse(f"{file} {_TABLE}", "--operation")


def _is_table(file: Path, lines: BinaryIO) -> bool:
    """Return whether an input without a write in any line looks like a table: by its name or first line."""
    if file.suffix.lower() in {".csv", ".tsv"}:
        return True
    lines.seek(0)
    first = lines.readline(_FIRST_LINE).removeprefix(BOM_UTF8).lstrip()
    is_json = first.startswith((b"{", b"["))
    if is_json:
        return False
    return any(sign in first for sign in (b",", b";", b"\t"))


def _tell_problems(
    file: Path,
    writes: FileWrites,
    *,
    skip_bad: bool,
) -> bool:
    """Print the first bad lines, or all lines that are skipped; return whether the others can be sent."""
    if skip_bad and writes.good:
        for problem in writes.problems:
            fail(f"{file}: {problem}")
        return True
    most = _NAMED if writes.good else 2
    for problem in writes.problems[:most]:
        fail(f"{file}: {problem}")
    if writes.bad > most:
        fail(f"{file}: and {writes.bad - most:,} more lines")
    return not writes.bad


def _tell_check(writes: FileWrites, *, may_lose_secrets: bool) -> int:
    names = ("operation", "arguments", "key")
    first = [{name: getattr(each, name) for name in names} for each in writes.first]
    problems = [
        {"line": each.number, "reason": each.reason} for each in writes.problems
    ]
    found = {
        "good": writes.good,
        "bad": writes.bad,
        "problems": problems,
        "first": first,
    }
    if not emitted(found):
        for each in first:
            emit_json(each)
    valid = counted(writes.good, "valid write")
    invalid = counted(writes.bad, "invalid line")
    note(f"{valid}, {invalid}; nothing was sent")
    if writes.has_secrets and may_lose_secrets:
        note(_SECRETS)
    if writes.bad:
        return Exit.USAGE
    return Exit.DONE


async def worker(place: Place, *, options: _BatchSending) -> int:
    """
    Process a batch shared by several machines, until interrupted:
    `invsvc batch worker "postgresql://db.example/orders" --secrets-to secrets.jsonl`.

    Workers can join and leave at any time.  They share the --rate.  Each tells how many writes of the batch
    are open and done.
    """
    options.check_secrets(may_create=True)
    async with options.client_for(options.concurrency) as client:
        return await _work(place, options, client)


@attrs.frozen(kw_only=True)
class _Ended:
    """How a run of this process ended."""

    summary: Summary
    progress: Progress
    failure: BatchStoppedError | None
    was_interrupted: bool
    # the writes that are not applied; a worker shows each when it ends
    groups: list[Group]
    may_create: bool  # whether webhooks may have been created
    where: str  # the words of a command that name the journal
    bad: int = 0  # lines that were skipped

    def show(self, *, discarded: bool) -> None:
        """Print the result; *discarded*: the secrets of new webhooks were thrown away."""
        this_run = {
            "done_now": self.progress.done,
            "skipped": self.progress.skipped,
            "bad": self.bad,
        }
        groups = [each.plain() for each in self.groups]
        report = f"`invsvc batch report {self.where}`"
        with reporting(f"The run has ended. {report} shows its result."):
            if not emitted(
                counts_of(self.summary) | this_run | {"not_applied": groups}
            ):
                print_facts(
                    _facts(
                        self.summary,
                        self.progress,
                        self.bad,
                        discarded=discarded,
                        report=report,
                    )
                )
                show_groups(self.groups, self.where)


async def _run_file(
    journal: str,
    options: _BatchSending,
    client: Client,
    writes: FileWrites,
) -> int:
    """Run the unfinished writes of *writes* and of the journal, and print the result."""
    ended = await _run(journal, options, client, writes)
    ended.show(discarded=options.no_secrets and ended.may_create)
    if ended.failure is not None:
        fail(str(ended.failure))
        if ended.summary.unknown:
            return Exit.UNKNOWN
        return Exit.FAILED
    if ended.was_interrupted:
        note(
            "interrupted: run the same command again to resume; writes in flight are settled first"
        )
        return Exit.INTERRUPTED
    return _exit_code_of(ended.summary, writes.bad)


async def _work(
    journal: str,
    options: _BatchSending,
    client: Client,
) -> int:
    """Work on a shared batch until interrupted, and print the result."""
    ended = await _run(journal, options, client, None)
    ended.show(discarded=False)
    if ended.failure is not None:
        fail(str(ended.failure))
        return Exit.FAILED
    return Exit.DONE


async def _run(
    journal: str,
    options: _BatchSending,
    client: Client,
    writes: FileWrites | None,
) -> _Ended:
    """Run *writes*, or without them work on a shared batch, until the end or an interrupt."""
    from invsvc_async.batch import Batch
    from invsvc_async.batch.entries import has_secrets, name_of
    from invsvc_async.batch.reports.not_applied import groups_of, where_of

    may_create = _may_create(journal, writes)
    options.check_secrets(may_create=may_create)
    failure: BatchStoppedError | None = None
    async with AsyncExitStack() as stack:
        total = 0 if writes is None else writes.good
        show = stack.enter_context(batch_bar(total, shown=writes is not None))
        take = await options.secret_sink(stack)  # its file is closed after the batch
        opening = Batch.open(
            journal, client, on_secret=take, on_progress=show, **options.settings
        )
        batch = await stack.enter_async_context(opening)
        # what an earlier run has left, this one would do
        if not batch.entries.store.is_shared:
            may_create = may_create or await has_secrets(batch.entries)
            options.check_secrets(may_create=may_create)
        stops = stack.enter_context(_signals(batch))
        try:
            await _until_end(batch, writes, StoreOptions(place=journal, kind=BATCH))
        except BatchStoppedError as error:
            failure = error
        summary = await batch.summary()
        progress = batch.progress
        assert progress is not None  # it has begun
        if writes is None:
            groups = []
        else:
            groups = await groups_of(batch.entries, name_of(journal))
    return _Ended(
        summary=summary,
        progress=progress,
        failure=failure,
        was_interrupted=bool(stops),
        groups=groups,
        may_create=may_create,
        where=where_of(name_of(journal)),
        bad=0 if writes is None else writes.bad,
    )


async def _until_end(
    batch: Batch,
    writes: FileWrites | None,
    at: StoreOptions,
) -> None:
    """Run *writes*; or work *at* a shared batch until interrupted, and name what is not applied."""
    if writes is not None:
        async for _ in batch.run(writes):
            pass
        return
    note("waiting for work; press Ctrl-C to leave")
    async with store_progress(at):
        async for result in batch.work():
            if result.applied is not True:
                note(f"{result.key}: {result.verdict}: {result.message}")


def _may_create(journal: str, writes: FileWrites | None) -> bool:
    """Return whether a run may create webhooks, as far as can be told before the journal is opened."""
    if writes is None:
        return True
    if writes.has_secrets:
        return True
    # A run on a shared journal also sends what other runs put into it.
    return is_postgres(journal)


def _exit_code_of(summary: Summary, bad: int) -> int:
    """Return the exit code of a finished batch, of whose input *bad* lines were skipped."""
    if summary.unknown:
        return Exit.UNKNOWN
    missing = summary.total - summary.verdicts.get(Verdict.APPLIED, 0)
    if missing != summary.overtaken:
        return Exit.FAILED
    if summary.open_inputs or bad:
        return Exit.INCOMPLETE
    if missing:
        return Exit.OVERTAKEN
    return Exit.DONE


@contextmanager
def _signals(batch: Batch) -> Generator[list[asyncio.Task[None]]]:
    """Stop the batch gracefully on the first signal, at once on the second; yields the stop tasks."""
    stops: list[asyncio.Task[None]] = []

    def stop() -> None:
        grace = 0.0 if stops else _GRACE
        if grace:
            note(
                f"stopping: writes in flight have {grace:g} s to finish; press Ctrl-C again to stop now"
            )
        stops.append(asyncio.create_task(batch.stop(grace)))

    with handled(stop_signals(), stop):
        yield stops


def _facts(
    summary: Summary,
    progress: Progress,
    bad: int,
    *,
    discarded: bool,
    report: str,
) -> dict[str, str]:
    left = summary.to_do + summary.sending
    lost = summary.secrets_lost
    overtaken = summary.overtaken
    speed = f"{progress.done:,} in {progress.seconds:.1f} s, {progress.rate:,.0f} per second"
    counts = {
        str(verdict): f"{count:,}"
        for verdict, count in sorted(summary.verdicts.items())
    }
    width = max(map(len, counts.values()), default=0)
    facts = {verdict: count.rjust(width) for verdict, count in counts.items()}
    if left:
        facts["left"] = f"{left:,}"
    if lost:
        facts["secrets lost"] = f"{lost:,}; {report} names them"
    if overtaken:
        facts["overtaken"] = f"{overtaken:,} of those not applied, by newer writes"
    if summary.open_inputs:
        facts["input"] = INPUT_INCOMPLETE
    if bad:
        facts["skipped lines"] = f"{bad:,}, which are not valid"
    facts["this run"] = f"{speed}; {progress.skipped:,} already done"
    if discarded:
        facts["secrets"] = "of new webhooks were thrown away, as --no-secrets says"
    return facts


batch.add(worker, lacks="tag stop_after team")  # each write has its own
attach(batch, BATCH)
