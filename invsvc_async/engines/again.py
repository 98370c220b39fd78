"""The errors after which an engine runs a task again."""

from __future__ import annotations

from typing import Final

from invsvc_async.errors import (
    AmbiguousWriteError,
    DeadlineExceededError,
    InvsvcError,
    JournalError,
    RateLimitedError,
    ServerError,
    TransportError,
    WriteNotAppliedError,
)

# All others, such as InvalidRequestError or WriteSupersededError, fail again.
RUN_AGAIN: Final[tuple[type[InvsvcError], ...]] = (
    AmbiguousWriteError,
    WriteNotAppliedError,
    TransportError,
    JournalError,
    DeadlineExceededError,
    RateLimitedError,
    ServerError,
)
