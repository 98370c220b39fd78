"""
Events as frozen values, one class for each of the three families in the specification, and their parsing.

The body alone determines the event; parsing does not verify it.  An envelope field of the wrong type makes
the whole body malformed, because an event without a reliable id or type cannot be handled.  The contents of
``data`` are decoded on first use, so that an event that is only counted or forwarded takes little time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import Decimal
from functools import cached_property
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Final,
    Generic,
    Literal,
    Self,
    TypeAlias,
    TypeVar,
    cast,
)

import attrs
import msgspec

from invsvc_async.api.event_types import EVENT_TYPES
from invsvc_async.codec.exact_json import UNREADABLE, dumps, utc
from invsvc_async.codec.nesting import DEEPEST, NestingError, check_depth
from invsvc_async.errors import InvalidRequestError, MalformedEventError
from invsvc_async.models.portable import Portable, hide_fields

if TYPE_CHECKING:
    from datetime import datetime

    from invsvc_async.events.payloads import InvoiceBatch, SyncedInvoice  # noqa: F401 - named in text below
    from invsvc_async.models import Customer, Invoice, Model

R_co = TypeVar("R_co", covariant=True)
D = TypeVar("D")
T = TypeVar("T")

SIGNATURE: Final = "x-service-signature"
LISTED: Final = ("invoice.created", "invoice.canceled")
"""The types of events that a list can stand for: it shows which invoices exist, and which are canceled."""
_CAUGHT_UP: Final = "catch-up:"  # begins the id of an event that was made from a list
CAUGHT_UP_KEY: Final = f"resource:{_CAUGHT_UP}"
"""What begins the key of such an event in a store; its subject follows."""
_TEST: Final = "x-service-test"
_BLANKS: Final = " \t"
_V1: Final = frozenset(
    {
        "event",
        "team",
        "webhook",
        "livemode",
        "data",
        "connectedTeam",
        "connectedTeamMetadata",
        "test",
    }
)
_FIELDS: Final = {
    "v1": _V1,
    "v1.1": _V1,
    "v2": frozenset({"id", "type", "created", "livemode", "data", "test"}),
    "signed": frozenset({"id", "event", "created_at", "data", "test"}),
}

Text: TypeAlias = str | bytes
Json: TypeAlias = bytes | msgspec.Raw
Headers: TypeAlias = Mapping[str, str] | Iterable[tuple[Text, Text]]
"""A mapping with names in any case, or pairs as in ASGI."""


class Head:
    """
    The headers of a delivery, each found by its name in lower case.

    Spaces and tabs around a value do not count (RFC 9110, section 5.5; some servers leave them).  A header
    that came twice, or is not text, is ``""``.  The repr shows names alone, because a shared header is a
    secret, and error trackers record local variables.
    """

    __slots__ = ("_values",)

    def __init__(self, headers: Headers | None) -> None:
        # items(), because the keys of a multidict may not show that a header came twice
        pairs: Any
        if isinstance(headers, Mapping):
            pairs = headers.items()
        else:
            pairs = headers or ()
        values: dict[str, str] = {}
        for key, value in pairs:
            if isinstance(key, str):
                name = key.lower()
            else:
                name = _text(key).lower()
            if name in values:
                values[name] = ""
            elif isinstance(value, str):
                values[name] = value.strip(_BLANKS)
            else:
                values[name] = _text(value).strip(_BLANKS)
        self._values = values

    def __repr__(self) -> str:
        return f"<the headers {', '.join(self._values)}>"

    def get(self, name: str, default: str | None = None) -> str | None:
        """Return the value of the header *name*, or *default*."""
        return self._values.get(name, default)


def head_of(headers: Headers | Head | None) -> Head:
    """Return headers in the form in which each is found at once."""
    if isinstance(headers, Head):
        return headers
    return Head(headers)


def header_in(headers: Headers | Head | None, name: str) -> str | None:
    """Return the header called *name*, in lower case; of a plain dict, look at no other header."""
    if isinstance(headers, Head):
        return headers.get(name)
    if not isinstance(headers, dict):
        return Head(headers).get(name)
    plain: Any = headers
    length = len(name)  # comparing lengths first costs half of lowering every name
    found = None
    for key in plain:  # as a comprehension, it takes twice as long on 3.11
        if len(key) == length and key.lower() == name:
            if found is not None:
                return ""
            found = key
    if found is None:
        return None
    value = plain[found]
    if isinstance(value, str):
        return value.strip(_BLANKS)
    return ""


def _text(value: object) -> str:
    if isinstance(value, bytes):
        return value.decode("latin-1")
    return ""


_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=255)]
_ABSENT: Final = msgspec.Raw(b"null")


class _Details(msgspec.Struct, gc=False):
    """The ``data`` of a body, not decoded further."""

    object: msgspec.Raw = _ABSENT
    payload: msgspec.Raw = _ABSENT
    uuid: msgspec.Raw = _ABSENT


class _Body(msgspec.Struct, gc=False):  # decoded JSON has no reference cycles
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
    connected_team_metadata: Any = msgspec.field(
        default=None, name="connectedTeamMetadata"
    )
    test: bool | None = None
    data: _Details | None = None
    payload: msgspec.Raw = _ABSENT


_decode_body: Final[Callable[[Json], _Body]] = msgspec.json.Decoder(
    _Body, float_hook=Decimal
).decode
_plain: Final[Callable[[Json], dict[str, Any]]] = msgspec.json.Decoder(
    float_hook=Decimal
).decode
_decode_details: Final[Callable[[Json], _Details]] = msgspec.json.Decoder(
    _Details
).decode


def _decoded(
    decode: Callable[[Json], T],
    raw: Json,
    whole: bytes,
) -> T:
    """Decode *raw*, a part of the body *whole*; raises ``MalformedEventError``."""
    try:
        return decode(raw)
    except UNREADABLE as error:
        raise _unreadable(error, whole) from error


def _malformed(why: str, raw: bytes) -> MalformedEventError:
    return MalformedEventError(
        f"The body is not an event: {why}. Check its sender. Look at .raw.", raw=raw
    )


def _unreadable(error: Exception, raw: bytes) -> MalformedEventError:
    # Only messages of the decoder itself are known not to quote the body.
    if isinstance(error, (msgspec.DecodeError, NestingError)):
        told = str(error)
    else:
        told = type(error).__name__
    return _malformed(f"it is not readable ({told})", raw)


# with slots, a frozen class takes three times as long to create
@attrs.frozen(repr=False, slots=False)
class _Event(Portable):
    """The common part of the three families.  ``from_dict`` and ``from_json`` verify no signature."""

    raw: bytes
    """The body as received, byte for byte."""
    is_test: bool
    """
    Whether it is marked as a test from the dashboard.  Do not handle it as real.

    The mark is in the body; in the headers, it counts only if nothing authenticates the event.
    """
    _body: _Body = attrs.field(eq=False)
    type: str = attrs.field(eq=False)
    """The event's name as sent, whether the specification lists it or not."""

    def __repr__(self) -> str:
        test = ", a test" if self.is_test else ""
        return f"<{type(self).__name__} {self.type} {self.id or 'without an id'}{test}>"

    def __reduce__(self) -> tuple[object, ...]:
        return _again, (self.raw, self.is_test)

    def __rich_repr__(self) -> Iterator[tuple[str, object]]:
        yield from (("type", self.type), ("id", self.id), ("is_test", self.is_test))

    def to_json(self) -> str:
        """
        Return the body as received, with the test mark if only the headers had it.

        Raises:
            InvalidRequestError: The body with the mark cannot be encoded.
        """
        if self.is_test == self.body_says_test:
            return self.raw.decode()
        return super().to_json()

    def _to_plain(self, convert: Callable[[object], Any]) -> dict[str, Any]:
        mark = {} if self.is_test == self.body_says_test else {"test": True}
        return {**_decoded(_plain, self.raw, self.raw), **mark}

    @classmethod
    def _from_plain(cls, plain: dict[str, Any], arguments: tuple[Any, ...]) -> Self:
        return cls.from_json(dumps(plain))

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """
        Return the event with the body *text*.  Verifies no signature.

        Raises:
            InvalidRequestError: It is not the body of such an event.
        """
        if isinstance(text, str):
            text = text.encode(errors="surrogatepass")
        try:
            event = parse(text)
        except MalformedEventError as error:
            raise InvalidRequestError(f"{cls.__name__}: {error}") from None
        if not isinstance(event, cls):
            raise InvalidRequestError(
                f"{cls.__name__}: it is a {event.__class__.__name__}"
            )
        return event

    @property
    def is_known(self) -> bool:
        """Whether the specification lists this type of event."""
        return self.type in _FAMILIES

    @property
    def body_says_test(self) -> bool:
        """Whether the body itself contains the test mark, not only the headers."""
        return self._body.test is True

    @property
    def id(self) -> str | None:
        """The event's id; ``None`` if its body has none (v1, v1.1, some samples)."""
        found: str | None = self._body.id
        return found

    @property
    def dedupe_key(self) -> str | None:
        """
        The id in every delivery of this event, such as ``evt_…``; ``None`` if the body has none.

        Stores, and ``invsvc events``, have it after the family of a signed event: ``sat:evt_…``.
        """
        return self.id

    @property
    def is_catch_up(self) -> bool:
        """
        Whether it was not delivered, but made by ``Receiver.catch_up`` of what a list shows.

        Its ``data`` is the state at that time, ``created``. The mark is in its id, so that it stays where the
        event is stored or passed on.
        """
        known = self._body.id  # of v1, it is no id
        is_marked = isinstance(known, str) and known.startswith(_CAUGHT_UP)
        return is_marked and self.id == known

    @property
    def extra(self) -> dict[str, Any]:
        """
        Top-level fields that the specification does not list, as plain exact values.

        Those beside a v1.1 wrapper are among them.
        """
        family = "signed"
        if isinstance(self, ResourceEvent):
            family = self.version
        known = _FIELDS[family]
        return {
            name: value for name, value in self._plain().items() if name not in known
        }

    def _plain(self) -> dict[str, Any]:
        return _decoded(_plain, self.raw, self.raw)


