"""
Exact decoding of the JSON bodies of deliveries.

The contents of ``data`` stay undecoded until they are used, because routing an event does not need them.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec

from invsvc_async.codec.nesting import NestingError
from invsvc_async.errors import MalformedEventError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "UNREADABLE", "Body", "Details", "decode_body", "decode_payload", "malformed", "plain_of",
    "unreadable",
]  # fmt: skip

UNREADABLE: Final = (
    msgspec.DecodeError,
    RecursionError,
    ArithmeticError,  # an exponent that Decimal cannot hold
    ValueError,  # bytes that are not UTF-8
)


_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=255)]
_ABSENT: Final = msgspec.Raw(b"null")


class Details(msgspec.Struct, gc=False):
    """The ``data`` of a body, not decoded further."""

    object: msgspec.Raw = _ABSENT
    payload: msgspec.Raw = _ABSENT


class Body(msgspec.Struct, gc=False):  # decoded JSON has no reference cycles
    """
    The top level of a body of any family; ``parse`` checks the fields of type ``Any``.

    Fields are in the order of real bodies, which is the fastest to decode.
    """

    id: Any = None
    type: _Name | None = None
    event: _Name | None = None
    created: Any = None
    created_at: Any = None
    livemode: Any = None
    team: Any = None
    webhook: Any = None
    connected_team: Any = msgspec.field(default=None, name="connectedTeam")
    connected_team_metadata: Any = msgspec.field(default=None, name="connectedTeamMetadata")
    test: bool | None = None
    data: Details | None = None
    payload: msgspec.Raw = _ABSENT


decode_body: Final[Callable[[bytes | msgspec.Raw], Body]] = msgspec.json.Decoder(
    Body, float_hook=Decimal
).decode
_plain: Final[Callable[[bytes | msgspec.Raw], Any]] = msgspec.json.Decoder(float_hook=Decimal).decode


def decode_payload(payload: msgspec.Raw, whole: bytes) -> Body:
    """
    Decode the top level of a body inside a wrapper.

    Raises:
        MalformedEventError: A field has the wrong type; ``.raw`` is *whole*.
    """
    try:
        return decode_body(payload)
    except UNREADABLE as error:
        raise unreadable(error, whole) from error


def plain_of(raw: bytes | msgspec.Raw, whole: bytes) -> dict[str, Any]:
    """
    Decode an object in the body *whole* whose syntax is known to be valid, with exact numbers.

    Raises:
        MalformedEventError: A number has too many digits or too large an exponent.
    """
    try:
        plain: dict[str, Any] = _plain(raw)
    except UNREADABLE as error:
        raise unreadable(error, whole) from error
    return plain


def malformed(why: str, raw: bytes) -> MalformedEventError:
    """Return the error for a body that is not an event."""
    return MalformedEventError(f"The body is not an event: {why}. Check its sender. Look at .raw.", raw=raw)


def unreadable(error: Exception, raw: bytes) -> MalformedEventError:
    """Return the error for a body that could not be decoded."""
    # Only messages of the decoder itself are known not to quote the body.
    told = str(error) if isinstance(error, (msgspec.DecodeError, NestingError)) else type(error).__name__
    return malformed(f"it is not readable ({told})", raw)
