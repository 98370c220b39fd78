"""
Whether the result of a write arrives in the thread that waits for it, outside the event loop.

A task that awaits a write has its result for certain. A thread may be interrupted just then, by Ctrl-C or the
time limit of a task queue, and an iterator may be left: then nobody has the result, although the write has
ended. So only once the result has arrived does the journal learn that it was heard. If it does not arrive,
the intent goes to ``client.unsettled``, as that of a write that was cancelled; settled, it has its verdict.
"""

from __future__ import annotations

from inspect import getcoroutinelocals, iscoroutine
from typing import TYPE_CHECKING

from invsvc_async.writes.write import Write

if TYPE_CHECKING:
    from invsvc_async.writes.write import AnyWrite


class ResultHandover:
    """The handover of the result of *write* to another thread. All methods are called in the event loop."""

    def __init__(self, write: AnyWrite) -> None:
        self._write = write
        write._is_delivered = False  # noqa: SLF001 - the package's own

    def end(self, has_arrived: bool) -> None:  # noqa: FBT001 - as a future tells it
        """Note whether the result has arrived."""
        if has_arrived:
            self.succeed()
        else:
            self.fail()

    def succeed(self) -> None:
        """Note that the result has arrived."""
        self._write._note_delivered()  # noqa: SLF001 - as above

    def fail(self) -> None:
        """Note that nobody has the result. A write without a verdict is in ``client.unsettled`` already."""
        self._write._note_undelivered()  # noqa: SLF001 - as above


def handover_of(awaitable: object) -> ResultHandover | None:
    """Return the handover of the result of *awaitable*; ``None`` if that is not the result of a write."""
    if isinstance(awaitable, Write):
        return ResultHandover(awaitable)
    if iscoroutine(awaitable) and awaitable.cr_code is Write.outcome.__code__:
        write = getcoroutinelocals(awaitable).get("self")  # none once it has ended
        return None if write is None else ResultHandover(write)
    return None
