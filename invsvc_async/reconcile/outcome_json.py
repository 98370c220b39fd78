"""The plain form of an outcome, and back.  It contains no tokens, and no secret of a webhook."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

from invsvc_async import models
from invsvc_async.api.operations import BY_NAME
from invsvc_async.codec import structure
from invsvc_async.errors import InvalidRequestError
from invsvc_async.reconcile.error_form import error_of, plain_error
from invsvc_async.reconcile.explain import story_of, to_plain
from invsvc_async.reconcile.history import Evidence, Secret, Verdict
from invsvc_async.reconcile.json_form import (
    SCHEMA,
    intent_to_json,
    parsed,
    structured,
    unstructured,
    without_secrets,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from invsvc_async.codec.exact_json import Wire
    from invsvc_async.models import Model
    from invsvc_async.reconcile.outcome import OutcomeBase

__all__ = ["arguments_of", "full_form", "public_form", "result_of", "summary"]

_TYPES: dict[str, tuple[type, ...]] = {  # of the members that are given to the class as they are
    "message": (str,), "attempts": (int,), "resends": (int,), "secret": (str, type(None)),
    "livemode": (bool, type(None)),
}  # fmt: skip


def read_back(secret: Secret | None) -> Secret | None:
    """Return what an outcome that is read back says of a secret, which no stored form contains."""
    return "not stored" if secret == "returned" else secret  # noqa: S105 - a state, no password


def full_form(outcome: OutcomeBase[Any], convert: Callable[[object], Wire]) -> dict[str, Wire]:
    """Return all of it, with the history, which ``invsvc explain`` replays."""
    story = to_plain(outcome.started_as, outcome.history, outcome.verdict, outcome.message)
    return {**summary(outcome, convert), **story}


def public_form(outcome: OutcomeBase[Any], convert: Callable[[object], Wire]) -> dict[str, Wire]:
    """
    Return what an endpoint shows of it.

    It has no history, because reads show things that the write is not about, such as other webhooks.  Its
    intent has all sends instead, so that it can still be settled.  The intent is text, because what it sends
    must keep its digits, whatever the encoder does with numbers.
    """
    return {**summary(outcome, convert), "schema": SCHEMA, "intent": intent_to_json(outcome.intent)}


def summary(outcome: OutcomeBase[Any], convert: Callable[[object], Wire]) -> dict[str, Wire]:
    """Return all but the intent and the history."""
    return {
        "verdict": str(outcome.verdict),
        "applied": outcome.applied,
        "message": outcome.message,
        "value": without_secrets(convert(outcome.value)),
        "error": None if outcome.error is None else plain_error(outcome.error),
        "attempts": outcome.attempts,
        "resends": outcome.resends,
        "secret": read_back(outcome.secret),
        "secret_lost": outcome.secret_lost,
        "livemode": outcome.livemode,
        "evidence": without_secrets(unstructured(outcome.evidence)),
    }


def result_of(plain: dict[str, Wire]) -> type[Model] | None:
    """Return the class of the value in the public form of an outcome, if it is a model."""
    intent = parsed(plain.get("intent", ""), "an intent")
    operation = BY_NAME.get(str(intent.get("operation")))
    if operation is None or operation.kind != "write" or operation.result == "object":
        return None
    model: type[Model] = getattr(models, operation.result)
    return model


def arguments_of(plain: dict[str, Wire]) -> dict[str, Any]:  # Any: the fields of an outcome
    """
    Return the arguments of the outcome with this plain form.

    Raises:
        InvalidRequestError: It is not the form of an outcome.

    """
    if isinstance(plain.get("intent"), str):
        plain = {**plain, "intent": parsed(plain["intent"], "an intent")}
    intent, history, verdict = story_of(plain, "an outcome")
    given = {name: plain[name] for name in _TYPES if name in plain}
    wrong = [f"{name}: has the wrong type" for name, it in given.items() if type(it) not in _TYPES[name]]
    if verdict not in list(Verdict):
        wrong.append("verdict: is not one of the five")
    if given.get("secret") not in (None, *get_args(Secret)):
        wrong.append("secret: is not one of the four")
    if "message" not in given:
        wrong.append("message: is missing")
    if wrong:
        raise InvalidRequestError(wrong)
    value, evidence = plain.get("value"), plain.get("evidence") or {"basis": "none"}
    operation = BY_NAME[intent.operation]
    if operation.result != "object" and isinstance(value, dict):
        value = structure(getattr(models, operation.result), value)
    return {
        **given,
        "verdict": Verdict(verdict),
        "value": value,
        "error": error_of(plain.get("error")),
        "evidence": structured(evidence, Evidence, "an outcome"),
        "started_as": intent,
        "history": history,
    }
