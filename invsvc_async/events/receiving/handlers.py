"""
The handlers of a receiver: their registration, the events of each, and what a store has to know.

In a store, a handler is known by its name.  Each event is stored once for each handler that it is for.
"""

from __future__ import annotations

import hashlib
import inspect
import logging
import re
from itertools import chain
from math import inf
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypedDict, TypeVar

import attrs

from invsvc_async.api.event_types import EVENT_TYPES
from invsvc_async.concurrency.pace import Pace
from invsvc_async.concurrency.plain_function import is_plain_function
from invsvc_async.errors import ConfigurationError
from invsvc_async.events.event import Event, key_of, queued_at, subject_in
from invsvc_async.events.receiving.current import READABLE, Gone
from invsvc_async.events.stores import Delivery, Entry, HandlerStore, Store

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from invsvc_async.models import Invoice

T = TypeVar("T")

_LONGEST = 1e9  # s, 31 years: an endless lease would outlive its process, and the event would wait for ever


def check_valid(
    name: str,
    value: object,
    use: str,
    *,
    fits: bool,
) -> None:
    """Raise ``ConfigurationError`` unless *value*, of the argument *name*, *fits*; *use* says what does."""
    if not fits:
        raise ConfigurationError(f"{name}: {value!r} is not valid. Use {use}.")


def _positive(
    _: object,
    field: attrs.Attribute[float],
    seconds: float,
) -> None:
    """Validate a time of a policy."""
    fits = isinstance(seconds, (int, float)) and 0 < seconds <= _LONGEST
    check_valid(
        field.name,
        seconds,
        f"more than 0 and at most {_LONGEST:.0e} seconds",
        fits=fits,
    )


def _at_least_one(
    _: object,
    field: attrs.Attribute[int],
    number: int,
) -> None:
    """Validate a number of a policy."""
    fits = isinstance(number, int) and number >= 1
    check_valid(field.name, number, "a whole number, at least 1", fits=fits)


@attrs.frozen(kw_only=True)
class InboxPolicy:
    """
    How stored events are handled.  All times are in seconds.

    An event is tried ``attempts`` times, each time for at most ``timeout``, and is then a dead letter.
    Between tries, the worker waits a random part of a delay that starts at ``initial`` and doubles up to
    ``maximum``.  At most ``concurrency`` events are handled at once.  The store is read every ``poll``, for
    events that other processes have stored.  Handled events are remembered for ``keep``, to recognise late
    duplicates, and their bodies are kept for ``keep_bodies`` (none by default), so that they can be replayed.
    Dead letters are deleted after ``keep_dead``; by default, they stay until somebody deals with them.

    Raises:
        ConfigurationError: A value is not positive or too large, or bodies are to be kept longer than events.
    """

    attempts: int = attrs.field(default=12, validator=_at_least_one)
    timeout: float = attrs.field(default=60.0, validator=_positive)
    initial: float = attrs.field(default=1.0, validator=_positive)
    maximum: float = attrs.field(default=3600.0, validator=_positive)
    concurrency: int = attrs.field(default=16, validator=_at_least_one)
    poll: float = attrs.field(default=1.0, validator=_positive)
    keep: float = attrs.field(default=30 * 86400.0, validator=_positive)
    keep_bodies: float | None = attrs.field(
        default=None, validator=attrs.validators.optional(_positive)
    )
    keep_dead: float | None = attrs.field(
        default=None, validator=attrs.validators.optional(_positive)
    )

    def __attrs_post_init__(self) -> None:
        if self.keep_bodies is not None and self.keep_bodies > self.keep:
            raise ConfigurationError(
                f"keep_bodies: {self.keep_bodies!r} is longer than keep, {self.keep!r}. Raise keep, or lower "
                "this."
            )

    def delay(self, attempts: int, chance: float) -> float:
        """Return the delay after *attempts*; *chance* is from 0 to 1."""
        return chance * min(self.maximum, self.initial * 2.0 ** min(attempts - 1, 62))


