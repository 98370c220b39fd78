"""Unknown fields are kept as they came, in each object, whatever else is odd about the item."""

from __future__ import annotations

from decimal import Decimal

import pytest

from invsvc_async import codec
from invsvc_async.codec import envelope
from invsvc_async.models import DownloadRequest, JourneyGraph, Team

PLAIN = {"id": "d", "request_id": "r", "status": "s", "status_code": "c", "invoice_count": 1, "invoices_saved": 1,
         "invoices": [], "packages": [{"id": "p", "index": 0}], "message": None}  # fmt: skip


def decoded(*items, cls=DownloadRequest):
    """Decode *items*, and compare each with what the lenient decoder makes of it."""
    found = codec.decode_items(cls, [envelope.dumps(item) for item in items])
    assert list(found) == [codec.structure(cls, item) for item in items]
    assert codec.unstructure(found) == list(items)
    return found


VALUES = ["text", "", 123456789012345678, Decimal("12345678.9012345678"), Decimal("1E+2"), True, None, [], {}, [{"a": [1]}],
          {"deep": {"number": 900719925474099312}}]  # fmt: skip


def test_values_of_every_kind():
    """They come as they were sent, from the first item and from those after it."""
    items = [{**PLAIN, f"new_{at}": value} for at, value in enumerate(VALUES)]
    for found in (decoded(*items), decoded(*reversed(items))):
        assert {type(value) for one in found for value in one.extra.values()} == {
            type(one) for one in VALUES
        }


def test_objects_within_the_item():
    """Unknown fields of an inner object are its own."""
    item = {
        **PLAIN,
        "packages": [{"id": "p", "index": 0}, {"id": "q", "index": 1, "size": 7}],
        "new": 1,
    }
    (found,) = decoded(item)
    assert [dict(one.extra) for one in found.packages] == [{}, {"size": 7}]
    assert found.extra == {"new": 1}


def test_object_that_outlives_its_item():
    """Its unknown fields can still be read when the item is gone."""
    item = {
        **PLAIN,
        "packages": [{"id": "p", "index": 0}, {"id": "q", "index": 1, "size": 7}],
    }
    (_, package) = codec.decode_items(DownloadRequest, [envelope.dumps(item)])[
        0
    ].packages
    assert package.extra == {"size": 7}


def test_objects_by_name():
    """Unknown fields of objects that are the members of another one."""
    item = {"integrations": {"mail": {"completed": True, "category": None, "since": 7}}}
    (found,) = decoded(item, cls=Team)
    assert found.integrations["mail"].extra == {"since": 7}


def test_bad_field_of_an_inner_object():
    """Its item is decoded field by field, and the problem is that of the inner object."""
    (found,) = decoded(
        {"nodes": [{"position": {"x": "left", "y": 1}}], "edges": []}, cls=JourneyGraph
    )
    assert [problem.address for problem in found.problems] == ["$.nodes[0].position.x"]


@pytest.mark.parametrize(
    "text",
    [b'"\xff"', b"1" * 5000, b"1e99999999999999999999"],
)
def test_value_that_no_parser_takes(text):
    """It is kept as bytes; the item's fields are unaffected."""
    raw = envelope.dumps(PLAIN)[:-1] + b',"new":' + text + b"}"
    (found,) = codec.decode_items(DownloadRequest, [raw])
    assert bytes(found.extra["new"]) == text
    assert (found.id, found.problems) == ("d", ())


@pytest.mark.parametrize(
    "name",
    [
        '"',
        "\\",
        "\n",
        "",
        "self",
        "place",
        "x" * 65,
        "é",
        "'); raise SystemExit #",
        "id ",
    ],
)
def test_names_of_every_kind(name):
    """A name is data: it may be a keyword, code, or what JSON escapes."""
    assert dict(decoded({**PLAIN, name: 1, "other": 2})[0].extra) == {
        name: 1,
        "other": 2,
    }


@pytest.mark.parametrize(
    ("bad", "address"),
    [
        ({"status": 7}, "$.status"),
        ({"invoice_count": "n/a"}, "$.invoice_count"),
        ({"invoices": {}}, "$.invoices"),
        ({"packages": [{"id": "p", "index": "x"}]}, "$.packages[0].index"),
        ({"message": 5}, "$.message"),
        ({"status": None}, "$.status"),
    ],
)
def test_bad_field_beside_unknown_ones(bad, address):
    """It is a problem of its own field; all others, the unknown ones too, are as if it were valid."""
    _, found, after = decoded(
        {**PLAIN, "new": 1},
        {**PLAIN, **bad, "new": Decimal("1.10")},
        {**PLAIN, "new": 2},
    )
    assert [problem.address for problem in found.problems] == [address]
    assert str(found.extra["new"]) == "1.10"
    assert after.problems == ()


@pytest.mark.parametrize(
    "more", [{"status": 7}, {"new": 1}, {"invoices_saved": Decimal("1.5")}]
)
def test_several_things_wrong_with_an_item(more):
    """An item with two bad fields, or a bad and an unknown one, is decoded field by field."""
    bad = {**PLAIN, "invoice_count": "n/a", **more}
    found, _ = decoded(bad, PLAIN)
    assert found.problems[0].address in {"$.invoice_count", "$.status"}
