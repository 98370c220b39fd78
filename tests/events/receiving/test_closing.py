"""A receiver or a store whose opening or closing is cancelled: it leaves no thread, and holds no event."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from invsvc_async import events
from invsvc_async.errors import ConfigurationError
from tests.events.bodies import HEADER, SHARED, encoded, v2
from tests.events.receiving.test_receiver import eventually
from tests.support.waiting import until_no

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.one_python

BODY = encoded(v2("invoice.created"))


def receiver_at(path: Path, **settings: Any) -> events.Receiver:
    return events.Receiver(
        secrets=(), shared_header=HEADER, mode="inbox", store=path, **settings
    )


async def threads_ended(path: Path) -> None:
    """Wait until no thread uses the file; a thread that stays makes this fail."""
    await until_no(
        lambda: [each for each in threading.enumerate() if str(path) in each.name],
        within=300.0,
    )


class Handler:
    """It runs until it is cancelled, or may end; it ignores as many cancellations as set."""

    def __init__(self, *, ignored: int = 0) -> None:
        self.begun = asyncio.Event()
        self.may_end = asyncio.Event()
        self.ignored = ignored
        self.ended = 0

    async def __call__(self, _: events.Event) -> None:
        """Handle an event."""
        self.begun.set()
        while not self.may_end.is_set():
            try:
                await self.may_end.wait()
            except asyncio.CancelledError:
                if not self.ignored:
                    raise
                self.ignored -= 1
        self.ended += 1


async def use(receiver: events.Receiver, handler: Handler) -> None:
    async with receiver:
        await receiver.receive(BODY, dict([SHARED]))
        await handler.begun.wait()


async def cancel_in_closing(receiver: events.Receiver, handler: Handler) -> None:
    using = asyncio.create_task(use(receiver, handler))
    while receiver._lifetime.closing is None:  # noqa: ASYNC110
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    using.cancel()
    await asyncio.wait({using})
    assert using.cancelled()


@pytest.mark.parametrize("by", ["task", "scope"])
async def test_closing_that_is_cancelled(tmp_path, by: str) -> None:
    """The handler that it waits for is cancelled, its event is due at once, and the file is closed."""
    path = tmp_path / "events.db"
    receiver, handler = receiver_at(path), Handler()
    receiver.on("*", name="wait")(handler)

    if by == "task":
        await cancel_in_closing(receiver, handler)
    else:
        with anyio.CancelScope() as scope:
            async with receiver:
                await receiver.receive(BODY, dict([SHARED]))
                await handler.begun.wait()
                scope.cancel()  # from now on, whatever is awaited here is cancelled

    await threads_ended(path)
    store = events.SqliteStore(path)
    (entry,) = await store.take(limit=9, lease=60)
    await store.close()
    assert (entry.handler, entry.attempts, handler.ended) == ("wait", 2, 0)


async def test_receiver_that_is_entered_after_a_cancelled_closing(
    tmp_path, monkeypatch
) -> None:
    """It first waits for the end of that, which would else stop the new worker and close its file."""
    monkeypatch.setattr("invsvc_async.events.receiving.lifetime._TO_LEAVE", 0.01)
    path = tmp_path / "events.db"
    receiver, handler = receiver_at(path, deadline=0.1), Handler(ignored=5)
    receiver.on("*", name="wait")(handler)
    await cancel_in_closing(receiver, handler)
    assert not receiver._lifetime.closing.done()

    async with receiver:
        assert receiver._lifetime.closing.done()
        handler.may_end.set()
        body = encoded(v2("invoice.created", number=2))
        assert (await receiver.receive(body, dict([SHARED]))).outcome == "stored"
        await eventually(lambda: handler.ended == 2)

    await threads_ended(path)


@pytest.mark.parametrize("turns", [1, 2, 3, 5, 20])
async def test_opening_that_is_cancelled(tmp_path, turns: int) -> None:
    """The file is closed, whenever that happens, and can be opened again."""
    path = tmp_path / "events.db"
    receiver = receiver_at(path)

    opening = asyncio.create_task(receiver.__aenter__())
    for _ in range(turns):
        await asyncio.sleep(0)
    opening.cancel()
    await asyncio.wait({opening})
    if not opening.cancelled():
        await receiver.__aexit__(None, None, None)

    await threads_ended(path)
    async with receiver:
        assert (await receiver.receive(BODY, dict([SHARED]))).outcome == "stored"


@pytest.mark.parametrize("turns", [0, 1, 2, 5])
@pytest.mark.parametrize("is_open", [False, True])
async def test_store_whose_closing_is_cancelled(
    tmp_path, monkeypatch, turns: int, is_open: bool
) -> None:
    """All of its threads end, also those that its opening was about to start; what was asked for is stored."""
    monkeypatch.setattr("invsvc_async.events.stores.sqlite._SMALL", 0)
    path = tmp_path / "events.db"
    store = events.SqliteStore(path)
    if is_open:
        await store.open()
    putting = asyncio.create_task(
        store.put(events.Delivery(key="e_1", type="t", body=b"{}"))
    )
    await asyncio.sleep(0)

    closing = asyncio.create_task(store.close())
    await asyncio.sleep(0)
    for _ in range(turns):
        await asyncio.sleep(0)
    closing.cancel()
    await asyncio.wait({closing, putting})

    await threads_ended(path)
    assert putting.result()
    assert len(await store.take(limit=9, lease=60)) == 1
    await store.close()


@pytest.mark.parametrize("small", [0, 8 << 20])
async def test_closing_while_handlers_use_all_threads(
    tmp_path, monkeypatch, small: int
) -> None:
    """Code of handlers that hangs in a thread of asyncio's pool does not keep the receiver from closing."""
    monkeypatch.setattr("invsvc_async.events.stores.sqlite._SMALL", small)
    gate, pool = threading.Event(), ThreadPoolExecutor(1)
    asyncio.get_running_loop().set_default_executor(pool)
    hangs = asyncio.create_task(asyncio.to_thread(gate.wait))
    path = tmp_path / "events.db"
    try:
        async with asyncio.timeout(300):
            async with receiver_at(path) as receiver:
                assert (
                    await receiver.receive(BODY, dict([SHARED]))
                ).outcome == "stored"
        await threads_ended(path)
        assert not hangs.done()
    finally:
        gate.set()
        await asyncio.wait({hangs})


async def test_receiver_that_is_entered_twice(tmp_path) -> None:
    """One of the two is refused, also while the store is being opened; the other one works and closes."""
    path = tmp_path / "events.db"
    receiver, handler = receiver_at(path), Handler()
    handler.may_end.set()
    receiver.on("*", name="wait")(handler)

    entered = await asyncio.gather(
        *(receiver.__aenter__() for _ in range(2)), return_exceptions=True
    )
    assert sorted(type(one).__name__ for one in entered) == [
        "ConfigurationError",
        "Receiver",
    ]
    with pytest.raises(ConfigurationError, match="already running"):
        await receiver.__aenter__()
    await receiver.receive(BODY, dict([SHARED]))
    await handler.begun.wait()
    await receiver.__aexit__(None, None, None)

    await threads_ended(path)
    assert not [
        task
        for task in asyncio.all_tasks()
        if task.get_name() == "invsvc events worker"
    ]
