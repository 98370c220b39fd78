"""
Where a receiver's secrets and shared headers come from: fixed values, or functions that ask a vault.

What a function returned is used for a while, then replaced in the background.  If a delivery fits nothing, it
is asked once more, because a rotation may just have happened.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from typing import TYPE_CHECKING, Any, Final

from invsvc_async.concurrency.threads import called
from invsvc_async.errors import ConfigurationError
from invsvc_async.events.verify import Trust, check_flag, keys_of, shared_headers_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from invsvc_async.events.verify import Secret, SharedHeader

__all__ = ["TrustSource"]

_log: Final = logging.getLogger("invsvc_async.events")
_PAUSE: Final = 1.0  # s at least between two fetches, however many forged deliveries come
_LIMIT: Final = 5.0  # s for one fetch: the sender waits 10 s
_NOTHING: Final = "secrets: nothing authenticates events. Pass secrets or a SharedHeader."


class TrustSource:
    """
    The trust in deliveries, fetched anew after *max_age* seconds if an argument is a function.

    A function that fails is reported in the log, and what it returned before stays valid.

    Raises:
        ConfigurationError: A fixed value is not valid, or nothing would authenticate events.
    """

    def __init__(
        self,
        keys: tuple[Secret, ...] | Callable[[], object],
        headers: tuple[SharedHeader, ...] | Callable[[], object],
        *,
        accept_unsigned: bool,
        max_age: float,
    ) -> None:
        check_flag(accept_unsigned)
        self._accept_unsigned = accept_unsigned
        self._max_age = max_age
        self._keys = keys
        self._headers = headers
        self.is_fixed: Final = isinstance(keys, tuple) and isinstance(headers, tuple)
        self.known: Trust | None = None
        if isinstance(keys, tuple) and isinstance(headers, tuple):
            self.known = self._checked_trust(keys, headers)
        self._began = self._fetched = float("-inf")
        self._failed = False
        self._fetching = asyncio.Lock()
        self._next: asyncio.Task[None] | None = None
        self._under_way: set[asyncio.Task[None]] = set()
        self._is_called = False  # the function, in its thread

    async def current(self) -> Trust:
        """
        Return the trust as known now; fetch it if it is not known.

        Raises:
            ConfigurationError: It was never known, and cannot be fetched.
        """
        if self.known is None:
            await self._fetch_next()
        known = self.at_hand()
        if known is None:
            raise ConfigurationError("secrets: the function that returns them failed. The log says why.")
        return known

    def at_hand(self) -> Trust | None:
        """Return the trust as known now, or ``None``; fetch it anew in the background if it is old."""
        if self.is_fixed or self.known is None:
            return self.known
        if asyncio.get_running_loop().time() > self._fetched + self._max_age:
            self._later()
        return self.known

    async def newer(self, known: Trust) -> Trust | None:
        """
        Return another trust than *known*, fetched after this call, or ``None`` if nothing has changed.

        Raises:
            ConfigurationError: That cannot be found out.
        """
        if self.is_fixed:
            return None
        if self.known is known:
            await self._fetch_next()
            if self._failed:
                raise ConfigurationError("secrets: the function that returns them failed. The log says why.")
        return None if self.known is known else self.known

    async def stop(self) -> None:
        """Cancel fetches that are under way; the next may be in another event loop."""
        if under_way := list(self._under_way):
            for task in under_way:
                task.cancel()
            await asyncio.wait(under_way)
        self._next, self._fetching = None, asyncio.Lock()

    async def _fetch_next(self) -> None:
        """Wait for a fetch that begins after this call; all who wait for it share it."""
        fetching = self._later()
        try:
            await asyncio.shield(fetching)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not fetching.cancelled() or task is None or task.cancelling():
                raise
            raise ConfigurationError("receiver: it was stopped. Start it again.") from None

    def _later(self) -> asyncio.Task[None]:
        if self._next is None or self._next.done():
            self._next = asyncio.create_task(self._fetch(), name="invsvc events secrets")
            self._under_way.add(self._next)
            self._next.add_done_callback(self._under_way.discard)
        return self._next

    async def _fetch(self) -> None:
        loop = asyncio.get_running_loop()
        async with self._fetching:
            await asyncio.sleep(max(0.0, self._began + _PAUSE - loop.time()))
            self._next = None  # who comes from now on needs another one
            self._began = loop.time()
            try:
                async with asyncio.timeout(_LIMIT):
                    keys = keys_of(await self._asked(self._keys))
                    headers = shared_headers_of(await self._asked(self._headers))
                trust = self._checked_trust(keys, headers)
            except Exception as error:  # noqa: BLE001 - a vault's client may raise anything, also secrets
                self._failed = True
                # Not what it says: that may be a secret.
                _log.error("The function for secrets or headers failed with %s", type(error).__name__)
            else:
                self._failed = False
                self._fetched = self._began
                if trust != self.known:
                    self.known = trust

    def _checked_trust(self, keys: tuple[Secret, ...], headers: tuple[SharedHeader, ...]) -> Trust:
        if not (keys or headers or self._accept_unsigned):
            raise ConfigurationError(_NOTHING)
        return Trust(keys, headers, self._accept_unsigned)

    async def _asked(self, source: object) -> Any:  # Any: it is checked afterwards
        """Return a fixed value, or what a function returns; it is called in a thread, as it may hang."""
        if not callable(source):
            return source
        if self._is_called:
            raise TimeoutError  # the call of before has not ended yet

        def call() -> object:
            try:
                return source()
            finally:
                self._is_called = False

        self._is_called = True
        try:
            answer = called(call, "invsvc events secrets")
        except BaseException:  # the process has too many threads
            self._is_called = False
            raise
        found = await answer
        return await found if inspect.isawaitable(found) else found