# Any: each function may name the family it expects; options are those of HandlerOptions
Function: TypeAlias = "Callable[..., Awaitable[object]]"
Options: TypeAlias = "Mapping[str, Any]"
EventHandler: TypeAlias = "Callable[[Any], Awaitable[object]]"
FetchingHandler: TypeAlias = "Callable[[Any, Invoice | Gone], Awaitable[object]]"
Middleware: TypeAlias = (
    "Callable[[Handling, Callable[[], Awaitable[None]]], Awaitable[object]]"
)
Where: TypeAlias = "Callable[[Any], bool]"
Key: TypeAlias = "Callable[[Any], str | int | None]"
EventPattern: TypeAlias = Literal[
    "*",
    "payment.*",
    "invoice.*",
    "receipt.*",
    "customer.*",
    "service.*",
    "invoice_batch.*",
    "sat.*",
]
# the names of each kind of event, for type checkers
OfInvoices: TypeAlias = Literal[
    "invoice.*", "invoice.created", "invoice.canceled", "invoice.failed"
]
OfCustomers: TypeAlias = Literal[
    "customer.*", "customer.created", "customer.updated", "customer.deleted"
]
_OfPayments: TypeAlias = Literal[
    "payment.*",
    "payment.created",
    "payment.updated",
    "payment.succeeded",
    "payment.canceled",
    "payment.deleted",
    "payment.upcoming_due_date",
]
_OfReceipts: TypeAlias = Literal[
    "receipt.*",
    "receipt.created",
    "receipt.updated",
    "receipt.completed",
    "receipt.deleted",
]
_OfServices: TypeAlias = Literal[
    "service.*", "service.created", "service.updated", "service.deleted"
]
OfOthers: TypeAlias = _OfPayments | _OfReceipts | _OfServices
OfResources: TypeAlias = OfInvoices | OfCustomers | OfOthers
OfSyncs: TypeAlias = Literal["sat.*", "sat.invoice.synced"]
OfBatches: TypeAlias = Literal["invoice_batch.*", "invoice_batch.completed"]

_OfType: TypeAlias = "tuple[list[Handler], list[Handler]]"  # the handlers of one type, and those of ``*``

_log: Final = logging.getLogger("invsvc_async.events")
_OF_POLICY: Final = ("timeout", "attempts", "initial", "maximum")
_OF_HANDLER: Final = ("name", "where", "key", "timeout", "rate")
_NAME: Final = re.compile(r"\w[\w.-]{0,99}")


@attrs.frozen
class Handling:
    """One call of a handler, for middleware: the event, the handler's name, and the attempt, from 1."""

    event: Event
    handler: str
    attempt: int


class HandlerOptions(TypedDict, total=False):
    """What ``Receiver.on`` takes besides types and *fetch*; ``None`` is as if it were not given."""

    where: Where | None
    key: Key | None
    name: str | None
    timeout: float | None
    attempts: int | None
    initial: float | None
    maximum: float | None
    rate: float | None


@attrs.frozen(kw_only=True)
class Handler:
    """
    A registered handler.  ``types`` are names of events, families like ``invoice.*``, and ``*``.

    If an equal handler is registered, its types are added to this one.
    """

    name: str
    function: Function
    types: frozenset[str] = attrs.field(eq=False)
    fetch: bool
    policy: InboxPolicy
    where: Where | None = None
    key: Key | None = None
    timeout: float | None = None
    rate: float | None = None
    pace: Pace | None = attrs.field(
        init=False,
        eq=False,
        default=attrs.Factory(lambda it: it.rate and Pace(it.rate), takes_self=True),
    )

    def is_for(self, kind: str) -> bool:
        """Whether this handler is registered for *kind*: a type, by its name or a family, or ``*`` itself."""
        return not self.types.isdisjoint((kind, *_families(kind)))

    def wants(self, event: Event) -> bool:
        """Whether this handler is called with *event*; raises the error of its ``where``."""
        if not ("*" in self.types or self.is_for(event.type)):
            return False
        found: object = self.where is None or self.where(event)
        if inspect.iscoroutine(found):
            found.close()  # so that nothing warns that it was never awaited
        if inspect.isawaitable(found):  # which would always be true
            raise TypeError(
                f"where: that of {self.name!r} is async. Use a function that is not."
            )
        return bool(found)

    def ordering_key(self, event: Event) -> str | None:
        """Return a text of fixed length for the event's key, or ``None``; raises what ``key`` raises."""
        if self.key is None:
            return None
        value: object = self.key(event)
        if value is None:
            return None
        if not isinstance(value, (str, int)):
            raise TypeError(
                f"key: {self.name!r} returned {type(value).__name__}. Return text, a number or None."
            )
        return hashlib.sha256(
            f"{self.name}\0{value}".encode(errors="surrogatepass")
        ).hexdigest()[:32]


