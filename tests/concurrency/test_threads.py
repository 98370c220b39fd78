"""Threads of their own, and the wait for their ends."""

from __future__ import annotations

import asyncio
import threading

from invsvc_async.concurrency.threads import joined


async def test_end_of_a_thread_where_no_other_can_start(monkeypatch):
    """It is waited for all the same."""
    may_end = threading.Event()
    ending = threading.Thread(target=may_end.wait, daemon=True)
    ending.start()

    def fail(_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", fail)
    waiting = asyncio.create_task(joined(ending))
    await asyncio.sleep(0)
    assert not waiting.done()
    may_end.set()
    await asyncio.wait_for(waiting, 30)
    assert not ending.is_alive()