@attrs.frozen(repr=False, slots=False)
class ResourceEvent(_Event):
    """
    A change of a payment, invoice, receipt, customer or service, or an event of an unknown type.

    For type checkers, a handler whose event is annotated ``InvoiceEvent`` or ``CustomerEvent`` has that model
    as ``data`` after ``event.version == "v2"``, and a dict otherwise; ``OtherEvent`` has a dict.

    It is not signed.  The service sends it until it is answered 2xx, up to 16 times, in no promised order.
    A ``v1.1`` body is a ``v1`` body in a wrapper, which is removed.  In its ``invoice.created``, ``date`` is
    shifted by minus six hours, and is returned as it came.

    Spec: Events, Payload versions of resource events.
    """

    version: Literal["v1", "v1.1", "v2"]

    @classmethod
    def _wire_types(cls, arguments: tuple[Any, ...]) -> dict[str, tuple[Any, bool]]:
        types: dict[str, Any] = dict.fromkeys(
            ("event", "type", "id", "team", "webhook"), str | None
        )
        types |= {
            "livemode": bool | None,
            "created": int | None,
            "data": dict[str, Any],
            "test": bool | None,
        }
        return {name: (kind, False) for name, kind in types.items()}

    @classmethod
    def _with_decimals(
        cls, plain: dict[str, Any], convert: Callable[[Any, Any], Any]
    ) -> dict[str, Any]:
        model = _model_of(str(plain.get("type")))
        if model is None:
            return plain
        data = plain.get("data")
        if not isinstance(data, dict) or "object" not in data:
            return plain
        return {**plain, "data": {**data, "object": convert(model, data["object"])}}

    @property
    def id(self) -> str | None:
        """The delivery's id in v2, unique per event and webhook; ``None`` in v1 and v1.1."""
        return self._body.id if self.version == "v2" else None

    @property
    def created(self) -> datetime | None:
        """When the event was queued, in UTC (v2 only)."""
        ticks = self._body.created if self.version == "v2" else None
        if ticks is None:
            return None
        return utc(ticks)

    @property
    def livemode(self) -> bool | None:
        """Whether it is about live data; ``None`` if the body does not say (a v1 sample)."""
        found: bool | None = self._body.livemode
        return found

    @property
    def team(self) -> str | None:
        """The team's id (v1, v1.1)."""
        return self._body.team if self.version != "v2" else None

    @property
    def webhook(self) -> str | None:
        """The webhook's id (v1, v1.1)."""
        return self._body.webhook if self.version != "v2" else None

    @property
    def connected_team(self) -> Any:  # Any: the specification shows no type
        """The team of the event, in deliveries to a Connect master team only."""
        return self._body.connected_team

    @property
    def connected_team_metadata(self) -> dict[str, str] | None:
        """That team's metadata, if it has any."""
        found: dict[str, str] | None = self._body.connected_team_metadata
        return found

    @cached_property
    def data(self) -> Any:  # Any: a model or plain values, as documented
        """
        The resource: in v2 an ``Invoice`` or a ``Customer`` if it is one, else a dict with exact numbers.

        v1 and v1.1 contain the service's internal camelCase form, as of the event.  v2 contains the form of
        the API, as of the delivery (for ``*.deleted``, the last known state).

        Raises:
            MalformedEventError: A number has too many digits or too large an exponent.
        """
        content = self._body.data
        if self.version != "v2" or content is None:
            return self._plain()["data"]
        resource = _decoded(_plain, content.object, self.raw)
        model = _model_of(self.type)
        if model is None:
            return resource
        from invsvc_async import codec

        return codec.structure(model, resource)

    def _plain(self) -> dict[str, Any]:
        plain = _decoded(_plain, self.raw, self.raw)
        if self.version != "v1.1":
            return plain
        if plain.get("event") is not None:  # the wrapper is around the resource only
            details: dict[str, Any] = plain["data"]
            return plain | {"data": details.pop("payload") | details}
        payload: dict[str, Any] = plain.pop("payload")
        return plain | payload


