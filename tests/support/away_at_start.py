"""Fixtures of a database that is away while a program starts."""

from __future__ import annotations

import pytest

from invsvc_async.storage import postgres_pool
from tests.support.database_proxy import database_proxy

__all__ = ["away", "sooner"]


@pytest.fixture
def sooner(monkeypatch):
    """Give up a start sooner than programs do."""
    monkeypatch.setattr(postgres_pool, "AT_ONCE", 0.2)
    monkeypatch.setattr(postgres_pool, "_TO_OPEN", 0.2)


@pytest.fixture
async def away():
    """Yield a proxy to which nobody can connect yet."""
    async with database_proxy() as made:
        made.cut()
        yield made
