"""
Reading of answers: from status, headers and bytes to a payload or an error.

Errors in one of the service's own forms are told from those of gateways.  Numbers are exact.
``Retry-After`` becomes seconds here, which others only wait for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping  # noqa: TC003 - the documentation resolves the annotations of Envelope
from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from msgspec import Raw
from multidict import istr

from invsvc_async import errors
from invsvc_async.codec.exact_json import (
    MEMBERS,
    UNREADABLE,
    Wire,
    dumps,
    is_array,
    is_object,
    loads,
    time_of,
    utc,
    without_halves,
)
from invsvc_async.codec.nesting import SHORT, check_depth

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "Envelope",
    "Shape",
    "dumps",
    "is_cut",
    "loads",
    "read_error",
    "read_success",
    "split",
    "utc",
]

# Items of a list; the specification's largest page has 100.  Even an item of two bytes takes about 60 bytes
# of memory when it is split off, and its model several hundred.
_MOST: Final = 10_000
# bytes: longer lists are checked before; a shorter one takes at most 16 MB
_LONG: Final = 2**19
# commas between or within items: with fewer, a split takes at most 6 MB
_COMMAS: Final = 100_000
_FIRST = -62_135_596_800_000
_LAST = 253_402_300_799_999  # ms: the range of datetime
_NOTHING: Final[Any] = Raw()
# the usual header; the specification does not name one
_REQUEST_ID = istr("X-Request-Id")
# the standard has no fractions, but some services do
_SECONDS = r"[0-9]{1,9}(\.[0-9]{1,9})?"
_OF_AUTHENTICATION = frozenset({"message", "error", "error_description", "details"})
_NOT_SHOWN = {"raw", "content", "headers"}  # they may contain a secret


class Shape(StrEnum):
    """How a successful answer is wrapped."""

    STANDARD = "standard"  # {success, data, message?, timestamp}
    LIST = "list"  # data, next and has_more side by side
    OPEN = "open"  # the specification leaves it open: any JSON object whose success is true
    BARE = "bare"  # no envelope


_LIST = Shape.LIST
_BARE = Shape.BARE  # on 3.11, access through the class takes as long as a call


class EnvelopeMembers(msgspec.Struct, kw_only=True):
    """The members of an answer, if all are as the specification describes them."""

    success: bool
    message: str | None = None
    timestamp: Annotated[int, msgspec.Meta(ge=_FIRST, le=_LAST)] | None = None
    next: str | None = None
    has_more: bool = False
    total_results: int | None = None
    page: int | None = None
    per_page: int | None = None


_ENVELOPE_NAMES = frozenset({"data", *EnvelopeMembers.__struct_fields__})
_Items = Annotated[list[Raw], msgspec.Meta(max_length=_MOST)]


@cache
def _decoder(shape: Shape, *, odd: bool = False) -> Callable[[bytes], Any]:
    """Return the decoder of answers, or of those with further or *odd* members, which may have any type."""
    if shape is _BARE:

        def decode_bare(content: bytes) -> Any:
            MEMBERS.decode(content)
            return _decoder(Shape.STANDARD)(b'{"success":true,"data":%b}' % content)

        return decode_bare
    members: dict[Shape, list[Any]] = {  # what may not be odd
        Shape.LIST: [
            ("data", _Items),
            ("next", str | None, None),
            ("has_more", bool, False),
        ],
        Shape.STANDARD: [("data", Raw)],
        # msgspec does not decode objects to a union with Raw
        Shape.OPEN: [("data", Raw, _NOTHING)],
    }
    fields = {name: (name, Any, None) for name in _MENDED} if odd else {}
    fields |= {each[0]: each for each in members[shape]}
    # Nothing in the usual envelope of a list is nested but its items, if it has no further members.
    strict = shape is _LIST and not odd
    answer = msgspec.defstruct(
        "Answer",
        fields.values(),
        bases=(EnvelopeMembers,),
        kw_only=True,
        forbid_unknown_fields=strict,
    )
    return msgspec.json.Decoder(answer).decode


# a Struct, because one is made for every answer
class Envelope(msgspec.Struct, frozen=True, kw_only=True):
    """
    A successful answer, its payload not yet decoded.

    ``raw`` has the bytes of the payload: one ``Raw`` per item of a list, or ``None`` if an open answer has no
    ``data``.  Do not keep ``raw``, because it keeps the whole body in memory.  ``stamp`` is the service's
    time, in whole epoch ms.  ``status`` and ``headers`` are those of the answer.

    Spec: Response envelopes.
    """

    success: bool = True
    raw: Raw | list[Raw] | None
    message: str | None = None
    stamp: int | None = None
    next: str | None = None
    has_more: bool = False
    total_results: int | None = None
    page: int | None = None
    per_page: int | None = None
    request_id: str | None = None
    status: int = 200
    headers: Mapping[str, str] = {}
    content: bytes

    def __repr__(self) -> str:
        shown = {
            name: getattr(self, name)
            for name in self.__struct_fields__
            if name not in _NOT_SHOWN
        }
        return f"Envelope({', '.join(f'{name}={value!r}' for name, value in shown.items())})"

    @property
    def timestamp(self) -> datetime | None:
        """The time of the answer by the service's clock, aware, in UTC."""
        return time_of(self.stamp)

    @property
    def data(self) -> Wire:
        """
        Decode the payload to plain data with exact numbers.

        Raises:
            UnreadableResponseError: It cannot be decoded.
        """
        if self.raw is None:
            return None
        if isinstance(self.raw, list):
            return [loads(item) for item in self.raw]
        return loads(self.raw)

    @property
    def extra(self) -> Mapping[str, Any]:
        """
        The members beside the payload that are in no other attribute, decoded.

        Raises:
            UnreadableResponseError: They cannot be decoded.
        """
        try:
            members = MEMBERS.decode(self.content)
        except (
            UNREADABLE
        ) as cause:  # a name that is not UTF-8; the decoder of lists does not check it
            raise _unreadable(self.content, cause) from cause.with_traceback(None)
        return {
            name: loads(value)
            for name, value in members.items()
            if name not in _ENVELOPE_NAMES
        }


