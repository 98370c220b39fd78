"""
What a web API answers when it has written to the service, or read from it, for a caller of its own.

Nothing here depends on a framework: an :class:`WebAnswer` has the status, the headers and the body.
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from invsvc_async.api.operations import BY_NAME
from invsvc_async.codec.encode import unstructure
from invsvc_async.errors import (
    DeadlineExceededError,
    FileEncodingError,
    InvalidRequestError,
    InvsvcError,
    JournalError,
    KeyConflictError,
    NotSentError,
    PagingError,
    RateLimitedError,
    ServiceError,
    TransportError,
    without_secrets,
)
from invsvc_async.reconcile.enums import Verdict
from invsvc_async.reconcile.outcome import OutcomeBase, WriteError
from invsvc_async.writes.noted import NOTED_NAMES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from invsvc_async.reconcile.outcome import Outcome

__all__ = ["WebAnswer", "answer_to", "status_of"]

_ACCEPTED: Final = 202
_BAD_REQUEST: Final = 400
_NOT_FOUND: Final = 404
_CONFLICT: Final = 409
_INTERNAL: Final = 500
_BAD_GATEWAY: Final = 502
_UNAVAILABLE: Final = 503
_TIMEOUT: Final = 504
# What the service says of the caller's own request. 401, 403 and 429 are about your credential.
_OF_THE_CALLER: Final = frozenset({400, 404, 409, 422})
_NEWER_WRITE: Final = ("overtaken", "perhaps overtaken")  # causes
# arguments of every write, and a body without any field
_OF_WRITES: Final = frozenset({"team", "key", *NOTED_NAMES, "fields"})
# The first that fits counts.
_STATUSES: Final[tuple[tuple[type[InvsvcError], int], ...]] = (
    (DeadlineExceededError, _TIMEOUT),
    (NotSentError, _UNAVAILABLE),
    (TransportError, _BAD_GATEWAY),
    (PagingError, _BAD_GATEWAY),
    (FileEncodingError, _BAD_GATEWAY),
)
_WORDS: Final[Mapping[int, tuple[str, str]]] = {
    200: ("secret_lost", "It was done, but the secret of the new webhook was lost."),
    _ACCEPTED: ("unknown", "It is not known yet whether it was done."),
    _NOT_FOUND: ("not_found", "There is no such write."),
    _CONFLICT: ("conflict", "It conflicts with another change."),
    _INTERNAL: ("internal_error", "This service failed. It may have been done."),
    _BAD_GATEWAY: ("bad_gateway", "A service that this one needs failed."),
    _UNAVAILABLE: ("unavailable", "Nothing was done. Try again later."),
    _TIMEOUT: ("timeout", "A service that this one needs did not answer in time."),
}


class WebAnswer(NamedTuple):
    """What to answer to a caller: the HTTP ``status``, the ``body`` as plain JSON, and ``headers``."""

    status: int
    body: dict[str, Any]  # Any: text, or a list of texts
    headers: dict[str, str]


def status_of(found: Outcome[Any] | BaseException, *, applied: int = 200) -> int:
    """
    Return the HTTP status for the outcome of a write, or for an error of this package.

    *applied* is that of a write that was applied, such as 201. 202 says that it is not known yet, and 503
    that nothing happened, so that the caller may try again.

    ==========================================================  ==================================
    ``APPLIED``                                                 *applied*
    ``UNKNOWN``, ``DeadlineExceededError`` of ``outbox.wait``   202
    ``SUPERSEDED``, overtaken, ``KeyConflictError``             409
    ``JournalError`` with ``is_conflict``, or ``is_missing``    409, or 404
    other ``NOT_APPLIED``, ``NotSentError``                     503
    ``REFUSED`` or ``ServiceError`` with 400, 404, 409 or 422   the same: it is about the request
    these with 429                                              503: it is about your credential
    these with another status, such as 401 or 500               502
    ``InvalidRequestError`` about arguments of an operation     400
    other ``DeadlineExceededError``                             504
    other ``TransportError``, ``PagingError``                   502
    all else, such as another ``JournalError``                  500
    ==========================================================  ==================================
    """
    if isinstance(found, WriteError):
        return status_of(found.outcome, applied=applied)
    if isinstance(found, OutcomeBase):
        return _status_of_outcome(found, applied)
    if isinstance(found, ServiceError):
        return _status_of_refusal(found)
    if isinstance(found, JournalError):
        return _status_of_journal(found)
    if isinstance(found, DeadlineExceededError) and found.goes_on:
        return _ACCEPTED
    if isinstance(found, KeyConflictError):
        return _CONFLICT
    if isinstance(found, InvalidRequestError):
        return _BAD_REQUEST if _is_of_caller(found) else _INTERNAL
    for kind, status in _STATUSES:
        if isinstance(found, kind):
            return status
    return _INTERNAL


def answer_to(error: BaseException) -> WebAnswer:
    """
    Return what to answer when a call has raised *error*.

    The body has ``verdict``, ``value``, ``message`` and ``attempts``, as that of an ``Outcome`` has, and
    a code, ``error``. The first, second and fourth are ``None`` if *error* is not a ``WriteError``. It says
    what is wrong with the caller's own request, and nothing of your credential, your journal or the network.
    ``Retry-After`` is passed on.
    """
    status = status_of(error)
    cause = error
    if isinstance(error, WriteError) and error.outcome.error is not None:
        cause = error.outcome.error
    code, message = _code_and_message(cause, status)
    body = {**_of_write(error), "message": message, "error": code}
    return WebAnswer(status, body, _headers(cause, status))


def has_newer_write(outcome: OutcomeBase[Any]) -> bool:
    """Return whether the write was not applied because a newer one to the same thing was sent, or may be."""
    is_not_applied = outcome.verdict is Verdict.NOT_APPLIED
    return is_not_applied and outcome.evidence.cause in _NEWER_WRITE


def _status_of_outcome(outcome: OutcomeBase[Any], applied: int) -> int:
    match outcome.verdict:
        case Verdict.APPLIED:
            return applied
        case Verdict.UNKNOWN:
            return 202
        case Verdict.SUPERSEDED:
            return _CONFLICT
        case Verdict.NOT_APPLIED:
            if has_newer_write(outcome):
                return _CONFLICT
            return _UNAVAILABLE
        case Verdict.REFUSED:
            refusal = outcome.error
            if isinstance(refusal, ServiceError):
                return _status_of_refusal(refusal)
            return _CONFLICT


def _status_of_refusal(error: ServiceError) -> int:
    if error.status in _OF_THE_CALLER:
        return error.status
    if isinstance(error, RateLimitedError):
        return _UNAVAILABLE
    return _BAD_GATEWAY


def _status_of_journal(error: JournalError) -> int:
    if error.is_missing:
        return _NOT_FOUND
    if error.is_conflict:
        return _CONFLICT
    return _INTERNAL


def _is_of_caller(error: InvalidRequestError) -> bool:
    """
    Return whether *error* is about what a caller may have sent: arguments of an operation, or a resume token.

    Otherwise this application has used the package in a wrong way, for example with a closed connection.
    """
    names = {"token", "max"}
    operation = BY_NAME.get(error.operation or "")
    if operation is not None:
        names |= _OF_WRITES
        names |= {parameter.name for parameter in operation.parameters}
    return all(_argument_in(problem) in names for problem in error.problems)


def _argument_in(problem: str) -> str:
    """Return the name of the argument that *problem* is about: of ``graph.nodes[0].id: …``, that is graph."""
    field, _, _ = problem.partition(":")
    name, _, _ = field.partition(".")
    return name.partition("[")[0]


def _of_write(error: BaseException) -> dict[str, Any]:
    """Return what the body says of a write."""
    if not isinstance(error, WriteError):
        return {"verdict": None, "value": None, "attempts": None}
    outcome = error.outcome
    return {
        "verdict": str(outcome.verdict),
        "value": without_secrets(unstructure(outcome.value)),
        "attempts": outcome.attempts,
    }


def _code_and_message(cause: BaseException, status: int) -> tuple[str, str]:
    if isinstance(cause, InvalidRequestError) and status == _BAD_REQUEST:
        return "invalid_request", "; ".join(cause.problems)
    if isinstance(cause, ServiceError) and cause.status == status:
        return cause.code or "refused", cause.message or ""
    return _WORDS.get(status, ("refused", "It was refused."))


def _headers(cause: BaseException, status: int) -> dict[str, str]:
    if status != _UNAVAILABLE or not isinstance(cause, ServiceError):
        return {}
    if cause.retry_after is None:
        return {}
    return {"Retry-After": str(ceil(cause.retry_after))}
