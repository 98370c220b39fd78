"""
Runs of writes against the embedded service, judged by its ledger, and those of the demo's two clients.

One of these is a typical client on plain aiohttp: it sends, and sends again after a failure, without checking
the state.  The demo compares against it, so it is not handicapped: connections are reused, backoff has
jitter, each attempt has a timeout, and an error after the last attempt counts as "unknown", not as "not
applied".
"""

from __future__ import annotations

import asyncio
import random
import time
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import aiohttp
import attrs

from invsvc_async.client import Client
from invsvc_async.conformance.judge import Judgement, judge
from invsvc_async.conformance.reasons import Told
from invsvc_async.conformance.reports import (
    Conclusion,
    RequestedWrite,
    WriteReport,
    sender_of,
)
from invsvc_async.conformance.workload import Unit, WorkloadStep, request_of
from invsvc_async.reconcile.history import Verdict
from invsvc_async.resources.by_name import called
from invsvc_async.settings import CallOptions, ReconcilePolicy, Timeouts
from invsvc_async.simulator.json_records import is_object, read_json
from invsvc_async.simulator.ledger import SENDER
from invsvc_async.transport.credentials import ApiKey

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from invsvc_async.codec.exact_json import WireObject
    from invsvc_async.conformance.service_process import Embedded
    from invsvc_async.writes.write import Write

ATTEMPT_TIMEOUT = 1.5  # s, for both clients
# The deadline is for a busy machine, on which a write waits for many reads that time out.
POLICY = ReconcilePolicy(
    settle_after_error=1.0,
    settle_after_loss=1.5,
    deadline=600.0,
    max_resends=2,
)

ATTEMPTS = 3
PAUSE = 0.2  # s before the second attempt, doubled before the third, with jitter
TIMED_OUT = 408
ORDINARY = (
    f"plain aiohttp, connections reused; up to {ATTEMPTS} attempts on 5xx, 408, timeouts, lost connections,"
    " like common SDKs"
)

Send: TypeAlias = "Callable[[WorkloadStep], Awaitable[WriteReport]]"


@attrs.frozen(kw_only=True)
class ClientRun:
    """One client's run: judgement, reads received, webhooks left behind, duration in seconds."""

    judgement: Judgement
    reads: int
    left: int
    seconds: float

    @classmethod
    async def judged(
        cls, reports: Sequence[WriteReport], service: Embedded, **more: Any
    ) -> Self:  # Any: fields
        """Wait until no more late effects can land, and judge *reports*; *more* are the other fields."""
        record = await service.tell()
        judgement = judge(reports, record.ledger, record.before)
        return cls(
            judgement=judgement,
            reads=record.reads,
            left=record.left,
            **more,
        )


async def run_client(
    name: str,
    units: Iterable[Unit],
    service: Embedded,
    *,
    concurrency: int,
    seed: int,
    on_done: Callable[[], None],
) -> ClientRun:
    """Run *units* through the client *name* ("ordinary" or "sdk"), *concurrency* at once, and judge it."""
    url = service.base_url
    key = service.api_key
    timeouts = Timeouts(attempt=ATTEMPT_TIMEOUT, connect=ATTEMPT_TIMEOUT)
    client = Client(
        url,
        ApiKey(key),
        timeout=timeouts,
        reconcile=POLICY,
        max_concurrency=concurrency,
    )
    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=concurrency),
        timeout=aiohttp.ClientTimeout(total=ATTEMPT_TIMEOUT),
        headers={"Authorization": f"Bearer {key}"},
    )
    jitter = random.Random(seed)

    async def send(step: WorkloadStep) -> WriteReport:
        """Send *step* as a batch does, with a tag on each create, or as a program without tags."""
        options = CallOptions(headers={SENDER: sender_of(step.key)})
        write: Write[Any] = called(
            client, step.operation, step.arguments, options=options
        )
        if name == "sdk" and step.tagged:
            write = write.tagged()
        intent = write.intent
        began = time.monotonic()
        if name == "sdk":
            outcome = await write.outcome()
            made = getattr(outcome.value, "id", None)
            told = Told.of(outcome, at=time.monotonic())
            answer = Conclusion(
                outcome.verdict, outcome.message, made, outcome.explain(), told
            )
        else:
            write.close()
            answer = await _sent_as_usual(
                session, url, request_of(intent, step.key), jitter
            )
        ended = time.monotonic()
        on_done()
        if step.operation != "webhooks.create":
            answer = attrs.evolve(answer, made=None)
        asked = RequestedWrite.of(intent, home=service.team)
        return WriteReport(
            key=step.key,
            asked=asked,
            began=began,
            ended=ended,
            **attrs.asdict(answer, recurse=False),
        )

    begun = time.monotonic()
    async with client, session:
        reports = await send_all(send, units, concurrency)
    return await ClientRun.judged(reports, service, seconds=time.monotonic() - begun)


async def send_all(
    send: Send,
    units: Iterable[Unit],
    concurrency: int,
) -> list[WriteReport]:
    """Send the writes of *units* with *send*, *concurrency* units at once."""
    waiting = iter(units)
    reports = list[WriteReport]()

    async def work() -> None:
        for unit in waiting:
            for step in unit:
                reports.append(await send(step))

    async with asyncio.TaskGroup() as tasks:
        for _ in range(concurrency):
            tasks.create_task(work())
    return reports


def _from_success(status: int, body: bytes) -> Conclusion:
    """Return what a client believes after an answer that is a success."""
    try:
        answer = read_json(body)
    except ValueError:
        return Conclusion(Verdict.UNKNOWN, "the answer could not be read")
    made = _member(_member(answer, "data"), "id")
    return Conclusion(Verdict.APPLIED, f"HTTP {status}", made)


def _member(value: object, name: str) -> Any:  # Any: JSON
    """Return the member *name* of *value*; ``None`` if *value* is no object, or has none."""
    if not is_object(value):
        return None
    return value.get(name)


async def _sent_as_usual(
    session: aiohttp.ClientSession,
    url: str,
    request: WireObject,
    jitter: random.Random,
) -> Conclusion:
    """Send *request*, as ``request_of`` returns it, to the service at *url*, up to three times."""
    sent = {
        "params": request["query"],
        "headers": request["headers"],
        "json": request["body"],
    }
    for attempt in range(ATTEMPTS):
        if attempt:
            await asyncio.sleep(PAUSE * 2 ** (attempt - 1) * (0.5 + jitter.random()))
        try:
            async with session.request(
                request["method"], url + request["path"], **sent
            ) as response:
                status = response.status
                body = await response.read()
        except (aiohttp.ClientError, TimeoutError):
            continue
        if status < 400:
            return _from_success(status, body)
        if status < 500 and status != TIMED_OUT:
            return Conclusion(Verdict.REFUSED, f"HTTP {status}")
    return Conclusion(Verdict.UNKNOWN, f"gave up after {ATTEMPTS} attempts")