def is_cut(envelope: Envelope, shown: int) -> bool:
    """Return whether a list has more items than are *shown*, as its answer says."""
    if envelope.has_more:
        return True
    if envelope.next:
        return True
    return (envelope.total_results or 0) > shown


def read_success(
    content: bytes,
    *,
    status: int,
    headers: Mapping[str, str],
    shape: Shape,
    operation: str,
) -> Envelope:
    """
    Read a 2xx answer of the *shape* that the table of operations states.

    Invalid UTF-8 within an item of a list affects that item only.  An escaped half of a surrogate pair
    becomes U+FFFD.

    Raises:
        UnreadableResponseError: It is not such an answer: empty, HTML, another shape, ``success`` not true, a
            list of more than 10,000 items.

    Spec: Response envelopes.
    """
    try:
        if shape is _LIST:
            _check_number(content, in_envelope=True)
        else:  # the depth of a list's items is checked when they are decoded
            content.decode()
            if len(content) > SHORT:
                check_depth(content)
        try:
            found = _decoder(shape)(content)
        except ValueError:  # another member, or an odd one
            check_depth(content)
            found = _decoder(shape, odd=True)(content)
            for name, mended in _MENDED.items():
                setattr(found, name, mended(getattr(found, name)))
        if not found.success:
            raise ValueError("success is false")
    except UNREADABLE as cause:
        if (whole := without_halves(content)) != content:
            with suppress(errors.UnreadableResponseError):
                return read_success(
                    whole,
                    status=status,
                    headers=headers,
                    shape=shape,
                    operation=operation,
                )
        error = _unreadable(
            content,
            cause,
            status=status,
            headers=headers,
            operation=operation,
        )
        # its frames have the body, and perhaps secrets
        raise error from cause.with_traceback(None)
    return Envelope(
        raw=None if found.data == _NOTHING else found.data,
        content=content,
        message=found.message,
        stamp=found.timestamp,
        next=found.next,
        has_more=found.has_more,
        total_results=found.total_results,
        page=found.page,
        per_page=found.per_page,
        request_id=headers.get(_REQUEST_ID),
        status=status,
        headers=headers,
    )


def split(array: Raw) -> list[Raw]:
    """
    Return the items of a JSON array.

    Raises:
        ValueError, RecursionError: It is not an array, or has too many items.
    """
    content = bytes(array)
    _check_number(content)
    return msgspec.json.decode(content, type=_Items)


def _check_number(content: bytes, *, in_envelope: bool = False) -> None:
    """Raise ValueError if a long list has too many items, before it is split."""
    if len(content) > _LONG and content.count(b",") > _COMMAS:
        _first_items()[in_envelope](content)


@cache
def _first_items() -> tuple[Callable[[bytes], object], ...]:
    """
    Return decoders of an array, and of an array in an envelope, that reject more than ``_MOST`` items.

    msgspec checks ``max_length`` only when it has read the whole array, but rejects a surplus field at once.
    """
    fields = [(f"item_{number}", Raw, _NOTHING) for number in range(_MOST)]
    array = msgspec.defstruct(
        "Array", fields, array_like=True, forbid_unknown_fields=True
    )
    envelope = msgspec.defstruct("Envelope", [("data", array)])
    return msgspec.json.Decoder(array).decode, msgspec.json.Decoder(envelope).decode


