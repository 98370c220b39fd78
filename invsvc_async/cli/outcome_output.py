"""Print what became of a write, and keep what is needed to find out later; never decide it."""

from __future__ import annotations

import hashlib
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from invsvc_async.api.json_values import is_object
from invsvc_async.api.operations import BY_NAME
from invsvc_async.cli.output import DONE, FAILED, UNKNOWN, console, emit_json, fail, note, private
from invsvc_async.codec import envelope, unstructure
from invsvc_async.reconcile.history import Verdict

if TYPE_CHECKING:
    from collections.abc import Callable

    from invsvc_async.client import Client
    from invsvc_async.reconcile.intent import Intent
    from invsvc_async.reconcile.outcome import Outcome
    from invsvc_async.transport.session import DecisionReport

__all__ = ["code_of", "in_doubt", "keep_open", "tell"]

_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}")
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
        from invsvc_async.cli.formatting import show

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
        "intent": envelope.loads(outcome.intent.to_json().encode()),
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
    """
    Keep the intent of each write whose fate is open in a file of this directory, for its owner alone, and
    say so; where that fails, print it.
    """
    for intent in client.unsettled:
        text, path = intent.to_json(), _place_of(intent.key)
        try:
            _keep(path, text)
        except OSError as error:  # the verdict is told all the same, and this is all that can find out more
            fail(f"{path}: {error.strerror}; the intent is printed here: keep it")
            sys.stderr.write(text + "\n")
            path = Path("FILE")  # whatever it is then kept in
        note(f"the fate of {intent.operation} is open; {_next_step(intent, path)}")


def _next_step(intent: Intent, path: Path) -> str:
    """Say how to find out."""
    if BY_NAME[intent.operation].reader is not None:
        return f"find out with: invsvc settle {path}"
    return (
        f"{path} holds its intent. The specification has no read for it: look yourself, or settle it from "
        "Python with a reader of your own: client.settle(intent, reader=…)"
    )


def _place_of(key: str) -> Path:
    """Give the file for the intent of *key*, which is anybody's text: what is no plain name becomes one."""
    plain = key if _NAME.fullmatch(key) else hashlib.sha256(key.encode()).hexdigest()[:16]
    return Path(f"invsvc-intent-{plain}.json")


def _keep(path: Path, text: str) -> None:
    path.unlink(missing_ok=True)  # an older one may be open to others
    with open(path, "x", encoding="utf-8", opener=private) as file:
        file.write(text)
