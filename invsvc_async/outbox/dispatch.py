"""The dispatching of an outbox: one process that sends what transactions have committed."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from typing import TYPE_CHECKING

import msgspec

from invsvc_async.batch.dispatcher import Dispatcher
from invsvc_async.batch.engine import Engine
from invsvc_async.batch.restored import restored_of
from invsvc_async.concurrency.cancellation import until_ended
from invsvc_async.outbox.item import OutboxItem

if TYPE_CHECKING:
    from collections.abc import Callable

    from invsvc_async.batch.sending import Sending
    from invsvc_async.outbox.entries import OutboxEntries

__all__ = ["dispatch"]


async def dispatch(
    sending: Sending, entries: OutboxEntries, *, grace: float, on_verdict: Callable[[], None]
) -> None:
    """
    Send what is committed, until cancelled. What is under way then has *grace* seconds.

    *on_verdict* is called when verdicts were stored.

    Raises:
        JournalError: The database stayed away.
        BatchStoppedError: The service refuses the credential.
        TransportError: The outbox was restored from a copy, and the service cannot be reached.

    """
    await _recall_restore(sending, entries)
    engine, began, done = Engine(sending), time.monotonic(), 0

    def say(lanes: int) -> str:
        rate = round(done / max(time.monotonic() - began, 1.0), 3)
        said = {"host": socket.gethostname(), "pid": os.getpid(), "done": done, "rate": rate, "lanes": lanes}
        return msgspec.json.encode(said).decode()

    dispatcher = Dispatcher(sending, entries, OutboxItem, gives=False, on_unfit=on_verdict)
    dispatcher.say = say
    await dispatcher.begin()
    feeding = asyncio.create_task(_feed(dispatcher, engine))
    try:
        while await engine.next_finished() is not None:
            done += 1
            on_verdict()
    finally:
        leaving = asyncio.create_task(_leave(dispatcher, engine, feeding, grace, on_verdict))
        ending = [leaving]
        await until_ended(ending, lambda: ending.append(asyncio.create_task(engine.stop(0.0))))
        leaving.result()
    if (failure := engine.take_failure()) is not None:
        raise failure


async def _feed(dispatcher: Dispatcher, engine: Engine) -> None:
    try:
        await dispatcher.feed(engine)
    except Exception as error:  # noqa: BLE001 - any error ends the run, which begins again
        engine.fail(error)


async def _leave(
    dispatcher: Dispatcher, engine: Engine, feeding: asyncio.Task[None], grace: float,
    on_verdict: Callable[[], None],
) -> None:  # fmt: skip
    """End what is under way, and release the rest."""
    engine.halt()
    feeding.cancel()
    await asyncio.wait([feeding])
    await engine.stop(grace)
    on_verdict()
    await dispatcher.leave()
    await dispatcher.end()


async def _recall_restore(sending: Sending, entries: OutboxEntries) -> None:
    """Learn which entries may have been sent after the copy from which the outbox was restored."""
    restored = sending.restored = await restored_of(entries.fact, sending.client)
    if restored is not None:
        left = await entries.not_done(1)
        if not left or left[0].seq > restored.through:
            await entries.close_restored()
