"""The signs of life of a process that sends the writes of a store, for the others."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

from invsvc_async.batch.notices import BEAT
from invsvc_async.concurrency.cancellation import raise_if_cancelled
from invsvc_async.concurrency.deadline import set_within
from invsvc_async.durable.leases import Leases, pause_of, status_of
from invsvc_async.durable.store.members import Sign
from invsvc_async.errors import JournalError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from invsvc_async.batch.engine import Engine


log: logging.Logger = logging.getLogger("invsvc_async.batch")

# s: until the next sign after one that failed, however seldom they are otherwise
_AFTER_FAILURE = 5.0


class SignsOfLife:
    """
    The signs of life of this process, without which nothing may be sent.

    They say in which of these states the process is:

    - *present*: it lives, and sends nothing: it has just begun, or is stopped;
    - *sending*: it takes part in the division of the lanes, from ``begin_to_send`` to ``stop_sending``;
    - *hungry*: it sends, has nothing to send, and others may have, so these release lanes for it.
    """

    def __init__(self, leases: Leases, engine: Engine) -> None:
        self._leases = leases
        self._engine = engine
        self._began = 0.0  # to send: monotonic, s
        self.sends: bool = False
        self.is_hungry: bool = False
        self._shown = Sign(sends=False)  # what others know
        self._due = asyncio.Event()  # the next sign is not waited for

    # --- the state that they show

    def begin_to_send(self) -> None:
        """Show from the next sign on that this process sends."""
        self.sends = True
        self._began = time.monotonic()

    def stop_sending(self) -> None:
        """Show from the next sign on that this process sends nothing, and acquire no lanes any more."""
        self.sends = False

    def grow_hungry(self) -> None:
        """Show other processes, once, that there is nothing to send here."""
        if not self.is_hungry:
            self.is_hungry = True
            self.show_soon()

    def be_fed(self) -> None:
        """Note that there is something to send, which the next sign tells."""
        self.is_hungry = False

    # --- showing it

    def show_soon(self) -> None:
        """Make ``repeat`` show the next sign at once."""
        self._due.set()

    async def show(self) -> None:
        """Store a sign of life; tell others at once if this process now sends, or has nothing to send."""
        sign = self._sign()
        before = self._shown
        await self._leases.beat(sign)
        self._shown = sign
        if self._leases.living > 1 and (
            sign.sends > before.sends or sign.hungry > before.hungry
        ):
            await self._leases.store.notify(BEAT)

    async def repeat(self, then: Callable[[], Awaitable[None]]) -> None:
        """
        Store signs of life until cancelled, and call *then* after each while this process sends.

        While the database is away, nothing is sent, and the next sign comes within seconds. Any other error
        of it is raised.
        """
        usual = pause_of(self._leases.store.silence)
        while True:
            self._due.clear()
            pause = usual
            try:
                await self.show()
                if self.sends:
                    await then()
            except JournalError as error:
                raise_if_cancelled()
                if not self._leases.store.is_away(error):  # it would be refused again
                    raise
                log.warning("%s Nothing is sent until it is back.", error)
                pause = min(usual, _AFTER_FAILURE)
            raise_if_cancelled()
            await set_within(self._due, pause)

    async def end(self) -> None:
        """Store the end of this process, and its last status."""
        await self._leases.end(self._sign().status)

    def _sign(self) -> Sign:
        done = self._engine.verdicts.done
        rate = done / max(time.monotonic() - self._began, 1.0) if self.sends else 0.0
        status = status_of(done, rate, len(self._leases.lanes))
        return Sign(
            sends=self.sends,
            hungry=self.is_hungry,
            status=status,
        )
