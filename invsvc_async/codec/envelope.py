"""
Turn status, headers and bytes into a payload or an error; never into models, and never by the network.

Numbers are exact throughout.
"""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw
from multidict import istr

from invsvc_async import _errors
from invsvc_async.codec.arrays import Items, check
from invsvc_async.codec.exact_json import (
    EXACT_UNTIL,
    MEMBERS,
    UNREADABLE,
    bare,
    dumps,
    is_array,
    is_object,
    loads,
    utc,
    without_halves,
)
from invsvc_async.codec.shape import Shape

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["Envelope", "dumps", "loads", "read_error", "read_success", "retry_after", "utc"]


class _List(msgspec.Struct):
    success: bool
    data: Items
    message: Any = None
    timestamp: Any = None
    next: str | None = None
    has_more: bool = False
    total_results: Any = None
    page: Any = None
    per_page: Any = None


class _Standard(msgspec.Struct):
    success: bool
    data: Raw
    message: Any = None
    timestamp: Any = None


class _Open(msgspec.Struct):
    success: bool
    data: Raw = Raw()  # none: a union with Raw takes no object
    message: Any = None
    timestamp: Any = None
    next: Any = None  # of a list that the table does not know
    has_more: Any = None
    total_results: Any = None
    page: Any = None
    per_page: Any = None


_DECODE: Mapping[Shape, Callable[[bytes], Any]] = {
    Shape.LIST: msgspec.json.Decoder(_List).decode,
    Shape.STANDARD: msgspec.json.Decoder(_Standard).decode,
    Shape.OPEN: msgspec.json.Decoder(_Open).decode,
}
_NOTHING = Raw()
_moment = datetime.fromtimestamp
# On 3.11, to reach an enum's member through its class takes as long as a call.
_LIST, _BARE = Shape.LIST, Shape.BARE
_REQUEST_ID = istr("X-Request-Id")
_SECONDS = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")  # whole by the standard; some services say parts of one
_FIRST, _LAST = -62_135_596_800_000, 253_402_300_799_999  # ms: all that a datetime can be
_NOT_TOLD = {"raw", "content"}  # a body may hold a secret
_ENVELOPE_NAMES = frozenset(_List.__struct_fields__)


class Envelope(msgspec.Struct, frozen=True, kw_only=True):  # made for every answer
    """
    A successful answer, its payload not yet decoded.

    ``raw`` holds the payload's bytes (one ``Raw`` an item in a list; ``None`` where an open answer has no
    ``data``).  ``stamp`` is the service's time in whole ms since the epoch.  Keep what is made of ``raw``,
    not ``raw`` itself: it pins the whole body.

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
    content: bytes

    def __repr__(self) -> str:
        told = {name: getattr(self, name) for name in self.__struct_fields__ if name not in _NOT_TOLD}
        return f"Envelope({', '.join(f'{name}={value!r}' for name, value in told.items())})"

    @property
    def timestamp(self) -> datetime | None:
        """The service's time when it answered, aware, in UTC."""
        stamp = self.stamp
        if stamp is not None and 0 <= stamp < EXACT_UNTIL:
            return _moment(stamp / 1000, UTC)  # as utc does
        return _utc_or_none(stamp)

    @property
    def data(self) -> Any:  # Any: JSON as Python values
        """
        Decode the payload to plain data with exact numbers.

        Raises:
            UnreadableResponseError: It holds what JSON, or this machine, does not allow.
        """
        if self.raw is None:
            return None
        return [loads(item) for item in self.raw] if isinstance(self.raw, list) else loads(self.raw)

    @property
    def extra(self) -> Mapping[str, Any]:
        """
        What stood beside the payload and is in no other attribute, decoded.

        Raises:
            UnreadableResponseError: It holds what JSON, or this machine, does not allow.
        """
        try:
            members = MEMBERS.decode(self.content)
        except UNREADABLE as cause:  # a name that is no UTF-8, which a list's reader passes over
            raise _unreadable(self.content, cause) from bare(cause)
        return {name: loads(value) for name, value in members.items() if name not in _ENVELOPE_NAMES}


def _utc_or_none(stamp: object) -> datetime | None:
    try:
        return utc(stamp) if isinstance(stamp, int) else None
    except OverflowError:
        return None


def read_success(
    content: bytes, *, status: int, headers: Mapping[str, str], shape: Shape, operation: str
) -> Envelope:
    """
    Read a 2xx answer of the *shape* that the table gives its operation.

    Invalid UTF-8 within an item of a list is left to that item, so that it costs no other; an escaped half of
    a surrogate pair becomes U+FFFD.

    Raises:
        UnreadableResponseError: It is not such an answer: empty, HTML, another shape, ``success`` not true, a
            list of more than 10,000 items.

    Spec: Response envelopes.
    """
    try:
        if shape is not _LIST:
            content.decode()
        if shape is _BARE:
            MEMBERS.decode(content)
            return Envelope(raw=Raw(content), content=content, request_id=_request_id(headers))
        if shape is _LIST:
            check(content)
        found = _DECODE[shape](content)
    except UNREADABLE as cause:
        whole = without_halves(content)
        if whole != content:
            with suppress(_errors.UnreadableResponseError):
                return read_success(whole, status=status, headers=headers, shape=shape, operation=operation)
        raise _unreadable(content, cause, status=status, headers=headers, operation=operation) from bare(
            cause
        )
    if not found.success:
        raise _unreadable(content, "success is false", status=status, headers=headers, operation=operation)
    return _ENVELOPE[shape](found, content, headers)


