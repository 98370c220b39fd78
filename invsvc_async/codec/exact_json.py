"""
Read and write JSON with exact numbers and times; never guess at what cannot be decoded.

Whole numbers are ``int``, all others ``Decimal`` with the digits of the wire.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal, Inexact, InvalidOperation, Overflow
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeGuard, cast

import msgspec
from msgspec import Raw

from invsvc_async._errors import InvalidRequestError, UnreadableResponseError

if TYPE_CHECKING:
    from collections.abc import Sequence


__all__ = [
    "ELEMENTS",
    "EPOCH",
    "EXACT_UNTIL",
    "MEMBERS",
    "UNREADABLE",
    "Wire",
    "bare",
    "dumps",
    "exact",
    "holds_broken",
    "is_array",
    "is_object",
    "loads",
    "salvage",
    "utc",
    "without_halves",
]


Wire: TypeAlias = Any  # JSON as Python values: its shape is the service's, not ours


EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
# Until 2100, ms / 1000 as a float rounds to the right microsecond: its spacing is below half of one.
EXACT_UNTIL: Final = 4_102_444_800_000
UNREADABLE: Final = (ValueError, RecursionError, ArithmeticError)  # all that decoding can raise, on any bytes

# Reads any number with all its digits, whatever the context of the calling thread; raises where it cannot.
exact: Final = Context(
    prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[InvalidOperation, Overflow, Inexact]
).create_decimal
_ENCODER = msgspec.json.Encoder(decimal_format="number")
_PLAIN = msgspec.json.Decoder(float_hook=exact)
_SEARCHED: Final = 4 * 2**20  # bytes: half a second, at worst, for a body that is nothing but escapes
_SURROGATE: Final = rb"\\u[dD][89a-fA-F]"  # compiled, and kept by `re`, when a body cannot be read
# Any escape, so that none is begun in the middle of another; whole pairs go before halves, rows in one piece.
_ESCAPE: Final = (
    rb"(?:\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})+"
    rb"|(?P<half>\\u[dD][89a-fA-F][0-9a-fA-F]{2})|(?:\\[^u])+|\\u"
)
MEMBERS = msgspec.json.Decoder(dict[str, Raw])
ELEMENTS = msgspec.json.Decoder(list[Raw])


def loads(content: bytes | Raw) -> Any:  # Any: JSON as Python values
    """
    Decode JSON to plain data: ``int`` and ``Decimal`` with every digit, the last of equal keys.

    Raises:
        UnreadableResponseError: Not JSON in UTF-8, or beyond what is safe (depth, digits).
    """
    try:
        return _PLAIN.decode(content)
    except UNREADABLE as cause:
        raise UnreadableResponseError(
            f"not JSON that can be read ({cause}). Look at .raw.", raw=bytes(content)
        ) from bare(cause)


def bare(cause: Exception) -> Exception:
    """Take the frames from *cause*: their locals hold a whole body, with what may be secret in it."""
    return cause.with_traceback(None)


def salvage(content: bytes | Raw, depth: int = 8) -> Any:  # Any: JSON as Python values
    """
    Decode as much of a JSON value as can be; a part that cannot be stays ``Raw``.

    A parser gives up a whole value for one number of a million digits, or one bad byte: here it costs
    only the smallest member around it, down to *depth* levels.
    """
    with suppress(*UNREADABLE):
        return _PLAIN.decode(content)
    if depth:
        with suppress(*UNREADABLE):
            return {name: salvage(part, depth - 1) for name, part in MEMBERS.decode(content).items()}
        with suppress(*UNREADABLE):
            return [salvage(part, depth - 1) for part in ELEMENTS.decode(content)]
    return Raw(bytes(content))


def without_halves(content: bytes) -> bytes:
    """
    Put U+FFFD where an escape names half of a surrogate pair, which no parser here takes.

    A service that cuts texts by UTF-16 units writes one wherever it cuts an emoji in two.  What is too long
    to be searched in a moment is given back as it is.
    """
    if len(content) > _SEARCHED or not re.search(_SURROGATE, content):
        return content
    return re.sub(_ESCAPE, lambda found: b"\\ufffd" if found["half"] else found[0], content)


def holds_broken(plain: object) -> bool:
    """Tell whether ``salvage`` left a part of *plain* undecoded."""
    kind = type(plain)
    if kind is str:  # most are
        return False
    if is_object(plain):
        return any(map(holds_broken, plain.values()))
    return any(map(holds_broken, plain)) if is_array(plain) else kind is Raw


def is_object(plain: object) -> TypeGuard[dict[str, Any]]:
    """Tell whether *plain*, which a parser gave, was a JSON object."""
    return type(plain) is dict


def is_array(plain: object) -> TypeGuard[list[Any]]:
    """Tell whether *plain*, which a parser gave, was a JSON array."""
    return type(plain) is list


def dumps(plain: object) -> bytes:
    """
    Encode plain data to JSON in UTF-8, a ``Decimal`` as a number with its own digits.

    Raises:
        InvalidRequestError: It holds what JSON has no form for: times, NaN, keys that are not text, objects.
    """
    try:
        _check(plain, "$")
        return _ENCODER.encode(plain)
    except InvalidRequestError:
        raise
    except (ValueError, RecursionError) as cause:
        raise InvalidRequestError(f"$: cannot be written as JSON ({cause})") from cause


def _check(plain: Any, at: str) -> None:
    """Refuse what JSON has no form for: the encoder makes one up for times and NaN."""
    kind = type(plain)
    if kind is str:
        return
    if kind is dict or isinstance(plain, Mapping):  # to ask an abstract class takes as long as the rest
        for name, value in cast("Mapping[object, Any]", plain).items():
            if not isinstance(name, str):
                raise InvalidRequestError(f"{at}: the key {name!r} is not a text")
            _check(value, f"{at}.{name}")
    elif isinstance(plain, (list, tuple)):
        for index, value in enumerate(cast("Sequence[Any]", plain)):
            _check(value, f"{at}[{index}]")
    elif not (_is_finite(plain) or plain is None or isinstance(plain, (str, Raw))):
        raise InvalidRequestError(f"{at}: JSON has no form for {type(plain).__name__} {plain!r:.60}")


def _is_finite(number: object) -> bool:
    if isinstance(number, Decimal):
        return number.is_finite()
    return isinstance(number, int) or (isinstance(number, float) and math.isfinite(number))


def utc(ms: int) -> datetime:
    """
    Give the UTC time *ms* milliseconds after the epoch, exactly.

    Raises:
        OverflowError: No ``datetime`` is that late.
    """
    if 0 <= ms < EXACT_UNTIL:
        return datetime.fromtimestamp(ms / 1000, UTC)
    return EPOCH + timedelta(milliseconds=ms)
