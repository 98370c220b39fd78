"""A service with twelve invoices, a client of it, and rows that agree with it."""

from __future__ import annotations

import pytest

from invsvc_async.drift import Comparison


@pytest.fixture
def invoices(service):
    """Return the egress invoices of the service, oldest last."""
    return [
        each
        for each in service.book().invoices.items.values()
        if each.invoice_type == "E"
    ]


@pytest.fixture
def put(service):
    """Change an invoice of the service, or put a copy of it there under another uuid."""
    book = service.book().invoices

    def change(uuid, /, **changes):
        book.put(changes.get("uuid", uuid), book.items[uuid].with_changes(changes))

    return change


@pytest.fixture
def rows(invoices):
    """Return rows that agree with the service."""
    names = ("uuid", "total", "status", "created_at")
    return [{name: each[name] for name in names} for each in invoices]


@pytest.fixture
def compare(client):
    """Run a comparison with the list of invoices, and return it with what it found."""

    async def run(rows, what="invoices.egress", **settings):
        comparison = Comparison(client, what, rows, **settings)
        return comparison, [each async for each in comparison]

    return run
