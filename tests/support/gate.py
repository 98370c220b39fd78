"""A gate in a simulator: requests that have arrived there wait until a test opens it, however long that takes."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from invsvc_async import Timeouts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from invsvc_async.simulator import Simulator

__all__ = ["PATIENT", "Gate", "gate"]

PATIENT = Timeouts(attempt=300.0)  # of a client whose requests are held


class Gate:
    """Holds requests until ``open``; ``held`` is how many have come to it."""

    def __init__(self) -> None:
        self.held: int = 0
        self._opened = asyncio.Event()

    def open(self) -> None:
        """Let all go on."""
        self._opened.set()

    async def passed(self) -> None:
        """Be held, until it is open."""
        self.held += 1
        await self._opened.wait()


@contextmanager
def gate(
    service: Simulator, operation: str, *, first: int = 1, many: int = 1
) -> Iterator[Gate]:
    """
    Hold *many* arrivals of *operation* at *service*, from the *first* of those to come; the end of the block opens it.

    They are in the ledger, and had no effect and no answer. Their steps, if any, come afterwards.
    """
    made = Gate()
    application: Any = service._app  # reaches: here for all tests
    play, seen = application._play, 0  # reaches: here for all tests

    async def played(step: Any, request: Any, exchange: Any) -> Any:
        nonlocal seen
        if exchange.route.operation == operation:
            seen += 1
            if first <= seen < first + many:
                await made.passed()
        return await play(step, request, exchange)

    application._play = played  # reaches: here for all tests
    try:
        yield made
    finally:
        made.open()
        application._play = play  # reaches: here for all tests
