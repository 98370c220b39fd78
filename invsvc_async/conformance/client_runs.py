"""The demo's runs: the same writes through each client."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import attrs

from invsvc_async.client import Client
from invsvc_async.conformance.judge import Asked, Judgement, Report, judge, sender_of
from invsvc_async.conformance.naive_client import NaiveClient
from invsvc_async.conformance.workload import request_of
from invsvc_async.resources.by_name import called
from invsvc_async.settings import CallOptions, ReconcilePolicy, Timeouts
from invsvc_async.simulator.ledger import SENDER
from invsvc_async.transport.credentials import ApiKey

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from invsvc_async.conformance.service_process import Embedded
    from invsvc_async.conformance.workload import Step, Unit
    from invsvc_async.writes.write import Write

__all__ = ["ATTEMPT_TIMEOUT", "POLICY", "ClientRun", "run_client"]

ATTEMPT_TIMEOUT = 1.5  # s, for both clients
# The deadline is for a busy machine, on which a write waits for many reads that time out.
POLICY = ReconcilePolicy(settle_after_error=1.0, settle_after_loss=1.5, deadline=600.0, max_resends=2)

Send: TypeAlias = "Callable[[Step], Awaitable[Report]]"


@attrs.frozen(kw_only=True)
class ClientRun:
    """One client's run: judgement, reads received, webhooks left behind, duration in seconds."""

    judgement: Judgement
    reads: int
    left: int
    seconds: float


async def run_client(
    name: str,
    units: Sequence[Unit],
    service: Embedded,
    *,
    concurrency: int,
    seed: int,
    on_done: Callable[[], None],
) -> ClientRun:
    """Run *units* through the client *name* ("ordinary" or "sdk"), *concurrency* at once, and judge it."""
    timeouts = Timeouts(attempt=ATTEMPT_TIMEOUT, connect=ATTEMPT_TIMEOUT)
    client = Client(
        service.base_url, ApiKey(service.api_key), timeout=timeouts, reconcile=POLICY,
        max_concurrency=concurrency,
    )  # fmt: skip
    naive = NaiveClient(
        service.base_url, service.api_key, concurrency=concurrency, attempt_timeout=ATTEMPT_TIMEOUT, seed=seed
    )
    begun = time.monotonic()
    async with client, aclosing(naive):
        send = partial(_by_sdk if name == "sdk" else partial(_by_naive, naive), client, service.team)
        reports = await _run(send, units, concurrency, on_done)
    seconds = time.monotonic() - begun
    record = await service.tell()
    return ClientRun(
        judgement=judge(reports, record.ledger, record.before),
        reads=record.reads,
        left=record.left,
        seconds=seconds,
    )


async def _run(
    send: Send, units: Iterable[Unit], concurrency: int, on_done: Callable[[], None]
) -> list[Report]:
    waiting, reports = iter(units), list[Report]()

    async def work() -> None:
        for unit in waiting:
            for step in unit:
                reports.append(await send(step))
                on_done()

    async with asyncio.TaskGroup() as tasks:
        for _ in range(concurrency):
            tasks.create_task(work())
    return reports


def _write(client: Client, step: Step) -> Write[Any]:
    options = CallOptions(headers={SENDER: sender_of(step.key)})
    write: Write[Any] = called(client, step.operation, step.arguments, options=options)
    return write


async def _by_sdk(client: Client, home: str, step: Step) -> Report:
    """Send it as a batch does, with a tag on each create, or as a program without tags."""
    write = _write(client, step)
    if step.tagged:
        write = write.tagged()
    began = time.monotonic()
    outcome = await write.outcome()
    made = getattr(outcome.value, "id", None) if step.operation == "webhooks.create" else None
    return Report(
        key=step.key, asked=Asked.of(outcome.intent, home=home), verdict=outcome.verdict,
        reason=outcome.message, story=outcome.explain(), made=made, began=began, ended=time.monotonic(),
    )  # fmt: skip


async def _by_naive(naive: NaiveClient, client: Client, home: str, step: Step) -> Report:
    """Send it as the naive client does; *client* only makes the intent."""
    write = _write(client, step)
    intent = write.intent
    write.close()
    began = time.monotonic()
    answer = await naive.write(request_of(intent, step.key))
    made = answer.made if step.operation == "webhooks.create" else None
    return Report(
        key=step.key, asked=Asked.of(intent, home=home), verdict=answer.verdict,
        reason=answer.reason, made=made, began=began, ended=time.monotonic(),
    )  # fmt: skip