if TYPE_CHECKING:

    class OldEvent(ResourceEvent):
        """An event of version v1 or v1.1, whose data has the service's own names."""

        version: Literal["v1", "v1.1"]

        @cached_property
        def data(self) -> dict[str, Any]:
            """The resource, as plain values."""
            ...

    class NewEvent(ResourceEvent, Generic[R_co]):
        """An event of version v2."""

        version: Literal["v2"]

        @cached_property
        def data(self) -> R_co:
            """The resource: a model, if there is one."""
            ...

    # Type checkers narrow a union, but no class, by an attribute.
    InvoiceEvent: TypeAlias = OldEvent | NewEvent[Invoice]
    CustomerEvent: TypeAlias = OldEvent | NewEvent[Customer]
    OtherEvent: TypeAlias = OldEvent | NewEvent[dict[str, Any]]
    AnyResource: TypeAlias = OldEvent | NewEvent[Invoice | Customer | dict[str, Any]]
else:
    InvoiceEvent = CustomerEvent = OtherEvent = AnyResource = ResourceEvent


def _model_of(event: str) -> type[Model] | None:
    """Return the class of the resource of a v2 event, if it is a model."""
    family = event.partition(".")[0]
    if family not in {"invoice", "customer"}:
        return None
    from invsvc_async import models

    if family == "invoice":
        return models.Invoice
    return models.Customer


