"""
All exceptions of the package.

Errors contain no credentials, can be pickled, and end their message with what to do next. The errors about
writes, which carry an outcome, are in ``reconcile.outcome``.
"""

from __future__ import annotations

import re
from functools import wraps
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, ParamSpec, TypeVar

from msgspec import Raw

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

__all__ = [
    "AuthenticationError",
    "BatchStoppedError",
    "ConfigurationError",
    "ConflictError",
]
__all__ += [
    "CursorStalledError",
    "DeadlineExceededError",
    "EventError",
    "FieldError",
    "FileEncodingError",
]
__all__ += [
    "FilterNotHonouredError",
    "InvalidRequestError",
    "InvsvcError",
    "JournalError",
]
__all__ += [
    "KeyConflictError",
    "MalformedEventError",
    "NotFoundError",
    "NotSentError",
    "PagingError",
]
__all__ += [
    "PermissionDeniedError",
    "RateLimitedError",
    "ResponseLostError",
    "ServerError",
    "ServiceError",
]
__all__ += [
    "SignatureMismatchError",
    "SignatureMissingError",
    "TransportError",
    "UnauthenticatedEventError",
]
__all__ += ["UnreadableResponseError", "ValidationFailedError"]
_OF_WRITES = "AmbiguousWriteError SecretLostError WriteError WriteNotAppliedError WriteSupersededError"
if not TYPE_CHECKING:
    __all__ += list(_OF_WRITES.split())

P = ParamSpec("P")
T = TypeVar("T")
E = TypeVar("E", bound=BaseException)

# characters of each service text in a message; the attributes are not cut
_MAX_TEXT = 300
_SECRET = rb'("secret"\s*:\s*")(?:[^"\\]|\\.)*'


def _redacted(raw: bytes) -> bytes:
    """Return the first 64 KiB of a body without webhook secrets, since errors are logged and pickled."""
    return re.sub(_SECRET, rb"\1***", raw[:65536])


def without_frames(error: E) -> E:
    """
    Return *error* without the frames of its traceback and of its causes, and without hidden exceptions.

    Error trackers record the local variables of frames, and those of a frame may be secrets.
    """
    each: BaseException | None = error
    while each is not None:
        each.__traceback__ = each.__context__ = None
        each = each.__cause__
    return error


def takes_secrets(function: Callable[P, T]) -> Callable[P, T]:
    """Raise errors of the decorated *function* without frames, in which its arguments could be seen."""

    @wraps(function)
    def call(*given: P.args, **named: P.kwargs) -> T:
        try:
            return function(*given, **named)
        except Exception as error:  # noqa: BLE001 - raised again below
            failed = without_frames(error)
        del given, named
        try:
            raise failed
        finally:
            del failed  # which refers to this frame

    return call


class InvsvcError(Exception):
    """
    Base class of every exception raised by this package, except cancellation.

    ``resume_token`` is set on errors raised while paging; pass it to ``pages.resume`` to continue.
    """

    resume_token: str | None = None

    def __str__(self) -> str:
        text = super().__str__()  # may quote text from the service or a caller
        if text.isprintable():
            return text
        return "".join(map(_printable, re.sub(r"\s+", " ", text)))

    def __reduce__(self) -> tuple[object, ...]:
        # Not by the arguments of its class, which are not in ``args``.
        return type(self).__new__, (type(self), *self.args), self.__dict__.copy()


class ConfigurationError(InvsvcError):
    """The client, its credential or a setting is invalid.  Nothing was sent."""


class InvalidRequestError(InvsvcError, ValueError):
    """
    Arguments violate the specification.  Nothing was sent (in a batch: nothing of that write).

    ``problems`` lists all invalid fields, each as ``"<field>: <what is wrong>"``; the message tells the first
    thirty.  A text that ends with a period is the whole message, as of an engine of tasks that makes an error
    again from its text.
    """

    def __init__(
        self,
        problems: str | Sequence[str],
        *,
        operation: str | None = None,
        hint: str | None = None,
    ) -> None:
        self.problems: tuple[str, ...] = (
            (problems,) if isinstance(problems, str) else tuple(problems)
        )
        self.operation = operation
        is_bare = operation is None and hint is None
        if is_bare and isinstance(problems, str) and problems.endswith("."):
            super().__init__(problems)
            return
        lead = f"{operation}: " if operation else ""
        hint = hint or "Nothing was sent. Correct it and call again."
        super().__init__(f"{lead}{_first_of(self.problems)}. {hint}")


_MOST_TOLD = 30  # problems in one message: a graph may have thousands


def _first_of(problems: tuple[str, ...]) -> str:
    """Return the text of the first *problems*, and how many more there are."""
    more = len(problems) - _MOST_TOLD
    if more <= 0:
        return "; ".join(problems)
    return f"{'; '.join(problems[:_MOST_TOLD])}; and {more} more, all in .problems"


