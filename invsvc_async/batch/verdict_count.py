"""The count of the verdicts of a run, by which too many failures end it."""

from __future__ import annotations

from invsvc_async.errors import BatchStoppedError
from invsvc_async.reconcile.history import Verdict

_LEAST = 20  # writes before a share of failures counts


class VerdictCount:
    """
    The count of the writes that have their verdicts.

    *stop_after* is how many of them may have another verdict than APPLIED, as a number or a share.
    """

    def __init__(self, stop_after: float | None) -> None:
        self._stop_after = stop_after
        self.done: int = 0  # writes that have their verdict
        self._failed = 0  # of them, those with another verdict than APPLIED

    def add(self, verdict: Verdict) -> BatchStoppedError | None:
        """Count a finished write; return the error of the run if there are too many failures now."""
        self.done += 1
        self._failed += verdict is not Verdict.APPLIED
        most = self._stop_after
        if most is None or verdict is Verdict.APPLIED:
            return None
        if not self._has_failed_too_often(most):
            return None
        return BatchStoppedError(
            f"stop_after: {self._failed:,} of {self.done:,} writes have another verdict than applied, and "
            f"the limit is {most}. See the results, and run again once the cause is removed; other writes "
            "are to do."
        )

    def _has_failed_too_often(self, most: float) -> bool:
        """Return whether *most* failures are reached: a number, or a share of enough finished writes."""
        if isinstance(most, int):
            return self._failed >= most
        return self.done >= _LEAST and self._failed >= most * self.done
