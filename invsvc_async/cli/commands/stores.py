"""Commands that batches, outboxes and journals have in common (list, show, retry), and ``invsvc journal``."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from invsvc_async.cli.commands.lost_secrets import replace_lost
from invsvc_async.cli.commands.report import (
    plain,
    show as show_report,
    write_failed,
    write_results,
)
from invsvc_async.cli.files import check_outputs
from invsvc_async.cli.options import (
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
    as_json,
    counted,
    emitted,
    fail,
    is_terminal,
    note,
    print_facts,
    table,
    tell,
)
from invsvc_async.cli.page_serving import serve_page
from invsvc_async.cli.store_options import (
    BATCH,
    JOURNAL,
    OUTBOX,
    StoreKind,
    StoreOptions,
)
from invsvc_async.cli.store_views import (
    UNACKNOWLEDGED,
    facts_in_words,
    facts_of,
    listing_of,
    workers_table,
)
from invsvc_async.reconcile.enums import Verdict
from invsvc_async.storage.private_file import write_private
from invsvc_async.writes.labels import problems_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from invsvc_async.durable.entries import Entries
    from invsvc_async.durable.entry import Entry

PAGE = ("invsvc_async.cli", "batch_watch.html")
_JSONL = "Write each outcome as a line of JSON here; - is stdout."
_FAILED = "Write what is not applied here, as lines of a batch's input; - is stdout."
_RETRIED = "not-applied, refused, superseded or unknown; repeatable."
_OPENED = "Open the page in a browser, or only print its address."
_STATE = "open (to do or sending), unacknowledged, applied, not-applied, refused, superseded or unknown."
_LABEL = (
    "With this label of .keyed(…); repeatable: with all of them. Looks at each write, in a "
    "million for seconds."
)
_DAY = 86_400  # s
_APPLIED = "It was applied: the id of what it made or changed; - if there is none, or you do not know it."
_KEPT = {  # why a write was not pruned
    "open": "not finished",
    "unknown": "unknown, so their content is needed to settle them",
    "other": "finished later than that, not acknowledged yet, or empty already",
}

_AGE = "Finished at least so long ago."
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

    Works beside a process that has the file.  A write is unacknowledged while nobody has taken its verdict.
    The age is the time since its verdict, or else since it was stored.
    """
    from invsvc_async.durable.store.noted import Chosen

    chosen = Chosen(state=_state_in(state), labels=_labels_in(label or ()))
    async with at.opened(reading=True) as entries:
        found = await listing_of(entries, limit, chosen)
    if emitted(found.plain()):
        return
    on_terminal = is_terminal(sys.stdout)
    has_one = on_terminal and not found.has_namespaces
    titles, rows, right = found.table(
        namespace=at.kind is JOURNAL and not has_one, on_terminal=on_terminal
    )
    # the key, what it does, and how it is
    table(titles, rows, right=right, enough=titles.index("state") + 1)
    note(found.words("see --limit"))


def _state_in(state: str | None) -> str | None:
    """Return the state that *state* names; 0.1.0 called one of them ``untold``."""
    if state == "untold":
        return UNACKNOWLEDGED
    if state in (None, "open", UNACKNOWLEDGED):
        return state
    return _verdict_in(state, "--state")


def _labels_in(words: Iterable[str]) -> dict[str, str]:
    """Return the labels in *words* of the form NAME=VALUE."""
    labels = dict[str, str]()
    for word in words:
        name, sign, value = word.partition("=")
        if not sign:
            raise misuse(f"{word!r} must be NAME=VALUE", "--label")
        if labels.setdefault(name, value) != value:
            raise misuse(f"{word!r} has two values", "--label")
    if problems := problems_of(labels):
        raise misuse("; ".join(problems), "--label")
    return labels


async def show(
    at: StoreOptions, key: Annotated[str, argument("The key of the write.", "KEY")]
) -> int:
    """
    Show one write: `invsvc KIND show PLACE row-17`.

    Its verdict is shown, or why it waits, and which process has it, also beside a process that has the file.

    Exits with 0 if it is applied, 3 if the result is unknown, and 1 otherwise, also while it is open.
    """
    async with at.opened(reading=True) as entries:
        entry = await entries.entry(await entries.named(key))
        if entry is None:
            fail(f"{key}: the {at.kind.name} has no write under this key")
            return Exit.FAILED
        row = await facts_of(at.kind, entries, entry)
    if not emitted(row):
        print_facts(dict(facts_in_words(row)))
    return {Verdict.APPLIED: Exit.DONE, Verdict.UNKNOWN: Exit.UNKNOWN}.get(
        row["state"], Exit.FAILED
    )


def _verdict_in(word: str, option: str) -> Verdict:
    """Return the verdict that *word* names, in any of its spellings."""
    try:
        return Verdict(re.sub("[-_]", " ", word))
    except ValueError:
        raise misuse(
            f"must be one of {', '.join(Verdict)}, not {word!r}", option
        ) from None


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

    The number of requests includes those of processes that were killed, as far as they are stored.

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
        if not _wants_report(html, jsonl, failed):
            return
        found = await report_of(entries, name_of(at.place), at.kind.name, at.profile)
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
    from invsvc_async.batch.reports.live import Watch

    async with at.opened(reading=True) as entries:
        watched = Watch(entries, at.place, at.kind.name)
        await serve_page(
            PAGE,
            watched.data,
            port=port,
            open_=open_,
            addresses=lambda url: {"watch_url": url, "data_url": f"{url}data"},
            words=lambda url: (
                f"Watching {watched.name}; press Ctrl-C to stop.\n  watch_url   {url}\n"
                f"  data_url    {url}data (as JSON)"
            ),
        )


