"""The plain form of the error of a write, and back.  It contains no body and no headers of an answer."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

from invsvc_async import errors
from invsvc_async.errors import InvsvcError, ServiceError, TransportError, service_error_class
from invsvc_async.reconcile.json_form import without_secrets

if TYPE_CHECKING:
    from invsvc_async.codec.exact_json import Wire

__all__ = ["error_of", "plain_error"]

_LONGEST = 10**9  # seconds of a Retry-After
_FIELDS = ("operation", "status", "code", "details", "own_envelope", "retry_after")
_BY_NAME: dict[str, type[InvsvcError]] = {  # of errors, other than the service's, that a text describes
    each.__name__: each
    for each in (
        errors.ConfigurationError,
        errors.DeadlineExceededError,
        errors.NotSentError,
        errors.ResponseLostError,
        errors.TransportError,
        errors.UnreadableResponseError,
    )
}


def plain_error(error: InvsvcError) -> dict[str, Wire]:
    """Return the class's name as ``type``, the error's ``text``, and what it has of the answer."""
    fields = {name: getattr(error, name, None) for name in _FIELDS}
    fields["details"] = without_secrets(fields["details"])
    said = error.message if isinstance(error, ServiceError) else None
    found = {"type": type(error).__name__, "text": str(error), "message": said, **fields}
    return {name: value for name, value in found.items() if value is not None}


def error_of(plain: Wire) -> InvsvcError | None:
    """Return the error with this plain form; ``None`` if it is not one."""
    if not isinstance(plain, dict):
        return None
    name, status, text = plain.get("type"), plain.get("status"), str(plain.get("text") or "")
    kind = _BY_NAME.get(name) if isinstance(name, str) else None
    if kind is not None and issubclass(kind, TransportError):
        return kind(text, operation=plain.get("operation"), status=status)
    if kind is not None or type(status) is not int:
        return (kind or InvsvcError)(text)
    details, code, message = plain.get("details"), plain.get("code"), plain.get("message")
    if isinstance(details, list) and all(isinstance(each, str) for each in details):
        details = tuple(details)
    return service_error_class(status)(
        status=status,
        code=code if isinstance(code, str) else None,
        message=message if isinstance(message, str) else None,
        details=details,
        operation=plain.get("operation"),
        retry_after=_seconds(plain.get("retry_after")),
        own_envelope=plain.get("own_envelope") is True,
    )


def _seconds(plain: Wire) -> float | None:
    if isinstance(plain, bool) or not isinstance(plain, (int, float, Decimal)):
        return None
    return float(plain) if 0 <= plain <= _LONGEST else None
