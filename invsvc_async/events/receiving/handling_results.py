"""How the results of handling events are stored: handled, to be tried again, or a dead letter."""

from __future__ import annotations

import asyncio
import logging
from itertools import chain, repeat
from typing import TYPE_CHECKING, Final, TypeVar

from invsvc_async.errors import MalformedEventError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from invsvc_async.events.event import Event
    from invsvc_async.events.receiving.handlers import Handlers
    from invsvc_async.events.receiving.stats import Tally
    from invsvc_async.events.stores import Entry, Store

T = TypeVar("T")

_log: Final = logging.getLogger("invsvc_async.events")
_AGAIN: Final = (0.2, 0.5, 1.0, 2.0)  # s between tries to store a result


class HandlingResults:
    """
    The results of handling the events in *store*.

    A lease must last until its result is stored: without a result, the event would be handled again. *random*
    returns 0 to 1.
    """

    def __init__(
        self,
        store: Store,
        handlers: Handlers,
        tally: Tally,
        *,
        random: Callable[[], float],
    ) -> None:
        self._store = store
        self._handlers = handlers
        self._policy = handlers.policy
        self._tally = tally
        self._random = random

    async def succeeded(
        self,
        entry: Entry,
        end: float,
        event: Event | None = None,
    ) -> None:
        """
        Store that *entry* is handled, whose lease lasts until the loop's time *end*.

        *event* is the event of *entry*, if that may be a claim without a body.
        """
        # ``body`` is passed only if bodies are kept: a user's store may be without that argument.
        kept: dict[str, bytes | None] = {}
        if self._policy.keep_bodies is not None:
            kept["body"] = entry.body if event is None else event.raw
        if not await _stored(lambda: self._store.handled(entry, **kept), end):
            self._tally.ended("lease lost")
            _log.warning(
                "%s was handled after its lease had ended: it may be handled twice",
                name_of(entry),
            )

    async def failed(
        self,
        entry: Entry,
        error: Exception,
        end: float,
    ) -> None:
        """Store that handling failed, for a retry or as a dead letter; the lease lasts until *end*."""
        policy = self._handlers.policy_of(entry)
        is_unread = isinstance(error, MalformedEventError)
        if is_unread or entry.attempts >= policy.attempts:
            await self.bury(entry, reason_of(error), end)
            if is_unread:
                self._tally.unread.note()
            return
        delay = policy.delay(entry.attempts, self._random())
        what = f"{name_of(entry)} failed ({entry.handler or 'handler'}), attempt {entry.attempts}"
        _log.warning("Handling %s; trying again in %.1f s", what, delay, exc_info=error)
        await _stored(lambda: self._store.release(entry, delay=delay), end)

    async def bury(
        self,
        entry: Entry,
        reason: str,
        end: float,
    ) -> None:
        """Store that *entry* is a dead letter, for *reason*; the lease lasts until *end*."""
        whose = f" of {entry.handler}" if entry.handler else ""
        _log.error("Event %s is a dead letter%s: %s", name_of(entry), whose, reason)
        if await _stored(lambda: self._store.bury(entry, reason=reason), end):
            self._tally.ended("dead letter")


async def _stored(store: Callable[[], Awaitable[T]], end: float) -> T:
    """
    Store the result of handling an event, and return what *store* does.

    If the store fails, it is tried again until the loop's time *end*, when the lease ends: without a result,
    the event would then be handled again.
    """
    loop = asyncio.get_running_loop()
    for pause in chain(_AGAIN, repeat(_AGAIN[-1])):
        try:
            return await store()
        except Exception as error:  # a user-supplied store may raise anything
            if loop.time() + pause >= end:
                raise
            _log.warning(
                "The result of handling an event could not be stored, and is tried again in %s s: %s",
                pause,
                reason_of(error),
            )
        await asyncio.sleep(pause)
    raise AssertionError  # the pauses have no end


def report_failure(task: asyncio.Task[object]) -> None:
    """Log why a task could not store a result; the lease will run out, and the event is handled again."""
    if task.cancelled():
        return
    if error := task.exception():
        _log.error(
            "The result of handling an event could not be stored: %s", reason_of(error)
        )


def name_of(entry: Entry) -> str:
    """Return the type and the key of *entry*, for messages."""
    return f"{entry.type} {entry.key or ''}".rstrip()


def reason_of(error: BaseException) -> str:
    """Return *error* as one printable line of limited length."""
    try:
        text = f"{type(error).__name__}: {error}"[:500]
    except Exception as failure:  # noqa: BLE001 - it is of a user's class
        text = f"{type(error).__name__} (without a text: it raised {type(failure).__name__})"
    return "".join(sign if sign.isprintable() else " " for sign in text)
