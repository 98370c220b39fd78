"""
Async client for an invoicing, payments and integrations service.

It determines what happened to every write, even if the answer is lost.  All public names are here; each is
imported when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from invsvc_async._version import __version__
from invsvc_async.storage import old_pickles as _old_pickles

_old_pickles.register()

if TYPE_CHECKING:
    from invsvc_async import errors, events, models, readers, simulator, testing
    from invsvc_async.batch import Batch
    from invsvc_async.client import Client
    from invsvc_async.codec import unstructure
    from invsvc_async.codec.envelope import Envelope
    from invsvc_async.errors import (
        AmbiguousWriteError,
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

# Modules searched for a public name, the cheapest to import first.
_SOURCES = (
    "errors", "settings", "models.common", "transport.credentials", "client", "codec.envelope", "codec",
    "reads.pages", "writes.write", "reconcile.outcome", "reconcile.history", "reconcile.intent", "batch",
)  # fmt: skip
_SUBMODULES = ("errors", "events", "models", "readers", "simulator", "testing")

__all__ = [
    "UNSET",
    "Absent",
    "AmbiguousWriteError",
    "ApiKey",
    "Applied",
    "AuthenticationError",
    "Batch",
    "BatchStoppedError",
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
    found = globals()[name] = _load(name)
    return found


def _load(name: str) -> object:
    if name in _SUBMODULES:
        return import_module(f"{__name__}.{name}")
    modules = (import_module(f"{__name__}.{source}") for source in _SOURCES)
    return next(getattr(module, name) for module in modules if hasattr(module, name))


def __dir__() -> list[str]:
    return sorted(__all__)