class KeyConflictError(InvalidRequestError):
    """
    The key of a write already has another write in the journal.  Nothing was sent.

    ``problems`` names the parts that differ: ``operation``, ``thing`` (path and query) or ``body.<field>``.

    In a namespace that has a name, it may also be ``team`` or ``base URL``.  What is of another one is not
    told, forgotten or resolved, either.
    """


NONE_CAME = "absent"  # `FieldError.why` of a field that the answer lacks


class FieldError(InvsvcError, AttributeError):
    """A model field is missing or has the wrong type.  The other fields of the item are usable."""

    def __init__(self, address: str, raw: object, why: str) -> None:
        self.address = address
        self.raw = raw
        self.why = why
        where = "The value as received is in .raw and in the model's .problems."
        if why == NONE_CAME:
            where = "The answer does not have it."
        super().__init__(f"{address}: {why}. {where}")


class FileEncodingError(InvsvcError):
    """A file's content is not valid base64; ``.encoded`` has it as received."""


class DeadlineExceededError(InvsvcError, TimeoutError):
    """
    A read or a wait did not finish in time.

    ``goes_on`` is true if a write was waited for, which goes on without the caller.
    """

    def __init__(self, *args: object, goes_on: bool = False) -> None:
        super().__init__(*args)
        self.goes_on: bool = goes_on


class TransportError(InvsvcError):
    """No usable answer arrived.  The subclass says whether the service can have received the request."""

    def __init__(
        self,
        message: str,
        *,
        operation: str | None = None,
        status: int | None = None,
    ) -> None:
        self.operation = operation
        self.status = status
        super().__init__(message)


class NotSentError(TransportError):
    """No byte of the request was sent."""


class ResponseLostError(TransportError):
    """The request may have arrived, but its answer did not, or only in part."""


class UnreadableResponseError(TransportError):
    """A complete answer does not match the specification; ``raw`` has its first 64 KiB."""

    def __init__(
        self,
        message: str,
        *,
        operation: str | None = None,
        status: int | None = None,
        raw: bytes = b"",
    ) -> None:
        super().__init__(message, operation=operation, status=status)
        self.raw: bytes = _redacted(raw)


class ServiceError(InvsvcError):
    """
    The service answered with an error; the class depends only on the HTTP status.

    Attributes: ``status``; ``code`` and ``message`` as sent; ``details``, a text, a tuple of texts, or
    (from the authentication layer) plain data; ``timestamp``, the service's time if the body has one;
    ``headers`` of the answer; ``raw``, the first 64 KiB of its body; ``operation``; ``retry_after`` in
    seconds if the answer has it; ``own_envelope``, whether the body is the service's own error envelope, and
    ``of_authentication``, whether it is the raw body of its authentication layer (a proxy's page is neither).

    Spec: Errors.
    """

    hint: ClassVar[str] = "Look at .details and .raw."
    # replaces `hint` if the body is the service's own envelope
    hint_of_envelope: ClassVar[str] = ""

    def __init__(
        self,
        *,
        status: int,
        code: str | None = None,
        message: str | None = None,
        details: object = None,
        timestamp: datetime | None = None,
        headers: Mapping[str, str] | None = None,
        raw: bytes = b"",
        operation: str | None = None,
        retry_after: float | None = None,
        own_envelope: bool = False,
        of_authentication: bool = False,
    ) -> None:
        self.status = status
        self.code = code
        self.message = message
        self.details = details
        self.timestamp = timestamp
        self.headers: dict[str, str] = dict(headers or {})
        self.raw: bytes = _redacted(raw)
        self.operation = operation
        self.retry_after = retry_after
        self.own_envelope = own_envelope
        self.of_authentication = of_authentication
        lead = f"{operation}: " if operation else ""
        hint = self.hint
        if own_envelope and self.hint_of_envelope:
            hint = self.hint_of_envelope
        super().__init__(
            f"{lead}HTTP {status} {_reason(code, message)}{_shown(details)}. {hint}"
        )


def _printable(char: str) -> str:
    if char.isprintable():
        return char
    return "\ufffd"


def _reason(code: str | None, message: str | None) -> str:
    parts: list[str] = []
    if code:
        parts.append(_cut(code))
    if message:
        parts.append(_cut(f"({message})"))
    if not parts:
        return "no readable body"
    return " ".join(parts)


def _shown(details: object) -> str:
    """Return *details* for a message, in brackets and without secrets; nothing if there are none."""
    if not details:
        return ""
    plain = without_secrets(details, "***")
    text = "; ".join(map(str, plain)) if isinstance(plain, list) else str(plain)
    return f" [{_cut(text)}]"


