"""What the answer to an update shows, whose payload the specification leaves open."""

from __future__ import annotations

import json

import pytest

from invsvc_async.api.operations import WEBHOOKS_UPDATE
from invsvc_async.codec.envelope import Shape, read_success
from invsvc_async.errors import UnreadableResponseError
from invsvc_async.transport.client_core import Request
from invsvc_async.writes.values import value_of_answer

WHOLE = {
    "id": "wh_1",
    "url": "https://me.example/1",
    "events": ["invoice.created"],
    "status": "active",
    "created_at": 1_780_000_000_000,
    "updated_at": 1_780_000_000_000,
}


def value(payload):
    """Return the value of an update of the webhook ``wh_1``, whose answer has this *payload*."""
    body = json.dumps({"success": True, "data": payload}).encode()
    envelope = read_success(
        body, status=200, headers={}, shape=Shape.OPEN, operation="webhooks.update"
    )
    return value_of_answer(
        envelope, Request(operation=WEBHOOKS_UPDATE, path={"id": "wh_1"})
    )


@pytest.mark.parametrize(
    "payload",
    [
        WHOLE,
        WHOLE | {"id": "WH_1"},
        WHOLE | {"new": 1},
        WHOLE | {"events": 5},
        WHOLE | {"url": 5},
        {"id": "wh_1", "url": "https://me.example/1"},
    ],
    ids=["whole", "case", "a new field", "a broken field", "a broken url", "short"],
)
def test_webhook_in_the_answer(payload):
    """It is the value, also if fields are missing, broken or unknown."""
    assert value(payload).id == payload["id"]


@pytest.mark.parametrize(
    "payload",
    [
        None,
        "done",
        [WHOLE],
        {"updated": 1},
        {"id": "wh_1"},
        {"url": "https://me.example/1"},
        WHOLE | {"id": 1},
    ],
    ids=["null", "text", "a list", "counts", "no url", "no id", "a number as id"],
)
def test_answer_that_shows_no_webhook(payload):
    """There is no value: it is read afterwards."""
    assert value(payload) is None


@pytest.mark.parametrize("url", ["https://me.example/2", 5])
def test_another_webhook_in_the_answer(url):
    """The answer belongs to another request."""
    with pytest.raises(UnreadableResponseError, match="wh_2"):
        value(WHOLE | {"id": "wh_2", "url": url})
