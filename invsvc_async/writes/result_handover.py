"""
The handover of the result of a write to a thread that waits for it, outside the event loop.

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


def begin_handover(awaitable: object) -> AnyWrite | None:
    """Begin the handover of the write whose result *awaitable* is; return that write, or ``None``."""
    write = awaitable
    if iscoroutine(awaitable) and awaitable.cr_code is Write.outcome.__code__:
        write = getcoroutinelocals(awaitable).get("self")  # none once it has ended
    if not isinstance(write, Write):
        return None
    write._begin_handover()  # noqa: SLF001 - the package's own
    return write
