"""Decoding of each type of field, fast and lenient."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta, timezone
from decimal import Context, Decimal, localcontext
from typing import Any

import attrs
import pytest
from msgspec import Raw

from invsvc_async import codec
from invsvc_async.codec import decode_fast, envelope
from invsvc_async.codec.exact_json import salvage
from invsvc_async.errors import FieldError, InvalidRequestError, UnreadableResponseError
from invsvc_async.models import (
    DownloadRequest,
    Invoice,
    InvoiceStatus,
    Journey,
    Meta,
    PaymentLink,
    Position,
    Webhook,
)

MS = timedelta(milliseconds=1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def both(cls: Any, text: str) -> Any:
    """Decode *text* from bytes and from plain data, check that they agree, and return the model."""
    decoded = codec.decode(cls, text.encode())
    assert codec.structure(cls, salvage(text.encode())) == decoded
    return decoded


def field(cls: Any, name: str, wire_name: str, text: str) -> Any:
    """Decode one field from *text*, and check that it is encoded with the same digits."""
    model = both(cls, f'{{"{wire_name}": {text}}}')
    back = envelope.dumps(codec.unstructure(model)).decode()
    assert back.lower() == f'{{"{wire_name}":{text}}}'.lower()
    return getattr(model, name)


NUMBERS = {
    (
        Invoice,
        "total",
        Decimal,
    ): "0 12 -3 12.50 0.00 1234567890.123456789 1e-7 1E+2 -0.0",
    (Invoice, "folio_number", int): "0 7 -7 3.0 3.0E+2 123456789012345678901234567890",
    (
        Position,
        "x",
        float,
    ): "0 -20.25 0.1 3E+3 1.50 1.0 0.1000000000000000055511 9007199254740993",
}


@pytest.mark.parametrize(
    ("of", "text"),
    [(of, text) for of, texts in NUMBERS.items() for text in texts.split()],
)
def test_number_in_every_notation(of, text):
    """Amounts are decimals with all digits, counts ints, coordinates floats; each goes back as it came."""
    cls, name, kind = of
    value = field(cls, name, name, text)

    assert type(value) is kind
    assert value == kind(Decimal(text))
    assert kind is not Decimal or str(value) == str(Decimal(text))


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("0", EPOCH),
        ("1746057600123", datetime(2025, 5, 1, 0, 0, 0, 123000, tzinfo=UTC)),
        ("4102444799999", datetime(2099, 12, 31, 23, 59, 59, 999000, tzinfo=UTC)),
        ("4102444800001", datetime(2100, 1, 1, 0, 0, 0, 1000, tzinfo=UTC)),
        ("253402300799999", datetime(9999, 12, 31, 23, 59, 59, 999000, tzinfo=UTC)),
        ("1746057600123.0", datetime(2025, 5, 1, 0, 0, 0, 123000, tzinfo=UTC)),
        ("1746057600123.456", datetime(2025, 5, 1, 0, 0, 0, 123456, tzinfo=UTC)),
    ],
)
def test_time_is_exact_and_aware(text, time):
    """Epoch milliseconds become an aware UTC time, exact to the microsecond."""
    value = field(Webhook, "created_at", "created_at", text)

    assert value == time
    assert value.utcoffset() == timedelta(0)


def test_time_of_every_millisecond_of_a_second_is_exact():
    """No millisecond is a microsecond off, at either end of the range."""
    for start in (1746057600000, 4102444799000, 253402300799000, 1000):
        texts = [f'{{"created_at": {start + ms}}}'.encode() for ms in range(1000)]
        hooks = codec.decode_items(Webhook, texts)
        assert [(hook.created_at - EPOCH) // MS for hook in hooks] == list(
            range(start, start + 1000)
        )
        assert not any(hook.created_at.microsecond % 1000 for hook in hooks)


@pytest.mark.parametrize(
    ("cls", "name", "text"),
    [
        (Invoice, "total", '"abc"'), (Invoice, "total", '"12.5"'), (Invoice, "total", "true"), (Invoice, "total", "null"),
        (Invoice, "total", "[1]"), (Invoice, "total", "{}"), (Invoice, "folio_number", "3.5"), (Invoice, "folio_number", "true"),
        (Invoice, "folio_number", '"3"'), (Invoice, "folio_number", "1e999999999"), (Invoice, "folio_number", "null"),
        (Invoice, "folio_number", "1e-999999999"), (Invoice, "livemode", "1"), (Invoice, "livemode", '"true"'),
        (Invoice, "livemode", "null"), (Invoice, "uuid", "7"), (Invoice, "uuid", "null"), (Invoice, "status", "1"),
        (Invoice, "emails", '"a@b.example"'), (Invoice, "emails", "[1]"), (Invoice, "items", "{}"), (Invoice, "client", '"x"'),
        (Invoice, "client", "null"), (Invoice, "metadata", "[]"), (Invoice, "cancellation", "7"), (Invoice, "payments", "{}"),
        (PaymentLink, "items", "[1]"), (Position, "x", "1e400"), (Position, "x", '"1"'), (Position, "x", "1" * 400),
        (Webhook, "created_at", "-1"), (Webhook, "created_at", "253402300800000"), (Webhook, "created_at", "1e999999999"),
        (Webhook, "created_at", '"2025-05-01"'), (Webhook, "created_at", "1746057600123.4567"), (Webhook, "created_at", "true"),
        (Webhook, "created_at", "1e-999999999"), (Webhook, "created_at", "0.0001"), (Webhook, "events", '[["a"]]'),
    ],
)  # fmt: skip
def test_field_that_breaks_its_type_is_a_problem_of_that_field(cls, name, text):
    """A misfit is listed with address and raw value, raises when read, and is encoded as received."""
    model = both(cls, f'{{"{name}": {text}, "other": 1.10}}')

    (problem,) = model.problems
    assert (problem.address, problem.raw) == (
        f"$.{name}",
        envelope.loads(text.encode()),
    )
    with pytest.raises(FieldError):
        getattr(model, name)
    assert codec.unstructure(model) == envelope.loads(
        f'{{"{name}": {text}, "other": 1.10}}'.encode()
    )


def test_huge_exponent_is_a_decimal_and_no_more():
    """Absurd amounts are accepted and not expanded."""
    assert field(Invoice, "total", "total", "1E+999999999") == Decimal("1e999999999")


@pytest.mark.parametrize("status", ["valid", "canceled"])
def test_known_state_is_a_member(status):
    """A known state is an enum member, and equals its text."""
    assert field(Invoice, "status", "status", f'"{status}"') is InvoiceStatus(status)


def test_unknown_state_stays_its_text():
    """An unknown state is kept as a plain string."""
    assert type(field(Invoice, "status", "status", '"frozen"')) is str


@pytest.mark.parametrize(
    "broken",
    [
        b"9" * 1_000_000,
        b'"\xff"',
        b"1e99999999999999999999",
        b'{"rank": "\xff"}',
        b"[" + b"9" * 5000 + b"]",
        b'"\xed\xa0\x80"',
    ],
    ids=[
        "million digits",
        "bad byte",
        "endless exponent",
        "within an object",
        "within an array",
        "surrogate",
    ],
)
@pytest.mark.parametrize(
    "name", ["total", "uuid", "folio_number", "metadata", "payments", "cancellation"]
)
def test_part_that_no_parser_takes_costs_its_field(name, broken):
    """A value that cannot be decoded is a problem of its field only, found quickly, and encoded as received."""
    start = time.thread_time()
    model = codec.decode(
        Invoice, b'{"series": "A", "%s": %s}' % (name.encode(), broken)
    )

    assert model.problems[0].address.startswith(f"$.{name}")
    assert model.series == "A"
    assert (
        envelope.dumps(codec.unstructure(model))
        .replace(b" ", b"")
        .count(broken.replace(b" ", b""))
        == 1
    )
    assert time.thread_time() - start < 2


def test_unknown_part_that_no_parser_takes_is_kept_as_bytes():
    """An unknown field that cannot be decoded is kept raw and is not a problem."""
    found = codec.decode(Invoice, b'{"series": "A", "new": "\xff"}')

    assert found.problems == ()
    assert bytes(found.extra["new"]) == b'"\xff"'


def test_key_that_is_not_utf8_costs_its_item():
    """An item whose names cannot be decoded has one problem, also among unknown fields."""
    first, item, sound = codec.decode_items(
        Invoice,
        [b'{"\xff": 1}', b'{"series": "A", "new": 1, "\xff": 1}', b'{"series": "A"}'],
    )

    assert [problem.address for each in (first, item) for problem in each.problems] == [
        "$",
        "$",
    ]
    assert sound.series == "A"


def test_deep_nesting_of_free_form_ends_in_a_problem():
    """Too deep nesting is a problem of the outermost field, not a RecursionError."""
    deep = b'{"series": "A", "metadata": {"a": %s}}' % (b"[" * 100_000 + b"]" * 100_000)

    with pytest.raises(UnreadableResponseError):
        codec.decode(Invoice, deep)


def test_equal_names_give_the_last():
    """Of members with equal names the last counts, fast and lenient."""
    assert both(Webhook, '{"id": "a", "id": "b"}').id == "b"
    assert both(Webhook, '{"id": 1, "id": "b"}').id == "b"
    assert both(Webhook, '{"id": "a", "new": 1, "new": 2}').extra == {"new": 2}


@pytest.mark.parametrize("text", ["null", "[]", "7", '"x"', "", "{", "<html>"])
def test_payload_that_is_no_object_is_unreadable(text):
    """Only an object can be decoded to a model."""
    with pytest.raises(UnreadableResponseError, match="Webhook"):
        codec.decode(Webhook, text.encode())


def test_item_that_is_no_object_keeps_its_place():
    """In a list, an item that is not an object becomes a model with that problem, encoded as received."""
    hooks = codec.decode_items(Webhook, Raw(b'[{"id": "a"}, null, 7, {"id": "b"}]'))

    assert [hook.id for hook in (hooks[0], hooks[3])] == ["a", "b"]
    assert [problem.address for hook in hooks for problem in hook.problems] == [
        "$",
        "$",
    ]
    with pytest.raises(FieldError, match="null"):
        _ = hooks[1].created_at
    assert codec.unstructure(hooks) == [{"id": "a"}, None, 7, {"id": "b"}]


@pytest.mark.parametrize("text", ["{}", "null", "7"])
def test_array_that_is_none_is_unreadable(text):
    """Only an array can be decoded to a list."""
    with pytest.raises(UnreadableResponseError, match="Webhook"):
        codec.decode_items(Webhook, Raw(text.encode()))


def test_meta_is_carried():
    """The model's meta has the rest of the answer."""
    meta = Meta(message="ok")

    assert codec.structure(Webhook, {}, meta=meta).meta is meta


