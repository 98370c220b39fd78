"""``invsvc conformance``: judge a client in any language under faults."""

from __future__ import annotations

import shlex
from typing import Annotated

import typer

from invsvc_async.cli.options import FAULTS, FaultPlan, argument, fault_plan, number, option
from invsvc_async.cli.output import Exit, emit_json, note, table

__all__ = ["command"]

_LABELS = (
    ("writes", "writes requested"),
    ("effects", "effects in the service"),
    ("duplicates", "duplicate effects"),
    ("lost", "reported applied, but had no effect"),
    ("wrong", "reports that contradict the ledger"),
    ("out_of_order", "of these, effects out of order"),
    ("unknown", "reported as unknown"),
    ("unreported", "of these, not reported"),
    ("webhooks_left", "webhooks left behind"),
    ("sends", "write requests received"),
    ("reads", "read requests received"),
    ("seconds", "seconds"),
)


async def command(
    words: Annotated[list[str], argument("The client's command; put -- before it.", "COMMAND")],
    *,
    writes: Annotated[int, number(int, "Number of writes.", least=1)] = 400,
    concurrency: Annotated[int, number(int, "Requested number of writes in flight.", least=1)] = 50,
    seed: Annotated[int, number(int, "Seed of the writes and faults.")] = 1,
    faults: FaultPlan = FAULTS,
    timeout: Annotated[
        float, number(float, "Until the command is killed.", least=1, metavar="SECONDS")
    ] = 300.0,
    json_: Annotated[bool, option("Print the result as JSON.")] = False,
) -> int:
    """
    Judge a client in any language: `invsvc conformance -- python examples/conformance/sdk.py`.

    The command gets INVSVC_BASE_URL, INVSVC_API_KEY and INVSVC_WRITES (a file with one JSON object per
    line: key, after, operation, method, path, query, headers, body).  It prints a line {"key", "verdict",
    "reason"} for each write.  A write with an "after" must be sent after the write of that key has been
    reported.

    Exits with 1 if a write had two effects, if a report is false or missing, or if the command failed.
    """
    from invsvc_async.cli.waiting import waiting
    from invsvc_async.conformance import conform

    fault_plan(faults)  # refused before the command is started
    argv = shlex.split(words[0]) if len(words) == 1 else words
    try:
        with waiting("waiting for the command", timeout):
            found = await conform(
                argv, writes=writes, seed=seed, faults=faults, concurrency=concurrency, timeout=timeout
            )
    except (FileNotFoundError, PermissionError) as error:
        raise typer.BadParameter(f"{argv[0]}: {error.strerror}", param_hint="COMMAND") from error
    code = Exit.DONE if found.holds else Exit.FAILED
    counts = found.counts()
    contradicted = {each.report.key: each.why for each in found.judgement.wrong}
    if json_:
        emit_json({**counts, "contradicted": contradicted})
        return code
    table(("what", "count"), [(label, str(counts[name])) for name, label in _LABELS], right=(1,))
    if found.exit_code is None:
        note("the command was killed: it exceeded --timeout")
    elif found.exit_code:
        note(f"the command exited with {found.exit_code}")
    for key, why in list(contradicted.items())[:5]:
        note(f"{key}: {why}")
    return code
