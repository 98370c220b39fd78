"""``invsvc write``, ``settle``, ``resume`` and ``explain``: a write, its outcome and its story."""

from __future__ import annotations

import asyncio
import re
import sys
from codecs import BOM_UTF8
from contextlib import AbstractAsyncContextManager, nullcontext
from hashlib import sha256
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import attrs
import typer

from invsvc_async.api.operations import BY_NAME, OperationKind
from invsvc_async.cli.arguments import (
    arguments_of,
    complete_argument,
    complete_operation,
    operation_of,
)
from invsvc_async.cli.files import (
    check_outputs,
    content_of,
    existing_file,
    text_of_secret,
)
from invsvc_async.cli.options import Calling, Yes, argument, confirm, misuse, option
from invsvc_async.cli.output import (
    Exit,
    console,
    emitted,
    fail,
    note,
    print_hanging,
    reporting,
    told,
)
from invsvc_async.cli.progress import WaitingForWrite
from invsvc_async.cli.signals import OF_TERMINALS, handled, unhandled
from invsvc_async.codec import envelope
from invsvc_async.errors import InvalidRequestError, JournalError
from invsvc_async.reconcile.enums import Verdict
from invsvc_async.resources.by_name import as_write
from invsvc_async.storage.private_file import open_private, write_private

if TYPE_CHECKING:
    from collections.abc import Callable

    from invsvc_async.cli.secrets_file import SecretsFile
    from invsvc_async.client import Client
    from invsvc_async.reconcile.history import Decision, Event, History
    from invsvc_async.reconcile.intent import Intent
    from invsvc_async.reconcile.outcome import Outcome
    from invsvc_async.writes.write import Write

_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}")
_NO_READ = (
    "The specification has no read for it: check by hand, or settle it from Python with a custom reader: "
    "client.settle(intent, reader=…)"
)

_OP = "A write, such as webhooks.create."
_WORDS = "Its id and arguments; NAME:=JSON for JSON values."
Words = Annotated[
    list[str] | None,
    argument(_WORDS, "ID | NAME=VALUE", autocompletion=complete_argument),
]
_SECRETS = "Write the secret of a new webhook here (mode 0600); it is never printed."
SecretsTo = Annotated[Path, option(_SECRETS, "FILE")]
SameMode = Annotated[
    bool, option("Confirm that the credential has the intent's team and data mode.")
]
_FILE = 'One write: {"operation", "arguments"}; - is stdin.'
_STORY = "Write the history of the decision here, for `invsvc explain`."
_INTENT = "The intent, as JSON; - is standard input."
IntentFile = Annotated[Path, argument(_INTENT, "INTENT", callback=existing_file)]


def _in_existing_folder(story: Path | None) -> Path | None:
    """Check the folder before a write is sent; afterwards it would be too late."""
    if story is not None and not story.parent.is_dir():
        raise misuse(f"{story.parent} is not a directory")
    return story


@attrs.frozen
class _LookupOptions(Calling):
    """The options of commands that find out what became of a write."""

    story: Annotated[
        Path | None,
        option(_STORY, "FILE", dir_okay=False, callback=_in_existing_folder),
    ] = None


async def write(
    what: Annotated[
        str | None,
        argument(_OP, "WHAT", autocompletion=complete_operation(OperationKind.WRITE)),
    ] = None,
    words: Words = None,
    *,
    file: Annotated[Path | None, option(_FILE, "FILE", callback=existing_file)] = None,
    secrets_to: SecretsTo = Path("invsvc-secrets.jsonl"),
    yes: Yes = False,
    how: _LookupOptions,
) -> int:
    """
    Send one write: `invsvc write webhooks.create url=https://me.example/in events=invoice.created`.

    Prints the verdict and the story.  Exits with 0 if the write was applied, 3 if the result is unknown, and
    1 otherwise; also with 1 if a webhook's secret could not be stored.  Asks before a delete on a terminal.

    If the result stays open, or on Ctrl-C and SIGTERM, the intent is stored in a file for `invsvc settle`.
    A kill (SIGKILL) leaves no file: use `invsvc batch` with a file of one line if that may happen.
    """
    if (what is None) == (file is None):
        raise misuse("give either an operation with arguments, or --file")
    check_outputs({"--secrets-to": secrets_to, "--story": how.story}, input=file)
    content = None if file is None else content_of(file)

    def make(client: Client) -> Write[Any]:
        if content is None:
            operation = operation_of(what or "", OperationKind.WRITE)
            write = as_write(
                client, operation.name, arguments_of(operation, words or [])
            )
        else:
            write = client.write_from(_only_line(content))
        if not yes:
            _confirm_delete(write)
        return write

    return await _finish(make, how, secrets_to)


