"""
One process of a program that is ended while writes wait: it runs them under keys, in a batch or in an outbox.

    python -m tests.soak.queued_child TASK

TASK is JSON, as :class:`Task`.  Each verdict is printed as JSON: the key, the verdict, its cause and
its basis, and when it was told (s of the machine's monotonic clock).
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from invsvc_async import (
    ApiKey,
    Batch,
    Client,
    InvsvcError,
    Outbox,
    ReconcilePolicy,
    Timeouts,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from types import FrameType

# Late effects of the service land within 0.15 s: well inside the windows, on a busy machine too.
POLICY = ReconcilePolicy(
    settle_after_error=0.5, settle_after_loss=0.6, deadline=60.0, reads_lag=0.0
)
APART = 0.05  # s between the beginnings of runs
ROUNDS = 12  # how often the last process runs what has no final verdict
GRACE = 0.3  # s that a batch or outbox that is stopped gives to what is under way
FINAL = ("applied", "superseded")
OVERTAKEN = ("overtaken", "perhaps overtaken")


class Task(msgspec.Struct):
    """What a process has to do: *writes* are keys, kinds (of which thing) and ids."""

    use: Literal["keys", "batch", "outbox"]
    url: str
    token: str
    address: str
    writes: list[tuple[str, str, str]]
    how: Literal["one by one", "at once", "apart"]
    on_term: Literal["cancel", "aclose", "raise"]
    # from when on (s), by how much its wall clock is ahead (s)
    clock: list[tuple[float, float]]
    is_last: bool


class SoftLimitError(Exception):
    """What a handler of signals raises, wherever the program is."""


def set_clock(steps: list[tuple[float, float]]) -> None:
    """Let the wall clock of this process be ahead, and step."""
    real, real_ns, begun = time.time, time.time_ns, time.monotonic()

    def ahead() -> float:
        return next(
            (by for since, by in reversed(steps) if time.monotonic() - begun >= since),
            0.0,
        )

    time.time = lambda: real() + ahead()
    time.time_ns = lambda: real_ns() + int(ahead() * 1e9)


# Any: of any operation
def write_of(client: Client, key: str, kind: str, thing: str) -> Any:
    """Make the write of *key*: its effect shows whose it is."""
    if kind == "journey":
        return client.journeys.update(thing, name=key).keyed(key)
    return client.webhooks.update(thing, description=key).keyed(key)


def tell(key: str, verdict: object, cause: str | None, basis: str | None) -> None:
    """Print a verdict."""
    said = [key, str(verdict), cause, basis, time.monotonic()]
    print(json.dumps(said), flush=True)  # noqa: T201 - read by the parent


class Settled:
    """Which keys have a verdict that another run would leave as it is."""

    def __init__(self, task: Task) -> None:
        self.task, self.keys = task, set[str]()

    def note(
        self, key: str, verdict: object, cause: str | None, basis: str | None
    ) -> None:
        """Tell it, and note whether it is final."""
        tell(key, verdict, cause, basis)
        if str(verdict) in FINAL or cause in OVERTAKEN:
            self.keys.add(key)

    @property
    def left(self) -> list[tuple[str, str, str]]:
        """The writes that are to be run again."""
        return [write for write in self.task.writes if write[0] not in self.keys]


async def keys(
    task: Task, settled: Settled, closing: list[Callable[[], Awaitable[object]]]
) -> None:
    """Run the writes under keys of a journal."""
    client = Client(
        task.url,
        ApiKey(task.token),
        journal=task.address,
        reconcile=POLICY,
        timeout=Timeouts(attempt=2.0),
    )
    closing.append(client.aclose)

    async def run(write: tuple[str, str, str]) -> None:
        try:
            outcome = await write_of(client, *write).outcome()
        except InvsvcError as error:
            print(f"# {write[0]}: {error}", file=sys.stderr, flush=True)  # noqa: T201 - for who looks into it
        else:
            settled.note(
                write[0],
                outcome.verdict,
                outcome.evidence.cause,
                outcome.evidence.basis,
            )

    async with client:
        for _ in range(ROUNDS if task.is_last else 1):
            if task.how == "one by one":
                for write in settled.left:
                    await run(write)
                continue
            async with asyncio.TaskGroup() as group:
                for write in settled.left:
                    group.create_task(run(write))
                    if task.how == "apart":
                        await asyncio.sleep(APART)


async def batch(
    task: Task, settled: Settled, closing: list[Callable[[], Awaitable[object]]]
) -> None:
    """Run the writes as a batch."""
    client = Client(
        task.url, ApiKey(task.token), reconcile=POLICY, timeout=Timeouts(attempt=2.0)
    )
    concurrency = 1 if task.how == "one by one" else 50
    async with client, Batch.open(task.address, client, concurrency=concurrency) as run:
        closing.append(lambda: run.stop(GRACE))

        async def given() -> AsyncIterator[Any]:  # Any: writes of any operation
            for write in task.writes:
                yield write_of(client, *write)
                if task.how == "apart":
                    await asyncio.sleep(APART)

        async for result in run.run(given()):
            settled.note(result.key, result.verdict, result.cause, result.basis)
        for _ in range(ROUNDS if task.is_last else 0):
            async for result in run.results():  # what others were told counts, too
                settled.note(result.key, result.verdict, result.cause, result.basis)
            if not settled.left:
                return
            await run.retry(keys=[key for key, _, _ in settled.left])
            async for result in run.run():
                settled.note(result.key, result.verdict, result.cause, result.basis)


async def outbox(
    task: Task, settled: Settled, closing: list[Callable[[], Awaitable[object]]]
) -> None:
    """Enqueue the writes in transactions of the application, and send what is enqueued."""
    client = Client(
        task.url, ApiKey(task.token), reconcile=POLICY, timeout=Timeouts(attempt=2.0)
    )
    stopped = asyncio.Event()

    async def stop() -> None:
        stopped.set()

    closing.append(stop)
    async with (
        client,
        Outbox.open(task.address, client) as box,
        box.dispatching(grace=GRACE),
    ):
        working = asyncio.ensure_future(_send(task, settled, client, box))
        ending = asyncio.ensure_future(stopped.wait())
        try:
            await asyncio.wait([working, ending], return_when=asyncio.FIRST_COMPLETED)
        finally:
            working.cancel()
            ending.cancel()


async def _send(task: Task, settled: Settled, client: Client, box: Outbox) -> None:
    async def wait(key: str) -> None:
        outcome = await box.wait(key)
        settled.note(
            key, outcome.verdict, outcome.evidence.cause, outcome.evidence.basis
        )

    async with connected(task.address) as begun:
        for key, kind, thing in task.writes:
            async with begun() as connection:
                await box.enqueue(connection, write_of(client, key, kind, thing))
            if task.how == "one by one":
                await wait(key)
    await asyncio.gather(*(wait(key) for key, _, _ in task.writes))
    for _ in range(ROUNDS if task.is_last else 0):
        if left := [key for key, _, _ in settled.left]:
            await box.retry(*left)
            await asyncio.gather(*map(wait, left))


@asynccontextmanager
async def connected(
    address: str,
) -> AsyncIterator[Callable[[], AbstractAsyncContextManager[Any]]]:
    """Yield what begins a transaction of the application's own, and ends it."""
    if address.startswith("postgresql"):
        import asyncpg

        connection = await asyncpg.connect(
            address.partition("?outbox")[0].partition("&outbox")[0]
        )

        @asynccontextmanager
        async def begun() -> AsyncIterator[Any]:
            async with connection.transaction():
                yield connection

        try:
            yield begun
        finally:
            await connection.close()
        return
    import aiosqlite

    async with aiosqlite.connect(address) as file:

        @asynccontextmanager
        async def begun_in_file() -> AsyncIterator[Any]:
            await file.execute("BEGIN IMMEDIATE")
            yield file
            await file.commit()

        yield begun_in_file


