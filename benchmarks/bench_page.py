"""Measure a page of 100 invoices, bytes to objects: sound, with unknown fields, or with bad items."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from benchmarks import bodies
from benchmarks.harness import Row, alternate, ratio_of
from invsvc_async import codec
from invsvc_async.codec import envelope as wire
from invsvc_async.codec.envelope import Shape
from invsvc_async.models import Invoice

if TYPE_CHECKING:
    from collections.abc import Callable

_FLOOR = "json.loads of the same bytes"


def decode(body: bytes) -> tuple[Invoice, ...]:
    """Do what a page of the list does with its answer."""
    envelope = wire.read_success(
        body, status=200, headers={}, shape=Shape.LIST, operation="invoices.egress"
    )
    return codec.many(Invoice, envelope)


def _decoding(body: bytes) -> Callable[[], object]:
    return lambda: decode(body)


def rows(*, rounds: int = 16) -> list[Row]:
    """Measure this file's rows."""
    sound, grown = bodies.page(following=None), bodies.page(following=None, unknown=5)
    on_grown = f"{_FLOOR}, five unknown fields"
    ways = {
        _FLOOR: lambda: json.loads(sound),
        on_grown: lambda: json.loads(grown),
        "sound": _decoding(sound),
        "one unknown": _decoding(bodies.page(following=None, unknown=1)),
        "five unknown": _decoding(grown),
        "one bad": _decoding(bodies.one_bad()),
        "all bad": _decoding(bodies.all_bad()),
    }
    found = alternate(ways, rounds=rounds, calls=4)
    return [
        Row(what=what, against=against, limit=limit, ratio=ratio_of(found, way, base))
        for what, way, against, base, limit in (
            ("a page of 100 invoices", "sound", _FLOOR, _FLOOR, 0.90),
            (
                "a page with five unknown fields each",
                "five unknown",
                _FLOOR,
                on_grown,
                0.90,
            ),
            (
                "a page with one unknown field each",
                "one unknown",
                "a page without",
                "sound",
                1.20,
            ),
            (
                "a page with five unknown fields each",
                "five unknown",
                "a page without",
                "sound",
                1.20,
            ),
            ("a page with one bad item", "one bad", "a sound page", "sound", 1.10),
            ("a page of bad items", "all bad", _FLOOR, _FLOOR, 3.5),
        )
    ]
