"""The errors by which Temporal knows whether, and when, to run an activity again."""

# Types are checked without the engine.
# pyright: reportMissingImports=none, reportMissingTypeStubs=none

from __future__ import annotations

from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from invsvc_async.engines.again import (
    MOST_RUNS,
    failing_again,
    is_overtaken,
    seconds_before,
)
from invsvc_async.engines.versions import TEMPORAL, require
from invsvc_async.errors import InvsvcError, RateLimitedError, WriteNotAppliedError

require(*TEMPORAL)
from temporalio import activity  # noqa: E402 - of a version that fits
from temporalio.common import RetryPolicy  # noqa: E402 - as above
from temporalio.exceptions import ApplicationError  # noqa: E402 - as above

if TYPE_CHECKING:
    from collections.abc import Generator

AGAIN: Final[Any] = RetryPolicy(  # Any: without the engine
    maximum_interval=timedelta(minutes=5),
    maximum_attempts=MOST_RUNS,
    non_retryable_error_types=[each.__name__ for each in failing_again()],
)


@contextmanager
def errors_of_temporal() -> Generator[None]:
    """Raise errors of Temporal instead of those of which ``AGAIN`` cannot tell what to do."""
    try:
        yield
    except RateLimitedError as error:
        seconds = seconds_before(error, activity.info().attempt)
        if error.retry_after is None or seconds is None:
            raise  # the policy says when
        raise _later(error, seconds) from error
    except WriteNotAppliedError as error:
        if is_overtaken(error):
            raise _final(error) from error
        raise


def _later(error: RateLimitedError, seconds: float) -> Exception:
    """Return the error after which Temporal runs an activity again in so many *seconds*."""
    later: Exception = ApplicationError(
        str(error),
        type=type(error).__name__,
        next_retry_delay=timedelta(seconds=seconds),
    )
    return later


def _final(error: InvsvcError) -> Exception:
    """Return the error after which Temporal does not run an activity again."""
    final: Exception = ApplicationError(
        str(error), type=type(error).__name__, non_retryable=True
    )
    return final
