"""What the processes of a walk leave is collected where it is expected, and not in a later test."""

from __future__ import annotations

import asyncio
import gc

import pytest


@pytest.fixture(autouse=True)
def _collected():
    """
    Collect what is left, with a default event loop that goes away, too.

    A coroutine of a dead process that is collected cleans up, and may begin a task in the default loop.
    """
    before = asyncio.get_event_loop_policy()
    asyncio.set_event_loop_policy(asyncio.DefaultEventLoopPolicy())
    yield
    gc.collect()
    asyncio.set_event_loop_policy(before)
    gc.collect()
