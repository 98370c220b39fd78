"""
All exceptions of the package.

Every error can be pickled, and its message ends with what to do next.
"""

from __future__ import annotations

from invsvc_async._errors import (
    AuthenticationError,
    BatchStoppedError,
    ConfigurationError,
    ConflictError,
    CursorStalledError,
    DeadlineExceededError,
    EventError,
    FieldError,
    FileEncodingError,
    FilterNotHonouredError,
    InvalidRequestError,
    InvsvcError,
    JournalError,
    MalformedEventError,
    NotFoundError,
    NotSentError,
    PagingError,
    PermissionDeniedError,
    RateLimitedError,
    ResponseLostError,
    ServerError,
    ServiceError,
    SignatureMismatchError,
    SignatureMissingError,
    TransportError,
    UnauthenticatedEventError,
    UnreadableResponseError,
    ValidationFailedError,
    service_error_class,
)
from invsvc_async._errors import _restore as _restore  # noqa: PLC0414 - older pickles name it
from invsvc_async.reconcile.write_errors import (
    AmbiguousWriteError,
    SecretLostError,
    WriteError,
    WriteNotAppliedError,
    WriteSupersededError,
)

__all__ = [
    "AmbiguousWriteError",
    "AuthenticationError",
    "BatchStoppedError",
    "ConfigurationError",
    "ConflictError",
    "CursorStalledError",
    "DeadlineExceededError",
    "EventError",
    "FieldError",
    "FileEncodingError",
    "FilterNotHonouredError",
    "InvalidRequestError",
    "InvsvcError",
    "JournalError",
    "MalformedEventError",
    "NotFoundError",
    "NotSentError",
    "PagingError",
    "PermissionDeniedError",
    "RateLimitedError",
    "ResponseLostError",
    "SecretLostError",
    "ServerError",
    "ServiceError",
    "SignatureMismatchError",
    "SignatureMissingError",
    "TransportError",
    "UnauthenticatedEventError",
    "UnreadableResponseError",
    "ValidationFailedError",
    "WriteError",
    "WriteNotAppliedError",
    "WriteSupersededError",
    "service_error_class",
]
