"""
Hold what became of a write, and tell the story of how that is known; never the network.
"""

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
    """Show a model, and of plain data its kind alone: a webhook's secret may be in it."""
    return f"<{type(value).__name__}>" if isinstance(value, (dict, list, str, bytes)) else repr(value)


@attrs.frozen(kw_only=True)
class Outcome(Generic[T_co]):
    """
    What became of a write, and on which evidence.

    ``value`` is the model where the verdict is APPLIED and it is known; ``error`` the last failure seen,
    whatever the verdict; ``attempts`` how many requests were tried, those that never left included;
    ``resends`` how many of them were sent again on proof of absence; ``secret_lost`` that a webhook was
    created and the answer with its secret was not received; ``message`` the one-line reason.
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
    livemode: bool | None = attrs.field(default=None, repr=False)  # the data mode, as answers had shown it

    @property
    def intent(self) -> Intent:
        """What was to be written and how far it got, as :meth:`Client.settle` takes it."""
        started = self.started_as
        return stored(Known(BY_NAME[started.operation], started, self.history), livemode=self.livemode)

    @property
    def applied(self) -> bool | None:
        """True if APPLIED, False if NOT_APPLIED or REFUSED, ``None`` where neither is sure."""
        if self.verdict is Verdict.APPLIED:
            return True
        return False if self.verdict in (Verdict.NOT_APPLIED, Verdict.REFUSED) else None

    def unwrap(self) -> T_co:
        """
        Give the value, as awaiting the write does.

        Raises:
            ServiceError: The service refused it.
            WriteNotAppliedError, WriteSupersededError, AmbiguousWriteError: As the verdict says.
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
        """Say what to do next, where it is not what the error's class says."""
        has_read = BY_NAME[self.started_as.operation].reader is not None
        return None if has_read or self.verdict is not Verdict.UNKNOWN else AmbiguousWriteError.without_read

    def _lead(self) -> str:
        return f"{self.started_as.operation} ({self.started_as.key})"

    def explain(self) -> str:
        """Tell the story in a few plain lines: what was sent, what was read, why the verdict follows."""
        return tell(self.started_as, self.history, self.verdict, self.message)

    def to_json(self) -> str:
        """Give the story as JSON, which ``invsvc explain FILE`` replays through the same rules, offline."""
        return to_json(self.started_as, self.history, self.verdict, self.message)
