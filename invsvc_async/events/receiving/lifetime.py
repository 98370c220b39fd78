"""What starts and ends with a receiver, and in which order."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final

import msgspec

from invsvc_async.errors import ConfigurationError, JournalError

if TYPE_CHECKING:
    from invsvc_async.events.receiving.admission import TrustSource
    from invsvc_async.events.receiving.current import CurrentInvoices
    from invsvc_async.events.receiving.worker import InboxWorker, Inline
    from invsvc_async.events.stores import Store

_log: Final = logging.getLogger("invsvc_async.events")
_TO_LEAVE: Final = 1.0  # s that a cancelled closing waits for its end


class Lifetime(msgspec.Struct, kw_only=True, eq=False):
    """
    The start and the end of a receiver: its secrets, its client, its store, then its worker.

    Running handlers have ``grace`` seconds to end. ``closing`` is the task of the last end, which goes on if
    ``end`` is cancelled.
    """

    source: TrustSource
    current: CurrentInvoices
    store: Store
    worker: InboxWorker
    inline: Inline
    grace: float
    closing: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """
        Fetch the secrets, open the client and the store, and start the worker.

        Raises:
            JournalError: The store cannot be used, and will not be by waiting.
            ConfigurationError: The receiver is already running, or its secrets cannot be fetched.
        """
        self._refuse_if_running()
        if (
            self.closing is not None
            and self.closing.get_loop() is asyncio.get_running_loop()
        ):
            # An ``end`` that was cancelled has left its closing under way.
            await asyncio.wait({self.closing})
        if self.source.known is None:
            await self.source.newer(None)
        try:
            await self.current.open()
            await _open_store(self.store)
        except BaseException as error:
            # A receiver that has not started is never ended.
            await self.current.close()
            # A store whose ``open`` failed is not open; one whose ``open`` was cancelled may be.
            if isinstance(error, asyncio.CancelledError):
                await self.store.close()
            raise
        self._refuse_if_running()  # Somebody else may have entered it meanwhile.
        self.worker.start()

    async def end(self) -> None:
        """
        Wait for running handlers, release what is not handled, close the store.

        If it is cancelled, handlers are cancelled at once. What takes longer then ends in the background.
        """
        self.closing = asyncio.create_task(self._close(), name="invsvc events close")
        try:
            await asyncio.shield(self.closing)
        except asyncio.CancelledError:
            self.worker.cancel()
            await asyncio.wait({self.closing}, timeout=_TO_LEAVE)
            raise

    def _refuse_if_running(self) -> None:
        if self.worker.is_running:
            raise ConfigurationError(
                "receiver: it is already running. Enter it once, when the application starts."
            )

    async def _close(self) -> None:
        """End everything in reverse order, each step whatever happens in another: last the store."""
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self.store.close)
            stack.push_async_callback(self.source.stop)
            stack.push_async_callback(self.current.close)
            stack.push_async_callback(self.inline.stop, grace=self.grace)
            await self.worker.stop(grace=self.grace)


async def _open_store(store: Store) -> None:
    """Open the store; if its database is away, each delivery and the worker try again."""
    try:
        await store.open()
    except JournalError as error:
        if not error.is_away:
            raise
        _log.error(
            "The receiver starts without its store, and answers 503 until that is back: %s",
            error,
        )
