"""An event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class LoopThread:
    """
    An event loop in a thread of its own, from ``start`` until ``stop``, or until a task raises an exit.

    ``exit`` is that exit, such as the ``SystemExit`` of ``sys.exit``.  Nothing must be begun in the loop once
    it ``has_stopped``, because what is left in it is cancelled.
    """

    def __init__(self) -> None:
        self.exit: BaseException | None = None
        self.has_stopped: bool = False
        self.loop: asyncio.AbstractEventLoop
        self.thread: threading.Thread
        # sets no loop of this thread
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)

    def start(self, name: str, at_end: Callable[[], None]) -> None:
        """Start the thread, called *name*; it calls *at_end* once the loop is closed."""
        self.loop = self._runner.get_loop()
        # Not earlier: a thread that was made before a fork counts as ended after it.
        self.thread = threading.Thread(
            target=partial(self._live, at_end),
            name=name,
            daemon=True,
        )
        self.thread.start()

    def _live(self, at_end: Callable[[], None]) -> None:
        try:
            with self._runner:  # which cancels what is left
                try:
                    self.loop.run_forever()
                except (KeyboardInterrupt, SystemExit) as error:
                    self.exit = error
                self.has_stopped = True
        finally:
            at_end()

    def soon(self, step: Callable[[], object]) -> None:
        """Call *step* in the loop, unless that is closed."""
        with suppress(RuntimeError):
            self.loop.call_soon_threadsafe(step)

    def stop(self) -> None:
        """Stop the loop, and wait until the thread has ended."""
        self.soon(self._stop)
        self.thread.join()

    def _stop(self) -> None:
        """Stop the loop, but not again, while the runner cancels the tasks that are left."""
        if not self.has_stopped:
            self.loop.stop()
