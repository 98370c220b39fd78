"""Output of a write's outcome, and storage of intents that are still open."""

from __future__ import annotations

import hashlib
import re
import sys
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from invsvc_async.api.operations import BY_NAME
from invsvc_async.cli.output import (
    DONE,
    FAILED,
    UNKNOWN,
    console,
    emit_json,
    fail,
    note,
    print_hanging,
    reporting,
    told,
)
from invsvc_async.codec import envelope
from invsvc_async.codec.encode import plain_of
from invsvc_async.reconcile.history import Verdict
from invsvc_async.reconcile.outcome import summary
from invsvc_async.storage.private_file import open_private, write_private

if TYPE_CHECKING:
    from invsvc_async.client import Client
    from invsvc_async.reconcile.intent import Intent
    from invsvc_async.reconcile.outcome import Outcome

__all__ = ["exit_code_of", "print_outcome", "store_unsettled"]

_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}")
_COLOURS = {Verdict.APPLIED: "green", Verdict.UNKNOWN: "yellow"}


def exit_code_of(outcome: Outcome[Any]) -> int:
    """Return the exit code of a verdict."""
    return {Verdict.APPLIED: DONE, Verdict.UNKNOWN: UNKNOWN}.get(outcome.verdict, FAILED)


def print_outcome(outcome: Outcome[Any], *, as_json: bool, story: Path | None) -> None:
    """Print verdict, story and value; write the whole story to a file if one is given."""
    with reporting(f"{outcome.intent.operation}: {outcome.verdict}: {outcome.message}"):
        if as_json:
            emit_json(_plain(outcome))
        else:
            _print(outcome)
    if story is not None:
        try:
            write_private(story, outcome.to_json())
        except OSError as error:  # does not change the verdict or the exit code
            fail(f"{story}: cannot write the story: {error.strerror}")


def _print(outcome: Outcome[Any]) -> None:
    out = console()
    colour = _COLOURS.get(outcome.verdict, "red")
    out.print(f"[bold {colour}]{str(outcome.verdict).upper()}[/]", end="  ")
    out.print(outcome.message, markup=False)
    print_hanging(out, outcome.explain(), style="dim")
    if outcome.error is not None and outcome.verdict is not Verdict.APPLIED:
        out.print(told(str(outcome.error), outcome.error), markup=False)
    if outcome.secret_lost:
        out.print(
            "[yellow]its secret is lost: the service returns it only once. If you need it, delete the "
            "webhook and create it again[/]"
        )
    if outcome.value is not None:
        from invsvc_async.cli.formatting import show

        show(outcome.value)


def _plain(outcome: Outcome[Any]) -> dict[str, Any]:
    return {
        **summary(outcome, plain_of),
        "story": outcome.explain().splitlines(),
        "intent": envelope.loads(outcome.intent.to_json().encode()),
    }


def store_unsettled(client: Client, profile: str | None) -> None:
    """
    Store each unsettled intent of *client* in a file of the current directory, readable only by its owner.

    *profile* is the one that the command was given; the hint how to settle the write names it.

    If a file cannot be written, the intent is printed instead.
    """
    for intent in client.unsettled:
        text, path = intent.to_json(), _file_named(intent.key)
        try:
            _write_private(path, text)
        except OSError as error:  # the intent is the only way to settle the write later
            fail(f"{path}: {error.strerror}. The intent follows: save it to a file")
            sys.stderr.write(text + "\n")
            path = Path("FILE")  # a placeholder in the hint
        note(f"{intent.operation} is not settled; {_next_step(intent, path, profile)}")


def _next_step(intent: Intent, path: Path, profile: str | None) -> str:
    """Return a hint how to settle *intent*."""
    if BY_NAME[intent.operation].reader is not None:
        option = "" if profile is None else f"--profile {quote(profile)} "
        return f"run: invsvc settle {option}{path}"
    return (
        f"{path} has its intent. The specification has no read for it: check by hand, or settle it from "
        "Python with a custom reader: client.settle(intent, reader=…)"
    )


def _file_named(key: str) -> Path:
    """Return the file name for the intent of *key*; a key from a file that is no plain name is hashed."""
    plain = key if _NAME.fullmatch(key) else hashlib.sha256(key.encode()).hexdigest()[:16]
    return Path(f"invsvc-intent-{plain}.json")


def _write_private(path: Path, text: str) -> None:
    path.unlink(missing_ok=True)  # an older file may be readable by others
    with open(path, "x", encoding="utf-8", opener=open_private) as file:
        file.write(text)
