"""A store in a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from invsvc_async import events

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[events.SqliteStore]:
    """Yield a store in ``events.db``, not open yet, which is closed in the end."""
    store = events.SqliteStore(tmp_path / "events.db")
    yield store
    await store.close()
