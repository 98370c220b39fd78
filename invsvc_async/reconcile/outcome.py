"""The outcome of a write, with its evidence, and the errors about writes, which carry the outcome."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Generic,
    Literal,
    Self,
    TypeAlias,
    TypeVar,
    cast,
)

import attrs

from invsvc_async import models
from invsvc_async.api.operations import BY_NAME
from invsvc_async.codec import structure
from invsvc_async.codec.envelope import loads
from invsvc_async.errors import (
    InvalidRequestError,
    InvsvcError,
    ServiceError,
    without_secrets,
)
from invsvc_async.models.portable import Portable, keep_arguments
from invsvc_async.reconcile.explain import story_of, tell
from invsvc_async.reconcile.facts import Known
from invsvc_async.reconcile.history import Cause, Evidence, History, Secret, Verdict
from invsvc_async.reconcile.json_form import (
    SCHEMA,
    error_of,
    event_to_wire,
    intent_to_json,
    parsed,
    plain_error,
    structured,
    unstructured,
)
from invsvc_async.reconcile.stored_intent import stored
from invsvc_async.reconcile.turn import is_overtaken

if TYPE_CHECKING:
    from collections.abc import Callable

    from invsvc_async.codec.exact_json import Wire
    from invsvc_async.reconcile.intent import Intent

__all__ = [
    "LIST_FULL",
    "AmbiguousWriteError",
    "Outcome",
    "OutcomeBase",
    "SecretLostError",
    "WriteError",
]
__all__ += ["WriteNotAppliedError", "WriteSupersededError", "read_back", "summary"]

T_co = TypeVar("T_co", covariant=True)


class WriteError(InvsvcError):
    """A write was not applied, or it is not known.  ``outcome`` and ``intent`` have the details."""

    hint: ClassVar[str] = ""

    # Any: errors do not carry the type of the value
    def __init__(
        self,
        message: str,
        *,
        outcome: Outcome[Any],
        hint: str | None = None,
    ) -> None:
        self.outcome = outcome
        super().__init__(f"{message}. {hint or self.hint}")

    @property
    def intent(self) -> Intent:
        """The intent of the write, as plain data.  Keep it to settle the write later."""
        return self.outcome.intent


class WriteNotAppliedError(WriteError):
    """The write provably did not happen, and is not being sent again."""

    hint = "Nothing was changed. It is safe to write again."


class WriteSupersededError(WriteError):
    """Somebody else has changed the resource since.  Sending again would undo that."""

    hint = "Read the current state, then decide."


class AmbiguousWriteError(WriteError):
    """Whether the write was applied is not known, and no read shows it."""

    hint = (
        "Do not just send it again. Look at the state, and store what you find with client.resolve(…); or "
        "keep .intent, and call client.settle(intent) later."
    )
    without_read: ClassVar[str] = (
        "Do not just send it again: the specification has no read for it. Look at the state, and store what "
        "you find with client.resolve(…); or keep .intent, and call client.settle(intent, reader=…) with a "
        "reader of your own."
    )


class SecretLostError(WriteError):
    """The webhook was created, but the answer with its secret was lost.  ``webhook`` is the one found."""

    hint = (
        "The webhook exists. For one with a secret, pass this error to client.webhooks.replace_lost(…); or "
        "pass on_lost_secret='keep'."
    )

    @property
    def webhook(self) -> models.Webhook:
        """The webhook that was found, with ``secret=None``."""
        return cast("models.Webhook", self.outcome.value)


for _error in (
    WriteError,
    WriteNotAppliedError,
    WriteSupersededError,
    AmbiguousWriteError,
    SecretLostError,
):
    # which gives them, and by which they are pickled
    _error.__module__ = "invsvc_async.errors"

_ERRORS: dict[Verdict, type[WriteError]] = {
    Verdict.NOT_APPLIED: WriteNotAppliedError,
    Verdict.REFUSED: WriteNotAppliedError,
    Verdict.SUPERSEDED: WriteSupersededError,
    Verdict.UNKNOWN: AmbiguousWriteError,
}
LIST_FULL = (
    "A list shows at most 100 webhooks. Delete those that nobody needs, then settle it again (in a batch or "
    "outbox: retry) before absence_within of its policy is over. Do not just send it again."
)
# of NOT_APPLIED, if the hint of the error's class does not fit
_HINTS: dict[Cause | None, str] = {
    "never left": "Nothing was sent. Check the address and the network, then write again.",
    "not sent again": "Nothing was changed. Check the address and the network, then write again.",
    "overtaken": "Nothing was changed. Write again only to replace the newer write.",
    "person": "A person found that nothing was changed. Run it again under its key, or retry it, to send it.",
    "perhaps overtaken": "Nothing was changed. Read the current state, then write again or leave it.",
    "only read": (
        "Nothing was changed. It is safe to write again. client.resume(intent) and invsvc resume do so, too; "
        "an update or a delete only in the process that made it."
    ),
}


def _shown(value: object) -> str:
    """Format a model, but only the type of plain data, which may contain a webhook's secret."""
    if isinstance(value, (dict, list, str, bytes)):
        return f"<{type(value).__name__}>"
    return repr(value)


