"""
Make a client whose windows fit the embedded service, so that a suite does not wait; never for a real service.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from invsvc_async.client import Client
from invsvc_async.settings import ReadRetries, ReconcilePolicy, Timeouts
from invsvc_async.transport.credentials import ApiKey

if TYPE_CHECKING:
    from invsvc_async.simulator import Simulator

__all__ = ["quick_client"]

# The embedded service commits at once, or as late as its script says: "late 0.1" is within the window.
_POLICY = ReconcilePolicy(settle_after_error=0.1, settle_after_loss=0.2, deadline=10.0)
_TIMEOUTS = Timeouts(attempt=1.0, connect=2.0, call=5.0)
_READS = ReadRetries(initial=0.01, maximum=0.05)


def quick_client(service: Simulator, **settings: Any) -> Client:  # Any: those of Client
    """
    Make a client of *service* that settles within 0.2 s and times out after 1 s; *settings* go before.

    A scripted effect that lands later than that (``"late 1, then 500"``) is one that nothing can foresee:
    give a longer ``reconcile=ReconcilePolicy(…)`` for it.

    Raises:
        ConfigurationError: One of *settings* cannot work.

    """
    credential = settings.pop("credential", None) or ApiKey(service.api_key)
    defaults: dict[str, Any] = {"reconcile": _POLICY, "timeout": _TIMEOUTS, "reads": _READS}
    return Client(service.base_url, credential, **{**defaults, **settings})
