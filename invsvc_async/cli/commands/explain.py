"""``invsvc explain``: replay the story of a write through the rules, offline."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from invsvc_async.cli.options import argument, content_of, existing_file, named, option
from invsvc_async.cli.output import Exit, console, emit_json, fail

if TYPE_CHECKING:
    from invsvc_async.reconcile.history import Decision

__all__ = ["command"]


def command(
    file: Annotated[
        Path, argument("A story written by `write --story`; - is standard input.", callback=existing_file)
    ],
    *,
    json_: Annotated[bool, option("Print the result as JSON.")] = False,
) -> int:
    """
    Explain how a verdict was reached, and check that the current rules still reach it:
    `invsvc explain story.json`.

    Exits with 1 if the rules of this version reach another verdict.
    """
    from invsvc_async.errors import InvalidRequestError
    from invsvc_async.reconcile.explain import from_json, replay, tell
    from invsvc_async.reconcile.history import Done

    try:
        intent, history, stored = from_json(content_of(file))
    except InvalidRequestError as error:
        raise named(error, file, "what `--story FILE` wrote, or outcome.to_json() returned") from error
    steps = replay(intent, history)
    last = steps[-1][1]
    now = str(last.verdict) if isinstance(last, Done) else "none: the story ends before a verdict"
    reason = last.reason if isinstance(last, Done) else "no verdict yet"
    decisions = [
        f"{type(event).__name__.lower() if event else 'start'}: {_words(decision)}"
        for event, decision in steps
    ]
    if json_:
        emit_json({"said": stored, "verdict": now, "same": stored == now, "decisions": decisions})
    else:
        out = console()
        out.print(tell(intent, history, now, reason), markup=False)
        out.print("decision after each event:")
        for line in decisions:
            out.print(f"  {line}", markup=False)
    if stored != now:
        fail(f"the story has the verdict {stored!r}, but the rules of this version reach {now!r}")
    return Exit.DONE if stored == now else Exit.FAILED


def _words(decision: Decision) -> str:
    from invsvc_async.reconcile.history import Done, Read, Send, Wait

    match decision:
        case Done(verdict=verdict, reason=reason):
            return f"done: {verdict} ({reason})"
        case Send(not_after=None):
            return "send"
        case Send():
            return "send again: the last read proves absence"
        case Read(reader=reader, why=why):
            return f"read {reader}: {why}"
        case Wait(seconds):
            return f"wait {seconds:.3f} s"
