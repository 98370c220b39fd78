"""One handler of a receiver, what it may be registered with, and what middleware sees of a call."""

from __future__ import annotations

import hashlib
import inspect
import re
from math import floor
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import attrs

from invsvc_async.api.event_types import EVENT_TYPES
from invsvc_async.concurrency.plain_function import is_plain_function
from invsvc_async.errors import ConfigurationError
from invsvc_async.events.receiving.current import READABLE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from invsvc_async.events.event import Event
    from invsvc_async.events.receiving.current import Gone
    from invsvc_async.events.receiving.policy import InboxPolicy
    from invsvc_async.models import Invoice

__all__ = [
    "EventHandler", "EventPattern", "FetchingHandler", "Handler", "Handling", "Key", "Middleware", "Pace",
    "Settings", "Where", "check_async", "check_settings", "handler_of",
]  # fmt: skip

# Any: each function may name the family it expects
EventHandler: TypeAlias = "Callable[[Any], Awaitable[object]]"
FetchingHandler: TypeAlias = "Callable[[Any, Invoice | Gone], Awaitable[object]]"
Middleware: TypeAlias = "Callable[[Handling, Callable[[], Awaitable[None]]], Awaitable[object]]"
Where: TypeAlias = "Callable[[Any], bool]"
Key: TypeAlias = "Callable[[Any], str | int | None]"
EventPattern: TypeAlias = Literal[
    "*", "payment.*", "invoice.*", "invoice_batch.*", "receipt.*", "customer.*", "service.*", "sat.*",
]  # fmt: skip

_NAME: Final = re.compile(r"\w[\w.-]{0,99}")
_BURST: Final = 0.05  # s of calls that may be caught up at once, because each look at the store takes time


@attrs.frozen
class Handling:
    """One call of a handler, for middleware: the event, the handler's name, and the attempt, from 1."""

    event: Event
    handler: str
    attempt: int


@attrs.frozen(kw_only=True)
class Settings:
    """What ``Receiver.on`` takes besides types.  ``None`` stands for what the ``InboxPolicy`` says."""

    where: Where | None = None
    key: Key | None = None
    timeout: float | None = None
    attempts: int | None = None
    initial: float | None = None
    maximum: float | None = None
    rate: float | None = None
    fetch: bool = False

    def policy(self, policy: InboxPolicy) -> InboxPolicy:
        """Return *policy* with the numbers that are given; raises ``ConfigurationError``."""
        names = ("timeout", "attempts", "initial", "maximum")
        given = {name: value for name in names if (value := getattr(self, name)) is not None}
        return attrs.evolve(policy, **given)


class Pace:
    """Spread calls evenly, *rate* a second.  *now* is the time of the event loop, in seconds."""

    def __init__(self, rate: float) -> None:
        self._gap = 1 / rate
        self._next = float("-inf")

    def free(self, now: float) -> int:
        """Return how many calls may begin now."""
        return max(0, floor((now - self._start(now)) / self._gap) + 1)

    def use(self, number: int, now: float) -> None:
        """Count so many calls that begin now."""
        self._next = self._start(now) + number * self._gap

    def wait(self, now: float) -> float:
        """Return how many seconds remain until a call may begin."""
        return max(0.0, self._next - now)

    def _start(self, now: float) -> float:
        return max(self._next, now - _BURST)


