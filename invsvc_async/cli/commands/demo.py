"""``invsvc demo``: run the same writes through a naive client and through this one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from invsvc_async.cli.options import FAULTS, FaultPlan, existing_file, fault_plan, number
from invsvc_async.cli.output import USAGE, fail, progress
from invsvc_async.concurrency.event_loop import until_done

if TYPE_CHECKING:
    from invsvc_async.conformance.client_runs import ClientRun
    from invsvc_async.conformance.workload import Unit

__all__ = ["command"]


def command(
    *,
    writes: Annotated[int, number(int, "Number of writes; each client does all.", least=1)] = 2000,
    concurrency: Annotated[int, number(int, "Number of writes in flight.", least=1, most=1000)] = 200,
    seed: Annotated[int, number(int, "Seed of the writes and faults.")] = 1,
    faults: FaultPlan = FAULTS,
    input_: Annotated[
        Path | None,
        typer.Option(
            "--input",
            callback=existing_file,
            metavar="FILE.jsonl",
            help='Your own writes: one {"operation", "arguments", "key"} per line; - is stdin.',
        ),
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """
    Run the same writes under faults through an ordinary client and through this one: `invsvc demo --seed 2`.

    The embedded service fails before and after the effect, loses answers, hangs, sends garbage, and commits
    late.  Both clients are judged by its ledger.

    Exits with 1 if this client has a duplicate, a lost write, a wrong verdict or more than 1 % unknown, or
    if the faults were so mild that the ordinary client made no duplicate.
    """
    from invsvc_async.cli.commands import demo_report

    fault_plan(faults)  # refused before the table's head is printed
    units = _units(input_, writes, seed)
    if not json_:
        demo_report.head(units, concurrency=concurrency, seed=seed, faults=faults)
    runs = until_done(_run(units, concurrency, seed, faults))
    failures = demo_report.failures(runs)
    if json_:
        demo_report.as_json(runs, failures, seed=seed, kept=demo_report.kept(units))
    else:
        demo_report.show(runs, failures, kept=demo_report.kept(units))
    raise typer.Exit(1 if failures else 0)


def _units(path: Path | None, writes: int, seed: int) -> list[Unit]:
    from invsvc_async.conformance import workload

    if path is None:
        return workload.made_up(writes, seed)
    lines, problems = workload.checked(path)
    if problems or not lines:
        for problem in map(str, problems) if problems else [f"{path}: has no writes. Add at least one"]:
            fail(problem)
        raise typer.Exit(USAGE)
    return workload.from_lines(lines)


async def _run(units: list[Unit], concurrency: int, seed: int, faults: str) -> dict[str, ClientRun]:
    from invsvc_async.conformance.client_runs import run_client
    from invsvc_async.conformance.service_process import embedded
    from invsvc_async.conformance.workload import plan_for

    plan = plan_for(units, seed=seed, faults=faults)
    total = sum(map(len, units))
    runs: dict[str, ClientRun] = {}
    for name, label in (("ordinary", "ordinary client"), ("sdk", "invsvc_async")):
        async with embedded(plan) as service:
            with progress(label, total) as advance:
                runs[name] = await run_client(
                    name, units, service, concurrency=concurrency, seed=seed, on_done=advance
                )
    return runs