def without_secrets(plain: Any, mark: str | None = None) -> Any:  # Any: JSON
    """Return plain data with *mark* in place of members called ``secret``, or without them."""
    if isinstance(plain, dict):
        shown: dict[str, Any] = {}
        for name, inner in plain.items():
            if name != "secret":
                shown[name] = without_secrets(inner, mark)
            elif mark:
                shown[name] = mark
        return shown
    if isinstance(plain, (list, tuple)):
        return [without_secrets(each, mark) for each in plain]
    # what could not be decoded may contain one
    if isinstance(plain, Raw):
        return None
    return plain


def _cut(text: str) -> str:
    if len(text) <= _MAX_TEXT:
        return text
    return f"{text[:_MAX_TEXT]}…"


class ValidationFailedError(ServiceError):
    """HTTP 400: the service rejected fields or parameters."""

    hint = "Correct the fields named in .details."


class AuthenticationError(ServiceError):
    """HTTP 401: the credential is missing, malformed, expired or revoked, or the plan lacks a feature."""

    hint = "Check that the credential is valid and of the kind that this operation accepts."
    hint_of_envelope = (
        "The token was accepted: check that the team's plan has the feature."
        " A new token does not help."
    )


class PermissionDeniedError(ServiceError):
    """HTTP 403: the credential is valid but not allowed to do this."""

    hint = "Check the key's state, the plan's features and the requested `team`."


class NotFoundError(ServiceError):
    """HTTP 404: not found in the selected team and data mode."""

    hint = (
        "Check the id, the team, and whether the credential is for live or test data."
    )


class ConflictError(ServiceError):
    """HTTP 409: conflicting state, stale group revision or spreadsheet ownership conflict."""

    hint = "Read the current state before trying again."


class RateLimitedError(ServiceError):
    """
    HTTP 429: too many requests; or credits or a daily limit are used up.

    Waiting helps only against ``rate_limit_exceeded``, not against the other codes.
    """

    hint = "Wait .retry_after seconds if it is set; raising credits or daily limits needs a person."


class ServerError(ServiceError):
    """HTTP 5xx: an internal failure; a write may have completed."""

    hint = "Read the current state before repeating a write. Reads are retried after 500, 502, 503 and 504."


_BY_STATUS: dict[int, type[ServiceError]] = {
    400: ValidationFailedError,
    401: AuthenticationError,
    403: PermissionDeniedError,
    404: NotFoundError,
    409: ConflictError,
    429: RateLimitedError,
}


def service_error_class(status: int) -> type[ServiceError]:
    """Return the error class of an HTTP status (spec: callers branch on the status)."""
    known = _BY_STATUS.get(status)
    if known is not None:
        return known
    if status >= 500:
        return ServerError
    return ServiceError


class PagingError(InvsvcError):
    """A list cannot be read any further; pass ``resume_token`` to ``pages.resume`` to continue."""


class CursorStalledError(PagingError):
    """The service returned a cursor that was already followed, so the list would never end."""


class FilterNotHonouredError(PagingError):
    """An item does not match the requested filter; the assumed parameter name may be wrong."""


class EventError(InvsvcError):
    """A delivery cannot be accepted."""


class SignatureMismatchError(EventError):
    """No secret gives this signature: forged, altered, or signed with another secret."""


class SignatureMissingError(EventError):
    """An event that must be signed has no signature."""


class MalformedEventError(EventError):
    """The body is not an event of the specification; ``raw`` has its first 64 KiB."""

    def __init__(self, message: str, *, raw: bytes = b"") -> None:
        self.raw: bytes = _redacted(raw)
        super().__init__(message)


class UnauthenticatedEventError(EventError):
    """A resource event lacks the shared header, and ``accept_unsigned`` is not set."""


class BatchStoppedError(InvsvcError):
    """A run of a batch stopped before its end.  Finished writes are stored; the others are still to do."""


class JournalError(InvsvcError):
    """
    A journal or store cannot be used: it is owned by another process, damaged, full, or of a newer version.

    ``is_away`` is true if its database cannot be reached now, so that the same call may succeed later. If
    the journal can be used, ``is_missing`` is true because there is no such write, and ``is_conflict``
    because its state does not allow what was asked, such as to resolve a final verdict.
    """

    def __init__(
        self,
        *args: object,
        is_away: bool = False,
        is_missing: bool = False,
        is_conflict: bool = False,
    ) -> None:
        super().__init__(*args)
        self.is_away: bool = is_away
        self.is_missing: bool = is_missing
        self.is_conflict: bool = is_conflict


# Any: the classes are above this module, which cannot name their types
def __getattr__(name: str) -> Any:
    """Return the class of the errors about writes with that *name*."""
    if name in _OF_WRITES.split():
        return getattr(import_module("invsvc_async.reconcile.outcome"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
