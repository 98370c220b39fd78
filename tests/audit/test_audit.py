"""A search for duplicates, on a service that has some."""

from __future__ import annotations

import gc
import sqlite3
from math import inf

import pytest

from invsvc_async import InvalidRequestError
from invsvc_async.audit import Audit
from tests.audit.scenes import SCENES, TAG, seed


@pytest.mark.parametrize("name", SCENES)
async def test_scene(name, service):
    await SCENES[name](service)


async def test_arguments(client, service):
    """What cannot work is refused in words, and nothing is sent."""
    with pytest.raises(
        InvalidRequestError,
        match=r"lists: 'users' is unknown\. Use one of invoices\.egress",
    ):
        Audit(client, lists=["users"])
    for within in (-1, inf, True, "10"):
        with pytest.raises(
            InvalidRequestError, match="within: must be a number of seconds"
        ):
            Audit(client, within=within)
    audit = Audit(client, created_after="noon")
    with audit, pytest.raises(InvalidRequestError, match="created_after"):
        await audit.read()

    assert service.ledger.arrivals() == 0


async def test_reading_again(client, service):
    """It begins anew: a webhook that is listed twice over is one, and what was stored before is deleted."""
    seed(service, idempotency_key="order-1")
    service.seed_webhook(description="unlike any other")

    with Audit(client) as audit:
        await audit.read()
        first = audit.items_read, list(audit.duplicates())
        await audit.read()
        assert (audit.items_read, list(audit.duplicates())) == first
    gc.collect()  # where a table that was not closed warns


async def test_plain_data(client, service):
    """A duplicate as plain data has what tells its items apart, and no secret."""
    uuid = seed(service, idempotency_key="order-1")
    seed(service, 500, idempotency_key="order-1")
    hooks = [
        service.seed_webhook(
            description=f"Mine {TAG}", secret="whsec_never_shown", **more
        )
        for more in ({}, {"secret_shown": "x"})
    ]
    for each in hooks:
        service.book().webhooks.change(each.id, {"secret": "whsec_never_shown"})

    with Audit(client) as audit:
        await audit.read()
        invoices, webhooks = (each.to_dict() for each in audit.duplicates())

    assert list(invoices["items"][0]) == [
        "uuid", "created_at", "status", "series", "folio_number", "total", "currency", "idempotency_key", "client",
    ]  # fmt: skip
    assert invoices["items"][0]["uuid"] == uuid
    assert (invoices["certainty"], invoices["open"], invoices["count"]) == (
        "certain",
        True,
        2,
    )
    assert [item["id"] for item in webhooks["items"]] == [each.id for each in hooks]
    assert "whsec" not in str(webhooks)


async def test_closed(client, service):
    """After its end nothing is stored any more."""
    seed(service, idempotency_key="order-1")
    seed(service, 500, idempotency_key="order-1")
    with Audit(client) as audit:
        await audit.read()

    assert list(audit.duplicates()) == []


async def test_temporary_file_cannot_be_written(client, service, monkeypatch):
    """It is told in words, as that of other commands."""
    seed(service)

    def full(*_):
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(
        "invsvc_async.audit.table.FingerprintTable.add", full
    )  # reaches: no disk is full at will
    with (
        Audit(client) as audit,
        pytest.raises(Exception, match=r"temporary file of the audit.*full"),
    ):
        await audit.read()
