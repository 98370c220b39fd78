"""Output of the demo: what it runs, and how both clients did."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from invsvc_async.cli.output import console, emit_json, print_facts
from invsvc_async.conformance import naive_client
from invsvc_async.conformance.client_runs import ATTEMPT_TIMEOUT, POLICY
from invsvc_async.reconcile.history import Verdict
from invsvc_async.simulator import Faults

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from invsvc_async.conformance.client_runs import ClientRun
    from invsvc_async.conformance.judge import Judgement
    from invsvc_async.conformance.workload import Unit

__all__ = ["as_json", "failures", "head", "show"]

UNKNOWN_ALLOWED = 0.01
STORIES = 3
WINDOWS = f"{POLICY.settle_after_error:g} s after a 500, {POLICY.settle_after_loss:g} s after a lost answer"


def head(units: Sequence[Unit], *, concurrency: int, seed: int, faults: str) -> None:
    """Print what is about to run, and each client's policy."""
    plan = Faults.parse(faults)
    reads = plan.rate if plan.reads is None else plan.reads
    writes = f"{sum(map(len, units)):,} writes, {concurrency} in flight, by each client"
    facts = [
        ("faults", f"{plan.rate:.0%} of writes, {reads:.0%} of reads: {', '.join(plan.kinds)}"),
        ("effect", f"of a faulty write: {' or '.join(plan.phases)}; late means up to {plan.late_up_to:g} s"),
        ("ordinary client", f"{naive_client.POLICY}; {ATTEMPT_TIMEOUT:g} s per attempt"),
        (
            "invsvc_async",
            f"reads the state after a failure; sends again on proof, at most {POLICY.max_resends} times",
        ),
        ("settle windows", f"{WINDOWS} (shortened for the demo)"),
    ]
    if plan.late_up_to > POLICY.settle_after_error and "late" in plan.phases:
        facts.append(("note", "some faults commit after the settle windows: expect wrong verdicts"))
    out = console()
    out.print(f"[bold]{writes}[/], against the embedded service (seed {seed})")
    print_facts(out, facts)
    out.print()


def failures(runs: Mapping[str, ClientRun]) -> list[str]:
    """Return all reasons why the demo fails."""
    ours, theirs = runs["sdk"].judgement, runs["ordinary"].judgement
    counts = {
        "duplicates": ours.duplicates,
        "lost writes": len(ours.lost),
        "wrong verdicts": len(ours.wrong),
        "effects without a write": ours.unasked,
    }
    found = [f"invsvc_async has {count} {name}" for name, count in counts.items() if count]
    unknown = ours.verdicts.get(Verdict.UNKNOWN, 0)
    if unknown > UNKNOWN_ALLOWED * ours.asked:
        found.append(f"invsvc_async left {unknown} of {ours.asked} writes unknown: more than 1 %")
    if not theirs.duplicates:
        found.append("the faults were so mild that the ordinary client made no duplicate")
    return found


def show(runs: Mapping[str, ClientRun], failures: Sequence[str]) -> None:
    """Print the table, and the stories of wrong verdicts."""
    from rich import box
    from rich.table import Table

    out = console()
    shown = Table(box=box.SIMPLE_HEAD if out.is_terminal else box.ASCII2, header_style="bold", pad_edge=False)
    shown.add_column("according to the service's ledger")
    shown.add_column("ordinary client", justify="right")
    shown.add_column("invsvc_async", justify="right")
    for name, pair in _rows(runs["ordinary"], runs["sdk"]):
        shown.add_row(name, *(_coloured(name, number) for number in pair))
    out.print(shown)
    for wrong in runs["sdk"].judgement.wrong[:STORIES]:
        out.print(f"[red]{wrong.why}[/]\n{wrong.report.story}")
    for failure in failures:
        out.print(f"[bold red]FAIL[/] {failure}")
    if not failures:
        out.print("[bold green]PASS[/] invsvc_async has no duplicate, no lost write, no wrong verdict")


def as_json(runs: Mapping[str, ClientRun], failures: Sequence[str], *, seed: int) -> None:
    """Print the result as one JSON object; times in seconds."""
    windows = {"after_error": POLICY.settle_after_error, "after_loss": POLICY.settle_after_loss}
    plain = {name: _plain(run) for name, run in runs.items()}
    emit_json(
        {"passed": not failures, "failures": list(failures), "seed": seed, "settle_windows": windows, **plain}
    )


def _plain(run: ClientRun) -> dict[str, Any]:
    judged = run.judgement
    return {
        "writes": judged.asked,
        "effects": judged.effects,
        "duplicates": judged.duplicates,
        "lost": len(judged.lost),
        "wrong": [{"key": each.report.key, "why": each.why} for each in judged.wrong],
        "out_of_order": judged.inverted,
        "unasked": judged.unasked,
        "verdicts": {str(verdict): judged.verdicts.get(verdict, 0) for verdict in Verdict},
        "unknown_reasons": dict(judged.unknown_reasons),
        "sends": judged.sends,
        "reads": run.reads,
        "new_webhooks_left": run.left,
        "seconds": round(run.seconds, 2),
    }


def _rows(*runs: ClientRun) -> list[tuple[str, list[str]]]:
    both = [run.judgement for run in runs]

    def row(name: str, numbers: list[int]) -> tuple[str, list[str]]:
        return name, [f"{number:,}" for number in numbers]

    return [
        row("writes requested", [each.asked for each in both]),
        row("effects that happened", [each.effects for each in both]),
        row("duplicates", [each.duplicates for each in both]),
        row("lost writes", [len(each.lost) for each in both]),
        row("wrong verdicts", [len(each.wrong) for each in both]),
        row("  of these, out of order", [each.inverted for each in both]),
        *(row(f"verdict {verdict}", [each.verdicts.get(verdict, 0) for each in both]) for verdict in Verdict),
        *(
            row(f"  {reason}", [each.unknown_reasons.get(reason, 0) for each in both])
            for reason in _reasons(both)
        ),
        row("requests received", [each.sends for each in both]),
        row("reads", [run.reads for run in runs]),
        row("new webhooks at the end", [run.left for run in runs]),
        ("time", [f"{run.seconds:.1f} s" for run in runs]),
        ("settle windows", ["none", f"{POLICY.settle_after_error:g} / {POLICY.settle_after_loss:g} s"]),
    ]


def _reasons(both: Sequence[Judgement]) -> list[str]:
    return sorted({reason for each in both for reason in each.unknown_reasons})


def _coloured(name: str, number: str) -> str:
    """Colour the rows that should be zero."""
    if name not in ("duplicates", "lost writes", "wrong verdicts"):
        return number
    return f"[bold green]{number}[/]" if number == "0" else f"[bold red]{number}[/]"
