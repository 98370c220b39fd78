"""What comes out of a write: its verdict, its value, who has a secret, and which things it made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

import attrs

from invsvc_async.reconcile.error_form import error_of
from invsvc_async.reconcile.findings import is_unique
from invsvc_async.reconcile.history import Done, ErrorFacts, Verdict
from invsvc_async.reconcile.outcome import OutcomeBase
from invsvc_async.writes.results import secret_passed_on

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from invsvc_async.reconcile.facts import Known
    from invsvc_async.reconcile.history import Reading, Secret
    from invsvc_async.reconcile.outcome import Outcome
    from invsvc_async.writes.answers import Answers
    from invsvc_async.writes.spec import WriteSpec

__all__ = ["Ending"]

T = TypeVar("T")
_APPLIED = Verdict.APPLIED  # cheaper than access through the class


class Ending(Generic[T]):
    """
    The end of one write, whose *answers* were heard.

    ``done`` is the verdict, once it is known and stored; ``found`` its value, if it has one.
    """

    def __init__(self, spec: WriteSpec, answers: Answers[T]) -> None:
        self.done: Done | None = None
        self.found: T | None = None
        self._spec = spec
        self._answers = answers
        self._outcome: Outcome[T] | None = None

    def keep(self, outcome: Outcome[Any]) -> None:  # Any: of the same operation
        """Use *outcome*, which another run found or which says more, as that of this run."""
        self.done = Done(verdict=outcome.verdict, reason=outcome.message, evidence=outcome.evidence)
        self.found, self._answers.error, self._outcome = outcome.value, outcome.error, outcome

    def outcome(self, known: Callable[[], Known]) -> Outcome[T]:
        """Return the outcome, which is made once. There must be a verdict."""
        assert self.done is not None
        return self.outcome_of(known, self.done, self.found)

    def outcome_of(self, known: Callable[[], Known], done: Done, found: T | None) -> Outcome[T]:
        """Return the outcome with the verdict *done* and the value *found*."""
        if self._outcome is None:
            self._outcome = self._made(known(), done, found)
        return self._outcome

    def _made(self, known: Known, done: Done, value: T | None) -> Outcome[T]:
        error, refusal = self._answers.error, known.refusal
        if error is None and isinstance(refusal, ErrorFacts):  # the last send was one of another process
            error = error_of({**attrs.asdict(refusal), "operation": known.operation.name})
        has_secret = done.verdict is _APPLIED and known.kind.has_secret
        outcome: OutcomeBase[T] = OutcomeBase(
            verdict=done.verdict, message=done.reason, evidence=done.evidence, value=value,
            error=error, attempts=len(known.attempts), resends=known.resends,
            secret=self._secret(known) if has_secret else None, history=known.history,
            started_as=known.intent, livemode=self._spec.options.session.livemode,
        )  # fmt: skip
        return cast("Outcome[T]", outcome)

    def _secret(self, known: Known) -> Secret | None:
        """Return who has the secret of what was created."""
        if self._answers.value is not None:
            return None if getattr(self._answers.value, "secret", None) is None else "returned"
        before = (sent.end for sent in known.intent.sent)  # by runs before this one
        return "not stored" if any(end is not None and end.kind == "applied" for end in before) else "lost"

    async def pass_secret_on(self, known: Callable[[], Known], done: Done, found: T | None, key: str) -> None:
        """Pass the secret on to the hook of the client; what has the journal of a run has its own hook."""
        hook = self._spec.options.session.on_secret
        if hook is not None and self._spec.options.journal is None:
            self._outcome = await secret_passed_on(self._made(known(), done, found), key, hook)

    # --- the value

    async def value_of(self, done: Done, look: Callable[[str], Awaitable[Reading]]) -> tuple[Done, T | None]:
        """Return the verdict, with all else that was made, and the value. *look* reads what no answer had."""
        answers = self._answers
        if answers.value is None and self._spec.kind.creates:
            found = (done.value or {}).get("id")
            answers.value = answers.accepted if getattr(answers.accepted, "id", "") == found else None
        if done.verdict is not _APPLIED:
            return done, None
        if answers.value is not None:
            return self._with_duplicates(done) if done.evidence.duplicates else done, answers.value
        if isinstance(done.value, dict):
            return done, answers.of_state(done.value)
        if done.value is None and not self._spec.kind.answer_shows_thing:
            state = (await look(str(self._spec.operation.reader))).seen
            return done, answers.of_state(state or dict(self._spec.request.path))
        return done, cast("T | None", done.value)  # a user-supplied reader decides what it is

    def _with_duplicates(self, done: Done) -> Done:
        """Return *done* with all things found, except the one of the answer, as duplicates."""
        ours = getattr(self._answers.value, "id", None)
        found = (done.value, *(done.evidence.duplicates or ()))
        others = tuple(each for each in found if not (isinstance(each, dict) and each.get("id") == ours))
        return attrs.evolve(done, evidence=attrs.evolve(done.evidence, duplicates=others))

    def claim(self, done: Done, identity: str) -> None:
        """Note which things this create made. A unique tag proves that, but may be edited away later."""
        found = [done.value, *(done.evidence.duplicates or ())]
        answered, writes = getattr(self._answers.value, "id", None), self._spec.options.session.writes
        tagged = is_unique(self._spec.tag)
        if isinstance(answered, str):
            writes.claim(answered, identity, is_certain=True, has_unique_tag=tagged)
        for each in found:
            if isinstance(each, dict) and isinstance(each.get("id"), str):
                writes.claim(each["id"], identity, is_certain=tagged, has_unique_tag=tagged)