@attrs.frozen(kw_only=True)
class Handler:
    """A registered handler.  ``types`` are names of events, families like ``invoice.*``, and ``*``."""

    name: str
    function: Callable[..., Awaitable[object]]
    types: frozenset[str]
    settings: Settings
    policy: InboxPolicy
    pace: Pace | None

    def is_for(self, kind: str) -> bool:
        """Whether it is registered for a type, other than by ``*``."""
        parts = kind.split(".")
        families = (".".join((*parts[:end], "*")) for end in range(1, len(parts)))
        return kind in self.types or not self.types.isdisjoint(families)

    def wants(self, event: Event) -> bool:
        """Whether it is to be called with *event*; raises what its ``where`` raises."""
        where = self.settings.where
        is_for = "*" in self.types or self.is_for(event.type)
        return is_for and (where is None or _is_true(where(event), self.name))

    def ordering_key(self, event: Event) -> str | None:
        """Return a text of fixed length for the event's key, or ``None``; raises what ``key`` raises."""
        value: object = self.settings.key(event) if self.settings.key is not None else None
        if value is None:
            return None
        if not isinstance(value, (str, int)):
            raise TypeError(
                f"key: {self.name!r} returned {type(value).__name__}. Return text, a number or None."
            )
        return hashlib.sha256(f"{self.name}\0{value}".encode(errors="surrogatepass")).hexdigest()[:32]


def handler_of(
    function: Callable[..., Awaitable[object]],
    types: Sequence[str],
    name: str | None,
    settings: Settings,
    policy: InboxPolicy,
) -> Handler:
    """
    Return the handler, which has the name of the function by default.

    Raises:
        ConfigurationError: It is not async, or an argument is not valid.
    """
    check_async(function)
    if name is None:
        name = str(getattr(function, "__name__", type(function).__name__))
    elif not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ConfigurationError(
            f"name: {name!r} is not valid. Use letters, digits, '_', '-' and '.', at most 100."
        )
    arguments = ("event", "current") if settings.fetch else ("event",)
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError:
        raise ConfigurationError(
            f"handler: {function!r} cannot be called with ({', '.join(arguments)}). Define it so; "
            "the current state is given with fetch=True."
        ) from None
    return Handler(
        name=name,
        function=function,
        types=frozenset(map(str, types)),
        settings=settings,
        policy=settings.policy(policy),
        pace=None if settings.rate is None else Pace(settings.rate),
    )


def check_async(handler: object) -> None:
    """Raise ``ConfigurationError`` if *handler* is not an async function or an object with an async call."""
    called = None if isinstance(handler, type) else getattr(handler, "__call__", None)  # noqa: B004 - an object's
    if not inspect.iscoroutinefunction(handler) and not inspect.iscoroutinefunction(called):
        raise ConfigurationError(
            f"handler: {handler!r} is not async. Define it with 'async def', and call blocking code in it "
            "with asyncio.to_thread."
        )


def check_settings(types: Sequence[object], settings: Settings) -> None:
    """Raise ``ConfigurationError`` if a type is not in the specification, or a setting is not valid."""
    if not types:
        raise ConfigurationError("on: no type is given. Pass at least one, or on('*').")
    for name in types:
        if not isinstance(name, str) or not _is_known(name):
            raise ConfigurationError(
                f"on: {name!r} is not in the specification. Use on('*') for other types."
            )
    unread = [name for name in types if name not in READABLE]
    if settings.fetch and unread:
        raise ConfigurationError(
            f"on: the specification has no read of what {unread[0]} names. Use fetch=True for "
            f"{' and '.join(sorted(READABLE))}; for others, read in the handler what you know of, with "
            "client.request."
        )
    for name in ("where", "key"):
        function = getattr(settings, name)
        if function is not None and not is_plain_function(function):
            raise ConfigurationError(f"{name}: {function!r} is not valid. Use a function that is not async.")
    rate: object = settings.rate
    if rate is not None and (not isinstance(rate, (int, float)) or not 0 < rate < float("inf")):
        raise ConfigurationError(f"rate: {rate!r} is not valid. Use a positive number of calls a second.")


def _is_known(name: str) -> bool:
    family = name.removesuffix("*")
    known = name in EVENT_TYPES or name == "*"
    return known or (family.endswith(".") and any(kind.startswith(family) for kind in EVENT_TYPES))


def _is_true(found: object, name: str) -> bool:
    """Return whether the result of a ``where`` is true; a coroutine always would be."""
    if inspect.isawaitable(found):
        if inspect.iscoroutine(found):
            found.close()  # so that nothing warns that it was never awaited
        raise TypeError(f"where: that of {name!r} is async. Use a function that is not.")
    return bool(found)
