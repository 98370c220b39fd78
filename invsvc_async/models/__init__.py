"""The resources of the service as immutable classes, each imported at its first use."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from invsvc_async.models.common import *
    from invsvc_async.models.imports import *
    from invsvc_async.models.invoices import *
    from invsvc_async.models.journeys import *
    from invsvc_async.models.page import *
    from invsvc_async.models.payments import *
    from invsvc_async.models.retentions import *
    from invsvc_async.models.teams import *
    from invsvc_async.models.webhooks import *
    from invsvc_async.models.webhooks import EventType as EventType
else:
    _NAMES = {
        "common": "UNSET Meta Model Unset",
        "imports": "DbtableConnection DbtableScope DbtableTables DbtableWebhooks SheetConnection SheetMapping"
        " SyncSummary SyncTotals",
        "invoices": "Customer DownloadPackage DownloadRequest Efos Invoice InvoiceItem InvoiceStamp"
        " InvoiceStatus RelatedDocuments",
        "journeys": "ClonedFrom Edge Journey JourneyGraph JourneyOrigin JourneyStats JourneyStatus Node"
        " NodeData PausedReason Position Viewport",
        "page": "Page",
        "payments": "Automation HistoricalReferences MethodType PaymentLink ReminderOperation",
        "retentions": "RetentionFile",
        "teams": "Address Brand EmailSettings Integration Member Periodicity Preferences SatState Team"
        " TeamSettings User",
        "webhooks": "Deleted EventType Health Webhook WebhookList WebhookStatus",
    }
    _MODULE_OF = {
        name: module for module, names in _NAMES.items() for name in names.split()
    }
    __all__ = [*sorted(_MODULE_OF)]

    def __getattr__(name: str) -> object:
        if name not in _MODULE_OF:
            raise AttributeError(
                f"module {__name__!r} has no attribute {name!r}", name=name
            )
        value = globals()[name] = getattr(
            import_module(f"{__name__}.{_MODULE_OF[name]}"), name
        )
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
