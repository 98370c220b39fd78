"""The demo's runs: the same writes through each client."""

from __future__ import annotations

import asyncio
import time
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol

import attrs

from invsvc_async.client import Client, options_of
from invsvc_async.conformance.judge import Asked, Judgement, Report, judge, sender_of
from invsvc_async.conformance.naive_client import NaiveClient
from invsvc_async.reconcile.history import Verdict
from invsvc_async.resources.by_name import as_write
from invsvc_async.settings import ReconcilePolicy, Timeouts
from invsvc_async.simulator.ledger import SENDER
from invsvc_async.transport.credentials import ApiKey
from invsvc_async.transport.session import ClientOptions

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from invsvc_async.conformance.service_process import Embedded
    from invsvc_async.conformance.workload import Step, Unit
    from invsvc_async.transport.exchange import Exchange
    from invsvc_async.transport.session import Request
    from invsvc_async.writes.write import Write

__all__ = ["ATTEMPT_TIMEOUT", "POLICY", "ClientRun", "run_client"]

ATTEMPT_TIMEOUT = 1.5  # s, for both clients
# The deadline is for a busy machine, on which a write waits for many reads that time out.
POLICY = ReconcilePolicy(settle_after_error=1.0, settle_after_loss=1.5, deadline=600.0, max_resends=2)

_SENDER: ContextVar[str] = ContextVar("_SENDER")  # of the write awaited by the current task


@attrs.frozen(kw_only=True)
class ClientRun:
    """One client's run: judgement, reads received, webhooks left behind, duration in seconds."""

    judgement: Judgement
    reads: int
    left: int
    seconds: float


class ClientUnderTest(Protocol):
    """One client under the demo's load."""

    async def write(self, step: Step, made: Any) -> tuple[Report, Any]:  # Any: identifies what was created
        """
        Send one write; return its report and, for a create, a value that later writes of the unit may use.
        """
        ...


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
    credential = ApiKey(service.api_key)
    timeouts = Timeouts(attempt=ATTEMPT_TIMEOUT, connect=ATTEMPT_TIMEOUT)
    begun = time.monotonic()
    async with Client(
        service.base_url, credential, timeout=timeouts, reconcile=POLICY, max_concurrency=concurrency
    ) as client:
        if name == "sdk":
            reports = await _run(_Sdk(_with_sender(client), service.team), units, concurrency, on_done)
        else:
            naive = NaiveClient(
                service.base_url,
                service.api_key,
                concurrency=concurrency,
                attempt_timeout=ATTEMPT_TIMEOUT,
                seed=seed,
            )
            try:
                reports = await _run(_Naive(client, naive, service.team), units, concurrency, on_done)
            finally:
                await naive.aclose()
    seconds = time.monotonic() - begun
    record = await service.tell()
    before = {each.id for each in service.plan.webhooks}
    return ClientRun(
        judgement=judge(reports, record.ledger, record.state, record.before),
        reads=record.reads,
        left=sum("url" in thing and key not in before for key, thing in record.state.items()),
        seconds=seconds,
    )


async def _run(
    client: ClientUnderTest, units: Iterable[Unit], concurrency: int, on_done: Callable[[], None]
) -> list[Report]:
    waiting, reports = iter(units), list[Report]()

    async def work() -> None:
        for unit in waiting:
            made = None
            for step in unit:
                report, new = await client.write(step, made)
                made = made if new is None else new
                reports.append(report)
                on_done()

    async with asyncio.TaskGroup() as tasks:
        for _ in range(concurrency):
            tasks.create_task(work())
    return reports


def _write(client: Client, step: Step, made: object) -> Write[Any]:
    arguments = {**step.arguments, "webhook": made} if step.follows and made is not None else step.arguments
    return as_write(client, step.operation, arguments)


class _AttributedOptions(ClientOptions, kw_only=True, eq=False):
    """Options that add the write's key to the headers of each write request, for the ledger."""

    def send(self, request: Request, exchange: Exchange) -> Awaitable[Exchange]:
        """Send *exchange* with that header."""
        if exchange.write:
            exchange.headers = {**exchange.headers, SENDER: _SENDER.get()}
        return super().send(request, exchange)


def _with_sender(client: Client) -> Client:
    """Return a view of *client* whose requests name their write."""
    plain = options_of(client)
    return Client.of(
        _AttributedOptions(
            session=plain.session,
            timeouts=plain.timeouts,
            reads=plain.reads,
            reconcile=plain.reconcile,
            names=plain.names,
        )
    )


@attrs.frozen
class _Sdk:
    client: Client
    home: str

    async def write(self, step: Step, made: Any) -> tuple[Report, Any]:
        """Send it as a batch does, with a tag on each create, or as a program without tags."""
        write = _write(self.client, step, made)
        if step.tagged:
            write = write.tagged()
        _SENDER.set(sender_of(step.key))
        began = time.monotonic()
        outcome = await write.outcome()
        created = outcome.value if step.operation == "webhooks.create" else None
        report = Report(
            key=step.key, asked=Asked.of(outcome.intent, home=self.home), verdict=outcome.verdict,
            reason=outcome.message, story=outcome.explain(), made=getattr(created, "id", None),
            began=began, ended=time.monotonic(),
        )  # fmt: skip
        return report, created


@attrs.frozen
class _Naive:
    client: Client  # only creates the intents
    naive: NaiveClient
    home: str

    async def write(self, step: Step, made: Any) -> tuple[Report, Any]:
        """Send it as the naive client does."""
        write = _write(self.client, step, made)
        intent = write.intent
        write.close()
        began = time.monotonic()
        answer = await self.naive.write(intent, sender=sender_of(step.key))
        is_created = answer.verdict is Verdict.APPLIED and step.operation == "webhooks.create"
        created = answer.made if is_created else None
        report = Report(
            key=step.key, asked=Asked.of(intent, home=self.home), verdict=answer.verdict,
            reason=answer.reason, made=created, began=began, ended=time.monotonic(),
        )  # fmt: skip
        return report, created