def _families(kind: str) -> list[str]:
    """Return the patterns of the families of *kind*: ``sat.*`` and ``sat.invoice.*``, for example."""
    parts = kind.split(".")
    return [".".join((*parts[:end], "*")) for end in range(1, len(parts))]


_PATTERNS: Final = {
    "*",
    *EVENT_TYPES,
    *chain.from_iterable(map(_families, EVENT_TYPES)),
}


def _takes(function: Callable[..., object], *arguments: str) -> bool:
    """Return whether *function* takes *arguments*, or cannot be inspected (mocks in Python 3.11.2)."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return True
    try:
        signature.bind(*arguments)
    except TypeError:
        return False
    return True


def check_async(handler: object) -> None:
    """Raise ``ConfigurationError`` if *handler* is not an async function or an object with an async call."""
    if not callable(handler) or is_plain_function(handler):
        raise ConfigurationError(
            f"handler: {handler!r} is not async. Define it with 'async def', and call blocking code in it "
            "with asyncio.to_thread."
        )


def check_options(
    types: Sequence[object],
    options: Options,
    *,
    fetch: bool,
) -> None:
    """Raise ``ConfigurationError`` if an argument of ``Receiver.on`` is not valid."""
    for unknown in options.keys() - HandlerOptions.__annotations__:
        raise TypeError(f"on() got an unexpected keyword argument {unknown!r}")
    _check_types(types, fetch=fetch)
    own = options.get("name")
    rate = options.get("rate")
    is_name = isinstance(own, str) and _NAME.fullmatch(own) is not None
    check_valid(
        "name",
        own,
        "letters, digits, '_', '-' and '.', at most 100",
        fits=own is None or is_name,
    )
    for name in ("where", "key"):
        function = options.get(name)
        fits = function is None or is_plain_function(function)
        check_valid(name, function, "a function that is not async", fits=fits)
    is_rate = isinstance(rate, (int, float)) and 0 < rate < inf
    fits = rate is None or is_rate
    check_valid("rate", rate, "a positive number of calls a second", fits=fits)


def _check_types(types: Sequence[object], *, fetch: bool) -> None:
    """Raise ``ConfigurationError`` if one of *types* does not exist, or has no read to *fetch* with."""
    if not types:
        raise ConfigurationError("on: no type is given. Pass at least one, or on('*').")
    for name in types:
        if not isinstance(name, str) or name not in _PATTERNS:
            raise ConfigurationError(
                f"on: {name!r} is not in the specification. {_advice_for(name)}"
            )
    if not fetch:
        return
    for name in types:
        if name not in READABLE:
            raise ConfigurationError(
                f"on: the specification has no read of what {name} names. Use fetch=True for "
                f"{' and '.join(sorted(READABLE))}; for others, read in the handler what you know of, with "
                "client.request."
            )


def _advice_for(name: object) -> str:
    """Return what to use instead of *name*, which is not a type or family."""
    from difflib import get_close_matches

    close = get_close_matches(str(name), _PATTERNS, n=1)
    if close:
        return f"Did you mean {close[0]!r}? Otherwise, use on('*')."
    return "Use on('*') for other types."


@attrs.frozen
class HandlerGroup:
    """
    Handlers whose events are taken together: those with the same timeout and no rate, or one with a rate.

    The name ``""`` stands for events that are stored for no handler yet. If the store knows no handlers,
    ``names`` is empty, and all are one group.
    """

    names: tuple[str, ...]
    timeout: float
    pace: Pace | None


class Handlers:
    """The handlers of a receiver, by name; *policy* is for handlers without options of their own."""

    def __init__(
        self,
        policy: InboxPolicy,
        store: Store,
        *,
        stored_first: bool,
    ) -> None:
        self.policy: Final = policy
        # ``None`` if the store knows no handlers: then each type has at most one.
        self.handler_store: Final = store if isinstance(store, HandlerStore) else None
        self._stored_first = stored_first
        self._by_name: dict[str, Handler] = {}
        self._by_type: dict[str, _OfType] = {}

    def add(
        self,
        function: Function,
        types: Sequence[str],
        options: Options,
        *,
        fetch: bool,
    ) -> None:
        """Register a handler, or more types of one that has the same *options*, as HandlerOptions."""
        check_async(function)
        arguments = ("event", "current") if fetch else ("event",)
        if not _takes(function, *arguments):
            raise ConfigurationError(
                f"handler: {function!r} cannot be called with ({', '.join(arguments)}). Define it so; "
                "the current state is given with fetch=True."
            )
        handler = self._handler_of(function, types, options, fetch=fetch)
        known = self._by_name.get(handler.name)
        if known is not None:
            if known != handler:
                raise ConfigurationError(
                    f"on: there is another handler called {handler.name!r}. Pass name= to tell them apart."
                )
            handler = attrs.evolve(known, types=known.types | handler.types)
        self._check_store(handler)
        self._by_name[handler.name] = handler
        self._by_type.clear()

    def _handler_of(
        self,
        function: Function,
        types: Sequence[str],
        options: Options,
        *,
        fetch: bool,
    ) -> Handler:
        """Return a handler with *options*.  Without a name there, the function's name is the handler's."""
        name = str(getattr(function, "__name__", type(function).__name__))
        own: dict[str, Any] = {"name": name}
        of_policy: dict[str, Any] = {}
        for option, value in options.items():
            if value is None:
                continue
            if option in _OF_HANDLER:
                own[option] = value
            if option in _OF_POLICY:
                of_policy[option] = value
        policy = attrs.evolve(self.policy, **of_policy)
        return Handler(
            function=function,
            types=frozenset(types),
            fetch=fetch,
            policy=policy,
            **own,
        )

    def matching(self, event: Event) -> Sequence[Handler]:
        """
        Return the handlers of *event*: by its type, or else the handlers of ``*``.

        One whose ``where`` raises is among them, so that the error counts as a failed attempt.
        """
        for handlers in self._of_type(event.type):
            wanting = [each for each in handlers if _may_want(each, event)]
            if wanting:
                return wanting
        return ()

    def deliveries(self, event: Event) -> tuple[Delivery, ...]:
        """Return the deliveries to store of *event*: one for each handler, or one without a handler."""
        whole = delivery_of(event)
        matching = self.matching(event)
        if not matching:
            return (whole,)
        found: list[Delivery] = []
        key = whole.key
        for one in matching:
            order = _result_or(
                None,
                one.ordering_key,
                event,
                option="key",
                handler=one,
            )
            found.append(
                Delivery(
                    key=key,
                    type=whole.type,
                    body=whole.body,
                    handler=one.name,
                    ordering_key=order,
                    subject=whole.subject,
                    as_of=whole.as_of,
                )
            )
            key = None  # ``put`` stores the others under the key of the first.
        return tuple(found)

    def has_for(self, kind: str) -> bool:
        """Return whether a handler gets events of the type *kind*."""
        own, rest = self._of_type(kind)
        return bool(own or rest)

    def to_assign(self, entry: Entry, event: Event) -> Sequence[Delivery]:
        """
        Return the deliveries with which the store has to replace *entry* before it is handled, if any.

        Some entries say nothing yet of who is to handle the event, or in which order.
        """
        if self.handler_store is None:
            return []
        # The event already waits in an order, and so for a handler.
        if entry.ordering_key is not None:
            return []
        # The event was stored by somebody who did not know the handlers. If none wants it, it is ignored.
        if not entry.handler:
            if self.matching(event):
                return self.deliveries(event)
            return []
        # The event is for one handler. It has no order yet if it was revived, if an operator gave it to the
        # handler, or if ``key`` raised when it was stored.
        handler = self._by_name.get(entry.handler)
        if handler is None or handler.key is None:
            return []
        # ``where`` refuses the event: it is not handled at all, and needs no order.
        if not handler.wants(event):
            return []
        key = handler.ordering_key(event)
        # ``key`` allows any order.
        if key is None:
            return []
        # The entry becomes this delivery, and keeps its own key and body.
        in_order = Delivery(
            key=None,
            type=event.type,
            body=None,
            handler=handler.name,
            ordering_key=key,
        )
        return [in_order]

    def of(self, entry: Entry, event: Event) -> Handler | None:
        """Return the handler that an entry is for, if it wants the event."""
        if entry.handler:
            handler = self._by_name.get(entry.handler)
        else:
            handler = next(iter(self.matching(event)), None)
        if handler is None or not handler.wants(event):
            return None
        return handler

    def policy_of(self, entry: Entry) -> InboxPolicy:
        """Return the policy of the handler that an entry is for."""
        if entry.handler:
            handler = self._by_name.get(entry.handler)
        elif self.handler_store is not None:
            handler = None  # The event is assigned to its handlers before one of them gets it.
        else:  # The store knows no handlers, so that there is one for each type.
            own, rest = self._of_type(entry.type)
            handler = next(iter(own or rest), None)
        if handler is None:
            return self.policy
        return handler.policy

    def groups(self) -> list[HandlerGroup]:
        """Return the groups of events to take together; events without a handler are in the first."""
        names_by_limits: dict[tuple[float, Pace | None], list[str]] = {
            (self.policy.timeout, None): [""]
        }
        for handler in self._by_name.values():
            limits = (handler.policy.timeout, handler.pace)
            names_by_limits.setdefault(limits, []).append(handler.name)
        if self.handler_store is None:
            longest = max(timeout for timeout, _ in names_by_limits)
            return [HandlerGroup(names=(), timeout=longest, pace=None)]
        return [
            HandlerGroup(names=tuple(names), timeout=timeout, pace=pace)
            for (timeout, pace), names in names_by_limits.items()
        ]

    def _of_type(self, kind: str) -> _OfType:
        """Return the handlers of the type *kind*, and those of ``*``; remember them."""
        known = self._by_type.get(kind)
        if known is not None:
            return known
        own: list[Handler] = []
        rest: list[Handler] = []
        for handler in self._by_name.values():
            if handler.is_for(kind):
                own.append(handler)
            if "*" in handler.types:
                rest.append(handler)
        if kind in EVENT_TYPES:  # a sender could make up any number of others
            self._by_type[kind] = own, rest
        return own, rest

    def _check_store(self, handler: Handler) -> None:
        """Raise ``ConfigurationError`` if *handler* needs what the store cannot do."""
        ordered = handler.key is not None or handler.pace is not None
        if ordered and not self._stored_first:
            raise ConfigurationError(
                "on: key= and rate= need stored events. Use Receiver(mode='inbox')."
            )
        if self.handler_store is not None:
            return
        if ordered or self._shares_a_type(handler):
            raise ConfigurationError(
                "on: this store does not know handlers. Make it a HandlerStore, or register one handler for "
                "each type, without key= and rate=."
            )

    def _shares_a_type(self, handler: Handler) -> bool:
        """Return whether another handler is for a type that *handler* is for."""
        kinds = ("*", *EVENT_TYPES)  # Two handlers of ``*`` share events, too.
        own = [kind for kind in kinds if handler.is_for(kind)]
        for other in self._by_name.values():
            if other.name != handler.name and any(map(other.is_for, own)):
                return True
        return False


def delivery_of(event: Event) -> Delivery:
    """Return what is stored of *event* for whatever handlers it has."""
    subject = subject_in(event)
    as_of = None
    if subject is not None:
        as_of = queued_at(event)
    return Delivery(
        key=key_of(event),
        type=event.type,
        body=event.raw,
        subject=subject,
        as_of=as_of,
    )


def _may_want(handler: Handler, event: Event) -> bool:
    """Return whether ``where`` of *handler*, which is for the type of *event*, returns true, or raises."""
    if handler.where is None:
        return True
    return _result_or(
        True,
        handler.wants,
        event,
        option="where",
        handler=handler,
    )


def _result_or(
    fallback: T,
    function: Callable[[Event], T],
    event: Event,
    *,
    option: str,
    handler: Handler,
) -> T:
    """
    Return what *function*, a user-supplied *option* of *handler*, returns; *fallback* if it raises.

    The attempt to handle the event calls the function again: there, an error counts as a failed attempt.
    """
    try:
        return function(event)
    except Exception as error:  # noqa: BLE001 - it may raise anything
        _log.warning(
            "%s of handler %s failed: %s", option, handler.name, type(error).__name__
        )
        return fallback
