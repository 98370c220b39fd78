"""Operations that are called by name, with plain data: what fits the method is called, the rest is named."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import date

import pytest

from invsvc_async import (
    ApiKey,
    Client,
    ConfigurationError,
    InvalidRequestError,
    PersonToken,
)
from invsvc_async.resources.by_name import as_write, called, names_of

pytestmark = pytest.mark.one_python

LINE = {
    "operation": "journeys.update",
    "arguments": {"journey": "jrn_1", "name": "May"},
    "key": "row-17",
}


@pytest.fixture
def client():
    return Client("http://127.0.0.1:1/v2", ApiKey("k"))


@pytest.mark.parametrize(
    "form", [dict, json.dumps, lambda line: json.dumps(line).encode()]
)
def test_write_from_a_line(client, form):
    """A mapping, text and bytes give the write that the method makes, under the line's key."""
    write = client.write_from(form(LINE))
    write.close()

    assert (write.intent.operation, write.intent.key) == ("journeys.update", "row-17")
    assert (write.intent.path, write.intent.body) == ({"id": "jrn_1"}, {"name": "May"})


def test_write_from_a_line_with_the_least(client):
    """Arguments and key may be left out."""
    write = client.write_from({"operation": "teams.create"})
    write.close()
    assert (write.intent.body, write.intent.nonce) == ({}, None)


def test_write_from_exact_text(client):
    """Numbers of a text keep their digits."""
    line = '{"operation": "teams.create", "arguments": {"credit_limit": 0.12345678901234567890}}'
    write = client.write_from(line)
    write.close()
    assert str(write.intent.body["credit_limit"]) == "0.12345678901234567890"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "line: is not JSON in UTF-8 ("),
        (b'"\xff"', "line: is not JSON in UTF-8 ("),
        ('"\ud800"', "line: is not JSON in UTF-8 ("),
        ("[]", "line: is not an object: write {"),
        (7, "line: is not an object: write {"),
        (None, "line: is not an object: write {"),
        ({}, "line: has no operation; it must be one of journeys.update, "),
        ({"operation": []}, "line: has no operation; "),
        ({"operation": "teams.create", "arguments": None}, "line: has arguments that are not an object"),
        ({"operation": "teams.create", "key": 7}, "line: has a key that is not a string"),
        ({"operation": "teams.create", "key": ""}, "teams.create: key: must have 1 to 200 printable characters"),
        ({"operation": "teams.create", "team": "t", 7: 1}, "line: has team, 7; only operation, arguments, key are allowed"),
        ({"operation": "teams.create", "check": "x"}, "line: has check: find out what it says"),
    ],
)  # fmt: skip
def test_line_that_is_none(client, line, words):
    """It is named in words, and no write is left behind."""
    with pytest.raises(InvalidRequestError) as caught:
        client.write_from(line)
    assert str(caught.value).startswith(words)
    assert str(caught.value).endswith(". Nothing was sent. Correct it and call again.")


@pytest.mark.parametrize(
    ("operation", "arguments", "words"),
    [
        ("webhook.create", {}, "'webhook.create' is unknown; it must be one of journeys.update"),
        ("webhook.create", {}, "Did you mean webhooks.create"),
        ("webhooks.list", {}, "'webhooks.list' is a read"),
        ("webhooks.__init__", {}, "is unknown"),
        ("webhooks.create", {"events": []}, "url: missing"),
        ("webhooks.create", {"urll": 1, "events": []}, "urll: not an argument; webhooks.create takes url, events, "),
        ("webhooks.create", {"urll": 1, "events": []}, "; url: missing. Did you mean url?"),
        ("webhooks.delete", {"webhook": "wh_1", 7: 1}, "7: not an argument"),
        ("webhooks.delete", {"webhook": "wh_1", "self": 1}, "self: not an argument"),
        ("webhooks.create", {"url": "x", "events": ["invoice.created"]}, "url: "),
        ("journeys.update", {"journey": "jrn_1", "name": ""}, "name: must not be empty"),
        ("sheets.save_mapping", {"fields": {}, "reader": "x"}, "reader: not an argument"),
        ("client.write", {"method": "PUT", "path": "/a", "options": {}}, "options: not an argument"),
    ],
)  # fmt: skip
def test_arguments_that_break_the_method(client, operation, arguments, words):
    """What the method would refuse is refused, by the method's own names."""
    with pytest.raises(InvalidRequestError) as caught:
        client.write_from({"operation": operation, "arguments": arguments})
    assert words in str(caught.value)


def test_read_for_a_write_suggests_no_write(client):
    """A suggestion to delete what was to be read would be a trap."""
    with pytest.raises(InvalidRequestError) as caught:
        as_write(client, "webhooks.get", {})
    assert "Did you mean" not in str(caught.value)


def test_operation_closed_to_the_credential(client):
    """What the credential's kind may not do is refused as the method does it."""
    arguments = {"team_id": "team_1", "testmode": True}
    with pytest.raises(ConfigurationError, match="person's token"):
        as_write(client, "users.update_preferences", arguments)

    person = Client("http://127.0.0.1:1/v2", PersonToken("t"))
    as_write(person, "users.update_preferences", arguments).close()


async def test_read_by_name(client):
    """Reads are called with the same words for what is wrong; what is no data comes from the caller."""
    with pytest.raises(
        InvalidRequestError,
        match=r"invoices\.egress: stat: not an argument; .*Did you mean status",
    ):
        called(client, "invoices.egress", {"stat": "valid"})
    pages = called(
        client, "invoices.egress", {"created_after": date(2026, 5, 1)}, prefetch=True
    )
    assert pages._prefetch is True
    assert {"options", "prefetch"}.isdisjoint(names_of(client, "invoices.egress"))


@pytest.mark.untraced
def test_write_command_needs_no_batch_engine():
    """A single write from words or a file imports no journal, no database and no batch."""
    code = "import sys; from invsvc_async.cli.app import run; run(sys.argv[1:]); print(*sys.modules)"
    words = (
        "write",
        "webhooks.create",
        "url=https://a.example/",
        "events=invoice.created",
        "--secrets-to",
        os.devnull,
    )
    for arguments in (words, ("write", "--file", "-")):
        done = subprocess.run(  # noqa: S603 - our own command
            [sys.executable, "-c", code, *arguments],
            input='{"operation": "journeys.update", "arguments": {"journey": "jrn_1", "nme": "x"}}',
            check=True, capture_output=True, text=True,
            env={**os.environ, "INVSVC_BASE_URL": "http://127.0.0.1:9/v2", "INVSVC_API_KEY": "never-valid"},
        )  # fmt: skip
        loaded = set(done.stdout.splitlines()[-1].split())
        assert "invsvc_async.resources.by_name" in loaded
        heavy = ("invsvc_async.batch", "invsvc_async.durable", "invsvc_async.outbox")
        if "coverage" not in loaded:  # coverage imports sqlite3 itself
            heavy += ("sqlite3",)
        assert not {name for name in loaded if name.startswith(heavy)}