@attrs.frozen(repr=False, slots=False)
class _SignedEvent(_Event, Generic[D]):
    """The common part of the signed families: an ``evt_`` id and a time in epoch seconds."""

    _payload: ClassVar[str]  # the name of the class of ``data``

    def _to_plain(self, convert: Callable[[object], Any]) -> dict[str, Any]:
        return {**super()._to_plain(convert), "data": convert(self.data)}

    @classmethod
    def _wire_types(cls, arguments: tuple[Any, ...]) -> dict[str, tuple[Any, bool]]:
        needed = {"id": str, "event": str, "data": cls._model()}
        optional = {"created_at": (int | None, False), "test": (bool | None, False)}
        return {name: (kind, True) for name, kind in needed.items()} | optional

    @classmethod
    def _model(cls) -> Any:  # Any: a class, by its name
        from invsvc_async.events import payloads

        return getattr(payloads, cls._payload)

    @cached_property
    def data(self) -> D:
        """The contents."""
        from invsvc_async import codec

        found: D = codec.structure(self._model(), self._plain()["data"])
        return found

    @property
    def created_at(self) -> datetime | None:
        """When it happened, in UTC, to the second."""
        seconds = self._body.created_at
        if seconds is None:
            return None
        return utc(seconds * 1000)


@attrs.frozen(repr=False, slots=False)
class SatInvoiceSynced(_SignedEvent["SyncedInvoice"]):
    """
    The XML of a tax-authority invoice was fetched and stored.

    It is signed, and sent only once: store it, or it is lost.  The body has no ``livemode``, and
    its ``issue_date`` is a local date-time without a zone.

    Spec: Events, Tax-authority sync body.
    """

    _payload = "SyncedInvoice"


