"""Results that nobody takes from an iterator over rows: what is said later of the secrets in them."""

from __future__ import annotations

import time

import pytest

from invsvc_async import ApiKey, Client
from invsvc_async.engines.portals import close_portals
from invsvc_async.engines.rows import send_part, send_rows
from invsvc_async.engines.sender import Settings
from invsvc_async.testing import serving
from tests.support.database import database

ROWS = [
    {"order": f"row-{number}", "url": f"https://me.example/{number}"}
    for number in range(6)
]


@pytest.fixture
def service():
    with serving() as running:
        yield running


def creates(client, row):
    return client.webhooks.create(url=row["url"], events=["invoice.created"])


def taken_from(results, many, service):
    """Take so many results, once all rows have ended, and leave the rest. Return those taken, by key."""
    taken = {}
    for result in results:
        taken[result.key] = result
        while len(service.ledger.effects("webhooks.create")) < len(ROWS):
            time.sleep(0.01)  # sleeps: rows end meanwhile
        time.sleep(0.3)  # sleeps: until the answers have arrived
        if len(taken) == many:
            break
    results.close()
    return taken


def check(taken, again, service):
    assert len(service.ledger.effects("webhooks.create")) == len(ROWS)
    assert len(again) == len(ROWS)
    for key, result in again.items():
        assert result.replayed
        if key in taken:
            assert taken[key].secret is not None
            assert "given to the run that created it" in result.message
        else:
            assert "nobody has it" in result.message


def test_secrets_in_results_that_nobody_took(service, tmp_path):
    """They are lost, and are called so; those that were taken are not."""

    def make():
        return Client(
            service.base_url, ApiKey(service.api_key), journal=tmp_path / "calls.db"
        )

    taken = taken_from(send_rows(ROWS, creates, key="order", client=make), 2, service)
    again = {
        result.key: result
        for result in send_rows(ROWS, creates, key="order", client=make)
    }
    check(taken, again, service)


def test_secrets_in_results_that_a_worker_which_lives_on_did_not_take(service):
    """The same, although the process that has dropped them still has its client."""
    address = database().at(namespace="untaken", silence=4)

    def make():
        return Client(service.base_url, ApiKey(service.api_key), journal=address)

    settings = Settings(write_of=creates, key="order", several=True)
    taken = taken_from(send_part(ROWS, settings, make), 2, service)
    again = {result.key: result for result in send_part(ROWS, settings, make)}
    close_portals()
    check(taken, again, service)
