"""
The handlers of a receiver: which events each gets, and what a store has to know of that.

In a store, a handler is known by its name.  Each event is stored once for each handler that it is for.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Final, TypeAlias

import attrs

from invsvc_async.api.event_types import EVENT_TYPES
from invsvc_async.concurrency.cancellation import until_ended
from invsvc_async.errors import ConfigurationError
from invsvc_async.events.event import key_of
from invsvc_async.events.receiving.handler import handler_of
from invsvc_async.events.stores import Delivery, HandlerStore

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from invsvc_async.events.event import Event
    from invsvc_async.events.receiving.handler import Handler, Pace, Settings
    from invsvc_async.events.receiving.policy import InboxPolicy
    from invsvc_async.events.stores import Entry, Store

__all__ = ["Group", "Handlers", "called"]

_OfType: TypeAlias = "tuple[list[Handler], list[Handler]]"  # the handlers of one type, and those of ``*``

_log: Final = logging.getLogger("invsvc_async.events")


@attrs.frozen
class Group:
    """Handlers whose events are taken together, because they have one timeout and no rate of their own."""

    names: tuple[str, ...]
    timeout: float
    pace: Pace | None


class Handlers:
    """
    The handlers of one receiver, by name; *policy* is for those that say nothing else.

    Raises:
        ConfigurationError: From ``add``: the handler is not async, or cannot be registered so.
    """

    def __init__(self, policy: InboxPolicy, store: Store, *, stored_first: bool) -> None:
        self._policy = policy
        self._store = store if isinstance(store, HandlerStore) else None
        self._stored_first = stored_first
        self._by_name: dict[str, Handler] = {}
        self._groups: list[Group] | None = None
        self._by_type: dict[str, _OfType] = {}

    @property
    def store(self) -> HandlerStore | None:
        """Return the store, if it knows handlers."""
        return self._store

    def add(
        self,
        function: Callable[..., Awaitable[object]],
        types: Sequence[str],
        name: str | None,
        settings: Settings,
    ) -> None:
        """Register a handler, or more types of one that has the same settings."""
        handler = handler_of(function, types, name, settings, self._policy)
        known = self._by_name.get(handler.name)
        if known is not None:
            if (known.function, known.settings) != (function, settings):
                raise ConfigurationError(
                    f"on: there is another handler called {handler.name!r}. Pass name= to tell them apart."
                )
            handler = attrs.evolve(known, types=known.types | handler.types)
        self._check_store(handler)
        self._by_name[handler.name] = handler
        self._groups = None
        self._by_type.clear()

    def matching(self, event: Event) -> Sequence[Handler]:
        """
        Return the handlers that *event* is for: those of its type, or else those of ``*``.

        One whose ``where`` raises is among them, so that the error counts as a failed attempt.
        """
        own, rest = self._by_type.get(event.type) or self._by_type_of(event.type)
        return _accepting(own, event) or _accepting(rest, event)

    def deliveries(self, event: Event) -> tuple[Delivery, ...]:
        """Return what to store of *event*: one delivery for each handler, or one that is for none yet."""
        kind, key = event.type, key_of(event)
        matching = self.matching(event)
        if not matching:
            return (Delivery(key=key, type=kind, body=event.raw),)
        return tuple(
            Delivery(
                key=None if number else key,
                type=kind,
                body=event.raw,
                handler=handler.name,
                ordering_key=_ordering_key(handler, event),
            )
            for number, handler in enumerate(matching)
        )

    def to_assign(self, entry: Entry, event: Event) -> Sequence[Delivery]:
        """
        Return what the store has to know before *entry* can be handled.

        That is the handlers of an event that was stored by somebody who did not know them, and the order of
        one that was revived, given to the handler by an operator, or stored when ``key`` raised.
        """
        if self._store is None or entry.ordering_key is not None:
            return []
        if not entry.handler:
            return self.deliveries(event) if self.matching(event) else []
        handler = self._by_name.get(entry.handler)
        if handler is None or handler.settings.key is None or not handler.wants(event):
            return []
        key = handler.ordering_key(event)
        given = Delivery(key=None, type=event.type, body=None, handler=handler.name, ordering_key=key)
        return [] if key is None else [given]

    def of(self, entry: Entry, event: Event) -> Handler | None:
        """Return the handler that an entry is for, if it wants the event."""
        if entry.handler:
            handler = self._by_name.get(entry.handler)
        else:
            handler = next(iter(self.matching(event)), None)
        return handler if handler is not None and handler.wants(event) else None

    def policy_of(self, entry: Entry) -> InboxPolicy:
        """Return the policy of the handler that an entry is for."""
        if entry.handler or self._store is not None:
            handler = self._by_name.get(entry.handler)
        else:  # the store knows no handlers, so that there is one for each type
            own, rest = self._by_type.get(entry.type) or self._by_type_of(entry.type)
            handler = next(iter(own or rest), None)
        return self._policy if handler is None else handler.policy

    def groups(self) -> list[Group]:
        """Return which events to take together; those for no handler yet are with the first ones."""
        if self._groups is None:
            names: dict[tuple[float, Pace | None], list[str]] = {(self._policy.timeout, None): [""]}
            for handler in self._by_name.values():
                names.setdefault((handler.policy.timeout, handler.pace), []).append(handler.name)
            self._groups = [Group(tuple(found), *limits) for limits, found in names.items()]
        return self._groups

    def _by_type_of(self, kind: str) -> _OfType:
        handlers = self._by_name.values()
        found = (
            [handler for handler in handlers if handler.is_for(kind)],
            [handler for handler in handlers if "*" in handler.types],
        )
        if kind in EVENT_TYPES:  # a sender could make up any number of others
            self._by_type[kind] = found
        return found

    def _check_store(self, handler: Handler) -> None:
        ordered = handler.settings.key is not None or handler.pace is not None
        if ordered and not self._stored_first:
            raise ConfigurationError("on: key= and rate= need stored events. Use Receiver(mode='inbox').")
        others = [other for other in self._by_name.values() if other.name != handler.name]
        shared = any(_overlap(handler, other) for other in others)
        if self._store is None and (ordered or shared):
            raise ConfigurationError(
                "on: this store does not know handlers. Make it a HandlerStore, or register one handler for "
                "each type, without key= and rate=."
            )


async def called(running: Awaitable[object]) -> None:
    """
    Run a handler in a task of its own: if it cancels that, it has failed, and its caller is not cancelled.

    What would end the process is raised as it is.

    Raises:
        RuntimeError: The handler was cancelled from within, or raised what is no Exception.
    """
    task, cancelled = asyncio.ensure_future(running), False
    try:
        await asyncio.wait((task,))
    except asyncio.CancelledError:
        cancelled = True
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await until_ended([task], task.cancel)
    try:
        task.result()
    except asyncio.CancelledError as error:
        if cancelled:
            raise
        raise RuntimeError(
            "handler: it, or something that it awaited, was cancelled. Handle that in it."
        ) from error
    except (Exception, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        raise RuntimeError(f"handler: it raised {type(error).__name__}, which is no Exception.") from error


def _overlap(one: Handler, other: Handler) -> bool:
    both_rest = "*" in one.types and "*" in other.types
    return both_rest or any(one.is_for(kind) and other.is_for(kind) for kind in EVENT_TYPES)


def _accepting(handlers: Sequence[Handler], event: Event) -> Sequence[Handler]:
    """Return those of *handlers*, which are for the event's type, that want it."""
    if all(handler.settings.where is None for handler in handlers):
        return handlers
    found: list[Handler] = []
    for handler in handlers:
        try:
            wanted = handler.wants(event)
        except Exception as error:  # noqa: BLE001 - a user-supplied function may raise anything
            _log.warning("where of handler %s failed: %s", handler.name, type(error).__name__)
            wanted = True
        if wanted:
            found.append(handler)
    return found


def _ordering_key(handler: Handler, event: Event) -> str | None:
    try:
        return handler.ordering_key(event)
    except Exception as error:  # noqa: BLE001 - a user-supplied function may raise anything
        _log.warning("key of handler %s failed: %s", handler.name, type(error).__name__)
        return None  # called again before the event is handled, where an error is a failed attempt