def _only_line(content: bytes) -> bytes:
    """Return the only line in *content* that is not blank."""
    lines = [
        line for line in content.removeprefix(BOM_UTF8).splitlines() if line.strip()
    ]
    if not lines:
        raise InvalidRequestError("--file: it has no write")
    if len(lines) > 1:
        raise InvalidRequestError(
            f"--file: {len(lines)} writes. Use `invsvc batch` for several"
        )
    return lines[0]


def _confirm_delete(write: Write[Any]) -> None:
    """Ask on a terminal before a delete; a "no" ends the command."""
    intent = write.intent
    if BY_NAME[intent.operation].method != "DELETE":
        return
    things = " ".join(intent.path.values())
    team = f" of team {intent.scope.team}" if intent.scope.team else ""
    try:
        confirm(f"{intent.operation} {things}{team}: delete it?")
    except typer.Abort:
        write.close()
        raise


async def settle(
    file: IntentFile,
    *,
    same_mode: SameMode = False,
    how: _LookupOptions,
) -> int:
    """
    Find out whether a write was applied: `invsvc settle invsvc-intent-row-17.json`.

    It only reads, so it can be repeated safely.
    Exits with 0 if the write was applied, 3 if the result is unknown, and 1 otherwise.
    """
    check_outputs({"--story": how.story}, intent=file)
    intent = _intent_in(file)
    waiting = WaitingForWrite()
    async with how.client(on_decision=waiting.on_decision) as client:
        with waiting.shown(client):
            outcome = await client.settle(intent, same_mode=same_mode)
    return _print_outcome(outcome, how)


async def resume(
    file: IntentFile,
    *,
    secrets_to: SecretsTo = Path("invsvc-secrets.jsonl"),
    same_mode: SameMode = False,
    how: _LookupOptions,
) -> int:
    """
    Complete an interrupted write: `invsvc resume invsvc-intent-row-17.json`.

    It reads first, and sends the write again only if the reads prove that it was not applied.  Exits with 0
    if the write was applied, 3 if the result is unknown, and 1 otherwise.
    """
    check_outputs({"--secrets-to": secrets_to, "--story": how.story}, intent=file)
    intent = _intent_in(file)
    return await _finish(
        lambda client: client.resume(intent, same_mode=same_mode), how, secrets_to
    )


def _intent_in(file: Path) -> Intent:
    """Return the intent in a file; ``-`` is standard input."""
    from invsvc_async.reconcile.intent import Intent

    content = content_of(file)
    try:
        return Intent.from_json(content)
    except InvalidRequestError as error:
        if b'"history":' not in content or b'"intent":' not in content:
            raise _named(
                error, file, "the file that `invsvc write` left, invsvc-intent-….json"
            ) from error
        words = "is a story, not an intent. `invsvc explain` reads it; its member `intent` is the intent"
        raise InvalidRequestError(
            f"{file}: {words}", hint="Save that to a file of its own."
        ) from error


def _named(
    error: InvalidRequestError,
    file: Path,
    expected: str,
) -> InvalidRequestError:
    """Return *error* with the name of the *file*, and what was *expected* if that is something else."""
    problem = "; ".join(error.problems)
    hint = f"Use {expected}." if problem.startswith("not ") else None
    return type(error)(f"{file}: {problem}", hint=hint)


async def _finish(
    make: Callable[[Client], Write[Any]],
    how: _LookupOptions,
    secrets_to: Path,
) -> int:
    """Send the write that *make* returns, print its outcome, and return the exit code."""
    waiting = WaitingForWrite()
    task = asyncio.current_task()
    assert task is not None
    async with how.client(on_decision=waiting.on_decision) as client:
        write = make(client)
        known: list[Outcome[Any]] = []
        # So that its intent is stored, or its verdict shown.  The latter is sent when a terminal is closed.
        with handled(unhandled("SIGTERM", *OF_TERMINALS), task.cancel):
            try:
                outcome, lost = await _sent(write, client, waiting, secrets_to, known)
            except asyncio.CancelledError:
                # interrupted later, for example while the secret was stored
                for each in known:
                    note(
                        f"interrupted; {each.intent.operation}: {each.verdict}: {each.message}"
                    )
                if not (known or client.unsettled):
                    note("interrupted; no write is in flight")
                raise
            finally:
                write.close()
                _store_unsettled(client, how.profile)
            code = _print_outcome(outcome, how)
    if lost is not None:
        raise lost
    return code


