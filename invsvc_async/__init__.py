"""
Async client for an invoicing, payments and integrations service.

It determines what happened to every write, even if the answer is lost.  All public names are here; each is
imported when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from invsvc_async._version import __version__

if TYPE_CHECKING:
    from invsvc_async import errors, events, models, readers, simulator, testing
    from invsvc_async.api.event_types import EventType
    from invsvc_async.batch import Batch
    from invsvc_async.client import Client
    from invsvc_async.codec import enc_hook, unstructure
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
        KeyConflictError,
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
    from invsvc_async.models.common import UNSET, Address, Meta, Model, Page, Unset
    from invsvc_async.models.dbtable import DbtableConnection, DbtableScope, DbtableTables, DbtableWebhooks
    from invsvc_async.models.invoices import (
        Customer,
        DownloadPackage,
        DownloadRequest,
        Efos,
        Invoice,
        InvoiceItem,
        InvoiceStamp,
        InvoiceStatus,
        RelatedDocuments,
    )
    from invsvc_async.models.journeys import (
        ClonedFrom,
        Edge,
        Journey,
        JourneyGraph,
        JourneyOrigin,
        JourneyStats,
        JourneyStatus,
        Node,
        NodeData,
        PausedReason,
        Position,
        Viewport,
    )
    from invsvc_async.models.payments import (
        Automation,
        HistoricalReferences,
        MethodType,
        PaymentLink,
        ReminderOperation,
    )
    from invsvc_async.models.retentions import RetentionFile
    from invsvc_async.models.sheets import SheetConnection, SheetMapping, SyncSummary, SyncTotals
    from invsvc_async.models.teams import (
        Brand,
        EmailSettings,
        Integration,
        Member,
        Periodicity,
        SatState,
        Team,
        TeamSettings,
    )
    from invsvc_async.models.users import Preferences, User
    from invsvc_async.models.webhooks import (
        Deleted,
        Health,
        Webhook,
        WebhookList,
        WebhookStatus,
    )
    from invsvc_async.outbox import Outbox
    from invsvc_async.portal import Portal
    from invsvc_async.reads.pages import Pages
    from invsvc_async.reconcile.history import Absent, Applied, CannotTell, Holds, Superseded, Verdict
    from invsvc_async.reconcile.intent import Intent
    from invsvc_async.reconcile.outcome import Outcome
    from invsvc_async.settings import CallOptions, ParameterNames, ReadRetries, ReconcilePolicy, Timeouts
    from invsvc_async.transport.credentials import ApiKey, OAuthToken, PersonToken, TokenProvider
    from invsvc_async.writes.write import Write

# Modules searched for a public name, the cheapest to import first.
_SOURCES = (
    "api.event_types", "errors", "settings", "models.common", "transport.credentials", "client",
    "codec.envelope", "codec", "reads.pages", "writes.write", "reconcile.outcome", "reconcile.history",
    "reconcile.intent", "portal", "batch", "outbox",
)  # fmt: skip
_SUBMODULES = ("errors", "events", "models", "readers", "simulator", "testing")

__all__ = [
    "UNSET",
    "Absent",
    "Address",
    "AmbiguousWriteError",
    "ApiKey",
    "Applied",
    "AuthenticationError",
    "Automation",
    "Batch",
    "BatchStoppedError",
    "Brand",
    "CallOptions",
    "CannotTell",
    "Client",
    "ClonedFrom",
    "ConfigurationError",
    "ConflictError",
    "CursorStalledError",
    "Customer",
    "DbtableConnection",
    "DbtableScope",
    "DbtableTables",
    "DbtableWebhooks",
    "DeadlineExceededError",
    "Deleted",
    "DownloadPackage",
    "DownloadRequest",
    "Edge",
    "Efos",
    "EmailSettings",
    "Envelope",
    "EventError",
    "EventType",
    "FieldError",
    "FileEncodingError",
    "FilterNotHonouredError",
    "Health",
    "HistoricalReferences",
    "Holds",
    "Integration",
    "Intent",
    "InvalidRequestError",
    "Invoice",
    "InvoiceItem",
    "InvoiceStamp",
    "InvoiceStatus",
    "InvsvcError",
    "JournalError",
    "Journey",
    "JourneyGraph",
    "JourneyOrigin",
    "JourneyStats",
    "JourneyStatus",
    "KeyConflictError",
    "MalformedEventError",
    "Member",
    "Meta",
    "MethodType",
    "Model",
    "Node",
    "NodeData",
    "NotFoundError",
    "NotSentError",
    "OAuthToken",
    "Outbox",
    "Outcome",
    "Page",
    "Pages",
    "PagingError",
    "ParameterNames",
    "PausedReason",
    "PaymentLink",
    "Periodicity",
    "PermissionDeniedError",
    "PersonToken",
    "Portal",
    "Position",
    "Preferences",
    "RateLimitedError",
    "ReadRetries",
    "ReconcilePolicy",
    "RelatedDocuments",
    "ReminderOperation",
    "ResponseLostError",
    "RetentionFile",
    "SatState",
    "SecretLostError",
    "ServerError",
    "ServiceError",
    "SheetConnection",
    "SheetMapping",
    "SignatureMismatchError",
    "SignatureMissingError",
    "Superseded",
    "SyncSummary",
    "SyncTotals",
    "Team",
    "TeamSettings",
    "Timeouts",
    "TokenProvider",
    "TransportError",
    "UnauthenticatedEventError",
    "UnreadableResponseError",
    "Unset",
    "User",
    "ValidationFailedError",
    "Verdict",
    "Viewport",
    "Webhook",
    "WebhookList",
    "WebhookStatus",
    "Write",
    "WriteError",
    "WriteNotAppliedError",
    "WriteSupersededError",
    "__version__",
    "enc_hook",
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
    models = import_module(f"{__name__}.models")
    if name in models.__all__ and name != "EventType":  # that of the models is an enumeration
        return getattr(models, name)
    modules = (import_module(f"{__name__}.{source}") for source in _SOURCES)
    return next(getattr(module, name) for module in modules if hasattr(module, name))


def __dir__() -> list[str]:
    return sorted(__all__)
