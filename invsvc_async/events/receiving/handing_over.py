"""Stored events that a receiver gives to the application's own queue, instead of calling handlers."""

from __future__ import annotations

import inspect
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from invsvc_async.concurrency.plain_function import is_plain_function
from invsvc_async.concurrency.threads import called
from invsvc_async.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from invsvc_async.events.event import Event

# Any: the function may name the family of events that it expects
HandOver: TypeAlias = "Callable[[Any], object]"
HANDLER_NAME: Final = "hand_over"  # in the store


def handing_over(
    function: HandOver, *, stores_first: bool
) -> Callable[[Event], Awaitable[None]]:
    """
    Return a handler that gives each event to *function*: in a thread, if the function is not async.

    Raises:
        ConfigurationError: It is no function, or events are not stored.
    """
    if not callable(function):
        raise ConfigurationError(
            f"hand_over: {function!r} is not a function. Pass one of the event, async or not."
        )
    if not stores_first:
        raise ConfigurationError(
            "hand_over: only stored events are handed over. Use mode='inbox' and a store."
        )
    is_plain = is_plain_function(function)

    async def hand_over(event: Event) -> None:
        given: Any  # a coroutine, or what the queue returns
        if is_plain:
            # It may hang, and the end of the process must not wait for it.
            given = await called(partial(function, event), "invsvc events hand over")
        else:
            given = function(event)
        if inspect.isawaitable(given):  # also of a lambda around an async function
            await given

    return hand_over
