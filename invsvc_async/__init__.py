"""
Know what became of every write: an async client of an invoicing, payments and integrations service.

Every public name is here, and loaded when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from invsvc_async import _moved as _moved  # older pickles need it
from invsvc_async._version import __version__

if TYPE_CHECKING:
    from invsvc_async import errors, events, models, readers, simulator, testing
    from invsvc_async.batch import Batch
    from invsvc_async.client import Client
    from invsvc_async.codec import unstructure
    from invsvc_async.codec.envelope import Envelope
    from invsvc_async.errors import (
        AmbiguousWriteError,
        AuthenticationError,
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
        SecretLostError,
        ServerError,
        ServiceError,
        SignatureMismatchError,
        SignatureMissingError,
        TransportError,
        UnauthenticatedEventError,
        UnreadableResponseError,
        ValidationFailedError,
        WriteError,
        WriteNotAppliedError,
        WriteSupersededError,
    )
    from invsvc_async.models.common import UNSET, Page
    from invsvc_async.reads.pages import Pages
    from invsvc_async.reconcile.history import Absent, Applied, CannotTell, Holds, Superseded, Verdict
    from invsvc_async.reconcile.intent import Intent
    from invsvc_async.reconcile.outcome import Outcome
    from invsvc_async.settings import ParameterNames, ReadRetries, ReconcilePolicy, Timeouts
    from invsvc_async.transport.credentials import ApiKey, OAuthToken, PersonToken, TokenProvider
    from invsvc_async.writes.write import Write

# Where the names are at run time, in the order in which they are looked for: what loads least goes first.
_HOMES = (
    "errors", "settings", "models.common", "transport.credentials", "client", "codec.envelope", "codec",
    "reads.pages", "writes.write", "reconcile.outcome", "reconcile.history", "reconcile.intent", "batch",
)  # fmt: skip
_ROOMS = ("errors", "events", "models", "readers", "simulator", "testing")

__all__ = [
    "UNSET",
    "Absent",
    "AmbiguousWriteError",
    "ApiKey",
    "Applied",
    "AuthenticationError",
    "Batch",
    "CannotTell",
    "Client",
    "ConfigurationError",
    "ConflictError",
    "CursorStalledError",
    "DeadlineExceededError",
    "Envelope",
    "EventError",
    "FieldError",
    "FileEncodingError",
    "FilterNotHonouredError",
    "Holds",
    "Intent",
    "InvalidRequestError",
    "InvsvcError",
    "JournalError",
    "MalformedEventError",
    "NotFoundError",
    "NotSentError",
    "OAuthToken",
    "Outcome",
    "Page",
    "Pages",
    "PagingError",
    "ParameterNames",
    "PermissionDeniedError",
    "PersonToken",
    "RateLimitedError",
    "ReadRetries",
    "ReconcilePolicy",
    "ResponseLostError",
    "SecretLostError",
    "ServerError",
    "ServiceError",
    "SignatureMismatchError",
    "SignatureMissingError",
    "Superseded",
    "Timeouts",
    "TokenProvider",
    "TransportError",
    "UnauthenticatedEventError",
    "UnreadableResponseError",
    "ValidationFailedError",
    "Verdict",
    "Write",
    "WriteError",
    "WriteNotAppliedError",
    "WriteSupersededError",
    "__version__",
    "errors",
    "events",
    "models",
    "readers",
    "simulator",
    "testing",
    "unstructure",
]  # fmt: skip


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = _found(name)
    return found


def _found(name: str) -> object:
    if name in _ROOMS:
        return import_module(f"{__name__}.{name}")
    homes = (import_module(f"{__name__}.{home}") for home in _HOMES)
    return next(getattr(home, name) for home in homes if hasattr(home, name))


def __dir__() -> list[str]:
    return sorted(__all__)
