"""
The errors that all folders raise; `errors` has their public names.

Never imports another room, never holds a credential.  Every error pickles, and its one line ends
with what to do next.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime


_MOST_TOLD = 300  # characters of each thing that the service said; the attributes hold the whole
_SECRET = re.compile(rb'("secret"\s*:\s*")(?:[^"\\]|\\.)*')


def _shown(raw: bytes) -> bytes:
    """Keep the first 64 KiB of a body, but no webhook's secret: errors are logged, pickled and mailed."""
    return _SECRET.sub(rb"\1***", raw[:65536])


def _restore(cls: type[InvsvcError], args: tuple[object, ...], state: dict[str, object]) -> InvsvcError:
    error = cls.__new__(cls)
    error.args = args
    error.__dict__.update(state)
    return error


def _visible(text: str) -> Iterator[str]:
    """Give *text* as one line that moves no terminal's cursor."""
    for word in re.split(r"(\s+)", text):
        yield " " if word.isspace() else "".join(char if char.isprintable() else "\ufffd" for char in word)


class InvsvcError(Exception):
    """
    The root: nothing else is raised by this package, save cancellation.

    ``resume_token`` is set on every error that is raised while paging: ``pages.resume`` goes on from there.
    """

    resume_token: str | None = None

    def __str__(self) -> str:
        text = super().__str__()  # it may quote what the service, or a caller, wrote
        return text if text.isprintable() else "".join(_visible(text))

    def __reduce__(self) -> tuple[object, ...]:
        return _restore, (type(self), self.args, self.__dict__.copy())


class ConfigurationError(InvsvcError):
    """The client, its credential or its settings cannot work as given; nothing was sent."""


class InvalidRequestError(InvsvcError, ValueError):
    """
    Arguments break the specification; nothing was sent (of a batch, nothing of that write).

    ``problems`` names every bad field at once, as ``"<field>: <what is wrong>"``.
    """

    def __init__(
        self, problems: str | Sequence[str], *, operation: str | None = None, hint: str | None = None
    ) -> None:
        self.problems: tuple[str, ...] = (problems,) if isinstance(problems, str) else tuple(problems)
        self.operation = operation
        lead = f"{operation}: " if operation else ""
        hint = hint or "Nothing was sent: correct this and call again."
        super().__init__(f"{lead}{'; '.join(self.problems)}. {hint}")


NONE_CAME = "absent"  # why a field of a model cannot be read, where the answer does not have it


class FieldError(InvsvcError, AttributeError):
    """A field of a model arrived in a form that breaks its type; the rest of the item is sound."""

    def __init__(self, address: str, raw: object, why: str) -> None:
        self.address = address
        self.raw = raw
        self.why = why
        there = "The value as received is in .raw and in the model's .problems."
        super().__init__(f"{address}: {why}. {there if why != NONE_CAME else 'The answer does not have it.'}")


class FileEncodingError(InvsvcError):
    """A file's content is not the base64 text that this package assumes; read ``.encoded`` instead."""


class DeadlineExceededError(InvsvcError, TimeoutError):
    """A read, or a wait, did not end within its time."""


class TransportError(InvsvcError):
    """No usable answer came back; the subclass says whether the request can have arrived."""

    def __init__(self, message: str, *, operation: str | None = None, status: int | None = None) -> None:
        self.operation = operation
        self.status = status
        super().__init__(message)


class NotSentError(TransportError):
    """Provably not one byte of the request left this machine."""


class ResponseLostError(TransportError):
    """The request may have arrived; its answer did not, or not whole."""


class UnreadableResponseError(TransportError):
    """A whole answer arrived that is not what the specification describes; ``raw`` holds its first 64 KiB."""

    def __init__(
        self, message: str, *, operation: str | None = None, status: int | None = None, raw: bytes = b""
    ) -> None:
        super().__init__(message, operation=operation, status=status)
        self.raw: bytes = _shown(raw)


