"""Verdicts of entries that were lost, or that this package or this client cannot send or settle."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any, cast

import attrs
import msgspec

from invsvc_async.batch.result import Result
from invsvc_async.errors import InvalidRequestError, JournalError
from invsvc_async.journal.entry import Entry, State
from invsvc_async.journal.full_outcome_record import ErrorRecord, VerdictRecord, outcome_of
from invsvc_async.reconcile.history import Evidence, Verdict
from invsvc_async.reconcile.intent import Intent, Scope
from invsvc_async.reconcile.outcome import OutcomeBase

if TYPE_CHECKING:
    from invsvc_async.errors import InvsvcError
    from invsvc_async.journal.packed_intent import Commons
    from invsvc_async.reconcile.outcome import Outcome

__all__ = ["may_be_sent", "outcome_in", "result_in", "verdict_of_lost", "verdict_of_unfit"]

log: logging.Logger = logging.getLogger("invsvc_async.outbox")

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(VerdictRecord).decode
_AGAIN = (
    "It is kept. Deploy a version or settings that fit, then mark it to be done again (invsvc outbox retry)."
)


class _End(msgspec.Struct):
    kind: str = ""


class _Send(msgspec.Struct):
    end: _End | None = None


class _Sends(msgspec.Struct):
    """The part of a packed intent that says whether it may have been sent."""

    sent: list[_Send] = []


_sends_of = msgspec.json.Decoder(_Sends).decode


def verdict_of_unfit(entry: Entry, error: InvsvcError, *, is_of_copy: bool = False) -> Entry:
    """
    Return *entry* with a verdict: NOT_APPLIED if provably nothing was sent, otherwise UNKNOWN. Log why.

    *is_of_copy*: the outbox was restored from a copy, after which it may have been sent. The advice of
    *error* is left out: it is about arguments, or about a damaged file.
    """
    sent = is_of_copy or may_be_sent(entry)
    cause = error.__cause__ if isinstance(error, JournalError) else error
    why = "; ".join(cause.problems) if isinstance(cause, InvalidRequestError) else str(error)
    what = "it may have been sent, and cannot be settled" if sent else "it was not sent"
    log.error("outbox: %s: %s: %s", entry.key, what, why)
    record = VerdictRecord(
        why=f"{what}: {why.rstrip('.')}. {_AGAIN}",
        basis="none" if sent else "never sent", tries=0,
        error=ErrorRecord(kind="ConfigurationError", message=why),
    )  # fmt: skip
    return _ended(entry, Verdict.UNKNOWN if sent else Verdict.NOT_APPLIED, record)


def may_be_sent(entry: Entry) -> bool:
    """Return whether *entry* may have been sent; one that is done again after UNKNOWN keeps its sends."""
    if entry.state is not State.TO_DO:
        return True
    try:
        sends = _sends_of(entry.intent or "{}").sent
    except msgspec.MsgspecError:
        return True
    return any(send.end is None or send.end.kind != "not applied" for send in sends)


def verdict_of_lost(entry: Entry) -> Entry:
    """Return *entry*, of which only the request's digest is left, with the verdict UNKNOWN."""
    why = "it may have been sent, and what would settle it was lost with the outbox's journal"
    return _ended(entry, Verdict.UNKNOWN, VerdictRecord(why=why, basis="none", tries=0))


def _ended(entry: Entry, verdict: Verdict, record: VerdictRecord) -> Entry:
    return Entry(
        seq=entry.seq,
        key=entry.key,
        content=entry.content,
        state=State.DONE,
        run=entry.run,
        operation=entry.operation,
        verdict=verdict.value,
        common=entry.common,
        intent=entry.intent,
        outcome=_encode(record).decode(),
        done_at=time.time_ns() // 1_000_000,
    )


def outcome_in(entry: Entry, commons: Commons) -> Outcome[Any]:  # Any: the operation says what its value is
    """Return the outcome of an entry that is done, with what is known of its intent if that is unfit."""
    try:
        return outcome_of(entry, commons)
    except JournalError:
        record = _decode(entry.outcome or "{}")
        outcome: OutcomeBase[Any] = OutcomeBase(
            verdict=Verdict(str(entry.verdict)),
            message=record.why,
            evidence=Evidence(basis="none"),
            attempts=record.tries,
            started_as=Intent(key=entry.key, operation=entry.operation, scope=Scope(base_url="")),
        )
        return cast("Outcome[Any]", outcome)


def result_in(entry: Entry, commons: Commons) -> Result:
    """Return the result of an entry that is done."""
    outcome = outcome_in(entry, commons)
    error = outcome.error
    return attrs.evolve(
        Result.of(entry, outcome=outcome),
        error=None if error is None else f"{type(error).__name__}: {error}",
        status=getattr(error, "status", None),
    )