def _request_id(headers: Mapping[str, str]) -> str | None:
    """Take the request's id from the header that most services use: assumed, for the reference shows none."""
    return headers.get(_REQUEST_ID)


def _single(found: _Standard, content: bytes, headers: Mapping[str, str]) -> Envelope:
    return Envelope(
        raw=found.data,
        content=content,
        message=_text(found.message),
        stamp=_stamp(found.timestamp),
        request_id=_request_id(headers),
    )


def _open(found: _Open, content: bytes, headers: Mapping[str, str]) -> Envelope:
    return Envelope(
        raw=found.data if found.data != _NOTHING else None,
        content=content,
        message=_text(found.message),
        stamp=_stamp(found.timestamp),
        next=_text(found.next),
        has_more=found.has_more is True,
        total_results=_whole(found.total_results),
        page=_whole(found.page),
        per_page=_whole(found.per_page),
        request_id=_request_id(headers),
    )


def _listed(found: _List, content: bytes, headers: Mapping[str, str]) -> Envelope:
    return Envelope(
        raw=found.data,
        content=content,
        message=_text(found.message),
        stamp=_stamp(found.timestamp),
        next=found.next,
        has_more=found.has_more,
        total_results=_whole(found.total_results),
        page=_whole(found.page),
        per_page=_whole(found.per_page),
        request_id=_request_id(headers),
    )


_ENVELOPE: Mapping[Shape, Callable[[Any, bytes, Mapping[str, str]], Envelope]] = {
    Shape.LIST: _listed,
    Shape.STANDARD: _single,
    Shape.OPEN: _open,
}


def _unreadable(
    content: bytes,
    why: object,
    *,
    status: int | None = None,
    headers: Mapping[str, str] | None = None,
    operation: str | None = None,
) -> _errors.UnreadableResponseError:
    answer = f"the answer (HTTP {status})" if status else "the answer"
    kind = (headers or {}).get("Content-Type") or "no content type"
    found = f"{len(content)} bytes, {kind}" if content else "empty"
    lead = f"{operation}: " if operation else ""
    return _errors.UnreadableResponseError(
        f"{lead}{answer} is not what the specification describes ({found}; {why})."
        " Look at .raw, and check the base URL.",
        operation=operation,
        status=status,
        raw=content,
    )


def read_error(
    content: bytes, *, status: int, headers: Mapping[str, str], operation: str
) -> _errors.ServiceError:
    """
    Read an answer that is an error; whatever its body is, this does not raise.

    ``own_envelope`` is true for the standard error envelope alone.  The authentication layer's raw body
    gives a ``message`` without it; a proxy's page gives neither.

    Spec: Errors.
    """
    body = _object(content)
    own = body.get("success") is False and isinstance(body.get("error"), dict)
    said = body["error"] if own else body
    code, message = _text(said.get("code" if own else "error")), _text(said.get("message"))
    return _errors.service_error_class(status)(
        status=status,
        code=code,
        message=message,
        details=_details(said.get("details")),
        timestamp=_utc_or_none(_whole(body.get("timestamp"))),
        headers=headers,
        raw=content,
        operation=operation,
        retry_after=retry_after(headers),
        own_envelope=own and code is not None and message is not None,
    )


def _object(content: bytes) -> dict[str, Any]:
    try:
        body = loads(without_halves(content))
    except _errors.UnreadableResponseError:
        return {}
    return body if is_object(body) else {}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _whole(value: object) -> int | None:
    """Give a number that is whole as an ``int`` (``1.0`` is; the encoder of the service may write so)."""
    if value is None or type(value) is int:
        return value
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    if isinstance(value, Decimal):
        return int(value) if value.adjusted() < 16 and value == value.to_integral_value() else None
    return None


def _stamp(value: object) -> int | None:
    """Give a time in ms; ``None`` for what no ``datetime`` is: nobody can reckon with such a time."""
    ms = value if type(value) is int else _whole(value)
    return ms if ms is not None and _FIRST <= ms <= _LAST else None


def _details(value: object) -> object:
    if not _is_shallow(value):
        return "nested too deep: see .raw"
    return tuple(value) if is_array(value) and all(isinstance(one, str) for one in value) else value


def _is_shallow(value: object, levels: int = 32) -> bool:
    """Tell whether *value* can be shown and pickled wherever its error gets to: both go down by levels."""
    if not (is_object(value) or is_array(value)):
        return True
    inner = value.values() if is_object(value) else value
    return levels > 0 and all(_is_shallow(each, levels - 1) for each in inner)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Give the seconds to wait: as said, or against the answer's own ``Date``: no local clock comes in."""
    said = headers.get("Retry-After", "").strip()
    if _SECONDS.fullmatch(said):
        return float(said)
    until, now = _http_date(said), _http_date(headers.get("Date", ""))
    return max((until - now).total_seconds(), 0.0) if until and now else None


def _http_date(text: str) -> datetime | None:
    from email.utils import parsedate_to_datetime

    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, TypeError, OverflowError):
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
