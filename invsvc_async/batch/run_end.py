"""How a run ends: at once or once nothing is under way, and with which error."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable


class RunEnd:
    """
    Whether a run goes on, and the error with which it ends.

    ``fail`` ends the run at once with an error, and ``end_when_idle`` with an error once what is under way
    has ended. ``halt``, a part of each, lets no more items begin; alone, it ends the run without an error.
    Of several errors, the first is kept. All three wake what waits for *changed*.
    """

    def __init__(self, changed: asyncio.Event) -> None:
        self._changed = changed
        self._failure: BaseException | None = None
        self._error_when_idle: BaseException | None = None
        self.is_halted: bool = False  # no more items begin

    @property
    def has_failed(self) -> bool:
        """Whether the run ends at once, though items are under way."""
        return self._failure is not None

    def fail(self, error: BaseException) -> None:
        """End the run with *error* at once. No more items begin."""
        self._failure = self._failure or error
        self.halt()

    def end_when_idle(self, error: BaseException) -> None:
        """Begin no more items, and end the run with *error* once those under way have ended."""
        self._error_when_idle = self._error_when_idle or error
        self.halt()

    def halt(self) -> None:
        """Begin no more items."""
        self.is_halted = True
        self._changed.set()

    def guarded(self, call: Callable[..., None], *given: object) -> None:
        """
        Make a call for the event loop.

        An error in it, as of a signal handler, ends the run: the loop would only log it, and the run wait on.
        """
        try:
            call(*given)
        except Exception as error:  # noqa: BLE001 - any error ends the run
            self.fail(error)

    def take_error(self) -> BaseException | None:
        """Return the error that ended the run, once."""
        error = self._failure or self._error_when_idle
        self._failure = None
        self._error_when_idle = None
        return error
