"""
Convert between an outcome and the record of it that a journal stores.

Records contain no webhook secret, no token and no history.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, cast

import attrs
import msgspec
from msgspec.structs import asdict

from invsvc_async.api.operations import BY_NAME
from invsvc_async.codec import unstructure
from invsvc_async.codec.exact_json import UNREADABLE, exact
from invsvc_async.errors import InvsvcError, JournalError, ServiceError
from invsvc_async.journal.entry import unreadable
from invsvc_async.journal.outcome_record import Record, record_of
from invsvc_async.journal.packed_intent import Packed, unpack
from invsvc_async.reconcile.error_form import error_of, plain_error
from invsvc_async.reconcile.history import Evidence, Verdict
from invsvc_async.reconcile.intent import SentEnd
from invsvc_async.reconcile.json_form import without_secrets
from invsvc_async.reconcile.outcome import OutcomeBase
from invsvc_async.writes.results import result_of

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from invsvc_async.codec.exact_json import Wire
    from invsvc_async.journal.entry import Entry
    from invsvc_async.journal.packed_intent import Commons
    from invsvc_async.reconcile.history import Basis, Cause
    from invsvc_async.reconcile.intent import Intent
    from invsvc_async.reconcile.outcome import Outcome

__all__ = ["VerdictRecord", "intent_of", "is_answered", "outcome_of", "store_or_log", "verdict_record"]

log: logging.Logger = logging.getLogger("invsvc_async.writes")


class ErrorRecord(msgspec.Struct, omit_defaults=True, kw_only=True):
    """An error without the body and the headers of its answer."""

    kind: str  # name of the class
    message: str | None = None  # of a service's error: as sent
    status: int | None = None
    code: str | None = None
    details: Any = None  # as sent
    operation: str | None = None
    own_envelope: bool = False


class VerdictRecord(Record, omit_defaults=True, kw_only=True):
    """What a batch stores of an outcome, and besides its value, its error and the data mode."""

    value: Any = None  # wire form
    error: ErrorRecord | None = None
    others_unknown: bool = False  # whether there are duplicates is not known
    livemode: bool | None = None


_encode = msgspec.json.Encoder(decimal_format="number").encode
_decode = msgspec.json.Decoder(VerdictRecord, float_hook=exact).decode


def is_answered(outcome: Outcome[object]) -> bool:
    """
    Return whether the answer to the last send said success, as for nearly every write.

    Then the intent that was stored before that send need not be stored again.
    """
    return outcome.verdict is Verdict.APPLIED and outcome.evidence.basis == "answered"


def verdict_record(outcome: Outcome[object]) -> str:
    """
    Return *outcome* as the text that is stored.

    A value that has no JSON form, such as an object of a user-supplied reader, is left out.
    """
    value = _plain(outcome.value)
    record = VerdictRecord(
        **asdict(record_of(outcome)),
        value=without_secrets(value),
        error=None if outcome.error is None else _error_record(outcome.error),
        others_unknown=outcome.evidence.duplicates is None,
        livemode=outcome.livemode,
    )
    record.why = outcome.message
    # The record contains the error itself.
    record.story, record.failed, record.status, record.code = None, None, None, None
    created = BY_NAME[outcome.started_as.operation].finder == "created_webhook"
    if created and isinstance(value, dict) and value.get("secret") is not None:
        record.lost = True  # whoever reads the record does not get it
    try:
        return _encode(record).decode()
    except (ValueError, TypeError, RecursionError):  # text that UTF-8 cannot encode, or nested too deeply
        return _encode(_encodable(record)).decode()


async def store_or_log(storing: Awaitable[None], outcome: Outcome[object]) -> None:
    """Wait until the verdict of *outcome* is stored. If it cannot be, log that: the write stays open."""
    try:
        await storing
    except JournalError as error:
        name, key = outcome.started_as.operation, outcome.started_as.key
        log.error("%s %s: its verdict is not stored: %s", name, key, error)  # noqa: TRY400 - the message says all


def intent_of(entry: Entry, commons: Commons) -> Intent:
    """
    Return the intent of an entry, which is stored under the intent's identity.

    Raises:
        JournalError: The entry is damaged.

    """
    if entry.common is None or entry.intent is None:
        raise unreadable(entry.key, "it has no intent")
    intent = unpack(entry.key, Packed(common=entry.common, text=entry.intent), commons)
    if intent.nonce is None:
        return intent
    return attrs.evolve(intent, key=entry.key.removesuffix(f" {intent.nonce}"))


def outcome_of(entry: Entry, commons: Commons) -> Outcome[Any]:  # Any: the operation says what its value is
    """
    Rebuild the outcome of an entry that is done, without its history.

    Raises:
        JournalError: The entry is damaged.

    """
    try:
        verdict, record = Verdict(str(entry.verdict)), _decode(entry.outcome or "")
        intent = intent_of(entry, commons)
        outcome: OutcomeBase[Any] = OutcomeBase(
            verdict=verdict,
            message=record.why,
            evidence=Evidence(
                basis=cast("Basis", record.basis),
                candidates=_by_id(record.candidates),
                duplicates=None if record.others_unknown else _by_id(record.duplicates),
                cause=cast("Cause | None", record.cause),
            ),
            value=_value_of(record, intent.operation),
            error=None if record.error is None else _error_of(record.error),
            attempts=record.tries,
            resends=record.again,
            secret_lost=record.lost,
            started_as=_answered(intent)
            if verdict is Verdict.APPLIED and record.basis == "answered"
            else intent,
            livemode=record.livemode,
        )
        return cast("Outcome[Any]", outcome)
    except JournalError:
        raise
    except (InvsvcError, TypeError, *UNREADABLE) as error:
        raise unreadable(entry.key, error) from None


def _answered(intent: Intent) -> Intent:
    """Record in *intent* how the last request ended, if it was stored before that."""
    if not intent.sent or intent.sent[-1].end is not None:
        return intent
    last = attrs.evolve(intent.sent[-1], end=SentEnd(kind="applied"))
    return attrs.evolve(intent, sent=(*intent.sent[:-1], last))


# --- values


def _plain(value: object) -> Wire:
    """Return the wire form of *value*; ``None`` if it has none."""
    try:
        return unstructure(value)
    except (InvsvcError, TypeError, ValueError, RecursionError):
        return None


def _encodable(record: VerdictRecord) -> VerdictRecord:
    """Leave out what JSON cannot express, and replace characters that UTF-8 cannot."""
    record.value, record.why = None, _text(record.why)
    error = record.error
    if error is not None:
        error.details = None
        error.message = None if error.message is None else _text(error.message)
        error.code = None if error.code is None else _text(error.code)
    return record


def _text(text: str) -> str:
    return text.encode(errors="replace").decode()


def _value_of(record: VerdictRecord, operation: str) -> Any:  # Any: as in outcome_of
    value = record.value
    if not isinstance(value, dict):
        return value  # the type is that of a user-supplied reader
    return result_of(BY_NAME[operation]).of_state(value)


def _by_id(ids: list[str]) -> tuple[Wire, ...]:
    return tuple({"id": each} for each in ids)


# --- errors


def _error_record(error: InvsvcError) -> ErrorRecord:
    plain = plain_error(error)
    kind, text, message = plain.pop("type"), plain.pop("text"), plain.pop("message", None)
    plain.pop("retry_after", None)
    plain["details"] = _plain(plain.get("details"))
    return ErrorRecord(kind=kind, message=message if isinstance(error, ServiceError) else text, **plain)


def _error_of(record: ErrorRecord) -> InvsvcError | None:
    return error_of({**asdict(record), "type": record.kind, "text": record.message})