_NO_INTENT = (
    "Outcome: has no intent, so it cannot be read back. Store to_json(), or what pydantic dumps with "
    'context={"full": True}.'
)


@attrs.frozen(kw_only=True)
class _Members:
    """The members of the plain form that are read as they are."""

    verdict: Verdict
    message: str
    attempts: int = 0
    resends: int = 0
    secret: Secret | None = None
    livemode: bool | None = None
    took: float = 0.0
    waited: float = 0.0
    evidence: Evidence = attrs.field(factory=lambda: Evidence(basis="none"))


@attrs.frozen(kw_only=True)
class OutcomeBase(Portable, Generic[T_co]):
    """
    The outcome of a write, with its evidence.

    - ``message``: the reason for the verdict, in one line.
    - ``value``: the model, if the verdict is APPLIED and it is known.
    - ``error``: the last failure, whatever the verdict.
    - ``attempts``: the number of requests, including those that never left, but without those that were sent
      before the write was settled or resumed by its intent.
    - ``resends``: how many of them were re-sent on proof of absence.
    - ``secret``: who has the secret of a new webhook. ``"returned"``: it is in ``value``. ``"delivered"``:
      ``on_secret`` has had it. ``"not stored"``: whoever got the outcome first had it, and this one was read
      back. ``"lost"``: the answer was lost, or ``on_secret`` was cancelled when its client closed; if a
      process was killed just after the answer, ``on_secret`` may have had it. ``None``: the write made none.
    - ``replayed``: whether it is the outcome of another run under the same key.
    - ``took``: the time from the call to the verdict, in seconds; 0 if it is not known. ``waited``: how much
      of it was for earlier writes to the same resource. Both are of the run that found the verdict.

    ``to_dict`` and ``to_json`` include the intent and the history, which ``invsvc explain FILE`` replays
    offline by the same rules.  Pydantic, FastAPI and ``enc_hook`` show ``verdict``, ``value``, ``message``
    and ``attempts``; with the context ``{"full": True}``, pydantic shows all but the history, so that it can
    be read back.  No form contains a webhook's secret.
    """

    _public = ("verdict", "value", "message", "attempts")
    verdict: Verdict
    message: str
    evidence: Evidence
    value: T_co | None = attrs.field(default=None, repr=_shown)
    error: InvsvcError | None = None
    attempts: int = 0
    resends: int = 0
    secret: Secret | None = None
    history: History = attrs.field(default=(), repr=False)
    started_as: Intent = attrs.field(repr=False)  # the intent before *history*
    # the data mode, as answers showed it
    livemode: bool | None = attrs.field(default=None, repr=False)
    replayed: bool = False
    took: float = attrs.field(default=0.0, eq=False)
    waited: float = attrs.field(default=0.0, eq=False)

    @property
    def intent(self) -> Intent:
        """The intent with all sends, for :meth:`Client.settle`."""
        started = self.started_as
        return stored(
            Known(BY_NAME[started.operation], started, self.history),
            livemode=self.livemode,
        )

    @property
    def applied(self) -> bool | None:
        """True if APPLIED, False if NOT_APPLIED or REFUSED, otherwise ``None``."""
        if self.verdict is Verdict.APPLIED:
            return True
        if self.verdict in (Verdict.NOT_APPLIED, Verdict.REFUSED):
            return False
        return None

    @property
    def secret_lost(self) -> bool:
        """Whether a webhook was created whose secret was lost, as far as the runs of the write have noted."""
        return self.secret == "lost"

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
                    f"{self._lead()}: applied, but its secret was lost",
                    outcome=cast("Outcome[T_co]", self),
                ) from self.error
            return self.value  # type: ignore[return-value]  # None only where no read gives the value; see explain()
        if self.verdict is Verdict.REFUSED and isinstance(self.error, ServiceError):
            raise self.error
        raise _ERRORS[self.verdict](
            f"{self._lead()}: {self.verdict}: {self.message}",
            outcome=cast("Outcome[T_co]", self),
            hint=self._hint(),
        ) from self.error

    def _hint(self) -> str:
        """Return what to do next about a write that is neither applied nor refused."""
        operation = BY_NAME[self.started_as.operation]
        if self.verdict is Verdict.UNKNOWN and operation.reader is None:
            return AmbiguousWriteError.without_read
        if self.verdict is not Verdict.NOT_APPLIED:
            if self.evidence.cause == "list full":
                return LIST_FULL
            return _ERRORS[self.verdict].hint
        cause = self.evidence.cause
        if is_overtaken(Known(operation, self.started_as, self.history)):
            cause = "overtaken"
        return _HINTS.get(cause, WriteNotAppliedError.hint)

    def _lead(self) -> str:
        return f"{self.started_as.operation} ({self.started_as.key})"

    def explain(self) -> str:
        """
        Return a few lines on what was sent, what was read, and why the verdict follows.

        For NOT_APPLIED, SUPERSEDED and UNKNOWN they end with why it was not sent again and what to do next.
        """
        head, _, story = tell(
            self.started_as, self.history, self.verdict, self.message
        ).partition("\n")
        lines = [head, *self._times(), *self._found_by(), story]
        if self.verdict is Verdict.UNKNOWN:
            lines.append("  not sent again, because it may have been applied")
        if self.verdict not in (Verdict.APPLIED, Verdict.REFUSED):
            lines.append(f"  next: {self._hint()}")
        return "\n".join(lines)

    def receipt(self, key: str | bytes | None = None) -> str:
        """
        Return the outcome as a receipt: a file that ``invsvc verify FILE`` checks offline, on any machine.

        It has the intent, the history and the verdict, and is signed if there is a *key*: a private one of
        Ed25519, in PEM, without a password (extra ``receipts``).  No token and no secret of a webhook is in
        it, but the history has what reads showed, which may be other webhooks of the team.

        Raises:
            InvalidRequestError: The *key* is none.
            ConfigurationError: There is a *key*, but the extra ``receipts`` is not installed.
        """
        from invsvc_async.reconcile.receipt import receipt_of

        return receipt_of(self.to_json(), key)

    def _times(self) -> list[str]:
        """Return a line on how long it took, if that is known."""
        if not self.took:
            return []
        words = f"  took {self.took:.3f} s from the call to the verdict"
        if self.waited:
            words += f"; {self.waited:.3f} s of that it waited for earlier writes to the same resource"
        return [words]

    def _found_by(self) -> list[str]:
        """Return a line on who found it out and when, if that was a person."""
        person = self.evidence.person
        if person is None:
            return []
        at = datetime.fromtimestamp(person.at / 1000, UTC)
        return [f"  found by {person.by}, stored at {at:%Y-%m-%d %H:%M:%S} UTC"]

    def __class_getitem__(cls, item: Any) -> Any:  # Any: as in typing
        return keep_arguments(cls, super().__class_getitem__(item))  # type: ignore[misc]  # Generic has it

    def _to_plain(self, convert: Callable[[object], Wire]) -> dict[str, Wire]:
        return {
            **summary(self, convert),
            "schema": SCHEMA,
            "intent": loads(intent_to_json(self.started_as).encode()),
            "history": [event_to_wire(event) for event in self.history],
        }

    def _to_public(
        self, convert: Callable[[object], Wire], *, full: bool = False
    ) -> dict[str, Wire]:
        """
        Return the outcome as an endpoint shows it, or with *full* as an application stores it.

        Neither has the history, because reads show things that the write is not about, such as other
        webhooks. The intent has all sends instead, so that it can still be settled. It is text, because what
        it sends must keep its digits, whatever the encoder does with numbers.
        """
        found = summary(self, convert)
        if not full:
            return {name: found[name] for name in self._public}
        return {**found, "schema": SCHEMA, "intent": intent_to_json(self.intent)}

    @classmethod
    def _from_plain(cls, plain: dict[str, Wire], arguments: tuple[Any, ...]) -> Self:
        if "intent" not in plain:
            raise InvalidRequestError(_NO_INTENT)
        if isinstance(plain["intent"], str):
            plain = {**plain, "intent": parsed(plain["intent"], "an intent")}
        intent, history, _ = story_of(plain, "an outcome")
        given = {
            each.name: plain[each.name]
            for each in attrs.fields(_Members)
            if each.name in plain
        }
        members = structured(given, _Members, "an outcome")
        value = plain.get("value")
        operation = BY_NAME[intent.operation]
        if operation.result != "object" and isinstance(value, dict):
            value = structure(getattr(models, operation.result), value)
        return cls(
            **attrs.asdict(members, recurse=False),
            value=value,
            error=error_of(plain.get("error")),
            started_as=intent,
            history=history,
        )

    @classmethod
    def _with_decimals(
        cls, plain: dict[str, Wire], convert: Callable[[Any, Any], Any]
    ) -> dict[str, Wire]:
        if "intent" not in plain:
            raise InvalidRequestError(_NO_INTENT)
        operation = BY_NAME.get(
            str(parsed(plain["intent"], "an intent").get("operation"))
        )
        if operation is None or operation.kind != "write":
            return plain
        if operation.result == "object":
            return plain
        return {
            **plain,
            "value": convert(getattr(models, operation.result), plain.get("value")),
        }

    @classmethod
    def _wire_types(cls, arguments: tuple[Any, ...]) -> dict[str, tuple[Any, bool]]:
        value: Any = next(iter(arguments), Any)
        types: dict[str, Any] = {
            "verdict": Literal[tuple(map(str, Verdict))],
            "applied": bool | None,
            "message": str,
            "value": value | None,
            "error": dict[str, object] | None,
            "attempts": int,
            "resends": int,
            "secret": Secret | None,
            "secret_lost": bool,
            "livemode": bool | None,
            "took": float,
            "waited": float,
            "evidence": dict[str, object],
            "schema": int,
            "intent": str,
        }
        return {name: (hint, name in cls._public) for name, hint in types.items()}


