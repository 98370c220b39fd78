"""Whether a task was cancelled, where an error may have taken the place of its ``CancelledError``."""

from __future__ import annotations

import asyncio

__all__ = ["raise_if_cancelled"]


def raise_if_cancelled() -> None:
    """
    Raise ``CancelledError`` if the running task was asked to end.

    A loop that survives errors must call this after each: a cleanup may raise another error in place of the
    ``CancelledError``, and nothing cancels the task again.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
