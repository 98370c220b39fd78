"""
Parsing of a delivery's body into an event.  Does not verify it.

The body alone determines the event.  An envelope field of the wrong type makes the whole body malformed,
because an event without a reliable id or type cannot be handled.  ``data`` is only checked to be an object.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from invsvc_async.api.event_types import EVENT_TYPES
from invsvc_async.codec.nesting import DEEPEST, check_depth
from invsvc_async.errors import MalformedEventError
from invsvc_async.events.event import (
    UNREADABLE,
    Body,
    Event,
    InvoiceBatchCompleted,
    ResourceEvent,
    SatInvoiceSynced,
    decode_body,
    decoded,
    malformed,
    plain_of,
    unreadable,
)
from invsvc_async.events.headers import TEST, by_name

if TYPE_CHECKING:
    import msgspec

    from invsvc_async.events.headers import Headers

__all__ = ["parse", "says_test"]

Version: TypeAlias = Literal["v1", "v1.1", "v2"]
SignedFamily: TypeAlias = type[SatInvoiceSynced] | type[InvoiceBatchCompleted]

_WRAPPER: Final = frozenset({"payload", "customer", "date"})  # all fields of a v1.1 wrapper
_BRACE: Final = ord("{")
_ID_LENGTH: Final = 255
_LAST_SECOND: Final = 253_402_300_799  # of the year 9999, the last that a datetime can represent
_SIGNED: Final[dict[str, SignedFamily]] = {
    "sat.invoice.synced": SatInvoiceSynced,
    "invoice_batch.completed": InvoiceBatchCompleted,
}
_RESOURCES: Final = frozenset(EVENT_TYPES).difference(_SIGNED)
_SIGNED_FAMILIES: Final = {name.partition(".")[0]: family for name, family in _SIGNED.items()}


def parse(body: bytes, headers: Headers | None = None) -> Event:
    """
    Parse a body into an event of one of the three families.  Does not check a signature.

    A v1.1 wrapper ``{"payload": {…}}`` is removed around the whole v1 body or around its ``data``, because
    the specification can be read either way.  Events of unknown types are ``ResourceEvent``, and unknown
    fields are in ``.extra``.  Numbers are exact: ``int`` or ``Decimal``.  *headers* are only used for the
    dashboard's test mark.

    Raises:
        MalformedEventError: The body is not an event of the specification.

    Spec: Events.
    """
    raw = body if body.__class__ is bytes else _bytes(body)
    try:
        if not raw.isascii():
            raw.decode()  # the decoder does not check skipped values for UTF-8
        if len(raw) > 2 * DEEPEST:  # else too short to be too deep; most bodies are
            check_depth(raw)
        content = decode_body(raw)
    except UNREADABLE as error:
        raise unreadable(error, raw) from error
    version: Version = "v1"
    if content.event is None:
        version, content = _other_version(content, raw)
    if content.data is None:
        raise malformed("it has no 'data'", raw)
    is_test = content.test is True or (headers is not None and says_test(headers))
    name = content.event or content.type or ""
    family = None if name in _RESOURCES else _SIGNED.get(name) or _signed_family(name, raw)
    if family is None:
        _check_resource(content, version, raw, is_test=is_test)
        if (
            version == "v1"
            and _is_object(content.data.payload)
            and _WRAPPER.issuperset(plain_of(raw, raw)["data"])
        ):
            version = "v1.1"
        return ResourceEvent(raw, is_test, content, version)
    if version != "v1":
        raise malformed(f"{name} does not have bodies of {version}", raw)
    if content.id is not None or not is_test:
        _check_id(content.id, raw)
    _check_time("created_at", content.created_at, _LAST_SECOND, raw)
    return family(raw, is_test, content)


def says_test(headers: Headers | None) -> bool:
    """Return whether the headers contain the dashboard's test mark."""
    return by_name(headers).get(TEST) == "true"


def _other_version(content: Body, raw: bytes) -> tuple[Version, Body]:
    if content.type is not None:
        if content.data is None or not _is_object(content.data.object):
            raise malformed("it has a 'type' but no object in 'data.object'", raw)
        return "v2", content
    if not _is_object(content.payload):
        raise malformed("it has neither 'event', nor 'type', nor a 'payload'", raw)
    inner = decoded(decode_body, content.payload, raw)
    if inner.event is None:
        raise malformed("its 'payload' has no 'event'", raw)
    inner.test = content.test or inner.test
    return "v1.1", inner


def _is_object(raw: msgspec.Raw) -> bool:
    return memoryview(raw)[0] == _BRACE


def _signed_family(name: str, raw: bytes) -> SignedFamily | None:
    """Return the signed family of a type, by its first word: the specification may not list the type."""
    if not name.isprintable():  # because stores and logs contain it
        raise malformed("the event's type is not printable", raw)
    return _SIGNED_FAMILIES.get(name.partition(".")[0])


def _check_resource(content: Body, version: Version, raw: bytes, *, is_test: bool) -> None:
    if content.livemode.__class__ is not bool:
        _check("livemode", content.livemode, bool, raw)
    if version == "v2":
        if content.id is not None or not is_test:
            _check_id(content.id, raw)
        _check_time("created", content.created, _LAST_SECOND * 1000, raw)
    else:
        _check("team", content.team, str, raw)
        _check("webhook", content.webhook, str, raw)
        _check("connectedTeamMetadata", content.connected_team_metadata, dict, raw)


def _check_id(text: object, raw: bytes) -> None:
    if not isinstance(text, str) or not 0 < len(text) <= _ID_LENGTH or not text.isprintable():
        raise malformed(f"'id' is not a printable text of 1 to {_ID_LENGTH} characters", raw)


def _check_time(field: str, ticks: object, last: int, raw: bytes) -> None:
    if ticks is not None and (type(ticks) is not int or not 0 <= ticks <= last):  # True is an int too
        raise malformed(f"{field!r} is not a whole number within the years 1970 to 9999", raw)


def _check(field: str, value: Any, kind: type, raw: bytes) -> None:
    if value is not None and value.__class__ is not kind:
        raise malformed(f"{field!r} is not of type {kind.__name__}", raw)


def _bytes(body: Any) -> bytes:  # Any: what a caller without a type checker may pass
    try:
        return bytes(memoryview(body))
    except TypeError:
        raise MalformedEventError(f"body: it is of type {type(body).__name__}. Pass the raw bytes.") from None
