"""
The record of an outcome, as journals store it.

A batch leaves the value and the error out.  Outboxes and clients' journals store both, because an outcome is
rebuilt from the record and the intent.  A record contains no token, no webhook secret and no history.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any, cast

import attrs
import msgspec
from msgspec.structs import replace

from invsvc_async.api.operations import BY_NAME
from invsvc_async.codec import unstructure
from invsvc_async.codec.exact_json import UNREADABLE, exact
from invsvc_async.durable.entry import Entry, State, unreadable
from invsvc_async.durable.intents import Packed, pack, scope_in, unpack
from invsvc_async.errors import (
    ConfigurationError,
    InvalidRequestError,
    InvsvcError,
    JournalError,
    ServiceError,
    service_error_class,
    without_secrets,
)
from invsvc_async.reconcile.facts import start_of, time_of
from invsvc_async.reconcile.history import (
    Evidence,
    PersonFinding,
    Reading,
    Resumed,
    Secret,
    Verdict,
)
from invsvc_async.reconcile.intent import SentEnd
from invsvc_async.reconcile.json_form import error_of, plain_error
from invsvc_async.reconcile.outcome import OutcomeBase, read_back
from invsvc_async.writes.values import value_of_state

if TYPE_CHECKING:
    from invsvc_async.codec.exact_json import Wire
    from invsvc_async.durable.intents import Commons
    from invsvc_async.reconcile.history import Basis, Cause
    from invsvc_async.reconcile.intent import Intent, Scope
    from invsvc_async.reconcile.outcome import AnyOutcome, Outcome


_outbox_log: logging.Logger = logging.getLogger("invsvc_async.outbox")


class VerdictRecord(msgspec.Struct, omit_defaults=True, kw_only=True):
    """
    The stored part of an outcome.  Names are short, because a journal may contain a million of them.

    What statements ask for is in columns, too: see ``flags_of``.
    """

    why: str = ""  # the one-line reason
    basis: str = ""  # of the evidence
    thing: str | None = None  # the id of what was written, if known
    tries: int = 1  # requests of the write
    again: int = 0  # of them, sent again after absence was proven
    reads: int = 0
    took: float = 0.0  # s, from the call to the verdict
    waited: float = 0.0  # s of them, for earlier writes to the same thing
    had: Secret | None = None  # who had the webhook's secret
    # not sent (again), because a newer write to the same resource was
    overtaken: bool = False
    failed: str | None = None  # the last failure seen
    status: int | None = None  # of that failure, if it was an answer
    code: str | None = None  # its error code
    cause: str | None = None  # a code for the reason
    # tuples, because a list would be made for each record
    candidates: tuple[str, ...] = ()
    duplicates: tuple[str, ...] | None = ()  # None: not known
    story: str | None = None  # unless the verdict is APPLIED
    person: PersonFinding | None = None  # whose finding the verdict is
    # Not in a batch, and instead of `failed`, `status`, `code` and `story`:
    value: Any = None  # wire form
    error: dict[str, Any] | None = None  # plain form
    livemode: bool | None = None

    @property
    def secret(self) -> Secret | None:
        """The ``secret`` of a result or an outcome that is made of the record."""
        return read_back(self.had)


_encode = msgspec.json.Encoder(decimal_format="number").encode
_decode = msgspec.json.Decoder(VerdictRecord, float_hook=exact).decode


def record_of(outcome: AnyOutcome) -> VerdictRecord:
    """Return the record of *outcome* that a batch stores."""
    history = outcome.history
    evidence = outcome.evidence
    error = outcome.error
    took = outcome.took
    if not took and history:  # of a run of which nobody noted the call
        took = time_of(history[-1]) - start_of(history[0])
    plain = outcome.verdict is Verdict.APPLIED
    # as for nearly all
    if plain and evidence.basis == "answered" and len(history) == 1:
        thing = _id_of(outcome.value)
        waited = round(outcome.waited, 4)
        return VerdictRecord(
            basis="answered",
            thing=thing,
            took=round(took, 4),
            waited=waited,
            had=outcome.secret,
        )
    record = VerdictRecord(
        basis=evidence.basis,
        thing=_id_of(outcome.value),
        tries=outcome.attempts,
        again=outcome.resends,
        reads=[*map(type, history)].count(Reading),
        took=round(took, 4),
        waited=round(outcome.waited, 4),
        had=outcome.secret,
        overtaken=_is_overtaken(outcome),
        cause=evidence.cause,
        person=evidence.person,
        candidates=_ids(evidence.candidates),
        duplicates=None if evidence.duplicates is None else _ids(evidence.duplicates),
    )
    if not plain or evidence.basis != "answered":
        record.why = outcome.message
    if error is not None:
        record.failed = f"{type(error).__name__}: {error}"[:500]
    if isinstance(error, ServiceError):
        record.status = error.status
        record.code = error.code
    if not plain:
        record.story = outcome.explain()[:4000]
    return record


def _is_overtaken(outcome: AnyOutcome) -> bool:
    """Return whether a write was not sent (again) because of a newer one, as its history shows."""
    if outcome.verdict is not Verdict.NOT_APPLIED:
        return False
    return any(
        isinstance(event, Resumed) and event.newest is False
        for event in outcome.history
    )


def flags_of(record: VerdictRecord) -> int:
    """Return what is counted of *record*: 1 if a secret is lost, plus 2 if the write was overtaken."""
    is_lost = record.had == "lost"
    return is_lost + 2 * record.overtaken


def encoded(record: VerdictRecord) -> str:
    """Return *record* as the text that is stored."""
    return _encode(record).decode()


def verdict_and_record(entry: Entry) -> tuple[Verdict, VerdictRecord]:
    """Return both of an entry, or raise JournalError; the record is empty if it was pruned."""
    try:
        return Verdict(str(entry.verdict)), _decode(entry.outcome or "{}")
    except UNREADABLE as error:
        raise unreadable(entry.key, error) from None


def is_answered(outcome: Outcome[object]) -> bool:
    """
    Return whether the answer to the last send said success, as for nearly every write.

    Then the intent that was stored before that send need not be stored again.
    """
    return outcome.verdict is Verdict.APPLIED and outcome.evidence.basis == "answered"


def verdict_record(
    outcome: Outcome[object], record: VerdictRecord | None = None
) -> str:
    """
    Return the record of *outcome*, with the value and the error, as the text that is stored.

    Both are added to *record*, the record of a batch, if it is made already.
    A value that has no JSON form, such as an object of a user-supplied reader, is left out.
    """
    record = record or record_of(outcome)
    error = outcome.error
    record.why = outcome.message
    record.livemode = outcome.livemode
    record.value = without_secrets(_plain(outcome.value))
    record.story = record.failed = record.status = record.code = None
    if error is not None:
        record.error = {name: _plain(each) for name, each in plain_error(error).items()}
        # its text is made of the rest, and may quote a secret in details
        if isinstance(error, ServiceError):
            del record.error["text"]
    try:
        return encoded(record)
    except (
        ValueError,
        TypeError,
        RecursionError,
    ):  # text that UTF-8 cannot encode, or nested too deeply
        plain = (record.error or {}).items()
        texts = {
            name: _text(each)
            for name, each in plain
            if isinstance(each, (str, int, float))
        }
        record.value = None
        record.why = _text(record.why)
        record.error = texts or None
        return encoded(record)


def entry_of(
    state: State,
    intent: Intent,
    commons: Commons,
    packed: Packed | None = None,
    **known: Any,
) -> Entry:
    """Return the entry of *intent*, whose *packed* form may be known; *known* are other fields of it."""
    packed = packed or pack(intent, commons)
    return Entry(
        state=state,
        operation=intent.operation,
        common=packed.common,
        intent=packed.text,
        **known,
    )


def done_entry(
    outcome: AnyOutcome, sent: Packed | None, commons: Commons, **known: Any
) -> Entry:
    """
    Return the entry of a write that has a verdict; *known* are further fields of the entry.

    *sent* is the intent of the write as it was stored before the last send.
    """
    record = record_of(outcome)
    known |= {
        "verdict": outcome.verdict.value,
        "outcome": verdict_record(outcome, record),
        "flags": flags_of(record),
    }
    if sent is not None and is_answered(outcome):
        return entry_of(State.DONE, outcome.started_as, commons, sent, **known)
    return entry_of(State.DONE, outcome.intent, commons, **known)


# --- back to an outcome


def intent_of(entry: Entry, commons: Commons) -> Intent:
    """Return the intent of an entry, which is stored under its identity, or raise JournalError."""
    if entry.common is None or entry.intent is None:
        raise unreadable(entry.key, "it has no intent")
    intent = unpack(entry.key, Packed(common=entry.common, text=entry.intent), commons)
    if intent.nonce is None:
        return intent
    return attrs.evolve(intent, key=entry.key.removesuffix(f" {intent.nonce}"))


def scope_of(entry: Entry, commons: Commons) -> Scope:
    """Return where the write of an entry belongs, without its credential, or raise JournalError."""
    if entry.common is None:
        raise unreadable(entry.key, "it has no intent")
    return scope_in(entry.key, entry.common, commons)


def outcome_of(entry: Entry, commons: Commons) -> AnyOutcome:
    """Rebuild the outcome of an entry that is done, without its history, or raise JournalError."""
    if entry.outcome is None:
        raise unreadable(entry.key, "it has no outcome")
    verdict, record = verdict_and_record(entry)
    intent = intent_of(entry, commons)
    value = record.value
    try:
        # otherwise the type is that of a user-supplied reader
        if isinstance(value, dict):
            value = value_of_state(BY_NAME[intent.operation], value)
        error = error_in(record, verdict, intent.operation)
    except (InvsvcError, TypeError, *UNREADABLE) as problem:
        raise unreadable(entry.key, problem) from None
    secret = record.secret
    # A verdict still in a client's journal was given to nobody: its secret died with the process.
    if record.had == "returned":
        secret = "lost"
    if verdict is Verdict.APPLIED and record.basis == "answered":
        intent = _answered(intent)
    outcome: OutcomeBase[Any] = OutcomeBase(
        verdict=verdict,
        message=record.why,
        evidence=evidence_in(record),
        value=value,
        error=error,
        attempts=record.tries,
        resends=record.again,
        took=record.took,
        waited=record.waited,
        secret=secret,
        started_as=intent,
        livemode=record.livemode,
    )
    return cast("Outcome[Any]", outcome)


def evidence_in(record: VerdictRecord) -> Evidence:
    """Return what the verdict of *record* is based on."""
    return Evidence(
        basis=cast("Basis", record.basis or "none"),
        candidates=_by_id(record.candidates),
        duplicates=None if record.duplicates is None else _by_id(record.duplicates),
        cause=cast("Cause | None", record.cause),
        person=record.person,
    )


def error_in(
    record: VerdictRecord,
    verdict: Verdict,
    operation: str | None,
) -> InvsvcError | None:
    """Return the error of an outcome; a REFUSED outcome always has one."""
    error = error_of(record.error)
    if error is not None or verdict is not Verdict.REFUSED:
        return error
    if record.status is not None:  # a batch stores no more of it
        refusal = service_error_class(record.status)
        return refusal(
            status=record.status,
            code=record.code,
            operation=operation,
        )
    return InvsvcError(f"{operation}: it was refused. Why is not stored any more.")


def _answered(intent: Intent) -> Intent:
    """Record in *intent* how the last request ended, if it was stored before that."""
    if not intent.sent or intent.sent[-1].end is not None:
        return intent
    last = attrs.evolve(intent.sent[-1], end=SentEnd(kind="applied"))
    return attrs.evolve(intent, sent=(*intent.sent[:-1], last))


# --- writes that an outbox cannot send or settle


def may_be_sent(entry: Entry) -> bool:
    """
    Return whether the write of *entry* may have been sent.

    An entry that is done again after UNKNOWN keeps its sends.
    """
    if entry.state is not State.TO_DO:
        return True
    try:
        sends = msgspec.json.decode(entry.intent or "{}").get("sent", [])
        if type(sends) is not list:
            return True
        return any(send["end"]["kind"] != "not applied" for send in sends)
    except (
        AttributeError,
        LookupError,
        TypeError,
        *UNREADABLE,
    ):  # it has not ended, or cannot be read
        return True


def verdict_of_unfit(
    entry: Entry,
    error: InvsvcError,
    *,
    is_of_copy: bool = False,
) -> Entry:
    """
    Return *entry* with a verdict: NOT_APPLIED if provably nothing was sent, otherwise UNKNOWN. Log why.

    *is_of_copy*: the outbox was restored from a copy, after which it may have been sent. The advice of
    *error* is left out: it is about arguments, or about a damaged file.
    """
    sent = is_of_copy or may_be_sent(entry)
    cause = error.__cause__ if isinstance(error, JournalError) else error
    if isinstance(cause, InvalidRequestError):
        why = "; ".join(cause.problems)
    else:
        why = str(error)
    if sent:
        what = "it may have been sent, and cannot be settled"
        basis = "none"
        verdict = Verdict.UNKNOWN
    else:
        what = "it was not sent"
        basis = "never sent"
        verdict = Verdict.NOT_APPLIED
    _outbox_log.error("outbox: %s: %s: %s", entry.key, what, why)
    record = VerdictRecord(
        why=f"{what}: {why.rstrip('.')}. It is kept. Deploy a version or settings that fit, then mark it to "
        "be done again (invsvc outbox retry).",
        basis=basis,
        tries=0,
        error=plain_error(ConfigurationError(why)),
    )
    return _ended(entry, verdict, record)


def verdict_of_lost(entry: Entry) -> Entry:
    """Return *entry*, of which only the request's digest is left, with the verdict UNKNOWN."""
    why = "it may have been sent, and what would settle it was lost with the outbox's journal"
    return _ended(
        entry,
        Verdict.UNKNOWN,
        VerdictRecord(
            why=why,
            basis="none",
            tries=0,
        ),
    )


def _ended(
    entry: Entry,
    verdict: Verdict,
    record: VerdictRecord,
) -> Entry:
    now = time.time_ns() // 1_000_000
    return replace(
        entry,
        state=State.DONE,
        verdict=verdict.value,
        outcome=encoded(record),
        flags=flags_of(record),
        done_at=now,
    )


def _id_of(value: object) -> str | None:
    found = value.get("id") if isinstance(value, dict) else getattr(value, "id", None)
    if isinstance(found, str):
        return found
    return None


def _ids(things: tuple[Wire, ...]) -> tuple[str, ...]:
    return tuple(str(_id_of(each)) for each in things[:100])


def _by_id(ids: tuple[str, ...]) -> tuple[Wire, ...]:
    return tuple({"id": each} for each in ids)


def _plain(value: object) -> Wire:
    """Return the wire form of *value*; ``None`` if it has none."""
    try:
        return unstructure(value)
    except (InvsvcError, TypeError, ValueError, RecursionError):
        return None


def _text(plain: Any) -> Any:  # Any: text, or a number
    if isinstance(plain, str):
        return plain.encode(errors="replace").decode()
    return plain
