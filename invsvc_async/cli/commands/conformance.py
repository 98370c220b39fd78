"""``invsvc conformance`` and ``invsvc demo``: clients under faults, judged by the service's ledger."""

from __future__ import annotations

import shlex
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from invsvc_async.cli.files import existing_file
from invsvc_async.cli.options import (
    FAULTS,
    FaultPlan,
    StoresPlan,
    argument,
    misuse,
    number,
    option,
)
from invsvc_async.cli.output import (
    Exit,
    as_json,
    console,
    emitted,
    fail,
    note,
    print_facts,
    table,
)
from invsvc_async.cli.progress import Waiting, progress
from invsvc_async.cli.signals import interruptible
from invsvc_async.conformance import workload
from invsvc_async.conformance.client_runs import (
    ATTEMPT_TIMEOUT,
    ORDINARY,
    POLICY,
    ClientRun,
    run_client,
)
from invsvc_async.conformance.service_process import embedded
from invsvc_async.reconcile.history import Verdict
from invsvc_async.simulator import Faults

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.table import Table

    from invsvc_async.codec.exact_json import WireObject
    from invsvc_async.conformance.workload import Unit

UNKNOWN_ALLOWED = 0.01
STORIES = 3
_DUPLICATES = "duplicates (took effect again)"
_SHOULD_BE_ZERO = {
    _DUPLICATES: "red",
    "wrong verdicts": "red",
    f"reported {Verdict.UNKNOWN}": "yellow",
}
_UNASKED = "effects that belong to no write"  # a row that is left out if there are none
_LABELS = {
    "writes": "writes requested",
    "effects": "effects in the service",
    "duplicates": "duplicate effects",
    "lost": "reported applied, but had no effect",
    "wrong": "reports that contradict the ledger",
    "out_of_order": "of these, effects out of order",
    "false_reasons": "of these, true verdicts for a false reason",
    "unknown": "reported as unknown",
    "unreported": "of these, not reported",
    "webhooks_left": "webhooks left behind",
    "sends": "write requests received",
    "reads": "read requests received",
    "seconds": "seconds",
}
_INPUT = 'Your own writes: one {"operation", "arguments", "key"} per line; - is stdin.'
_USUAL = 2000  # writes of a run without options
_OURS = f"reads the state after a failure; sends again on proof, at most {POLICY.max_resends} times"
_WINDOWS = f"{POLICY.settle_after_error:g} s after a 500, {POLICY.settle_after_loss:g} s after a lost answer"


async def demo(
    *,
    writes: Annotated[
        int, number(int, "Number of writes; each client does all.", least=1)
    ] = 2000,
    concurrency: Annotated[
        int, number(int, "Number of writes in flight.", least=1, most=1000)
    ] = 200,
    seed: Annotated[int, number(int, "Seed of the writes and faults.")] = 1,
    faults: FaultPlan = FAULTS,
    input_: Annotated[
        Path | None, option(_INPUT, "FILE.jsonl", callback=existing_file)
    ] = None,
) -> int:
    """
    Run the same writes under faults through an ordinary client and through this one: `invsvc demo --seed 2`.

    The embedded service fails before and after the effect, loses answers, hangs, sends garbage, and commits
    late.  Both clients are judged by its ledger.

    Exits with 1 if this client has a duplicate, a lost write, a wrong verdict or more than 1 % unknown, or
    if the faults were so mild that the ordinary client made no duplicate.
    """
    units = workload.made_up(writes, seed) if input_ is None else _units_in(input_)
    if units is None:
        return Exit.USAGE
    kept = sum(step.operation == "webhooks.create" for unit in units for step in unit)
    if not as_json.get():
        _head(
            units,
            concurrency=concurrency,
            seed=seed,
            faults=faults,
        )
    plan = workload.plan_for(units, seed=seed, faults=faults)
    total = sum(map(len, units))
    runs: dict[str, ClientRun] = {}
    for name, label in (("ordinary", "ordinary client"), ("sdk", "invsvc_async")):
        async with embedded(plan) as service:
            with progress(label, total) as advance:
                runs[name] = await run_client(
                    name,
                    units,
                    service,
                    concurrency=concurrency,
                    seed=seed,
                    on_done=advance,
                )
    failed = failures(runs)
    windows = {
        "after_error": POLICY.settle_after_error,
        "after_loss": POLICY.settle_after_loss,
    }
    told = {
        "passed": not failed,
        "failures": failed,
        "seed": seed,
        "settle_windows": windows,
    }
    plain = {name: _plain(run) for name, run in runs.items()}
    if not emitted({**told, "webhooks_requested": kept, **plain}):
        show(runs, failed, kept=kept)
    if failed:
        return Exit.FAILED
    return Exit.DONE


def _units_in(file: Path) -> Sequence[Unit] | None:
    """Return the writes in *file*; or print what is wrong with them, and return ``None``."""
    with interruptible():  # a pipe may give nothing
        lines, problems = workload.checked(file)
    for problem in problems:
        fail(str(problem))
    if problems:
        return None
    return workload.from_lines(lines)


