"""Print what became of a write, and keep what is needed to find out later; never decide it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from invsvc_async import wire
from invsvc_async.bodies import is_object
from invsvc_async.cli.output import DONE, FAILED, UNKNOWN, console, emit_json, fail, note
from invsvc_async.convert import unstructure
from invsvc_async.reconcile.evidence import Verdict

if TYPE_CHECKING:
    from collections.abc import Callable

    from invsvc_async.client import Client
    from invsvc_async.outcome import Outcome
    from invsvc_async.session import DecisionReport

__all__ = ["code_of", "in_doubt", "keep_open", "tell"]

_COLOURS = {Verdict.APPLIED: "green", Verdict.UNKNOWN: "yellow"}


def code_of(outcome: Outcome[Any]) -> int:
    """Give the exit code that a verdict has."""
    return {Verdict.APPLIED: DONE, Verdict.UNKNOWN: UNKNOWN}.get(outcome.verdict, FAILED)


def tell(outcome: Outcome[Any], *, as_json: bool, story: Path | None) -> None:
    """Print verdict, story and value, and keep the whole story in a file where one is named."""
    if as_json:
        emit_json(_plain(outcome))
    else:
        _print(outcome)
    if story is not None:
        try:
            story.write_text(outcome.to_json(), encoding="utf-8")
        except OSError as error:  # the verdict stands, and its exit code with it
            fail(f"the story was not kept: {story}: {error.strerror}")


def _print(outcome: Outcome[Any]) -> None:
    out = console()
    colour = _COLOURS.get(outcome.verdict, "red")
    out.print(f"[bold {colour}]{str(outcome.verdict).upper()}[/]", end="  ")
    out.print(outcome.message, markup=False)
    out.print(outcome.explain(), markup=False, style="dim")
    if outcome.error is not None and outcome.verdict is not Verdict.APPLIED:
        out.print(str(outcome.error), markup=False)
    if outcome.secret_lost:
        out.print("[yellow]its secret is lost: it was shown once, and cannot be had again[/]")
    if outcome.value is not None:
        from invsvc_async.cli.values import show

        show(outcome.value)


def _plain(outcome: Outcome[Any]) -> dict[str, Any]:
    return {
        "verdict": str(outcome.verdict),
        "applied": outcome.applied,
        "message": outcome.message,
        "value": _without_secret(unstructure(outcome.value)),
        "error": None if outcome.error is None else str(outcome.error),
        "attempts": outcome.attempts,
        "resends": outcome.resends,
        "secret_lost": outcome.secret_lost,
        "story": outcome.explain().splitlines(),
        "intent": wire.loads(outcome.intent.to_json().encode()),
    }


def _without_secret(plain: Any) -> Any:  # Any: wire data
    if not is_object(plain):
        return plain
    return {name: each for name, each in plain.items() if name != "secret"}


def in_doubt() -> Callable[[DecisionReport], None] | None:
    """Give what tells, on a terminal and once, why a write takes its time."""
    if not console(stderr=True).is_terminal:
        return None
    sent = told = False

    def say(report: DecisionReport) -> None:
        nonlocal sent, told
        if sent and not told and report.decision in ("read", "wait"):
            told = True
            note("no answer to trust: reading what became of it (Ctrl-C keeps what is needed to ask later)")
        sent = sent or report.decision == "send"

    return say


def keep_open(client: Client) -> None:
    """Write the intent of each write whose fate is open to a file of this directory, and say so."""
    for intent in client.unsettled:
        path = Path(f"invsvc-intent-{intent.key}.json")
        path.write_text(intent.to_json(), encoding="utf-8")
        note(f"the fate of {intent.operation} is open; find out with: invsvc settle {path}")
