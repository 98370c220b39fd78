"""The outcome of a write, with its evidence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

import attrs

from invsvc_async._errors import ServiceError
from invsvc_async.api.operations import BY_NAME
from invsvc_async.reconcile.explain import tell, to_json
from invsvc_async.reconcile.facts import Known
from invsvc_async.reconcile.history import Verdict
from invsvc_async.reconcile.stored_intent import stored
from invsvc_async.reconcile.write_errors import (
    AmbiguousWriteError,
    SecretLostError,
    WriteError,
    WriteNotAppliedError,
    WriteSupersededError,
)

if TYPE_CHECKING:
    from invsvc_async._errors import InvsvcError
    from invsvc_async.reconcile.history import Evidence, History
    from invsvc_async.reconcile.intent import Intent

__all__ = ["Outcome"]

T_co = TypeVar("T_co", covariant=True)

_ERRORS: dict[Verdict, type[WriteError]] = {
    Verdict.NOT_APPLIED: WriteNotAppliedError,
    Verdict.REFUSED: WriteNotAppliedError,
    Verdict.SUPERSEDED: WriteSupersededError,
    Verdict.UNKNOWN: AmbiguousWriteError,
}


def _shown(value: object) -> str:
    """Format a model, but only the type of plain data, which may contain a webhook's secret."""
    return f"<{type(value).__name__}>" if isinstance(value, (dict, list, str, bytes)) else repr(value)


@attrs.frozen(kw_only=True)
class Outcome(Generic[T_co]):
    """
    The outcome of a write, with its evidence.

    - ``message``: the reason for the verdict, in one line.
    - ``value``: the model, if the verdict is APPLIED and it is known.
    - ``error``: the last failure, whatever the verdict.
    - ``attempts``: the number of requests, including those that never left.
    - ``resends``: how many of them were re-sent on proof of absence.
    - ``secret_lost``: a webhook was created, but the answer with its secret was lost.
    """

    verdict: Verdict
    message: str
    evidence: Evidence
    value: T_co | None = attrs.field(default=None, repr=_shown)
    error: InvsvcError | None = None
    attempts: int = 0
    resends: int = 0
    secret_lost: bool = False
    history: History = attrs.field(default=(), repr=False)
    started_as: Intent = attrs.field(repr=False)  # the intent before *history*
    livemode: bool | None = attrs.field(default=None, repr=False)  # the data mode, as answers showed it

    @property
    def intent(self) -> Intent:
        """The intent with all sends, for :meth:`Client.settle`."""
        started = self.started_as
        return stored(Known(BY_NAME[started.operation], started, self.history), livemode=self.livemode)

    @property
    def applied(self) -> bool | None:
        """True if APPLIED, False if NOT_APPLIED or REFUSED, otherwise ``None``."""
        if self.verdict is Verdict.APPLIED:
            return True
        return False if self.verdict in (Verdict.NOT_APPLIED, Verdict.REFUSED) else None

    def unwrap(self) -> T_co:
        """
        Return the value, or raise the error, that awaiting the write would.

        Raises:
            ServiceError: The service refused the write.
            WriteNotAppliedError, WriteSupersededError, AmbiguousWriteError: According to the verdict.
            SecretLostError: Applied, but the answer with the webhook's secret was lost.

        """
        if self.verdict is Verdict.APPLIED:
            if self.secret_lost:
                raise SecretLostError(
                    f"{self._lead()}: applied, but its secret was lost", outcome=self
                ) from self.error
            return self.value  # type: ignore[return-value]  # None only where no read gives the value; see explain()
        if self.verdict is Verdict.REFUSED and isinstance(self.error, ServiceError):
            raise self.error
        raise _ERRORS[self.verdict](
            f"{self._lead()}: {self.verdict}: {self.message}", outcome=self, hint=self._hint()
        ) from self.error

    def _hint(self) -> str | None:
        """Return what to do next, if it is not the hint of the error's class."""
        has_read = BY_NAME[self.started_as.operation].reader is not None
        return None if has_read or self.verdict is not Verdict.UNKNOWN else AmbiguousWriteError.without_read

    def _lead(self) -> str:
        return f"{self.started_as.operation} ({self.started_as.key})"

    def explain(self) -> str:
        """Return a few lines on what was sent, what was read, and why the verdict follows."""
        return tell(self.started_as, self.history, self.verdict, self.message)

    def to_json(self) -> str:
        """Return the history as JSON, which ``invsvc explain FILE`` replays offline by the same rules."""
        return to_json(self.started_as, self.history, self.verdict, self.message)