def _head(
    units: Sequence[Unit],
    *,
    concurrency: int,
    seed: int,
    faults: str,
) -> None:
    """Print what is about to run, and each client's policy."""
    plan = Faults.parse(faults)
    out = console()
    count = sum(map(len, units))
    reads = plan.rate if plan.reads is None else plan.reads
    is_late = plan.late_up_to > POLICY.settle_after_error and "late" in plan.phases
    facts = {
        "work": _work(units),
        "faults": f"{plan.rate:.0%} of writes, {reads:.0%} of reads: {', '.join(plan.kinds)}",
        "effect": f"of a faulty write: {' or '.join(plan.phases)}; late means up to {plan.late_up_to:g} s",
        "ordinary client": f"{ORDINARY}; {ATTEMPT_TIMEOUT:g} s per attempt",
        "invsvc_async": _OURS,
        "settle windows": f"{_WINDOWS} (shortened for the demo)",
    }
    if is_late:
        facts["note"] = (
            "some faults commit after the settle windows: expect wrong verdicts"
        )
    out.print(
        f"[bold]{count:,} writes, {concurrency} in flight, by each client[/]", end=", "
    )
    out.print(f"against the embedded service (seed {seed})")
    if count <= _USUAL:
        out.print(
            "This takes 20 seconds on an idle machine, minutes on a busy one. Nothing leaves it."
        )
    print_facts(facts)
    out.print()


def _work(units: Sequence[Unit]) -> str:
    kinds = Counter(
        step.operation.rpartition(".")[2] for unit in units for step in unit
    )
    updates = [
        sum(step.operation.endswith(".update") for step in unit) for unit in units
    ]
    sequences = [count for count in updates if count > 1]
    parts = [f"{count:,} {kind}s" for kind, count in sorted(kinds.items())]
    if sequences:
        many = len(sequences)
        most = max(sequences)
        parts.append(
            f"{sum(sequences):,} of the updates in {many:,} sequences of 2 to {most} to one thing"
        )
    return ", ".join(parts)


def failures(runs: Mapping[str, ClientRun]) -> list[str]:
    """Return all reasons why the demo fails."""
    ours = runs["sdk"].judgement
    theirs = runs["ordinary"].judgement
    counts = {
        "duplicates": ours.duplicates,
        "lost writes": len(ours.lost),
        "wrong verdicts": len(ours.wrong),
        "effects without a write": ours.unasked,
    }
    found = [
        f"invsvc_async has {count} {name}" for name, count in counts.items() if count
    ]
    unknown = ours.verdicts.get(Verdict.UNKNOWN, 0)
    if unknown > UNKNOWN_ALLOWED * ours.asked:
        found.append(
            f"invsvc_async left {unknown} of {ours.asked} writes unknown: more than 1 %"
        )
    if not theirs.duplicates:
        found.append(
            "the faults were so mild that the ordinary client made no duplicate"
        )
    return found


def show(
    runs: Mapping[str, ClientRun],
    failures: Sequence[str],
    *,
    kept: int,
) -> None:
    """Print the table, and the stories of wrong verdicts.  *kept* webhooks were requested to be left."""
    out = console()
    out.print(
        _table([runs["ordinary"], runs["sdk"]], kept, is_terminal=out.is_terminal)
    )
    for wrong in runs["sdk"].judgement.wrong[:STORIES]:
        out.print(f"[red]{wrong.why}[/]\n{wrong.report.story}")
    for failure in failures:
        out.print(f"[bold red]FAIL[/] {failure}")
    if not failures:
        out.print(
            "[bold green]PASS[/] invsvc_async has no duplicate, no lost write, no wrong verdict"
        )


def _table(
    pair: Sequence[ClientRun],
    kept: int,
    *,
    is_terminal: bool,
) -> Table:
    """Return the table of the numbers of both clients."""
    from rich import box
    from rich.table import Table

    shown = Table(
        box=box.SIMPLE_HEAD if is_terminal else box.ASCII2,
        header_style="bold",
        pad_edge=False,
    )
    shown.add_column("by the service's ledger")
    shown.add_column("ordinary client", justify="right")
    shown.add_column("invsvc_async", justify="right")
    reasons = sorted(
        {reason for run in pair for reason in run.judgement.unknown_reasons}
    )
    columns = [_numbers(run, reasons, kept) for run in pair]
    for name in columns[0]:
        numbers = [each[name] for each in columns]
        if name != _UNASKED or any(numbers):
            _add_numbers(shown, name, numbers)
    shown.add_row("time", *(f"{run.seconds:.1f} s" for run in pair))
    return shown


def _add_numbers(
    shown: Table,
    name: str,
    numbers: Sequence[int],
) -> None:
    from rich.padding import Padding

    colour = _SHOULD_BE_ZERO.get(name)
    cells = [_cell(number, colour) for number in numbers]
    words = name.lstrip()
    indented = Padding(words, (0, 0, 0, len(name) - len(words)))  # also where it wraps
    shown.add_row(indented, *cells, style="" if colour is None else "bold")


def _cell(number: int, colour: str | None) -> str:
    """Return *number*, in *colour* if it should be zero and is not."""
    if colour is None:
        return f"{number:,}"
    if number:
        return f"[{colour}]{number:,}[/]"
    return "[green]0[/]"


