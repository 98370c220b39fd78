"""Locks by key, for writes that must not run at the same time."""

from __future__ import annotations

import asyncio
from collections import deque
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable

    from invsvc_async.concurrency.clock import Clock

__all__ = ["KeyedLock"]

_SWEEP = 1000  # above so many keys, unused ones are removed
_REMEMBERED = 120.0  # s for which the last user of a key is known, while there are few keys
_USERS = 20_000  # keys whose last users are known in any case


class _Line:
    __slots__ = ("closed_until", "held", "waiters")

    def __init__(self) -> None:
        self.held = False
        self.waiters: deque[asyncio.Future[None]] = deque()
        self.closed_until: dict[str, float] = {}  # local s, by the write that closed it

    def opens_at(self, owner: str | None) -> float:
        """Return when it opens for *owner*, who ignores what it closed itself."""
        return max((until for by, until in self.closed_until.items() if by != owner), default=-inf)


class KeyedLock:
    """
    A fair lock for each key.  It can stay closed for some time after its release.

    A write whose answer was lost closes the lock of its resource until it can no longer take effect.
    """

    def __init__(self) -> None:
        self._lines: dict[Hashable, _Line | None] = {}  # None: locked, and nobody waits
        self._sweep_at = _SWEEP
        # By key, in the last two minutes or less: the last user, and after it those that did nothing.
        self._users: dict[Hashable, tuple[str, ...]] = {}
        self._earlier_users: dict[Hashable, tuple[str, ...]] = {}  # in the time before
        self._users_until = -inf

    def __len__(self) -> int:
        return len(self._lines)

    def __contains__(self, key: Hashable) -> bool:
        """Return whether the lock is locked, awaited or closed, or was closed when it was last released."""
        return key in self._lines

    def enter(self, key: Hashable) -> bool:
        """Acquire the lock unless it is locked, awaited or closed.  Return whether it was acquired."""
        if key in self._lines:
            return False
        self._lines[key] = None
        return True

    def _line(self, key: Hashable) -> _Line:
        line = self._lines.get(key)
        if line is None:
            held = key in self._lines
            line = self._lines[key] = _Line()
            line.held = held
        return line

    async def wait(
        self, key: Hashable, owner: str | None, clock: Clock, pause: Callable[[float], Awaitable[bool]]
    ) -> None:
        """
        Wait until the lock is free and open, and acquire it.

        *owner* does not wait for what it closed itself.  *pause* waits for some seconds, and returns
        ``False`` if the client was closed meanwhile.
        """
        line = self._line(key)
        if line.held or line.waiters:
            waiter = asyncio.get_running_loop().create_future()
            line.waiters.append(waiter)
            try:
                await waiter
            except BaseException:
                if waiter.done() and not waiter.cancelled():  # the lock was handed over: pass it on
                    self._release(key, line, clock)
                elif waiter in line.waiters:
                    line.waiters.remove(waiter)
                raise
        line.held = True
        try:
            while (left := line.opens_at(owner) - clock.now()) > 0 and await pause(left):
                pass
        except BaseException:
            self._release(key, line, clock)
            raise

    def leave(self, key: Hashable, clock: Clock) -> None:
        """Release the lock.  The next is the one that has waited longest."""
        line = self._lines[key]
        if line is None:
            del self._lines[key]
        else:
            self._release(key, line, clock)

    def close(self, key: Hashable, owner: str, until: float, clock: Clock) -> None:
        """Keep the lock closed to all but *owner* until that local time, in seconds."""
        line, now = self._line(key), clock.now()
        line.closed_until = {by: kept for by, kept in line.closed_until.items() if kept > now}
        line.closed_until[owner] = max(until, line.closed_until.get(owner, -inf))

    def use(self, key: Hashable, users: tuple[str, ...], now: float) -> None:
        """Record *users* as the last ones to use the key: one, and after it those that did nothing."""
        if now > self._users_until or len(self._users) >= _USERS:
            self._earlier_users, self._users = self._users, {}
            self._users_until = now + _REMEMBERED
        self._users[key] = users

    def last_users(self, key: Hashable) -> tuple[str, ...]:
        """
        Return the last one to use the key, and those that used it later and did nothing.

        It is empty if that was long ago, or many keys ago.
        """
        return self._users.get(key) or self._earlier_users.get(key, ())

    def opens_at(self, key: Hashable) -> float:
        """Return the local time, in seconds, at which the lock is open to all."""
        line = self._lines.get(key)
        return -inf if line is None else line.opens_at(None)

    def _release(self, key: Hashable, line: _Line, clock: Clock) -> None:
        while line.waiters:
            waiter = line.waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
        line.held = False
        if not line.closed_until or line.opens_at(None) <= clock.now():
            self._lines.pop(key, None)
        elif len(self._lines) > self._sweep_at:
            now = clock.now()
            for each in [each for each, kept in self._lines.items() if _is_idle(kept, now)]:
                del self._lines[each]
            self._sweep_at = max(_SWEEP, 2 * len(self._lines))


def _is_idle(line: _Line | None, now: float) -> bool:
    return line is not None and not line.held and not line.waiters and line.opens_at(None) <= now
