"""
Async client for an invoicing, payments and integrations service.

It determines what happened to every write, even if the answer is lost.  The names that programs begin with
are here; each is imported when it is first used.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from invsvc_async._version import __version__ as __version__

if TYPE_CHECKING:
    from invsvc_async import (
        errors as errors,
        events as events,
        models as models,
        readers as readers,
        simulator as simulator,
        testing as testing,
    )
    from invsvc_async.api.event_types import EventType as EventType
    from invsvc_async.batch import Batch as Batch
    from invsvc_async.client import Client as Client
    from invsvc_async.codec import enc_hook as enc_hook, unstructure as unstructure
    from invsvc_async.codec.envelope import Envelope as Envelope
    from invsvc_async.errors import *
    from invsvc_async.models.common import *
    from invsvc_async.models.imports import *
    from invsvc_async.models.invoices import *
    from invsvc_async.models.journeys import *
    from invsvc_async.models.page import *
    from invsvc_async.models.payments import *
    from invsvc_async.models.retentions import *
    from invsvc_async.models.teams import *
    from invsvc_async.models.webhooks import *
    from invsvc_async.outbox import Outbox as Outbox
    from invsvc_async.portal import Portal as Portal
    from invsvc_async.reads.pages import *
    from invsvc_async.reconcile.history import (
        Absent as Absent,
        Applied as Applied,
        CannotTell as CannotTell,
        Holds as Holds,
        Superseded as Superseded,
        Verdict as Verdict,
    )
    from invsvc_async.reconcile.intent import Intent as Intent
    from invsvc_async.reconcile.outcome import (
        AmbiguousWriteError as AmbiguousWriteError,
        Outcome as Outcome,
        SecretLostError as SecretLostError,
        WriteError as WriteError,
        WriteNotAppliedError as WriteNotAppliedError,
        WriteSupersededError as WriteSupersededError,
    )
    from invsvc_async.settings import *
    from invsvc_async.transport.credentials import (
        ApiKey as ApiKey,
        OAuthToken as OAuthToken,
        PersonToken as PersonToken,
        TokenProvider as TokenProvider,
    )
    from invsvc_async.writes.write import Write as Write
else:
    _MODULES = ("errors", "events", "models", "readers", "simulator", "testing")
    _NAMES = {  # beside the errors; models can be imported from here without being listed
        "api.event_types": "EventType",
        "batch": "Batch",
        "client": "Client",
        "codec": "enc_hook unstructure",
        "codec.envelope": "Envelope",
        "models": "Customer DbtableTables DbtableWebhooks Deleted DownloadRequest Health Invoice Journey"
        " Page PaymentLink Preferences ReminderOperation RetentionFile SheetConnection Team UNSET Unset"
        " User Webhook WebhookList",
        "outbox": "Outbox",
        "portal": "Portal",
        "reads.pages": "Pages",
        "reconcile.history": "Absent Applied CannotTell Holds Superseded Verdict",
        "reconcile.intent": "Intent",
        "reconcile.outcome": "Outcome",
        "settings": "CallOptions ParameterNames ReadRetries ReconcilePolicy Timeouts",
        "transport.credentials": "ApiKey OAuthToken PersonToken TokenProvider",
        "writes.write": "Write",
    }

    @cache
    def _listed() -> dict[str, str]:
        """Return the module of each name in ``__all__``; who only loads the plugin of pytest needs none."""
        from invsvc_async import errors

        return {
            **dict.fromkeys(errors.__all__, "errors"),
            **{
                name: module
                for module, names in _NAMES.items()
                for name in names.split()
            },
        }

    @cache
    def _modules() -> dict[str, str]:
        """Return the module of each name that can be imported from here."""
        from invsvc_async import models

        # whose EventType is an enumeration
        return {**dict.fromkeys(models.__all__, "models"), **_listed()}

    def __getattr__(name: str) -> object:
        found: object
        if name in _MODULES:
            found = import_module(f"{__name__}.{name}")
        elif name == "__all__":
            found = sorted({*_listed(), *_MODULES, "__version__"})
        elif not name.startswith("_") and name in _modules():
            found = getattr(import_module(f"{__name__}.{_modules()[name]}"), name)
        else:
            raise AttributeError(
                f"module {__name__!r} has no attribute {name!r}", name=name
            )
        globals()[name] = found
        return found

    def __dir__() -> list[str]:
        return list(__getattr__("__all__"))