def _plain(run: ClientRun) -> WireObject:
    judged = run.judgement
    counts = {
        "writes": judged.asked,
        "took_effect": judged.effective,
        "effects": judged.effects,
    }
    return counts | {
        "duplicates": judged.duplicates,
        "lost": len(judged.lost),
        "wrong": [{"key": each.report.key, "why": each.why} for each in judged.wrong],
        "out_of_order": judged.inverted,
        "unasked": judged.unasked,
        "already_so": judged.already,
        "verdicts": {
            str(verdict): judged.verdicts.get(verdict, 0) for verdict in Verdict
        },
        "unknown_reasons": dict(judged.unknown_reasons),
        "sends": judged.sends,
        "reads": run.reads,
        "new_webhooks_left": run.left,
        "seconds": round(run.seconds, 2),
    }


def _numbers(
    run: ClientRun,
    reasons: Sequence[str],
    kept: int,
) -> dict[str, int]:
    """Return the rows of the table; *reasons* are those of unknown verdicts, of both clients."""
    judged = run.judgement
    wrong = len(judged.wrong)
    lost = len(judged.lost)
    misordered = sum("came after" in each.why for each in judged.wrong)
    denied = wrong - lost - misordered - judged.false_reasons
    verdicts = (
        Verdict.NOT_APPLIED,
        Verdict.REFUSED,
        Verdict.SUPERSEDED,
        Verdict.UNKNOWN,
    )
    return {
        "writes requested": judged.asked,
        "  had no effect": judged.asked - judged.effective,
        "  took effect": judged.effective,
        _DUPLICATES: judged.duplicates,
        _UNASKED: judged.unasked,
        "effects in the service": judged.effects,
        f"reported {Verdict.APPLIED}": judged.verdicts.get(Verdict.APPLIED, 0),
        "  of these, it was already so": judged.already,
        **{f"reported {each}": judged.verdicts.get(each, 0) for each in verdicts},
        **{f"  {reason}": judged.unknown_reasons.get(reason, 0) for reason in reasons},
        "wrong verdicts": wrong,
        "  lost (applied, but no effect)": lost,
        "  denied, but took effect": denied,
        "  in the wrong order": misordered,
        "  for a false reason": judged.false_reasons,
        "webhooks left in the service": run.left,
        "  requested to be left": kept,
        "  difference": run.left - kept,
        "write requests sent": judged.sends,
        "read requests sent": run.reads,
    }


_TIMEOUT = "Until the command is killed."


def _words_of(command: str) -> list[str]:
    """Split *command* as a shell does; on Windows a backslash is a part of a path."""
    words = shlex.shlex(command, posix=True, punctuation_chars=False)
    words.whitespace_split = True
    words.commenters = ""
    if sys.platform == "win32":
        words.escape = ""
    return list(words)


async def conformance(
    words: Annotated[
        list[str], argument("The client's command; put -- before it.", "COMMAND")
    ],
    *,
    writes: Annotated[int, number(int, "Number of writes.", least=1)] = 400,
    concurrency: Annotated[
        int, number(int, "Requested number of writes in flight.", least=1)
    ] = 50,
    seed: Annotated[int, number(int, "Seed of the writes and faults.")] = 1,
    faults: FaultPlan = FAULTS,
    stores: StoresPlan = "none",
    timeout: Annotated[
        float, number(float, _TIMEOUT, least=1, metavar="SECONDS")
    ] = 300.0,
) -> int:
    """
    Judge a client in any language: `invsvc conformance -- python examples/conformance/sdk.py`.

    The command gets INVSVC_BASE_URL, INVSVC_API_KEY and INVSVC_WRITES (a file with one JSON object per line:
    key, after, operation, method, path, query, headers, body).  It prints a line {"key", "verdict", "reason"}
    for each write.  A write with an "after" must be sent after the write of that key has been reported.

    Exits with 1 if a write had two effects, if a report is false or missing, or if the command failed.
    """
    from invsvc_async.conformance import conform

    argv = _words_of(words[0]) if len(words) == 1 else words
    try:
        with Waiting("waiting for the command", timeout).spinning():
            found = await conform(
                argv,
                writes=writes,
                seed=seed,
                faults=faults,
                stores=stores,
                concurrency=concurrency,
                timeout=timeout,
            )
    except (FileNotFoundError, PermissionError) as error:
        raise misuse(f"{argv[0]}: {error.strerror}", "COMMAND") from error
    code = Exit.DONE if found.holds else Exit.FAILED
    counts = found.counts()
    contradicted = {each.report.key: each.why for each in found.judgement.wrong}
    if emitted({**counts, "contradicted": contradicted}):
        return code
    table(
        ("what", "count"),
        [(label, str(counts[name])) for name, label in _LABELS.items()],
        right=(1,),
    )
    if found.exit_code is None:
        note("the command was killed: it exceeded --timeout")
    elif found.exit_code:
        note(f"the command exited with {found.exit_code}")
    for key, why in list(contradicted.items())[:5]:
        note(f"{key}: {why}")
    return code
