"""
Reading and writing of JSON with exact numbers and times.

Integers are ``int``, all other numbers ``Decimal`` with the digits of the wire.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from decimal import (
    MAX_EMAX,
    MAX_PREC,
    MIN_EMIN,
    Context,
    Decimal,
    Inexact,
    InvalidOperation,
    Overflow,
)
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeGuard, cast

import msgspec
from msgspec import Raw

from invsvc_async.codec.nesting import DEEPEST, check_depth
from invsvc_async.errors import InvalidRequestError, UnreadableResponseError

if TYPE_CHECKING:
    from collections.abc import Sequence

Wire: TypeAlias = Any  # JSON as Python values, in a shape that the service determines
WireObject: TypeAlias = dict[str, Wire]

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
# Until 2100, ms / 1000 as a float rounds to the right microsecond.
EXACT_UNTIL: Final = 4_102_444_800_000
# all that decoding can raise
UNREADABLE: Final = (ValueError, RecursionError, ArithmeticError)

# Reads any number with all its digits, or raises.  Independent of the calling thread's decimal context.
exact: Final = Context(
    prec=MAX_PREC,
    Emax=MAX_EMAX,
    Emin=MIN_EMIN,
    traps=[InvalidOperation, Overflow, Inexact],
).create_decimal
_ENCODER = msgspec.json.Encoder(decimal_format="number")
_PLAIN = msgspec.json.Decoder(float_hook=exact)
# bytes: takes at most half a second, for a body that consists of escapes
_SEARCHED: Final = 4 * 2**20
# compiled and cached by `re` when a body cannot be read
_SURROGATE: Final = rb"\\u[dD][89a-fA-F]"
# Matches any escape, so that no match begins within another.  Pairs come before halves.
_ESCAPE: Final = (
    rb"(?:\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})+"
    rb"|(?P<half>\\u[dD][89a-fA-F][0-9a-fA-F]{2})|(?:\\[^u])+|\\u"
)
MEMBERS = msgspec.json.Decoder(dict[str, Raw])
ELEMENTS = msgspec.json.Decoder(list[Raw])


def loads(content: bytes | Raw) -> Wire:
    """
    Decode JSON to plain data.  Numbers keep all digits; of equal keys, the last one counts.

    Raises:
        UnreadableResponseError: Not JSON in UTF-8, or nested too deeply, or a number is too long.
    """
    try:
        check_depth(content)
        return _PLAIN.decode(content)
    except UNREADABLE as cause:
        raise UnreadableResponseError(
            f"the answer is not valid JSON ({cause}). Look at .raw.", raw=bytes(content)
        ) from cause.with_traceback(None)  # its frames have the body


def loads_text(text: str | bytes) -> Wire:
    """
    Decode JSON as :func:`loads`, from a text or from its UTF-8.

    Raises:
        UnicodeEncodeError: The text has a half of a surrogate pair.
    """
    if isinstance(text, str):
        return loads(text.encode())
    return loads(text)


def salvage(content: bytes | Raw, depth: int = 8) -> Wire:
    """
    Decode as much of a JSON value as possible.  Parts that cannot be decoded stay ``Raw``.

    A parser rejects a whole value because of one number of a million digits or one bad byte.  Here this
    affects only the smallest member that contains it, down to *depth* levels.
    """
    with suppress(*UNREADABLE):
        return _PLAIN.decode(content)
    if depth:
        with suppress(*UNREADABLE):
            return {
                name: salvage(part, depth - 1)
                for name, part in MEMBERS.decode(content).items()
            }
        with suppress(*UNREADABLE):
            return [salvage(part, depth - 1) for part in ELEMENTS.decode(content)]
    return Raw(bytes(content))


def without_halves(content: bytes) -> bytes:
    """
    Replace escapes of half a surrogate pair, which the parser rejects, by U+FFFD.

    A service that cuts texts by UTF-16 units writes one when it cuts an emoji in two.  Very long bodies are
    returned unchanged, because the search would take too long.
    """
    if len(content) > _SEARCHED or not re.search(_SURROGATE, content):
        return content
    return re.sub(_ESCAPE, _without_half, content)


def _without_half(escape: re.Match[bytes]) -> bytes:
    """Return an *escape* as it is, or that of U+FFFD for a half of a pair."""
    if escape["half"]:
        return b"\\ufffd"
    return escape[0]


def holds_broken(plain: object) -> bool:
    """Return whether ``salvage`` left a part of *plain* undecoded."""
    kind = type(plain)
    if kind is str:  # most are
        return False
    if is_object(plain):
        return any(map(holds_broken, plain.values()))
    if is_array(plain):
        return any(map(holds_broken, plain))
    return kind is Raw


def is_object(plain: object) -> TypeGuard[dict[str, Any]]:
    """Return whether *plain*, as decoded by the parser, was a JSON object."""
    return type(plain) is dict


def is_array(plain: object) -> TypeGuard[list[Any]]:
    """Return whether *plain*, as decoded by the parser, was a JSON array."""
    return type(plain) is list


def dumps(plain: object) -> bytes:
    """
    Encode plain data as JSON in UTF-8.  A ``Decimal`` becomes a number with the same digits.

    Raises:
        InvalidRequestError: It contains a value that JSON cannot represent: a time, NaN, a key that is not a
            string, an object of another class; or it is nested too deeply.
    """
    try:
        check(plain)
        return _ENCODER.encode(plain)
    except InvalidRequestError:
        raise
    except (ValueError, RecursionError) as cause:
        raise InvalidRequestError(f"$: cannot be written as JSON ({cause})") from cause


def check(plain: Any, at: str = "$", levels: int = DEEPEST) -> None:
    """Reject values that JSON cannot represent, as :func:`dumps`.  The encoder would accept times and NaN."""
    # the abstract class is slow to check
    is_mapping = type(plain) is dict or isinstance(plain, Mapping)
    if not levels and (is_mapping or isinstance(plain, (list, tuple))):
        raise InvalidRequestError(f"{at:.60}…: is nested deeper than {DEEPEST} levels")
    if is_mapping:
        _check_members(plain, at, levels)
    elif isinstance(plain, (list, tuple)):
        for index, value in enumerate(cast("Sequence[Any]", plain)):
            if type(value) is not str:
                check(value, f"{at}[{index}]", levels - 1)
    elif not (plain is None or isinstance(plain, (int, str, Raw)) or _is_finite(plain)):
        raise InvalidRequestError(
            f"{at}: JSON cannot represent {type(plain).__name__} {plain!r:.60}"
        )


def _check_members(
    plain: Mapping[object, Any],
    at: str,
    levels: int,
) -> None:
    for name, value in plain.items():
        if not isinstance(name, str):
            raise InvalidRequestError(f"{at}: the key {name!r} is not a string")
        if type(value) is not str:  # most are; the address costs more than the check
            check(value, f"{at}.{name}", levels - 1)


def _is_finite(number: object) -> bool:
    return isinstance(number, (float, Decimal)) and Decimal(number).is_finite()


def utc(ms: int) -> datetime:
    """
    Convert epoch milliseconds to a UTC time, exactly.

    Raises:
        OverflowError: The time is outside the range of ``datetime``.
    """
    if 0 <= ms < EXACT_UNTIL:
        return datetime.fromtimestamp(ms / 1000, UTC)
    return EPOCH + timedelta(milliseconds=ms)


def time_of(stamp: int | None) -> datetime | None:
    """Return the time of a *stamp* in epoch milliseconds, if there is one."""
    if stamp is None:
        return None
    return utc(stamp)