WHOLE = envelope.dumps({"id": "d", "request_id": "r", "status": "s", "status_code": "c", "invoice_count": 1, "invoices_saved": 1,
                    "invoices": [], "packages": [{"id": "p", "index": 0}], "message": None})  # fmt: skip
PLAIN = envelope.loads(WHOLE)


@pytest.mark.parametrize(
    "items",
    [
        [PLAIN, {**PLAIN, "new": 1}, PLAIN],
        [
            PLAIN,
            {**PLAIN, "packages": [{"id": "p", "index": 0, "new": 1}]},
            {**PLAIN, "new": 2},
            PLAIN,
        ],
        [{**PLAIN, "new": 1}, {"id": "d"}, {**PLAIN, "status": 7}, PLAIN],
        [{"id": 7}, {**PLAIN, "new": 1}, PLAIN],
        [{**PLAIN, "packages": [{}]}, PLAIN, {}],
    ],
)
def test_items_of_every_kind_in_one_list_are_each_read_whole(items):
    """After an item of any kind, the next one is decoded as if it were alone."""
    found = codec.decode_items(
        DownloadRequest, [envelope.dumps(item) for item in items]
    )

    assert codec.unstructure(found) == items
    assert [one.extra for one in found] == [
        codec.structure(DownloadRequest, item).extra for item in items
    ]
    assert list(found) == [codec.structure(DownloadRequest, item) for item in items]


