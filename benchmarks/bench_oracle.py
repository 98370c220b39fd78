"""
Measure what finding out costs: writes under 20 % faults, against a client that is told the truth at once.

Both send the same writes to the same kind of service in this process, and send again what did not happen.
Where an answer cannot be trusted, ours reads the service's state; the oracle looks into the service's own
ledger, which costs nothing.  The settle windows are taken out, and reads are sound, for one that fails is
taken again after half a second: that is waiting, which the rules of writes ask for, and no work.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import aiohttp

from benchmarks.harness import Row, Samples, ratio_of
from invsvc_async import ApiKey, Client, ReconcilePolicy, Timeouts
from invsvc_async.batch.jsonl import as_write
from invsvc_async.conformance.workload import made_up
from invsvc_async.simulator import Faults, Simulator

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from invsvc_async.conformance.workload import Step, Unit

_WRITES = 800
_TOGETHER = 100
_FAULTS = "rate=0.2,reads=0,hang=0.3,late=0"
_PATIENCE = 0.2  # s of an attempt
_POLICY = ReconcilePolicy(settle_after_error=0.0, settle_after_loss=0.0, max_resends=20)


def _seeded(units: list[Unit]) -> Simulator:
    service = Simulator(seed=7, faults=Faults.parse(_FAULTS))
    steps = [step for unit in units for step in unit]
    for team in {step.arguments["team"] for step in steps if "team" in step.arguments}:
        service.seed_team(id=team)
    for step in steps:
        if step.operation == "journeys.update":
            service.seed_journey(id=step.arguments["journey"])
    return service


async def _ours(units: list[Unit], service: Simulator) -> None:
    async with Client(
        service.base_url,
        ApiKey(service.api_key),
        timeout=Timeouts(attempt=_PATIENCE),
        reconcile=_POLICY,
        max_concurrency=_TOGETHER + _TOGETHER // 8,
    ) as client:

        async def do(step: Step, made: object) -> object:
            outcome = await as_write(client, step.operation, _arguments(step, made)).tagged().outcome()
            assert outcome.applied, outcome.message
            return outcome.value

        await _run(units, do)


async def _oracle(units: list[Unit], service: Simulator) -> None:
    async with aiohttp.ClientSession(
        headers={"Authorization": f"Bearer {service.api_key}"}, timeout=aiohttp.ClientTimeout(total=_PATIENCE)
    ) as session:

        async def do(step: Step, made: object) -> object:
            method, path, body = _request(step, _arguments(step, made))
            query = {"team": step.arguments["team"]} if "team" in step.arguments else {}
            while True:
                try:
                    async with session.request(
                        method, service.base_url + path, json=body, params=query
                    ) as answer:
                        found = await answer.json()
                        if answer.ok and isinstance(found, dict) and found.get("success"):
                            return (found.get("data") or {}).get("id") or made
                except (aiohttp.ClientError, TimeoutError, ValueError):
                    pass
                for entry in service.ledger.entries:  # the truth, for nothing
                    told = entry.operation == step.operation and entry.body == body
                    if entry.applied and told and (body or entry.path_id == path.rpartition("/")[2]):
                        return entry.target

        await _run(units, do)


def _arguments(step: Step, made: object) -> dict[str, Any]:
    return {**step.arguments, "webhook": made} if step.follows else step.arguments


def _request(step: Step, arguments: dict[str, Any]) -> tuple[str, str, Any]:
    body = {name: value for name, value in arguments.items() if name not in {"team", "webhook", "journey"}}
    match step.operation:
        case "webhooks.create":
            return "POST", "/webhooks", body
        case "webhooks.update":
            return "PUT", f"/webhooks/{arguments['webhook']}", body
        case "webhooks.delete":
            return "DELETE", f"/webhooks/{arguments['webhook']}", None
        case _:
            return "PUT", f"/journeys/{arguments['journey']}", body


async def _run(units: list[Unit], do: Callable[[Step, object], Awaitable[object]]) -> None:
    waiting = iter(units)

    async def work() -> None:
        for unit in waiting:
            made: object = None  # what a create gave, for the writes that follow it
            for step in unit:
                made = await do(step, made) or made

    async with asyncio.TaskGroup() as group:
        for _ in range(_TOGETHER):
            group.create_task(work())


async def _timed(side: Callable[[list[Unit], Simulator], Awaitable[None]]) -> float:
    units = made_up(_WRITES, 7)
    async with _seeded(units) as service:
        started = time.perf_counter()
        await side(units, service)
        return time.perf_counter() - started


def rows(*, rounds: int = 3) -> list[Row]:
    """Measure this file's row."""
    samples: Samples = {"ours": [], "oracle": []}
    for _ in range(rounds):
        samples["ours"].append(asyncio.run(_timed(_ours)))
        samples["oracle"].append(asyncio.run(_timed(_oracle)))
    ratio = ratio_of(samples, "ours", "oracle")
    return [Row(what=f"{_WRITES} writes, 20 % faults, wall", against="an oracle", limit=2.0, ratio=ratio)]
