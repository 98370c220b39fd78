"""Replay the story of a write through the rules, offline; never send, read or ask."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads the types
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from invsvc_async.reconcile.history import Decision

__all__ = ["command"]


def command(
    file: Annotated[
        Path, typer.Argument(exists=True, dir_okay=False, help="A story, as `write --story` keeps it.")
    ],
    *,
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """
    Tell how a verdict came about, and check that the rules still give it.

    Exits with 1 if the rules of this version come to another verdict.
    """
    from invsvc_async.cli.output import DONE, FAILED, console, emit_json, fail
    from invsvc_async.reconcile.explain import from_json, replay, tell
    from invsvc_async.reconcile.history import Done

    intent, history, said = from_json(file.read_bytes())
    steps = replay(intent, history)
    last = steps[-1][1]
    now = str(last.verdict) if isinstance(last, Done) else "none: the story ends before a verdict"
    reason = last.reason if isinstance(last, Done) else "no verdict yet"
    told = [
        f"{type(event).__name__.lower() if event else 'at first'}: {_words(decision)}"
        for event, decision in steps
    ]
    if json_:
        emit_json({"said": said, "verdict": now, "same": said == now, "decisions": told})
    else:
        out = console()
        out.print(tell(intent, history, now, reason), markup=False)
        out.print("decisions, after each event:")
        for line in told:
            out.print(f"  {line}", markup=False)
    if said != now:
        fail(f"the story says {said!r}; the rules of this version say {now!r}")
    raise typer.Exit(DONE if said == now else FAILED)


def _words(decision: Decision) -> str:
    from invsvc_async.reconcile.history import Done, Read, Send, Wait

    match decision:
        case Done(verdict=verdict, reason=reason):
            return f"done: {verdict} ({reason})"
        case Send(not_after=None):
            return "send"
        case Send():
            return "send again, on the proof just read"
        case Read(reader=reader, why=why):
            return f"read {reader}: {why}"
        case Wait(seconds):
            return f"wait {seconds:.3f} s"