def test_copy_of_an_item_with_unknown_fields():
    """A model keeps a copy of its item only if that had an unknown field, until ``extra`` is read."""
    whole, less, more = codec.decode_items(
        DownloadRequest, [WHOLE, b'{"id": "d"}', b'{"id": "d", "new": 2}']
    )

    assert (whole._rest, less._rest) == (None, None)
    assert more._rest is not None
    assert more.extra == {"new": 2}
    assert more._rest is None


def test_time_without_a_zone_has_no_form_on_the_wire():
    """A naive time is rejected; one in another zone is encoded as its milliseconds."""
    with pytest.raises(InvalidRequestError, match="datetime"):
        codec.unstructure(Webhook(created_at=datetime(2025, 5, 1)))  # noqa: DTZ001
    aware = datetime(2025, 5, 1, 2, tzinfo=timezone(timedelta(hours=2)))
    assert codec.unstructure(Webhook(created_at=aware)) == {"created_at": 1746057600000}


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), object(), b"bytes", {1, 2}]
)
def test_value_without_a_form_on_the_wire_is_refused(value):
    """Values that JSON cannot represent are rejected."""
    with pytest.raises(InvalidRequestError, match="cannot be converted"):
        codec.unstructure({"a": [value]})


def test_changed_value_goes_back_instead_of_the_old_spelling():
    """The original notation is used only with the original value."""
    invoice = both(Invoice, '{"folio_number": 3.0}')
    object.__setattr__(invoice, "folio_number", 4)

    assert codec.unstructure(invoice) == {"folio_number": 4}
    assert codec.unstructure(
        attrs.evolve(both(Journey, '{"version": 2.0}'), version=5)
    ) == {"version": 5}