def _unreadable(
    content: bytes,
    why: object,
    *,
    status: int | None = None,
    headers: Mapping[str, str] | None = None,
    operation: str | None = None,
) -> errors.UnreadableResponseError:
    answer = f"the answer (HTTP {status})" if status else "the answer"
    found = _size_and_kind(content, headers or {})
    lead = f"{operation}: " if operation else ""
    return errors.UnreadableResponseError(
        f"{lead}{answer} is not as the specification describes ({found}; {why})."
        " Look at .raw, which shows who answered: the service, a proxy, or another base URL.",
        operation=operation,
        status=status,
        raw=content,
    )


def _size_and_kind(content: bytes, headers: Mapping[str, str]) -> str:
    """Return what came in place of an answer, in a few words."""
    if not content:
        return "empty"
    kind = headers.get("Content-Type") or "no content type"
    return f"{len(content)} bytes, {kind}"


def read_error(
    content: bytes,
    *,
    status: int,
    headers: Mapping[str, str],
    operation: str,
) -> errors.ServiceError:
    """
    Read an error answer.  Accepts any body.

    ``own_envelope`` is true only for the standard error envelope, ``of_authentication`` only for the raw body
    of the authentication layer, without other members.  A proxy's page is neither.

    Spec: Errors.
    """
    body = _object(content)
    own = body.get("success") is False and isinstance(body.get("error"), dict)
    if own:
        said = body["error"]
        code = _text(said.get("code"))
    else:
        said = body
        code = _text(said.get("error"))
    stamp = _stamp(body.get("timestamp"))
    message = _text(said.get("message"))
    is_raw = message is not None and body.keys() <= _OF_AUTHENTICATION
    return errors.service_error_class(status)(
        status=status,
        code=code,
        message=message,
        details=_details(said.get("details")),
        timestamp=time_of(stamp),
        headers=headers,
        raw=content,
        operation=operation,
        retry_after=retry_after(headers),
        own_envelope=own and code is not None and message is not None,
        of_authentication=status in (401, 403) and is_raw,
    )


def _details(found: Any) -> object:  # Any: JSON
    """Return the details of an error as received, but a list of texts as a tuple."""
    if not _is_shallow(found):
        return "nested too deep: see .raw"
    if is_array(found) and all(isinstance(one, str) for one in found):
        return tuple(found)
    return found


def _object(content: bytes) -> dict[str, Any]:
    try:
        body = loads(without_halves(content))
    except errors.UnreadableResponseError:
        return {}
    if is_object(body):
        return body
    return {}


def _text(value: object) -> str | None:
    if isinstance(value, str):
        return value
    return None


def _whole(value: object) -> int | None:
    """Return a whole number as an ``int``, else ``None``.  The service's encoder may write 1 as ``1.0``."""
    if value is None or type(value) is int:
        return value
    if isinstance(value, float):
        if value.is_integer():
            return int(value)
        return None
    if not isinstance(value, Decimal) or value.adjusted() >= 16:
        return None
    if value == value.to_integral_value():
        return int(value)
    return None


def _stamp(value: object) -> int | None:
    """Return a time in ms, or ``None`` if it is outside the range of ``datetime``."""
    ms = _whole(value)
    if ms is None or not _FIRST <= ms <= _LAST:
        return None
    return ms


# What is made of a member that is not as the specification describes it: it is dropped, unless it is plain.
_MENDED: Mapping[str, Callable[[object], object]] = {
    "message": _text,
    "timestamp": _stamp,
    "next": _text,
    "has_more": lambda value: value is True,
    "total_results": _whole,
    "page": _whole,
    "per_page": _whole,
}


def _is_shallow(value: object, levels: int = 32) -> bool:
    """Return whether *value* is shallow enough for ``repr`` and ``pickle``, which are recursive."""
    if not (is_object(value) or is_array(value)):
        return True
    if levels <= 0:
        return False
    inner = value.values() if is_object(value) else value
    return all(_is_shallow(each, levels - 1) for each in inner)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds to wait.  An HTTP date is compared with the answer's ``Date``, not a local clock."""
    said = headers.get("Retry-After", "").strip()
    if re.fullmatch(_SECONDS, said):
        return float(said)
    until = _http_date(said)
    now = _http_date(headers.get("Date", ""))
    if until is None or now is None:
        return None
    return max((until - now).total_seconds(), 0.0)


def _http_date(text: str) -> datetime | None:
    from email.utils import parsedate_to_datetime

    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, TypeError, OverflowError):
        return None
    if moment.tzinfo:
        return moment
    return moment.replace(tzinfo=UTC)
