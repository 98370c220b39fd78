"""
Decode JSON bodies of deliveries, exactly and within bounds; never decide what an event is.

What is inside ``data`` stays undecoded: most of a body is never looked at by whoever only routes it.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec

from invsvc_async._errors import MalformedEventError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "UNREADABLE", "Body", "Details", "decode_body", "decode_payload", "is_object", "malformed", "plain_of",
    "unreadable",
]  # fmt: skip

UNREADABLE: Final = (
    msgspec.DecodeError,
    RecursionError,
    ArithmeticError,  # an exponent that Decimal cannot hold
    ValueError,  # bytes that are not UTF-8
)


_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=255)]
_BRACE: Final = ord("{")
_ABSENT: Final = msgspec.Raw(b"null")


class Details(msgspec.Struct, gc=False):
    """The ``data`` of a body; what it holds is not decoded here."""

    object: msgspec.Raw = _ABSENT
    payload: msgspec.Raw = _ABSENT


class Body(msgspec.Struct, gc=False):  # decoded JSON holds no cycles
    """
    The top level of a body of any family; ``Any`` for what only some families have: ``parse`` checks it.

    The fields stand in the order in which bodies have them, which the decoder rewards.
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
_plain: Final[Callable[[bytes], Any]] = msgspec.json.Decoder(float_hook=Decimal).decode


def decode_payload(payload: msgspec.Raw, whole: bytes) -> Body:
    """
    Decode the top level of a body in a wrapper.

    Raises:
        MalformedEventError: A field of it breaks its type; ``.raw`` is of *whole*.
    """
    try:
        return decode_body(payload)
    except UNREADABLE as error:
        raise unreadable(error, whole) from error


def plain_of(raw: bytes) -> dict[str, Any]:
    """
    Decode an object whose syntax was checked, with exact numbers.

    Raises:
        MalformedEventError: A number is longer, or its exponent larger, than any amount can be.
    """
    try:
        plain: dict[str, Any] = _plain(raw)
    except UNREADABLE as error:
        raise unreadable(error, raw) from error
    return plain


def is_object(raw: msgspec.Raw) -> bool:
    """Whether a value that was left undecoded is an object."""
    return memoryview(raw)[0] == _BRACE


def malformed(why: str, raw: bytes) -> MalformedEventError:
    """Word the refusal of a body."""
    return MalformedEventError(f"The body is not an event: {why}. Look at .raw and at who sent it.", raw=raw)


def unreadable(error: Exception, raw: bytes) -> MalformedEventError:
    """Word the refusal of a body that could not be decoded."""
    # only the decoder's own words are known to hold nothing of the body
    told = str(error) if isinstance(error, msgspec.DecodeError) else type(error).__name__
    return malformed(f"it is not readable ({told})", raw)
