"""The removal of heard verdicts, beside writes that are awaited again meanwhile."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from unittest.mock import AsyncMock

from invsvc_async.durable import removal as removal_module
from invsvc_async.durable.removal import Removal, StoredWrite
from tests.support.waiting import until


async def test_write_that_is_cancelled_while_it_is_removed(monkeypatch):
    """It need not be removed twice, and the others that were heard are removed."""
    is_stored = asyncio.Event()
    store = SimpleNamespace(idle=AsyncMock(side_effect=is_stored.wait))
    # reaches: the statement, which needs a database
    monkeypatch.setattr(removal_module, "remove", AsyncMock())
    writes = {key: StoredWrite(SimpleNamespace(number=1)) for key in ("a", "b")}
    removal = Removal(store, writes, asyncio.Event())

    removal.soon("a")
    await until(lambda: store.idle.called)
    removal.soon("a")
    removal.soon("b")
    is_stored.set()
    await until(lambda: removal.task is None)

    assert writes == {}
