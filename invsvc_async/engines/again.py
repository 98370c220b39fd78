"""
The errors after which an engine runs a task again, and how long it waits before that.

The engines' modules, the examples and the page *Write from a task engine* have this list from here.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

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
from invsvc_async.reconcile.outcome import WriteError
from invsvc_async.web import has_newer_write

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

# All others, such as InvalidRequestError or WriteSupersededError, fail again. So does a WriteNotAppliedError
# of a write that a newer one has overtaken, which no class tells: see `is_overtaken`.
RUN_AGAIN: Final[tuple[type[InvsvcError], ...]] = (
    AmbiguousWriteError,
    WriteNotAppliedError,
    TransportError,
    JournalError,
    DeadlineExceededError,
    RateLimitedError,
    ServerError,
)
MOST_RUNS: Final = 20  # of a task
_FIRST: Final = 1.0  # s before the second run; each further wait is twice as long
_LONGEST: Final = 300.0


def runs_again(error: BaseException) -> bool:
    """
    Return whether a task that ended with *error* may succeed in another run.

    *error* is one of ``RUN_AGAIN``, and not of a write that a newer one has overtaken: no run sends that.
    """
    return isinstance(error, RUN_AGAIN) and not is_overtaken(error)


def is_overtaken(error: BaseException | None) -> bool:
    """
    Return whether *error* is of a write that a newer one to the same thing has overtaken.

    It keeps its place in the order, so no run under its key sends it. Every other verdict NOT_APPLIED is that
    of one run: the next one does the write anew.
    """
    return isinstance(error, WriteError) and has_newer_write(error.outcome)


class OvertakenError(InvsvcError):
    """
    A newer write has overtaken that of the task, so no further run sends it.

    It is not in ``RUN_AGAIN``.
    """


@contextmanager
def overtaken_is_final() -> Generator[None]:
    """
    Raise ``OvertakenError`` instead of the error of a write that a newer one has overtaken.

    For engines that know by classes alone after which errors to run a task again, such as Ray.
    """
    try:
        yield
    except WriteNotAppliedError as error:
        if is_overtaken(error):
            raise OvertakenError(str(error)) from error
        raise


def seconds_before(error: BaseException, runs: int) -> float | None:
    """
    Return how many seconds to wait before a task runs again that ended with *error* in *runs* runs so far.

    ``None`` means not to run it again. A service that says when to come back is not asked before.
    """
    if not runs_again(error) or runs >= MOST_RUNS:
        return None
    asked = getattr(error, "retry_after", None) or 0.0
    return max(asked, min(_LONGEST, _FIRST * 2.0 ** (runs - 1)))


def failing_again() -> list[type[InvsvcError]]:
    """Return the errors after which no task is to run again, for engines that know these instead."""
    return [each for each in _below(InvsvcError) if not _may_run_again(each)]


def _may_run_again(error: type[InvsvcError]) -> bool:
    """Return whether *error* is one of the list, or a class that one of the list belongs to."""
    return any(issubclass(error, each) or issubclass(each, error) for each in RUN_AGAIN)


def _below(error: type[InvsvcError]) -> Iterator[type[InvsvcError]]:
    for each in error.__subclasses__():
        yield each
        yield from _below(each)