class ServiceError(InvsvcError):
    """
    The service answered with an error; the subclass follows from the HTTP status alone.

    Attributes: ``status``; ``code`` and ``message`` as sent; ``details``, a text, a tuple of texts, or
    (authentication layer) plain data; ``timestamp``, the service's time where the body had one; ``headers``
    of the answer; ``raw``, the first 64 KiB of its body; ``operation``; ``retry_after`` in seconds where the
    answer carried one; ``own_envelope``, whether the body was the service's own error envelope (a proxy's
    page and the authentication layer's raw body are not).

    Spec: Errors.
    """

    hint: ClassVar[str] = "Look at .details and .raw."
    hint_of_envelope: ClassVar[str] = ""  # where it differs for the service's own envelope

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
    ) -> None:
        self.status = status
        self.code = code
        self.message = message
        self.details = details
        self.timestamp = timestamp
        self.headers: dict[str, str] = dict(headers or {})
        self.raw: bytes = _shown(raw)
        self.operation = operation
        self.retry_after = retry_after
        self.own_envelope = own_envelope
        told = (
            " ".join(_cut(part) for part in (code, message and f"({message})") if part) or "no readable body"
        )
        lead = f"{operation}: " if operation else ""
        details_text = f" {_short(details)}" if details else ""
        hint = (self.hint_of_envelope if own_envelope else "") or self.hint
        super().__init__(f"{lead}HTTP {status} {told}{details_text}. {hint}")


def _short(details: object) -> str:
    text = "; ".join(map(str, details)) if isinstance(details, (list, tuple)) else str(details)
    return f"[{_cut(text)}]"


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_TOLD else f"{text[:_MOST_TOLD]}…"


class ValidationFailedError(ServiceError):
    """HTTP 400: the service refused fields or parameters."""

    hint = "Correct the fields named in .details."


class AuthenticationError(ServiceError):
    """HTTP 401: the credential is missing, malformed, expired or revoked, or the plan lacks a feature."""

    hint = "Check that the credential is current and of the kind that this operation takes."
    hint_of_envelope = (
        "The token was taken: check that the team's plan has the feature, which no new token mends."
    )


class PermissionDeniedError(ServiceError):
    """HTTP 403: the credential is known and may not do this."""

    hint = "Check the key's state, the plan's features and the `team` asked for."


class NotFoundError(ServiceError):
    """HTTP 404: absent in the selected team and data mode."""

    hint = "Check the id, the team, and whether the credential is for live or test data."


class ConflictError(ServiceError):
    """HTTP 409: conflicting state, stale group revision or spreadsheet ownership conflict."""

    hint = "Read the current state, then decide again."


class RateLimitedError(ServiceError):
    """
    HTTP 429: too many requests, or (other codes) credits or a daily limit used up, which waiting does not
    mend.
    """

    hint = "Wait for .retry_after seconds where it is set; credits and daily limits need a person."


class ServerError(ServiceError):
    """HTTP 5xx: an internal failure; a write may have completed."""

    hint = "Read current state before you repeat a write; reads were retried already."


_BY_STATUS: dict[int, type[ServiceError]] = {
    400: ValidationFailedError,
    401: AuthenticationError,
    403: PermissionDeniedError,
    404: NotFoundError,
    409: ConflictError,
    429: RateLimitedError,
}


def service_error_class(status: int) -> type[ServiceError]:
    """Choose the class by the HTTP status alone (spec: callers branch on the status)."""
    return _BY_STATUS.get(status, ServerError if status >= 500 else ServiceError)


class PagingError(InvsvcError):
    """A list cannot be walked on; ``resume_token`` continues it with ``pages.resume``."""

    def __init__(self, message: str, *, resume_token: str | None = None) -> None:
        self.resume_token = resume_token
        super().__init__(message)


class CursorStalledError(PagingError):
    """A cursor came back that had been followed before: the walk would never end."""


class FilterNotHonouredError(PagingError):
    """An item plainly fails the filter that was asked for: the parameter's assumed name may be wrong."""


class EventError(InvsvcError):
    """A delivery cannot be accepted as it is."""


class SignatureMismatchError(EventError):
    """The signature is not that of this body under any of the secrets: forged, altered, or another secret."""


class SignatureMissingError(EventError):
    """An event that must be signed came without a signature."""


class MalformedEventError(EventError):
    """The body is not an event of the specification; ``raw`` holds its first 64 KiB."""

    def __init__(self, message: str, *, raw: bytes = b"") -> None:
        self.raw: bytes = _shown(raw)
        super().__init__(message)


class UnauthenticatedEventError(EventError):
    """A resource event came without the shared header, and ``accept_unsigned`` was not said."""


class JournalError(InvsvcError):
    """A journal or store cannot be used: held by another owner, damaged, full, or of a newer version."""


for _each in tuple(globals().values()):
    if isinstance(_each, type) and issubclass(_each, InvsvcError):
        _each.__module__ = "invsvc_async.errors"  # its public name: in tracebacks and pickles