def _wants_report(html: Path | None, *results: Path | None) -> bool:
    """Return whether more is asked for than files of *results*."""
    if html is not None:
        return True
    if as_json.get():
        return True
    return not any(results)


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
    titles, rows, right = workers_table(found)
    table(titles, rows, right=right)


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

    Exits with 1 if keys are given, and none of them was marked.  Why one was not is said of each.
    """
    if not (keys or verdict):
        if "verdict" in at.kind.lacks:
            raise misuse("give keys")
        raise misuse("give keys or --verdict")
    from invsvc_async.durable.entries import reopen_all

    wanted = _retried_verdicts(verdict or ())
    async with at.opened() as entries:
        if keys:
            count = await _retry_keys(entries, keys, wanted, force=force)
        else:
            count = await reopen_all(entries, wanted, at_end=force)
    advice = f": {at.kind.again}" if count else ""
    tell({"to_do": count}, f"{counted(count, 'write')} to be done again{advice}")
    if keys and not count:
        return Exit.FAILED
    return Exit.DONE


async def _retry_keys(
    entries: Entries,
    keys: Sequence[str],
    verdicts: Sequence[Verdict],
    *,
    force: bool,
) -> int:
    """Mark the writes of *keys*, and name the keys that have no such write; return how many were marked."""
    named = {key: await entries.named(key) for key in keys}
    marked = await entries.do_again(named.values(), verdicts=verdicts, at_end=force)
    for key, whole in named.items():
        if whole not in marked:
            why = _why_not_marked(entries, await entries.entry(whole), verdicts)
            fail(f"{key}: not marked: {why}")
    return len(marked)


def _why_not_marked(
    entries: Entries,
    entry: Entry | None,
    verdicts: Sequence[Verdict],
) -> str:
    """Return why *entry*, read after the marking, was not marked to be done again."""
    from invsvc_async.durable.entries import JournalEntries

    if entry is None:
        return "there is no such write"
    if entry.verdict is None:
        return "it is open, so that it is done in any case"
    if entry.verdict == Verdict.APPLIED:
        return "it is applied, and sending it again would have a second effect"
    if entry.verdict not in verdicts:
        return f"its verdict is {entry.verdict}"
    if entry.intent is None:
        return "it was pruned, so that what it would send is not known any more"
    if isinstance(entries, JournalEntries) and not entry.digest:
        return "it has no key of yours, so that nothing would run it again"
    return "it was changed at the same time. Look at it again"


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
    if applied == "-":
        return True
    return applied


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

    Refused if a living process has the write, its verdict is final, or nothing of it was sent.  If a process
    in PostgreSQL has the write and gives no sign of life, this waits for as long as one may be silent (10 s).
    """
    from invsvc_async.durable.resolve import resolution, resolve as store_finding

    if (applied is None) != not_applied:
        raise misuse("give either --applied or --not-applied")
    # as reports print the command
    for given, placeholder, name in (
        (applied, "ID", "--applied"),
        (because, "TEXT", "--because"),
    ):
        if given == placeholder:
            raise misuse(
                f"{placeholder} is a placeholder. Put there what you found", name
            )
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
    Delete writes DROPPED: `invsvc KIND drop PLACE row-17`.

    What was not sent yet is not sent then.  DROPPING  Asks before on a terminal.

    Exits with 1 if one was not deleted: it is not there, or it may have been sent and has no verdict yet.
    """
    if not yes:
        confirm(f"{at.kind.name} drop: delete {', '.join(keys)}{at.kind.dropped_too}?")
    dropped = list[str]()
    missed = list[str]()
    why = "there is no such write, or it may have been sent and has no verdict yet"
    if at.kind is BATCH:
        why += ", or it is finished: its input would send it again"
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
    if missed:
        return Exit.FAILED
    return Exit.DONE


async def prune(
    at: StoreOptions,
    *,
    days: Annotated[
        float,
        number(
            float,
            _AGE,
            least=0,
            most=100_000,
            metavar="DAYS",
        ),
    ],
    unacknowledged: Annotated[
        bool, option("Also those whose verdict nobody has acknowledged.")
    ] = False,
) -> None:
    """
    PRUNED: `invsvc KIND prune PLACE --days 30`.

    PRUNING  Open and unknown writes stay whole.
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
    for command in _COMMANDS:
        if command.__name__ not in kind.lacks.split():
            lacks = kind.lacks
            if command is replace_lost:  # of these, it alone calls the service
                lacks = lacks.replace("profile", "")
            group.add(
                command,
                words=_help_of(command, kind),
                lacks=lacks,
                kind=kind,
            )
    return group


_COMMANDS: Final = (
    list_,
    show,
    report,
    watch,
    workers,
    retry,
    resolve,
    replace_lost,
    drop,
    prune,
)


def _help_of(command: Callable[..., object], kind: StoreKind) -> str:
    words = command.__doc__ or ""
    filled = {
        "KIND": kind.name,
        "PLACE": kind.example,
        "AGAIN": kind.resent,
        "SECRETS": f"secrets.jsonl{kind.journal}",
        "NAMED": kind.named,
        "DROPPED": kind.dropped,
        "DROPPING": kind.dropping,
        "PRUNED": kind.pruned,
        "PRUNING": kind.pruning,
    }
    return re.sub(rf"\b({'|'.join(filled)})\b", lambda found: filled[found[0]], words)


journal: CommandGroup = attach(CommandGroup(), JOURNAL)
