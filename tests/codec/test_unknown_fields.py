"""Unknown fields are decoded with the known ones once an item had them; nothing of them is lost either way."""

from __future__ import annotations

import threading
from decimal import Decimal

import msgspec
import pytest

from invsvc_async import codec
from invsvc_async.codec import decode_fast, envelope
from invsvc_async.models import DownloadRequest, Integration, JourneyGraph, Team

PLAIN = {"id": "d", "request_id": "r", "status": "s", "status_code": "c", "invoice_count": 1, "invoices_saved": 1,
         "invoices": [], "packages": [{"id": "p", "index": 0}], "message": None}  # fmt: skip


@pytest.fixture(autouse=True)
def nothing_learned(monkeypatch):
    """Each test begins with a decoder that has seen no item, and leaves the shared one as it was."""
    monkeypatch.setattr(decode_fast, "_expected", decode_fast.once(decode_fast._Expected))


def decoded(*items, cls=DownloadRequest):
    """Decode *items*, and compare each with what the lenient decoder makes of it."""
    found = codec.decode_items(cls, [envelope.dumps(item) for item in items])
    assert list(found) == [codec.structure(cls, item) for item in items]
    assert codec.unstructure(found) == list(items)
    return found


def is_fast(item):
    """Return whether the fast decoder accepts *item*."""
    try:
        decode_fast.sound(DownloadRequest)(envelope.dumps(item))
    except msgspec.ValidationError:
        return False
    return True


VALUES = ["text", "", 123456789012345678, Decimal("12345678.9012345678"), Decimal("1E+2"), True, None, [], {}, [{"a": [1]}],
          {"deep": {"number": 900719925474099312}}]  # fmt: skip


def test_values_of_every_kind():
    """They come as they were sent, from the first item and from those after it."""
    items = [{**PLAIN, f"new_{at}": value} for at, value in enumerate(VALUES)]
    for found in (decoded(*items), decoded(*items), decoded(*reversed(items))):
        assert {type(value) for one in found for value in one.extra.values()} == {type(one) for one in VALUES}
    assert all(map(is_fast, items))


def test_objects_within_the_item():
    """Unknown fields of an inner object are its own."""
    item = {**PLAIN, "packages": [{"id": "p", "index": 0}, {"id": "q", "index": 1, "size": 7}], "new": 1}
    for _ in range(2):
        (found,) = decoded(item)
        assert ([dict(one.extra) for one in found.packages], dict(found.extra)) == (
            [{}, {"size": 7}],
            {"new": 1},
        )
    assert is_fast(item)


def test_objects_by_name():
    """Unknown fields are also learned of objects that are the members of another one."""
    item = {"integrations": {"mail": {"completed": True, "category": None, "since": 7}}}
    for _ in range(2):
        (found,) = decoded(item, cls=Team)
        assert found.integrations["mail"].extra == {"since": 7}
    assert Integration in dict(decode_fast._expected(Team).grown)


def test_bad_field_of_an_inner_object():
    """Its item is decoded field by field, and the problem is that of the inner object."""
    (found,) = decoded({"nodes": [{"position": {"x": "left", "y": 1}}], "edges": []}, cls=JourneyGraph)
    assert [problem.address for problem in found.problems] == ["$.nodes[0].position.x"]


@pytest.mark.parametrize(
    "text",
    [b'"\xff"', b"1" * 5000, b"1e99999999999999999999"],
)
def test_value_that_no_parser_takes(text):
    """It is kept as bytes, also if the decoder knows the name; the item's fields are unaffected."""
    decoded({**PLAIN, "new": 1})
    raw = envelope.dumps(PLAIN)[:-1] + b',"new":' + text + b"}"
    (found,) = codec.decode_items(DownloadRequest, [raw])
    assert bytes(found.extra["new"]) == text
    assert (found.id, found.problems) == ("d", ())


@pytest.mark.parametrize(
    "name", ['"', "\\", "\n", "", "self", "unknown_0", "x" * 65, "é", "'); raise SystemExit #", "id "]
)
def test_names_of_every_kind(name):
    """A name is data: it may be a keyword, code, or one that cannot be learned."""
    item = {**PLAIN, name: 1, "other": 2}
    for _ in range(2):
        assert dict(decoded(item)[0].extra) == {name: 1, "other": 2}


def test_names_without_end():
    """A service with a new name in each item makes no new classes after a while; nothing is lost."""
    items = [{**PLAIN, f"customer_{at}": at} for at in range(40)]
    for item in items:
        assert decoded(item)[0].extra == {item_name(item): item[item_name(item)]}
    assert is_fast(items[0])
    assert not is_fast(items[-1])


def item_name(item):
    """Return the name that only this item has."""
    return next(name for name in item if name.startswith("customer_"))


def test_too_many_names_at_once():
    """They are not learned, but kept."""
    item = {**PLAIN, **{f"n{at}": at for at in range(100)}}
    for _ in range(2):
        assert len(decoded(item)[0].extra) == 100
    assert not is_fast(item)


def test_names_learned_by_several_threads():
    """Threads that learn different names at once lose none of the values."""
    failed = []

    def learn(at):
        try:
            for _ in range(5):
                decoded({**PLAIN, f"by_{at}": at})
        except AssertionError as error:
            failed.append(error)

    threads = [threading.Thread(target=learn, args=(at,)) for at in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


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
    decoded({**PLAIN, "new": 1})
    found, after = decoded({**PLAIN, **bad, "new": Decimal("1.10")}, {**PLAIN, "new": 2})
    assert [problem.address for problem in found.problems] == [address]
    assert str(found.extra["new"]) == "1.10"
    assert after.problems == ()


@pytest.mark.parametrize("more", [{"status": 7}, {"new": 1}, {"invoices_saved": Decimal("1.5")}])
def test_several_things_wrong_with_an_item(more):
    """An item with two bad fields, or a bad and an unknown one, is decoded field by field."""
    bad = {**PLAIN, "invoice_count": "n/a", **more}
    found, _ = decoded(bad, PLAIN)
    assert found.problems[0].address in {"$.invoice_count", "$.status"}