def _secrets_file(
    write: Write[Any], path: Path
) -> AbstractAsyncContextManager[SecretsFile | None]:
    """Return the file for the secret of *write*; ``None`` stands for it if it makes no webhook."""
    if write.intent.operation != "webhooks.create":
        return nullcontext()
    from invsvc_async.cli.secrets_file import SecretsFile

    return SecretsFile(path)


async def _sent(
    write: Write[Any],
    client: Client,
    waiting: WaitingForWrite,
    secrets_to: Path,
    known: list[Outcome[Any]],
) -> tuple[Outcome[Any], JournalError | None]:
    """Send *write*, append the outcome to *known*, and store the secret; return an error of storing it."""
    # Opened before the write is sent.
    async with _secrets_file(write, secrets_to) as secrets:
        with waiting.shown(client):
            outcome = await write.outcome()
        known.append(outcome)
        hook: Any = outcome.value  # a webhook, if there is a file for secrets
        if secrets is None or getattr(hook, "secret", None) is None:
            return outcome, None
        try:
            await secrets.take(outcome.intent.key, hook)
        except JournalError as error:
            return attrs.evolve(outcome, secret="lost"), error
        note(
            f"its secret, which is returned only once, is in {secrets_to}, readable only by you"
        )
        return attrs.evolve(outcome, secret="delivered"), None


def _print_outcome(outcome: Outcome[Any], how: _LookupOptions) -> int:
    """Print verdict, story and value, write the whole story to a file, and return the exit code."""
    with reporting(f"{outcome.intent.operation}: {outcome.verdict}: {outcome.message}"):
        from invsvc_async.codec.encode import unstructure
        from invsvc_async.reconcile.outcome import summary

        intent = envelope.loads(outcome.intent.to_json().encode())
        story = outcome.explain()
        if not emitted(
            {
                **summary(outcome, unstructure),
                "story": story.splitlines(),
                "intent": intent,
            }
        ):
            _print(outcome, story)
    if how.story is not None:
        try:
            write_private(how.story, outcome.to_json())
        except OSError as error:  # does not change the verdict or the exit code
            fail(f"{how.story}: cannot write the story: {error.strerror}")
    return {Verdict.APPLIED: Exit.DONE, Verdict.UNKNOWN: Exit.UNKNOWN}.get(
        outcome.verdict, Exit.FAILED
    )


def _print(outcome: Outcome[Any], story: str) -> None:
    out = console()
    from invsvc_async.cli.terminal_table import STYLES

    colour = STYLES[outcome.verdict]
    out.print(f"[bold {colour}]{str(outcome.verdict).upper()}[/]", end="  ")
    out.print(outcome.message, markup=False)
    print_hanging(story)
    if outcome.error is not None and outcome.verdict is not Verdict.APPLIED:
        out.print(told(str(outcome.error), outcome.error), markup=False)
    if outcome.secret_lost:
        words = "its secret is lost: the service returns it only once. If you need it, create another "
        out.print(f"[yellow]{words}webhook, then delete this one[/]")
    if outcome.value is not None:
        from invsvc_async.cli.formatting import show

        show(outcome.value)


def _store_unsettled(client: Client, profile: str | None) -> None:
    """Store each unsettled intent of *client* in a file here, readable only by its owner, or print it."""
    for intent in client.unsettled:
        # A key from a file that is no plain name is hashed.
        if _NAME.fullmatch(intent.key):
            name = intent.key
        else:
            name = sha256(intent.key.encode()).hexdigest()[:16]
        text = intent.to_json()
        path = Path(f"invsvc-intent-{name}.json")
        try:
            path.unlink(missing_ok=True)  # an older file may be readable by others
            with open(path, "x", encoding="utf-8", opener=open_private) as file:
                file.write(text)
        except OSError as error:  # the intent is the only way to settle the write later
            fail(f"{path}: {error.strerror}. The intent follows: save it to a file")
            sys.stderr.write(text + "\n")
            path = Path("FILE")  # a placeholder in the hint
        given = "" if profile is None else f"--profile {quote(profile)} "
        has_read = BY_NAME[intent.operation].reader is not None
        if has_read:
            step = f"run: invsvc settle {given}{path}"
        else:
            step = f"{path} has its intent. {_NO_READ}"
        note(f"{intent.operation} is not settled; {step}")


