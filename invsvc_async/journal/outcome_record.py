"""The record of an outcome, as journals store it.  It contains no body, no token and no secret."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from invsvc_async.errors import ServiceError
from invsvc_async.reconcile.facts import time_of
from invsvc_async.reconcile.history import Reading, Resumed, Verdict

if TYPE_CHECKING:
    from invsvc_async.reconcile.outcome import Outcome


__all__ = ["Record", "record_of"]


class Record(msgspec.Struct, omit_defaults=True, kw_only=True):
    """The stored part of an outcome.  Names are short, because a journal may contain a million of them."""

    why: str = ""  # the one-line reason
    basis: str = ""  # of the evidence
    thing: str | None = None  # the id of what was written, if known
    tries: int = 1  # requests of the write
    again: int = 0  # of them, sent again after absence was proven
    reads: int = 0
    took: float = 0.0  # s, from the first request to the verdict
    lost: bool = False  # a webhook's secret was not received
    overtaken: bool = False  # not sent (again), because a newer write to the same resource was
    failed: str | None = None  # the last failure seen
    status: int | None = None  # of that failure, if it was an answer
    code: str | None = None  # its error code
    cause: str | None = None  # a code for the reason; older packages stored none
    candidates: list[str] = []
    duplicates: list[str] = []
    story: str | None = None  # unless the verdict is APPLIED


_encode = msgspec.json.Encoder().encode
_decoder = msgspec.json.Decoder(Record)


def record_of(outcome: Outcome[Any]) -> Record:  # Any: of any operation
    """Return the record of *outcome*."""
    history, evidence, error = outcome.history, outcome.evidence, outcome.error
    took = time_of(history[-1]) - _start(history[0]) if history else 0.0
    value = outcome.value
    plain = outcome.verdict is Verdict.APPLIED
    if plain and evidence.basis == "answered" and len(history) == 1:  # as for nearly all
        return Record(basis="answered", thing=_id_of(value), took=round(took, 4))
    return Record(
        why=outcome.message if evidence.basis != "answered" or not plain else "",
        basis=evidence.basis,
        thing=_id_of(value),
        tries=outcome.attempts,
        again=outcome.resends,
        reads=[*map(type, history)].count(Reading),
        took=round(took, 4),
        lost=outcome.secret_lost,
        overtaken=_is_overtaken(outcome),
        failed=None if error is None else f"{type(error).__name__}: {error}"[:500],
        status=error.status if isinstance(error, ServiceError) else None,
        code=error.code if isinstance(error, ServiceError) else None,
        cause=evidence.cause,
        candidates=_ids(evidence.candidates) if evidence.candidates else [],
        duplicates=_ids(evidence.duplicates) if evidence.duplicates else [],
        story=None if plain else outcome.explain()[:4000],
    )


def _is_overtaken(outcome: Outcome[Any]) -> bool:  # Any: of any operation
    if outcome.verdict is not Verdict.NOT_APPLIED:
        return False
    return any(isinstance(event, Resumed) and event.newest is False for event in outcome.history)


def _start(event: Any) -> float:  # Any: one of the four events
    return float(event.started if hasattr(event, "started") else event.at)


def _id_of(value: Any) -> str | None:  # Any: a model, or wire data
    found = value.get("id") if isinstance(value, dict) else getattr(value, "id", None)
    return found if isinstance(found, str) else None


def _ids(things: tuple[Any, ...]) -> list[str]:  # Any: wire data
    return [str(_id_of(each)) for each in things][:100]


def encoded(record: Record) -> str:
    """Return *record* as the text that is stored."""
    return _encode(record).decode()


def decoded(text: str | None) -> Record:
    """Return the record in *text*."""
    return _decoder.decode(text) if text else Record()
