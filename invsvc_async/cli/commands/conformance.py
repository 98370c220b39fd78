"""Judge a client of any language under faults, and print the ledger's word; never help it."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated

import typer

from invsvc_async.concurrency.event_loop import until_done

if TYPE_CHECKING:
    from invsvc_async.conformance import Conformance

__all__ = ["command"]

FAULTS = "rate=0.25,reads=0.1,late=0.5,hang=2"
_WORDS = (
    ("writes", "writes asked for"),
    ("effects", "effects that the service had"),
    ("duplicates", "second effects of a write"),
    ("lost", "called applied, and never happened"),
    ("wrong", "reports that the ledger contradicts"),
    ("out_of_order", "of these, effects out of order"),
    ("unknown", "reported as unknown"),
    ("unreported", "of these, not reported"),
    ("webhooks_left", "webhooks left behind"),
    ("sends", "requests to write that arrived"),
    ("reads", "requests to read that arrived"),
    ("seconds", "seconds"),
)


def command(
    words: Annotated[
        list[str], typer.Argument(metavar="COMMAND", help="The client's command; put -- in front of it.")
    ],
    *,
    writes: Annotated[int, typer.Option(min=1, help="How many writes.")] = 400,
    concurrency: Annotated[int, typer.Option(min=1, help="How many at once it is asked for.")] = 50,
    seed: Annotated[int, typer.Option(help="Makes the writes and the faults repeat.")] = 1,
    faults: Annotated[str, typer.Option(help="The fault plan: rate=, reads=, kinds=a+b, late=, …")] = FAULTS,
    timeout: Annotated[float, typer.Option(min=1, help="Seconds until the command is ended.")] = 300.0,
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """
    Judge any client, in any language: `invsvc conformance -- python examples/conformance/sdk.py`.

    The command gets INVSVC_BASE_URL, INVSVC_API_KEY and INVSVC_WRITES (a file with a JSON object a line: key,
    after, operation, method, path, query, headers, body), and prints a line {"key", "verdict", "reason"} for
    each write.  A write is sent once the one that it names in "after" has been reported.

    Exits with 1 if a write had two effects, a report is untrue or missing, or the command failed.
    """
    from invsvc_async.conformance import conform
    from invsvc_async.simulator import Faults

    try:
        Faults.parse(faults)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--faults") from error
    argv = shlex.split(words[0]) if len(words) == 1 else words
    try:
        found = until_done(
            conform(argv, writes=writes, seed=seed, faults=faults, concurrency=concurrency, timeout=timeout)
        )
    except (FileNotFoundError, PermissionError) as error:
        raise typer.BadParameter(f"{argv[0]}: {error.strerror}", param_hint="COMMAND") from error
    _tell(found, json_=json_)
    raise typer.Exit(0 if found.holds else 1)


def _tell(found: Conformance, *, json_: bool) -> None:
    from invsvc_async.cli.output import emit_json, note, table

    counts = found.counts()
    if json_:
        emit_json({**counts, "contradicted": _contradicted(found)})
        return
    table(("what", "count"), [(words, str(counts[name])) for name, words in _WORDS], right=(1,))
    if found.exit_code is None:
        note("the command was ended: its time was over")
    elif found.exit_code:
        note(f"the command ended with exit code {found.exit_code}")
    for key, why in list(_contradicted(found).items())[:5]:
        note(f"{key}: {why}")


def _contradicted(found: Conformance) -> dict[str, str]:
    return {each.report.key: each.why for each in found.judgement.wrong}
