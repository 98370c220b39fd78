"""The embedded service and a database, named by the environment as the examples expect it."""

from __future__ import annotations

import secrets

import pytest

from invsvc_async.testing import serving
from tests.examples.serving import KEY, fresh_database


@pytest.fixture
def service(tmp_path, monkeypatch):
    """Run the service on a thread, so that examples may run as processes too, in an empty directory."""
    monkeypatch.chdir(tmp_path)
    with serving(seed=7) as running:
        monkeypatch.setenv("INVSVC_BASE_URL", running.base_url)
        monkeypatch.setenv("INVSVC_API_KEY", running.api_key)
        monkeypatch.setenv("EVENTS_KEY", KEY)
        yield running


@pytest.fixture
async def address(monkeypatch):
    """Give the address of a database with the tables of the examples."""
    async with fresh_database(f"examples{secrets.token_hex(4)}") as made:
        monkeypatch.setenv("DATABASE_URL", made)
        yield made