@attrs.frozen(repr=False, slots=False)
class InvoiceBatchCompleted(_SignedEvent["InvoiceBatch"]):
    """
    Every accepted invoice of an income batch has a final status.

    It is signed, and sent only once: store it, or it is lost.

    Spec: Events, Invoice batch body.
    """

    _payload = "InvoiceBatch"


# attrs sets the fields after the class is made, and each class would inherit those of its base.
for _each in (
    _Event,
    _SignedEvent,
    ResourceEvent,
    SatInvoiceSynced,
    InvoiceBatchCompleted,
):
    hide_fields(_each)

Event: TypeAlias = AnyResource | SatInvoiceSynced | InvoiceBatchCompleted


def key_of(event: Event) -> str | None:
    """
    Return the key under which a store knows *event*.

    The three families have ids of their own: one in another family is another event.  Those of resource
    events are stored as they are.
    """
    key = event.id
    if key is None:
        return None
    if isinstance(event, ResourceEvent):
        if ":" in key:
            return f"resource:{key}"
        return key
    return f"{event.type.partition('.')[0]}:{key}"


def subject_in(event: Event) -> str | None:
    """
    Return the type and object of *event*, with which a store compares the objects of a list.

    ``None`` for types that no list can stand for; ``""`` if the body does not name the object.
    """
    if event.type not in LISTED or not isinstance(event, ResourceEvent):
        return None
    content = event._body  # noqa: SLF001 - it is this file's
    return subject_of(event.type, _uuid_in(content, event.version))


def _uuid_in(content: _Body, version: Version) -> object:
    """Return the ``uuid`` of the resource, if any. That v1 names it so is an assumption."""
    found = content.data
    assert found is not None  # the body would be malformed
    if version == "v2":
        found = _decode_details(found.object)
    elif _is_object(found.payload):
        found = _decode_details(found.payload)
    try:
        return _plain(found.uuid)
    except UNREADABLE:
        return None


def queued_at(event: Event) -> float | None:
    """Return when *event* was queued, or its object was shown, in epoch ms; ``None`` if it does not say."""
    created = event.created if isinstance(event, ResourceEvent) else None
    return None if created is None else round(created.timestamp() * 1000)


def subject_of(kind: str, uuid: object) -> str:
    """Return the subject of an event of the type *kind* about the invoice *uuid*, or ``""`` if it is none."""
    if not isinstance(uuid, str):
        return ""
    fits = 0 < len(uuid) <= _LONGEST_UUID and uuid.isprintable()
    return f"{kind}:{str(uuid).upper()}" if fits else ""


def stored_subject(body: bytes | None) -> str:
    """Return the subject of the event with the *body*, or ``""`` if the body is gone or is no such event."""
    try:
        event = parse(body or b"")
    except MalformedEventError:
        return ""
    return subject_in(event) or ""


def caught_up(
    subject: str,
    made_at: datetime | None,
    shown: Model,
) -> Event:
    """
    Return the event with the *subject* about the object *shown* by a list, as it was *made_at*.

    Raises:
        MalformedEventError: The object cannot be the data of an event.
    """
    kind = subject.partition(":")[0]
    body: dict[str, Any] = {"id": f"{_CAUGHT_UP}{subject}", "type": kind}
    if made_at is not None:
        body["created"] = round(made_at.timestamp() * 1000)
    livemode = getattr(shown, "livemode", None)
    if isinstance(livemode, bool):
        body["livemode"] = livemode
    body["data"] = {"object": shown.to_dict()}
    return parse(dumps(body))


def check_delivered(event: Event) -> None:
    """Raise ``MalformedEventError`` if the delivered *event* claims to be made from a list."""
    if event.is_catch_up:
        raise _malformed(
            "its id is one of those that Receiver.catch_up makes", event.raw
        )


def _again(raw: bytes, is_test: bool) -> Event:  # noqa: FBT001 - the form of __reduce__
    return attrs.evolve(parse(raw), is_test=is_test)


Version: TypeAlias = Literal["v1", "v1.1", "v2"]
SignedFamily: TypeAlias = type[SatInvoiceSynced | InvoiceBatchCompleted]

# all fields of a v1.1 wrapper
_WRAPPER: Final = frozenset({"payload", "customer", "date"})
_BRACE: Final = ord("{")
_ID_LENGTH: Final = 255
_LONGEST_UUID: Final = 100  # so that the id made of it is not too long
# of the year 9999, the last that a datetime can represent
_LAST_SECOND: Final = 253_402_300_799
_SIGNED: Final[dict[str, SignedFamily]] = {
    "sat": SatInvoiceSynced,
    "invoice_batch": InvoiceBatchCompleted,
}
_FAMILIES: Final = {name: _SIGNED.get(name.partition(".")[0]) for name in EVENT_TYPES}


