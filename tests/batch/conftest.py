"""A service on a real socket, and clients whose windows are short."""

from __future__ import annotations

import pytest

from invsvc_async import ApiKey, Client, ReconcilePolicy, Timeouts
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


@pytest.fixture
async def service():
    """Yield a simulator without faults."""
    async with Simulator() as running:
        yield running


@pytest.fixture
async def client(service):
    """Yield a client of it."""
    async with client_of(service) as made:
        yield made
