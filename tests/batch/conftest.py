"""A service on a real socket, and clients whose windows are short."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

import pytest

from invsvc_async import ApiKey, Client, ReconcilePolicy, Timeouts
from tests.support.database import database

if TYPE_CHECKING:
    from invsvc_async.simulator import Simulator

POLICY = ReconcilePolicy(settle_after_error=0.1, settle_after_loss=0.2, deadline=30.0)
HOOK = {"url": "https://me.example/in", "events": ["invoice.created"]}


def client_of(service: Simulator, **settings) -> Client:
    """Make a client of *service*."""
    settings = {
        "credential": ApiKey(service.api_key),
        "reconcile": POLICY,
        "timeout": Timeouts(attempt=20.0),
        **settings,
    }
    return Client(service.base_url, **settings)


def silence_of(request):
    """Return after how many seconds the workers of a test count as dead: a minute, unless it is marked."""
    marked = request.node.get_closest_marker("silence")
    return marked.args[0] if marked else 60


@pytest.fixture
async def client(service):
    async with client_of(service) as made:
        yield made


@pytest.fixture
def path(tmp_path):
    """Return the path of a new journal."""
    return tmp_path / "run.db"


@pytest.fixture
def shared(request):
    """
    Return the address of a new journal in the database.

    No worker counts as dead on a busy machine, unless the test is marked with ``silence``.
    """
    name = f"t{blake2b(request.node.nodeid.encode(), digest_size=8).hexdigest()}"
    return database().journal(name, silence=silence_of(request))


@pytest.fixture(params=["file", pytest.param("database", marks=pytest.mark.slow)])
def journal(request, path):
    """Return the path or the address of a new journal."""
    return path if request.param == "file" else request.getfixturevalue("shared")


@pytest.fixture
def credential_in_environment(service, monkeypatch):
    """Let commands find the service and its key."""
    monkeypatch.setenv("INVSVC_BASE_URL", service.base_url)
    monkeypatch.setenv("INVSVC_API_KEY", service.api_key)
