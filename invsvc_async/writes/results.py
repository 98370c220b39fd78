"""The results of a write: the value, the verdict, and the outcome."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar, cast

import attrs
import msgspec

from invsvc_async.codec.fields import maker_of
from invsvc_async.reconcile.findings import is_unique
from invsvc_async.reconcile.history import (
    Done,
    ErrorFacts,
    Reading,
    Secret,
    Verdict,
)
from invsvc_async.reconcile.json_form import error_of
from invsvc_async.reconcile.outcome import AnyOutcome, Outcome, OutcomeBase
from invsvc_async.writes.new_secret import pass_on
from invsvc_async.writes.values import value_of_state

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from invsvc_async.codec.exact_json import Wire
    from invsvc_async.errors import InvsvcError
    from invsvc_async.reconcile.facts import Known
    from invsvc_async.reconcile.intent import Intent
    from invsvc_async.writes.answers import Answers
    from invsvc_async.writes.run_record import RunRecord
    from invsvc_async.writes.spec import WriteSpec


T = TypeVar("T")
# Cheaper than access through the class.
_APPLIED = Verdict.APPLIED
_outcome = maker_of(OutcomeBase)


class LastRead(NamedTuple):
    """The *state* in the last read of a run, and the *json* of that state, if known."""

    state: Wire = None
    json: Wire | msgspec.Raw = None


class WriteResult(msgspec.Struct, Generic[T], eq=False):
    """
    What comes out of a run: the value, the verdict, and the outcome.

    ``read`` is what the last read of the state showed. ``done`` is the verdict, once that is known and
    stored; ``found`` its value, if it has one. ``secret_in_answer`` is what becomes of the secret that an
    answer has, if one has: it is returned, unless a hook gets it.
    """

    spec: WriteSpec
    record: RunRecord
    answers: Answers[T]
    read: LastRead = LastRead()
    done: Done | None = None
    found: T | None = None
    outcome: Outcome[T] | None = None  # made when it is asked for
    secret_in_answer: Secret = "returned"
    called: float | None = None  # when the write was awaited first, local s
    waited: float = 0.0  # s since then, for earlier writes to the same thing

    def begin(self, called: float, waited: float = 0.0) -> None:
        """Note when the write was awaited first (local s), and how long it has *waited* for others since."""
        if self.called is None:
            self.called = called
            self.waited = waited

    # --- the value

    async def with_value(
        self, done: Done, look: Callable[[str], Awaitable[Reading]]
    ) -> tuple[Done, T | None]:
        """
        Return the verdict, with all further things made as duplicates, and the value.

        The value is that of an answer, or what the evidence of *done* shows; else *look* reads it.
        """
        kind = self.spec.kind
        answers = self.answers
        if answers.value is None and kind.creates:
            # A 202 is no success, but its value counts if a read has found that very thing.
            answers.use_accepted((done.value or {}).get("id"))
        if done.verdict is not _APPLIED:
            return done, None
        if answers.value is not None:
            return self._beside_answered(done), answers.value
        if isinstance(done.value, dict):
            return done, self._of_state(done.value)
        if done.value is None and not kind.answer_shows_thing:
            request = self.spec.request
            reading = await look(str(request.operation.reader))
            # If that read fails, the ids in the path are all that is known of the thing.
            return done, self._of_state(reading.seen or dict(request.path))
        # A user-supplied reader decides what the value is.
        return done, cast("T | None", done.value)

    def _beside_answered(self, done: Done) -> Done:
        """Return *done* with all things found as duplicates, except the one of the answer."""
        if not done.evidence.duplicates:
            return done
        ours = getattr(self.answers.value, "id", None)
        found = (done.value, *done.evidence.duplicates)
        others = [each for each in found if not _has_id(each, ours)]
        return attrs.evolve(
            done, evidence=attrs.evolve(done.evidence, duplicates=tuple(others))
        )

    def _of_state(self, state: Wire) -> T:
        """Return the value in *state*: of its JSON, which has exact numbers, if *state* was read last."""
        was_read_last = state is self.read.state
        if was_read_last and self.read.json is not None:
            state = self.read.json
        return cast("T", value_of_state(self.spec.request.operation, state))

    def claim(self, done: Done) -> None:
        """
        Claim the things that this create made. A unique tag is a proof, but may be edited away later.

        If several things have it, some may be of other writes: somebody has given them that description.
        """
        others = done.evidence.duplicates or ()
        found = [done.value, *others]
        answered = self.answers.made_id()
        writes = self.spec.options.core.writes
        identity = self.record.intent.identity
        tagged = is_unique(self.spec.tag)
        if answered is not None:
            writes.claims.claim(
                answered, identity, is_certain=True, has_unique_tag=tagged
            )
        for each in found:
            if isinstance(each, dict) and isinstance(each.get("id"), str):
                writes.claims.claim(
                    each["id"],
                    identity,
                    is_certain=tagged and not others,
                    has_unique_tag=tagged,
                )

    # --- the outcome

    def keep(self, outcome: AnyOutcome) -> None:
        """Use the *outcome* of another run, or a fuller one, as the outcome of this run."""
        self.done = Done(
            verdict=outcome.verdict,
            reason=outcome.message,
            evidence=outcome.evidence,
        )
        self.found = outcome.value
        self.answers.error = outcome.error
        self.outcome = outcome

    def new_outcome(self, done: Done, value: T | None) -> Outcome[T]:
        """Return a new outcome with the verdict *done*."""
        known = self.record.known()
        secret: Secret | None = None
        if done.verdict is _APPLIED and known.kind.has_secret:
            secret = self._secret(known)
        took = 0.0
        if self.called is not None and known.history:
            took = max(known.now - self.called, 0.0)
        outcome: OutcomeBase[T] = _outcome(
            verdict=done.verdict,
            message=done.reason,
            evidence=done.evidence,
            value=value,
            error=self._error(known),
            attempts=len(known.attempts),
            resends=known.resends,
            secret=secret,
            history=known.history,
            started_as=known.intent,
            livemode=self.spec.options.core.livemode,
            took=took,
            waited=min(self.waited, took),
        )
        return cast("Outcome[T]", outcome)

    def _error(self, known: Known) -> InvsvcError | None:
        """Return the error of the last attempt that failed, in this process or another."""
        refusal = known.refusal
        if self.answers.error is not None or not isinstance(refusal, ErrorFacts):
            return self.answers.error
        facts = {**attrs.asdict(refusal), "operation": known.operation.name}
        return error_of(facts)

    def _secret(self, known: Known) -> Secret | None:
        """Return what became of the secret of a thing that was made; ``None`` if the answer had none."""
        value = self.answers.value
        if value is not None:
            has_secret = getattr(value, "secret", None) is not None
            if has_secret:
                return self.secret_in_answer
            return None
        ends = (sent.end for sent in known.intent.sent)  # of runs before this one
        had = any(
            end is not None and end.kind == "applied" and not end.secret_lost
            for end in ends
        )
        if had:
            return "not stored"
        return "lost"

    def noted_in(self, intent: Intent) -> Intent:
        """Return *intent*, with a note if nobody has the secret of the last answer."""
        if not self._would_lose_secret():
            return intent
        if not intent.sent or intent.sent[-1].end is None:
            return intent
        *before, last = intent.sent
        assert last.end is not None
        last = attrs.evolve(last, end=attrs.evolve(last.end, secret_lost=True))
        return attrs.evolve(intent, sent=(*before, last))

    def _would_lose_secret(self) -> bool:
        """Return whether a secret that an answer has would be lost if the run ended now."""
        user_gets_it = self.done is not None  # with the verdict
        if user_gets_it or self._is_delivered:
            return False
        return getattr(self.answers.value, "secret", None) is not None

    @property
    def _is_delivered(self) -> bool:
        """Whether the hook has the secret."""
        return self.secret_in_answer == "delivered"

    async def pass_secret_on(self, done: Done) -> None:
        """
        Pass the secret of a new webhook on to the hook, if there are both, and note who has it.

        The hook may have it already, if the run was cancelled after that.
        """
        hook = self.spec.options.on_secret
        if hook is None or done.verdict is not _APPLIED:
            return
        has_secret = getattr(self.answers.value, "secret", None) is not None
        if not has_secret or self._is_delivered:
            return
        key = self.record.intent.key
        self.secret_in_answer = await pass_on(hook, self.answers.value, self.spec, key)


def _has_id(shown: object, known_as: object) -> bool:
    """Return whether *shown* is the state of the thing with the id *known_as*."""
    if not isinstance(shown, dict):
        return False
    return shown.get("id") == known_as