def parse(body: bytes, headers: Headers | Head | None = None) -> Event:
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
        content = _decode_body(raw)
    except UNREADABLE as error:
        raise _unreadable(error, raw) from error
    version: Version = "v1"
    if content.event is None:
        version, content = _other_version(content, raw)
    if content.data is None:
        raise _malformed("it has no 'data'", raw)
    is_test = content.test is True or says_test(headers)
    name = content.event or content.type or ""
    if name in _FAMILIES:
        family = _FAMILIES[name]
    elif name.isprintable():  # because stores and logs contain it
        family = _SIGNED.get(name.partition(".")[0])
    else:
        raise _malformed("the event's type is not printable", raw)
    if family is None:
        version = _checked_version(content, content.data, version, raw, is_test=is_test)
        event = ResourceEvent(raw, is_test, content, name, version)
        return cast("AnyResource", event)
    if version != "v1":
        raise _malformed(f"{name} does not have bodies of {version}", raw)
    _check_id_and_time(
        content.id, "created_at", content.created_at, _LAST_SECOND, raw, is_test=is_test
    )
    return family(raw, is_test, content, name)


def says_test(headers: Headers | Head | None) -> bool:
    """Return whether the headers contain the dashboard's test mark."""
    if headers is None:
        return False
    return header_in(headers, _TEST) == "true"


def _other_version(content: _Body, raw: bytes) -> tuple[Version, _Body]:
    if content.type is not None:
        if content.data is None or not _is_object(content.data.object):
            raise _malformed("it has a 'type' but no object in 'data.object'", raw)
        return "v2", content
    if not _is_object(content.payload):
        raise _malformed("it has neither 'event', nor 'type', nor a 'payload'", raw)
    inner = _decoded(_decode_body, content.payload, raw)
    if inner.event is None:
        raise _malformed("its 'payload' has no 'event'", raw)
    inner.test = content.test or inner.test
    return "v1.1", inner


def _is_object(raw: msgspec.Raw) -> bool:
    return memoryview(raw)[0] == _BRACE


def _checked_version(
    body: _Body,
    data: _Details,
    version: Version,
    raw: bytes,
    *,
    is_test: bool,
) -> Version:
    """Check the fields of a resource event; return its version, as a wrapper may be around its data."""
    if body.livemode.__class__ is not bool:
        _check("livemode", body.livemode, bool, raw)
    if version == "v2":
        _check_id_and_time(
            body.id, "created", body.created, _LAST_SECOND * 1000, raw, is_test=is_test
        )
        return version
    _check("team", body.team, str, raw)
    _check("webhook", body.webhook, str, raw)
    _check("connectedTeamMetadata", body.connected_team_metadata, dict, raw)
    is_outer = version == "v1.1" or not _is_object(data.payload)
    if is_outer or _decoded(_plain, raw, raw)["data"].keys() - _WRAPPER:
        return version
    return "v1.1"


def _check_id_and_time(
    text: object,
    field: str,
    ticks: object,
    last: int,
    raw: bytes,
    *,
    is_test: bool,
) -> None:
    is_absent = text is None and is_test
    if not is_absent and not _is_id(text):
        raise _malformed(
            f"'id' is not a printable text of 1 to {_ID_LENGTH} characters", raw
        )
    if ticks is None:
        return
    # True is an int too
    if type(ticks) is not int or not 0 <= ticks <= last:
        raise _malformed(
            f"{field!r} is not a whole number within the years 1970 to 9999", raw
        )


def _is_id(text: object) -> bool:
    if not isinstance(text, str):
        return False
    return 0 < len(text) <= _ID_LENGTH and text.isprintable()


def _check(
    field: str,
    value: Any,
    kind: type,
    raw: bytes,
) -> None:
    if value is not None and value.__class__ is not kind:
        raise _malformed(f"{field!r} is not of type {kind.__name__}", raw)


def _bytes(body: Any) -> bytes:  # Any: what a caller without a type checker may pass
    try:
        return bytes(memoryview(body))
    except TypeError:
        raise MalformedEventError(
            f"body: it is of type {type(body).__name__}. Pass the raw bytes."
        ) from None
