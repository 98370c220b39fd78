"""The resources of the service as immutable classes, each imported at its first use."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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
        EventType,
        Health,
        Webhook,
        WebhookList,
        WebhookStatus,
    )

_NAMES_BY_MODULE = {
    "common": "UNSET Address Meta Model Page Unset",
    "dbtable": "DbtableConnection DbtableScope DbtableTables DbtableWebhooks",
    "invoices": "Customer DownloadPackage DownloadRequest Efos Invoice InvoiceItem InvoiceStamp InvoiceStatus"
    " RelatedDocuments",
    "journeys": "ClonedFrom Edge Journey JourneyGraph JourneyOrigin JourneyStats JourneyStatus Node NodeData"
    " PausedReason Position Viewport",
    "payments": "Automation HistoricalReferences MethodType PaymentLink ReminderOperation",
    "retentions": "RetentionFile",
    "sheets": "SheetConnection SheetMapping SyncSummary SyncTotals",
    "teams": "Brand EmailSettings Integration Member Periodicity SatState Team TeamSettings",
    "users": "Preferences User",
    "webhooks": "Deleted EventType Health Webhook WebhookList WebhookStatus",
}
_MODULE_OF = {name: module for module, names in _NAMES_BY_MODULE.items() for name in names.split()}

__all__ = [
    "UNSET", "Address", "Automation", "Brand", "ClonedFrom", "Customer", "DbtableConnection",
    "DbtableScope", "DbtableTables", "DbtableWebhooks", "Deleted", "DownloadPackage",
    "DownloadRequest", "Edge", "Efos", "EmailSettings", "EventType", "Health",
    "HistoricalReferences", "Integration", "Invoice", "InvoiceItem", "InvoiceStamp",
    "InvoiceStatus", "Journey", "JourneyGraph", "JourneyOrigin", "JourneyStats", "JourneyStatus",
    "Member", "Meta", "MethodType", "Model", "Node", "NodeData", "Page", "PausedReason",
    "PaymentLink", "Periodicity", "Position", "Preferences", "RelatedDocuments",
    "ReminderOperation", "RetentionFile", "SatState", "SheetConnection", "SheetMapping",
    "SyncSummary", "SyncTotals", "Team", "TeamSettings", "Unset", "User", "Viewport", "Webhook",
    "WebhookList", "WebhookStatus",
]  # fmt: skip


def __getattr__(name: str) -> object:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
    value: object = getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
