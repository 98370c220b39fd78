"""Whether a task was cancelled, where an error may have taken the place of its ``CancelledError``."""

from __future__ import annotations

import asyncio

__all__ = ["is_cancelled"]


def is_cancelled() -> bool:
    """
    Return whether the running task was asked to end.

    A loop that survives errors must check this: a cleanup may raise another error in place of the
    ``CancelledError``, and nothing cancels the task again.
    """
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