def test_decimal_context_of_the_caller_changes_nothing():
    """Decoding and encoding do not depend on the thread's decimal context."""
    with localcontext(Context(prec=3, traps=[])):
        invoice = both(
            Invoice,
            '{"total": 1234.5678, "folio_number": 12345.0, "date": 1746057600123.456}',
        )
        back = codec.unstructure(invoice)
        broken = codec.decode(Invoice, b'{"total": 1e99999999999999999999}')
        built = codec.unstructure(
            Webhook(created_at=datetime(2025, 5, 1, 0, 0, 0, 123456, tzinfo=UTC))
        )

    assert str(back["total"]) == "1234.5678"
    assert str(back["date"]) == "1746057600123.456"
    assert str(built["created_at"]) == "1746057600123.456"
    assert invoice.folio_number == 12345
    assert [problem.address for problem in broken.problems] == ["$.total"]


def test_floats_of_a_caller_are_taken_as_their_shortest_text():
    """Plain data may contain floats; they stand for the number that they print as."""
    assert codec.structure(Invoice, {"total": 0.1}).total == Decimal("0.1")
    assert (
        codec.structure(Invoice, {"total": float("nan")}).problems[0].address
        == "$.total"
    )
    assert codec.structure(Position, {"x": float("nan")}).problems[0].address == "$.x"


def test_sound_items_need_no_careful_way(monkeypatch):
    """A page of valid items, even with unknown fields, does not import the lenient decoder."""
    monkeypatch.setitem(
        __import__("sys").modules, "invsvc_async.codec.decode_lenient", None
    )

    assert codec.decode_items(Webhook, [b'{"id": "a"}', b'{"id": "b", "new": 1}'])[
        1
    ].extra == {"new": 1}
    with pytest.raises(ImportError):
        decode_fast.decode_all(Webhook, [b'{"id": 7}'])


def test_element_with_a_bad_byte_costs_that_element():
    """An element that the parser rejects does not affect the others."""
    invoice = codec.decode(
        Invoice, b'{"items": [{"id": "a"}, {"id": "\xff", "description": "b"}]}'
    )

    assert [problem.address for problem in invoice.problems] == ["$.items[1].id"]
    assert (invoice.items[0].id, invoice.items[1].description) == ("a", "b")
