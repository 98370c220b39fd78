"""Output of the demo: what it runs, and how both clients did."""

from __future__ import annotations

from collections import Counter
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

__all__ = ["as_json", "failures", "head", "kept", "show"]

UNKNOWN_ALLOWED = 0.01
STORIES = 3
_USUAL = 2000  # writes of a run without options
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
    facts[:0] = [("work", _work(units))]
    out = console()
    out.print(f"[bold]{writes}[/], against the embedded service (seed {seed})")
    if sum(map(len, units)) <= _USUAL:
        out.print("This takes about 20 seconds, longer on a busy machine. Nothing leaves it.")
    print_facts(out, facts)
    out.print()


def _work(units: Sequence[Unit]) -> str:
    """Return what the writes do, in words."""
    kinds = Counter(step.operation.rpartition(".")[2] for unit in units for step in unit)
    updates = [sum(step.operation.endswith(".update") for step in unit) for unit in units]
    sequences = [count for count in updates if count > 1]
    parts = [f"{count:,} {kind}s" for kind, count in sorted(kinds.items())]
    if sequences:
        most = max(sequences)
        parts.append(
            f"{sum(sequences):,} of the updates in {len(sequences):,} sequences of 2 to {most} to one thing"
        )
    return ", ".join(parts)


def kept(units: Sequence[Unit]) -> int:
    """Return how many webhooks *units* create."""
    return sum(step.operation == "webhooks.create" for unit in units for step in unit)


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


def show(runs: Mapping[str, ClientRun], failures: Sequence[str], *, kept: int) -> None:
    """Print the table, and the stories of wrong verdicts.  *kept* webhooks were requested to be left."""
    from rich import box
    from rich.table import Table

    out = console()
    shown = Table(box=box.SIMPLE_HEAD if out.is_terminal else box.ASCII2, header_style="bold", pad_edge=False)
    shown.add_column("by the service's ledger")
    shown.add_column("ordinary client", justify="right")
    shown.add_column("invsvc_async", justify="right")
    for name, pair in _rows(runs["ordinary"], runs["sdk"], kept=kept):
        style = "bold" if _matters(name) else "dim"
        shown.add_row(name, *(_coloured(name, number) for number in pair), style=style)
    out.print(shown)
    for wrong in runs["sdk"].judgement.wrong[:STORIES]:
        out.print(f"[red]{wrong.why}[/]\n{wrong.report.story}")
    for failure in failures:
        out.print(f"[bold red]FAIL[/] {failure}")
    if not failures:
        out.print("[bold green]PASS[/] invsvc_async has no duplicate, no lost write, no wrong verdict")


def as_json(runs: Mapping[str, ClientRun], failures: Sequence[str], *, seed: int, kept: int) -> None:
    """Print the result as one JSON object; times in seconds."""
    windows = {"after_error": POLICY.settle_after_error, "after_loss": POLICY.settle_after_loss}
    plain = {name: _plain(run) for name, run in runs.items()}
    emit_json(
        {
            "passed": not failures,
            "failures": list(failures),
            "seed": seed,
            "settle_windows": windows,
            "webhooks_requested": kept,
            **plain,
        }
    )


def _plain(run: ClientRun) -> dict[str, Any]:
    judged = run.judgement
    return {
        "writes": judged.asked, "took_effect": judged.effective, "effects": judged.effects,
        "duplicates": judged.duplicates, "lost": len(judged.lost),
        "wrong": [{"key": each.report.key, "why": each.why} for each in judged.wrong],
        "out_of_order": judged.inverted,
        "unasked": judged.unasked,
        "already_so": judged.already,
        "verdicts": {str(verdict): judged.verdicts.get(verdict, 0) for verdict in Verdict},
        "unknown_reasons": dict(judged.unknown_reasons),
        "sends": judged.sends,
        "reads": run.reads,
        "new_webhooks_left": run.left,
        "seconds": round(run.seconds, 2),
    }  # fmt: skip


def _rows(*runs: ClientRun, kept: int) -> list[tuple[str, list[str]]]:
    both = [run.judgement for run in runs]

    def row(name: str, numbers: Sequence[int]) -> tuple[str, list[str]]:
        return name, [f"{number:,}" for number in numbers]

    def verdict(each: Verdict) -> tuple[str, list[str]]:
        return row(f"reported {each}", [judged.verdicts.get(each, 0) for judged in both])

    unasked = [row("effects that belong to no write", [each.unasked for each in both])]
    return [
        row("writes requested", [each.asked for each in both]),
        row("  had no effect", [each.asked - each.effective for each in both]),
        row("  took effect", [each.effective for each in both]),
        row("duplicates (took effect again)", [each.duplicates for each in both]),
        *(unasked if any(each.unasked for each in both) else ()),
        row("effects in the service", [each.effects for each in both]),
        verdict(Verdict.APPLIED),
        row("  of these, it was already so", [each.already for each in both]),
        *map(verdict, (Verdict.NOT_APPLIED, Verdict.REFUSED, Verdict.SUPERSEDED, Verdict.UNKNOWN)),
        *(
            row(f"  {reason}", [each.unknown_reasons.get(reason, 0) for each in both])
            for reason in _reasons(both)
        ),
        row("wrong verdicts", [len(each.wrong) for each in both]),
        row("  lost (applied, but no effect)", [len(each.lost) for each in both]),
        row("  denied, but took effect", [_denied(each) for each in both]),
        row("  in the wrong order", [len(each.wrong) - len(each.lost) - _denied(each) for each in both]),
        row("webhooks left in the service", [run.left for run in runs]),
        row("  requested to be left", [kept for _ in runs]),
        row("  difference", [run.left - kept for run in runs]),
        row("write requests sent", [each.sends for each in both]),
        row("read requests sent", [run.reads for run in runs]),
        ("time", [f"{run.seconds:.1f} s" for run in runs]),
    ]


def _denied(judged: Judgement) -> int:
    """Return how many verdicts are wrong for another reason than a lost write or the order of effects."""
    return sum(
        each.report.verdict is not Verdict.APPLIED and "came after" not in each.why for each in judged.wrong
    )


def _reasons(both: Sequence[Judgement]) -> list[str]:
    return sorted({reason for each in both for reason in each.unknown_reasons})


def _matters(name: str) -> bool:
    """Return whether this row is one of the three to look at."""
    return name.startswith(("duplicates", "wrong verdicts", f"reported {Verdict.UNKNOWN}"))


def _coloured(name: str, number: str) -> str:
    """Colour the numbers that should be zero."""
    if not _matters(name):
        return number
    bad = "yellow" if name.startswith("reported") else "red"  # unknown is true, but no use
    return f"[bold green]{number}[/]" if number == "0" else f"[bold {bad}]{number}[/]"
