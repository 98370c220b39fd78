"""Writes as data: each line becomes a write, or is named with its number and what is wrong."""

from __future__ import annotations

import inspect
import io

import pytest

from invsvc_async import ApiKey, Client
from invsvc_async.api.operations import BY_NAME, OperationKind
from invsvc_async.batch.file_check import BadLine, Line, check_line, read_lines

pytestmark = pytest.mark.one_python

CREATE = b'{"operation": "webhooks.create", "arguments": {"url": "https://a.example"}, "key": "row-1"}'


@pytest.fixture
def client():
    return Client("http://127.0.0.1:1/v2", ApiKey("k"))


def read(text, **options):
    return list(read_lines(io.BytesIO(text), **options))


def test_line_that_is_a_write():
    """A line gives its operation, arguments and key, and its number counts empty lines too."""
    assert read(b"\n" + CREATE + b"\r\n") == [
        Line(2, "webhooks.create", {"url": "https://a.example"}, "row-1")
    ]


def test_line_that_is_none():
    """A bad line is named with its number and reason, and the lines after it are read."""
    bad, good = read(b"{}\n" + CREATE)

    assert isinstance(bad, BadLine)
    assert str(bad).startswith("line 1: has no operation")
    assert isinstance(good, Line)


class Counted(io.BytesIO):
    most = 0

    def readline(self, size=-1, /):
        text = super().readline(size)
        self.most = max(self.most, len(text))
        return text


def test_line_beyond_the_bound():
    """A line of 10 MB is named with its length, never held whole, and the next line is read."""
    file = Counted(b"x" * 10_000_000 + b"\n" + CREATE)

    bad, good = read_lines(file)

    assert str(bad) == "line 1: is 10,000,001 bytes long; the limit is 1,048,576"
    assert (good.number, good.key) == (2, "row-1")
    assert file.most <= 2**20 + 1


def test_line_at_the_bound():
    """A line as long as the bound is read, with or without the end of line."""
    assert isinstance(read(CREATE + b"\n", max_bytes=len(CREATE))[0], Line)
    assert isinstance(read(CREATE, max_bytes=len(CREATE))[0], Line)
    assert isinstance(read(CREATE, max_bytes=len(CREATE) - 1)[0], BadLine)


def test_line_whose_arguments_break_the_method(client):
    """It is named with its number, its operation, and all that is wrong."""
    bad = check_line(client, Line(5, "webhooks.create", {"urll": 1, "events": []}))

    assert str(bad).startswith(
        "line 5: webhooks.create: urll: not an argument; webhooks.create takes url, "
    )
    assert str(bad).endswith("; url: missing")


def test_line_that_is_good(client):
    """Nothing is wrong with a good line, and checking it leaves no write behind."""
    assert (
        check_line(client, Line(1, "webhooks.delete", {"webhook": "wh_1"}, "k")) is None
    )


ODD = (
    None, True, -1, 10**30, 10**5000, "", "x", "https://[::1", "//[", [], ["a"], ["keep"], [None], [{}], [[]], {}, {"a": 1},
    {"nodes": {}, "edges": None},
)  # fmt: skip
SOUND = {
    "client.write": {"method": "POST", "path": "/payments"},
    "journeys.update": {"journey": "jrn_1", "name": "May"},
    "sheets.save_mapping": {"fields": {}},
    "teams.create": {"legal_name": "North"},
    "users.update_preferences": {"team_id": "team_1", "testmode": True},
    "webhooks.create": {"url": "https://a.example", "events": ["invoice.created"]},
    "webhooks.delete": {"webhook": "wh_1"},
    "webhooks.update": {"webhook": "wh_1", "status": "active"},
}


@pytest.mark.filterwarnings("ignore:events. is empty:UserWarning")
@pytest.mark.parametrize(
    "operation",
    [row.name for row in BY_NAME.values() if row.kind is OperationKind.WRITE],
)
def test_values_of_odd_forms(client, operation):
    """Whatever stands in an argument beside sound ones, the line is good or named: nothing else is raised."""
    room, _, name = operation.partition(".")
    method = getattr(client if room == "client" else getattr(client, room), name)
    for argument in inspect.signature(method).parameters:
        for value in ODD:
            found = check_line(
                client,
                Line(1, operation, {**SOUND[operation], argument: value}),
            )
            assert found is None or str(found).startswith("line 1: ")


@pytest.mark.parametrize(
    ("operation", "arguments", "words"),
    [
        (
            "webhooks.create",
            {"on_lost_secret": ["keep"]},
            "on_lost_secret: must be 'raise' or 'keep'",
        ),
        (
            "client.write",
            {"path": "https://[::1"},
            "path: must stay below the base URL",
        ),
        # that kind of credential may not do it
        ("users.update_preferences", {}, "person's token"),
    ],
)
def test_bad_value(client, operation, arguments, words):
    """It is named with its argument, also one that Python cannot take apart."""
    assert words in str(
        check_line(client, Line(3, operation, SOUND[operation] | arguments))
    )