if TYPE_CHECKING:

    class AppliedOutcome(OutcomeBase[T_co]):
        """An outcome with the verdict APPLIED."""

        verdict: Literal[Verdict.APPLIED]
        value: T_co

        @property
        def applied(self) -> Literal[True]: ...

    class RefusedOutcome(OutcomeBase[T_co]):
        """An outcome with the verdict REFUSED."""

        verdict: Literal[Verdict.REFUSED]
        value: None
        error: InvsvcError

        @property
        def applied(self) -> Literal[False]: ...

    class NotAppliedOutcome(OutcomeBase[T_co]):
        """An outcome with the verdict NOT_APPLIED."""

        verdict: Literal[Verdict.NOT_APPLIED]
        value: None

        @property
        def applied(self) -> Literal[False]: ...

    class OtherOutcome(OutcomeBase[T_co]):
        """An outcome with the verdict SUPERSEDED or UNKNOWN."""

        verdict: Literal[Verdict.SUPERSEDED, Verdict.UNKNOWN]
        value: None

        @property
        def applied(self) -> None: ...

    # Type checkers narrow a union, but no class, by an attribute.
    Outcome: TypeAlias = (
        AppliedOutcome[T_co]
        | RefusedOutcome[T_co]
        | NotAppliedOutcome[T_co]
        | OtherOutcome[T_co]
    )
else:
    Outcome = OutcomeBase
    Outcome.__name__ = Outcome.__qualname__ = "Outcome"


# --- the plain form, and back: without tokens, and without the secret of a webhook


def read_back(secret: Secret | None) -> Secret | None:
    """Return the ``secret`` of an outcome that is read back: no stored form contains a secret."""
    if secret == "returned":
        return "not stored"
    return secret


def summary(
    outcome: OutcomeBase[Any], convert: Callable[[object], Wire]
) -> dict[str, Wire]:
    """Return all but the intent and the history."""
    error: Wire = None
    if outcome.error is not None:
        error = plain_error(outcome.error)
    return {
        "verdict": str(outcome.verdict),
        "applied": outcome.applied,
        "message": outcome.message,
        "value": without_secrets(convert(outcome.value)),
        "error": error,
        "attempts": outcome.attempts,
        "resends": outcome.resends,
        "secret": read_back(outcome.secret),
        "secret_lost": outcome.secret_lost,
        "livemode": outcome.livemode,
        "took": outcome.took,
        "waited": outcome.waited,
        "evidence": without_secrets(unstructured(outcome.evidence)),
    }


AnyOutcome: TypeAlias = Outcome[Any]  # Any: the operation says what its value is
