"""Conversion of models to plain wire data, without loss of a field or a digit."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, cast

from msgspec import Raw

from invsvc_async.codec.exact_json import EPOCH, Wire, dumps
from invsvc_async.errors import InvalidRequestError
from invsvc_async.models.common import (
    UNSET,
    Flaws,
    Model,
    flaws_of,
    stored_value,
    wire_names,
)
from invsvc_async.models.portable import Portable

__all__ = ["enc_hook", "object_of", "unstructure"]

_NO_FLAWS = Flaws()
_AS_THEY_ARE: frozenset[type[object]] = frozenset({str, int, bool, Decimal, type(None)})


def enc_hook(value: object) -> Raw:
    """
    Return *value* as JSON with all digits, for ``msgspec.json.encode(…, enc_hook=enc_hook)``.

    Use it for JSON only: another format, such as MessagePack, would contain the text as it is.

    Raises:
        NotImplementedError: It is not a model, page, outcome or event.
    """
    if not isinstance(value, Portable):
        raise NotImplementedError(f"{type(value).__name__}: enc_hook cannot encode it")
    return Raw(dumps(value._to_public(unstructure)))


def unstructure(model: object) -> Wire:
    """
    Return the wire form of *model*, or of plain data that contains models, outcomes, pages or events.

    Absent fields stay absent, and null stays null.  Unknown and invalid fields are returned as received.
    Times become epoch milliseconds (``int``, or ``Decimal`` if not whole), floats exact numbers.

    Raises:
        InvalidRequestError: A value cannot be converted, such as a time without a zone.
    """
    # most values; the abstract classes below are slow to check
    if type(model) in _AS_THEY_ARE:
        return model
    if isinstance(model, Model):
        return object_of(model)
    if isinstance(model, Portable):
        return model._to_plain(unstructure)
    if isinstance(model, Mapping):
        return {
            name: unstructure(item)
            for name, item in cast("Mapping[str, object]", model).items()
        }
    if isinstance(model, Sequence) and not isinstance(model, (str, bytes, bytearray)):
        return [unstructure(item) for item in cast("Sequence[object]", model)]
    return _scalar(model)


def _scalar(value: object) -> Wire:
    """
    Return the wire form of a *value* that contains no others.

    Raises:
        InvalidRequestError: The value cannot be converted, such as a time without a zone.
    """
    match value:
        case Enum():
            return value.value
        case None | bool() | str() | int() | Decimal() | Raw():
            return value
        case float() if math.isfinite(value):
            is_exact = value.is_integer() and abs(value) < 2**53
            if is_exact:
                return int(value)
            return Decimal(repr(value))
        case datetime() if value.tzinfo:
            microseconds = (value - EPOCH) // timedelta(microseconds=1)
            if microseconds % 1000:
                return Decimal(f"{microseconds}E-3")
            return microseconds // 1000
        case _:
            raise InvalidRequestError(
                f"{type(value).__name__} {value!r:.60}: cannot be converted to JSON"
            )


def object_of(model: Model) -> Wire:
    """Return the wire form of *model*; if it is not an object, what was received."""
    flaws = flaws_of(model) or _NO_FLAWS
    if "" in flaws.problems:
        return flaws.problems[""].raw
    found: dict[str, Any] = {}
    for name, wire in wire_names(type(model)).items():
        value = stored_value(model, name)
        if value is not UNSET:
            made, raw = flaws.spelt.get(name, (UNSET, None))
            found[wire] = raw if made == value else unstructure(value)
        elif name in flaws.problems:
            found[wire] = flaws.problems[name].raw
    return {**found, **model.extra}
