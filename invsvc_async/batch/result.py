"""Results of the writes of a batch.  They contain no bodies, tokens or secrets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, cast

import attrs

from invsvc_async.durable.records import (
    VerdictRecord,
    error_in,
    evidence_in,
    outcome_of,
    verdict_and_record,
)
from invsvc_async.errors import JournalError
from invsvc_async.models.portable import html_table
from invsvc_async.reconcile.history import Secret, Verdict
from invsvc_async.reconcile.intent import Intent, Scope
from invsvc_async.reconcile.outcome import Outcome, OutcomeBase

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from invsvc_async.durable.entry import Entry
    from invsvc_async.durable.intents import Commons


if TYPE_CHECKING:
    from typing_extensions import TypeVar

    T_co = TypeVar("T_co", covariant=True, default=Any)  # Any: of any operation
else:
    from typing import TypeVar

    T_co = TypeVar("T_co", covariant=True)


def _verdict_as_text(verdict: Verdict) -> str:
    """Return the repr of the word alone, to which the verdict is equal."""
    return repr(str(verdict))


def _counts_as_text(verdicts: Mapping[Verdict, int]) -> str:
    """Return the repr of a dict with words as its keys."""
    return repr({str(verdict): count for verdict, count in verdicts.items()})


@attrs.frozen(kw_only=True, slots=False)  # creating one with a dict takes half the time
class Result(Generic[T_co]):
    """
    The result of one write of a batch.

    ``thing`` is the id of what was written, if it is known. ``attempts`` counts the requests of the write,
    ``resends`` and ``reads`` those of the run that found the verdict, not of a run that was killed before.
    ``seconds`` is the time from the start of that run to the verdict. ``secret`` says who has the secret of a
    new webhook, as in ``Outcome``; if it is lost, ``on_secret`` may have had it just before a kill.
    ``replaced_by`` is the id of the webhook that stands in the place of such a one, if the store knows it:
    see ``client.webhooks.replace_lost``. ``error`` is the message of the last failure, ``status`` its HTTP
    status, and ``code`` its error code. ``cause`` is a code for the reason why the write is not applied, or
    not known to be (see ``Evidence``). ``candidates`` and
    ``duplicates`` are ids of webhooks that may be, or are, further effects. ``overtaken`` is whether the
    write was not sent (again) because a newer write to the same resource was. ``story`` explains the verdict,
    unless the service simply answered so. ``outcome`` is set for writes of the current run, and for webhooks
    whose secret nobody may have.
    """

    key: str
    operation: str
    verdict: Verdict = attrs.field(repr=_verdict_as_text)
    message: str = ""
    basis: str = ""
    thing: str | None = None
    attempts: int = 1
    resends: int = 0
    reads: int = 0
    seconds: float = 0.0
    secret: Secret | None = None
    overtaken: bool = False
    error: str | None = None
    status: int | None = None
    code: str | None = None
    cause: str | None = None
    candidates: tuple[str, ...] = ()
    duplicates: tuple[str, ...] = ()
    story: str | None = None
    done_at: int | None = None
    replaced_by: str | None = None
    outcome: Outcome[T_co] | None = attrs.field(
        default=None,
        repr=False,
        eq=False,
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
        """Whether a webhook was created whose secret was lost, as far as this run or the store knows."""
        return self.secret == "lost"

    @classmethod
    def of(
        cls,
        entry: Entry,
        record: VerdictRecord | None = None,
        outcome: Outcome[Any] | None = None,
    ) -> Result:  # Any: of any operation
        """
        Make the result of a done entry. *record* is the record of the outcome, if already decoded.

        The whole *outcome* is that of this run, or of an entry that has it all.

        Raises:
            JournalError: The entry is damaged.
        """
        if record is None:
            verdict, record = verdict_and_record(entry)
        else:
            verdict = Verdict(str(entry.verdict))
        failed = record.failed
        status = record.status
        code = record.code
        if outcome is None:
            error = None
            secret = record.secret
        else:
            error = outcome.error
            secret = outcome.secret
        if failed is None and error is not None:
            failed = f"{type(error).__name__}: {error}"
            status = getattr(error, "status", None)
            code = getattr(error, "code", None)
        return cls(
            key=entry.key,
            operation=entry.operation,
            verdict=verdict,
            message=_message_of(verdict, record),
            basis=record.basis,
            thing=record.thing,
            attempts=record.tries,
            resends=record.again,
            reads=record.reads,
            seconds=record.took,
            secret=secret,
            overtaken=record.overtaken,
            error=failed,
            status=status,
            code=code,
            cause=record.cause,
            candidates=record.candidates,
            duplicates=record.duplicates or (),
            story=record.story,
            done_at=entry.done_at,
            outcome=outcome,
        )


def _message_of(verdict: Verdict, record: VerdictRecord) -> str:
    """Return the one-line reason.  For an answer of success, none is stored."""
    if record.why:
        return record.why
    if record.basis == "answered" and verdict is Verdict.APPLIED:
        return "the service answered so"
    return ""


# Any: the operation says what its value is
def kept_outcome(entry: Entry, commons: Commons) -> Outcome[Any] | None:
    """
    Return the outcome of an entry of a batch if the batch has kept it, as of a secret that may be lost.

    What a run has returned may be with its caller, so that it counts as not stored.
    """
    if entry.verdict != Verdict.APPLIED or entry.intent is None:
        return None
    outcome = outcome_in(entry, commons)
    _, record = verdict_and_record(entry)
    return attrs.evolve(outcome, secret=record.secret)


# Any: the operation says what its value is
def outcome_in(entry: Entry, commons: Commons) -> Outcome[Any]:
    """Return the outcome of a done entry; if its intent is unfit, with the parts that can be read."""
    try:
        return outcome_of(entry, commons)
    except JournalError:
        verdict, record = verdict_and_record(entry)
        outcome: OutcomeBase[Any] = OutcomeBase(
            verdict=verdict,
            message=record.why,
            evidence=evidence_in(record),
            error=error_in(record, verdict, entry.operation),
            attempts=record.tries,
            resends=record.again,
            secret=record.secret,
            started_as=Intent(
                key=entry.key,
                operation=entry.operation,
                scope=Scope(base_url=""),
            ),
        )
        return cast("Outcome[Any]", outcome)


@attrs.frozen(kw_only=True)
class Summary:
    """
    Counts of the writes of a whole batch, by verdict if they are done.

    ``secrets_lost`` counts webhooks whose secret was lost, without ``secrets_replaced`` ones, in whose place
    another one stands. ``overtaken`` ones are NOT_APPLIED, because a newer write to the same resource was
    sent. ``open_inputs`` is how many inputs were begun and not read to their end: they are being read, or
    their run was stopped.
    """

    to_do: int = 0
    sending: int = 0
    verdicts: Mapping[Verdict, int] = attrs.field(
        factory=dict[Verdict, int], repr=_counts_as_text
    )
    secrets_lost: int = 0
    secrets_replaced: int = 0
    overtaken: int = 0
    open_inputs: int = 0

    @property
    def done(self) -> int:
        """How many have a verdict, UNKNOWN included."""
        return sum(self.verdicts.values())

    @property
    def total(self) -> int:
        """How many are in the journal."""
        return self.to_do + self.sending + self.done

    @property
    def unknown(self) -> int:
        """How many have the verdict UNKNOWN."""
        return self.verdicts.get(Verdict.UNKNOWN, 0)

    def _repr_html_(self) -> str:
        """Return a table of the counts, for notebooks."""
        rows = [
            *self.verdicts.items(),
            ("to do", self.to_do),
            ("sending", self.sending),
        ]
        return html_table(
            f"{self.total} write{'' if self.total == 1 else 's'}",
            ("verdict", "writes"),
            rows,
        )


@attrs.frozen(kw_only=True)
class Progress:
    """
    The progress of a run.

    ``done`` writes were finished by this run, ``skipped`` ones by an earlier run. ``under_way`` ones have
    started, and ``settling`` of those are being settled. ``rate`` is finished writes per second since the
    start of the run. ``verdicts`` counts the verdicts of ``done``. While the service is away, refuses the
    credential or limits the rate, ``paused`` is the reason and ``next_probe`` the seconds until it is tried
    again. While a ``TokenProvider`` is asked for a token, ``paused`` says so and ``next_probe`` is ``None``.
    ``limited_by`` is what keeps more writes from being under way: a word such as ``concurrency``,
    ``adaptive limit``, ``rate``, ``order``, ``input`` or ``lost answers``, a colon and details; or
    ``paused``.
    """

    done: int
    skipped: int
    under_way: int
    settling: int
    rate: float
    seconds: float
    verdicts: Mapping[Verdict, int] = attrs.field(repr=_counts_as_text)
    paused: str | None = None
    next_probe: float | None = None
    limited_by: str | None = None


@attrs.frozen(kw_only=True)
class Worker:
    """
    A worker of a shared batch, as it last described itself.

    ``done`` is the number of writes that it has finished, ``rate`` how many per second, and ``lanes`` how
    many parts of the batch it has now. ``silent`` is the number of seconds since its last sign of life,
    ``seen``. One that is not ``alive`` has ``ended``, or was killed, or has lost the database.
    """

    host: str
    pid: int
    done: int
    rate: float
    lanes: int
    begun: datetime
    seen: datetime
    silent: float
    alive: bool
    ended: bool