USES = {"keys": keys, "batch": batch, "outbox": outbox}


async def main(task: Task) -> None:
    """Do what *task* says, and end as it says when a signal asks for it."""
    loop, mine = asyncio.get_running_loop(), asyncio.current_task()
    closing: list[Callable[[], Awaitable[object]]] = []

    def end() -> None:
        if task.on_term == "cancel" or not closing:
            assert mine is not None
            mine.cancel()
        else:
            ends.append(asyncio.ensure_future(closing[0]()))

    ends: list[asyncio.Future[object]] = []
    if task.on_term != "raise":
        loop.add_signal_handler(signal.SIGTERM, end)
    await USES[task.use](task, Settled(task), closing)


def _raise(_number: int, _frame: FrameType | None) -> None:
    raise SoftLimitError


if __name__ == "__main__":
    asked = msgspec.json.decode(sys.argv[1], type=Task)
    set_clock(asked.clock)
    if asked.on_term == "raise":
        signal.signal(signal.SIGTERM, _raise)
    try:
        asyncio.run(main(asked))
    except (
        asyncio.CancelledError,
        SoftLimitError,
        InvsvcError,
        ExceptionGroup,
    ) as error:
        print(f"# {type(error).__name__}: {error}", file=sys.stderr)  # noqa: T201 - for who looks into it
        sys.exit(3)