_RECEIPT = "Store it as a receipt here, for `invsvc verify`."
_KEY = "Sign the receipt with this key (Ed25519, PEM)."
_EXPLAINED = "A story written by `write --story`; - is standard input."


def explain(
    file: Annotated[Path, argument(_EXPLAINED, "FILE", callback=existing_file)],
    *,
    receipt: Annotated[Path | None, option(_RECEIPT, "FILE")] = None,
    key: Annotated[Path | None, option(_KEY, "FILE", callback=existing_file)] = None,
) -> int:
    """
    Explain how a verdict was reached, and check that the current rules still reach it:
    `invsvc explain story.json`.

    Exits with 1 if the rules of this version reach another verdict.  With --receipt, the story is stored as a
    receipt, which `invsvc verify` checks on any machine.
    """
    _check_receipt(receipt, key, story=file)
    from invsvc_async.reconcile.explain import from_json

    content = content_of(file)
    try:
        intent, history, stored = from_json(content)
    except InvalidRequestError as error:
        raise _named(
            error, file, "what `--story FILE` wrote, or outcome.to_json() returned"
        ) from error
    _write_receipt(receipt, content, key)
    if not history:  # of a replay, what a store gave back, or a person's finding
        return _explain_without_history(intent, stored, content)
    return _explain_history(intent, history, stored)


def _explain_without_history(
    intent: Intent,
    stored: str,
    content: bytes,
) -> int:
    """Print an outcome that has no history; return the exit code."""
    from invsvc_async.reconcile.explain import tell

    message = str(envelope.loads(content).get("message"))
    if not emitted({"said": stored, "verdict": stored, "same": True, "decisions": []}):
        print_hanging(tell(intent, (), stored, message))
    note(
        "it has no history, so there is nothing to replay: the outcome is from a store, or a person's"
    )
    return Exit.DONE


def _explain_history(
    intent: Intent,
    history: History,
    stored: str,
) -> int:
    """Print how the rules of this version decide after each event; return the exit code."""
    from invsvc_async.reconcile.explain import replay, tell
    from invsvc_async.reconcile.history import Done

    steps = replay(intent, history)
    last = steps[-1][1]
    if isinstance(last, Done):
        now = str(last.verdict)
        reason = last.reason
    else:
        now = "none: the story ends before a verdict"
        reason = "no verdict yet"
    decisions = [_decision_line(event, decision) for event, decision in steps]
    plain = {
        "said": stored,
        "verdict": now,
        "same": stored == now,
        "decisions": decisions,
    }
    story = [tell(intent, history, now, reason), "decision after each event:"]
    if not emitted(plain):
        print_hanging("\n".join([*story, *(f"  {line}" for line in decisions)]))
    if stored != now:
        fail(
            f"the story has the verdict {stored!r}, but the rules of this version reach {now!r}"
        )
    if stored == now:
        return Exit.DONE
    return Exit.FAILED


def _check_receipt(
    path: Path | None,
    key: Path | None,
    *,
    story: Path,
) -> None:
    """Check where a receipt is to be stored, before anything is done."""
    check_outputs({"--receipt": path}, story=story, key=key)
    if key is not None and path is None:
        raise misuse("signs a receipt: use it with --receipt", "--key")


def _write_receipt(
    path: Path | None,
    content: bytes,
    key: Path | None,
) -> None:
    """Store the story in *content* as a receipt, if there is a *path* for it."""
    if path is None:
        return
    from invsvc_async.reconcile.receipt import receipt_of

    secret = None if key is None else text_of_secret(key)
    write_private(path, receipt_of(content, secret))


def _decision_line(event: Event | None, decision: Decision) -> str:
    """Return what was decided after *event*, and why."""
    from invsvc_async.writes.reporting import words_of

    kind, words, _ = words_of(decision)
    after = type(event).__name__.lower() if event else "start"
    if words:
        return f"{after}: {kind} ({words})"
    return f"{after}: {kind}"
