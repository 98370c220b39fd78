"""Measure a page of 100 invoices, bytes to objects: sound, with one bad item, all bad, and by the peers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from benchmarks import bodies, peers
from benchmarks.harness import Row, alternate, ratio_of
from invsvc_async import codec
from invsvc_async.codec import envelope as wire
from invsvc_async.codec.shape import Shape
from invsvc_async.models import Invoice

if TYPE_CHECKING:
    from collections.abc import Callable

_FLOOR = "json.loads of the same bytes"


def decode(body: bytes) -> tuple[Invoice, ...]:
    """Do what a page of the list does with its answer."""
    envelope = wire.read_success(body, status=200, headers={}, shape=Shape.LIST, operation="invoices.egress")
    return codec.many(Invoice, envelope)


def _decoding(body: bytes) -> Callable[[], object]:
    return lambda: decode(body)


def rows(*, rounds: int = 40) -> list[Row]:
    """Measure this file's rows."""
    sound = bodies.page(following=None)
    ways = {
        _FLOOR: lambda: json.loads(sound),
        "sound": _decoding(sound),
        "one bad": _decoding(bodies.one_bad()),
        "all bad": _decoding(bodies.all_bad()),
    }
    found = alternate(ways, rounds=rounds, calls=4)
    return [
        Row(
            what="a page of 100 invoices", against=_FLOOR, limit=0.90, ratio=ratio_of(found, "sound", _FLOOR)
        ),
        Row(
            what="a page with one bad item",
            against="a sound page",
            limit=1.05,
            ratio=ratio_of(found, "one bad", "sound"),
        ),
        Row(what="a page of bad items", against=_FLOOR, limit=3.5, ratio=ratio_of(found, "all bad", _FLOOR)),
        *_against_peers(sound, rounds=max(3, rounds // 4)),
    ]


def _against_peers(sound: bytes, *, rounds: int) -> list[Row]:
    rows: list[Row] = []
    for name, limit, make in (
        ("pydantic's model_validate_json", 0.75, peers.pydantic_page),
        ("openai's objects", 0.4, peers.openai_page),
        ("stripe's objects", 0.05, peers.stripe_page),
    ):
        theirs = make(sound)
        if theirs is None:
            rows.append(Row(what="a page of 100 invoices", against=name, limit=limit, note=peers.MISSING))
            continue
        found = alternate({"ours": _decoding(sound), name: theirs}, rounds=rounds, calls=2)
        ratio = ratio_of(found, "ours", name)
        rows.append(Row(what="a page of 100 invoices", against=name, limit=limit, ratio=ratio))
    return rows
