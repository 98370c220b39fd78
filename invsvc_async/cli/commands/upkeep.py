"""Commands that change the writes in a batch, an outbox or the journal of a client."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from invsvc_async.cli.commands.stores import BATCH, At, Kind, opened
from invsvc_async.cli.commands.views import UNTOLD, verdict_in
from invsvc_async.cli.options import Yes, confirm, number
from invsvc_async.cli.output import DONE, FAILED, console, counted, emit_json, fail
from invsvc_async.reconcile.enums import Verdict

__all__ = ["drop", "prune", "retry"]

_DAY = 86_400_000  # ms
_NEXT = {
    "batch": ": run the batch",
    "outbox": ": whoever sends its writes does it",
    "journal": ": run the same write under its key",
}
_KEPT = {  # why a write was not pruned
    "open": "not finished",
    "unknown": "unknown, so their content is needed to settle them",
    "other": "finished later than that, not acknowledged yet, or empty already",
}


async def retry(
    kind: Kind,
    at: At,
    keys: Annotated[list[str] | None, typer.Argument(help="Keys of writes.", metavar="KEY")] = None,
    *,
    verdict: Annotated[
        list[str] | None,
        typer.Option(help="not-applied, refused, superseded or unknown; repeatable.", metavar="VERDICT"),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Send them even over newer writes to the same resource.")
    ] = False,
) -> None:
    """
    Mark finished writes as to be done again, by key or verdict: `invsvc KIND retry PLACE row-17`.

    Unknown ones are settled first.

    A write is not sent over a newer one to the same resource.  Exits with 1 if keys are given, and none of
    them was marked.
    """
    if not (keys or verdict):
        raise typer.BadParameter("give keys" if "verdict" in kind.lacks else "give keys or --verdict")
    verdicts = [verdict_in(each, "--verdict") for each in verdict or ()]
    if Verdict.APPLIED in verdicts:
        raise typer.BadParameter("applied writes are done, and sending them again would have a second effect")
    wanted, missed = sorted(verdicts or {*Verdict} - {Verdict.APPLIED}), list[str]()
    async with opened(kind, at) as entries:
        if keys:
            named = {key: await entries.named(key) for key in keys}
            marked = await entries.do_again(named.values(), verdicts=wanted, newest=force)
            count, missed = len(marked), [key for key, whole in named.items() if whole not in marked]
        else:
            count = await entries.reopen_all(wanted, newest=force)
    for key in missed:
        fail(f"{key}: not marked: there is no such write, it is applied or open, or has another verdict")
    if at.json_:
        emit_json({"to_do": count})
    else:
        console().print(f"{counted(count, 'write')} to be done again{_NEXT[kind.name] if count else ''}")
    raise typer.Exit(FAILED if keys and not count else DONE)


async def drop(
    kind: Kind,
    at: At,
    keys: Annotated[list[str], typer.Argument(help="Keys, as `list` shows them.", metavar="KEY")],
    *,
    yes: Yes = False,
) -> None:
    """
    Delete writes that were not sent yet: `invsvc KIND drop PLACE row-17`.

    They are not sent then.  Of an outbox or a journal, finished writes can be deleted, too.

    Asks before on a terminal.  Exits with 1 if one was not deleted: it is not there, or it may have been sent
    and has no verdict yet.
    """
    if not yes:
        confirm(f"{kind.name} drop: delete {', '.join(keys)}?")
    dropped: list[str] = []
    missed: list[str] = []
    async with opened(kind, at) as entries:
        for key in dict.fromkeys(keys):
            whole = await entries.named(key)
            if await entries.drop(whole):
                dropped.append(key)
                await entries.facts.put(f"{UNTOLD}{whole}", None)
            else:
                missed.append(key)
    finished = ", or it is finished: its input would send it again" if kind is BATCH else ""
    for key in missed:
        why = f"there is no such write, or it may have been sent and has no verdict yet{finished}"
        fail(f"{key}: not dropped: {why}")
    if at.json_:
        emit_json({"dropped": dropped, "kept": missed})
    else:
        console().print(f"{counted(len(dropped), 'write')} dropped")
    raise typer.Exit(FAILED if missed else DONE)


async def prune(
    kind: Kind,
    at: At,
    *,
    days: Annotated[
        float, number(float, "Finished at least so long ago.", least=0, most=100_000, metavar="DAYS")
    ],
    unacknowledged: Annotated[
        bool, typer.Option("--unacknowledged", help="Also those whose verdict nobody has acknowledged.")
    ] = False,
) -> None:
    """
    Delete finished writes: `invsvc KIND prune PLACE --days 30`.

    Of a batch, only their bodies, evidence and stories are deleted.
    Keys and verdicts of a batch stay, so that the same input is still skipped.  Elsewhere a write under the
    key of a deleted one is sent as a new one.  Open and unknown writes stay whole.
    """
    from invsvc_async.batch.entries import summary_of

    before = round(time.time() * 1000 - days * _DAY)
    async with opened(kind, at) as entries:
        pruned = await entries.prune(before, unacknowledged=unacknowledged)
        summary = summary_of(await entries.counts(), 0)
    left, others = summary.to_do + summary.sending, summary.done - summary.unknown
    if kind is BATCH:
        others = max(others - pruned, 0)
    kept = {"open": left, "unknown": summary.unknown, "other": others}
    if at.json_:
        emit_json({"pruned": pruned, "kept": kept})
        return
    console().print(f"{counted(pruned, 'write')} pruned")
    for why, count in kept.items():
        if count:
            console().print(f"  {count:,} left as they are: {_KEPT[why]}")
