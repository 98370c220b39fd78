"""The embedded service in tests: a client with settle windows that fit it, and a thread for the service."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from invsvc_async.client import Client
from invsvc_async.portal import Portal
from invsvc_async.settings import ReadRetries, ReconcilePolicy, Timeouts
from invsvc_async.simulator import Simulator
from invsvc_async.transport.credentials import ApiKey

if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Unpack

    from invsvc_async.client import ClientKeywords
    from invsvc_async.simulator.service import SimulatorSettings
    from invsvc_async.transport.credentials import Credential

# The embedded service commits at once, or after a scripted delay: "late 0.1" is within the window.
_POLICY = ReconcilePolicy(settle_after_error=0.1, settle_after_loss=0.2)
_TIMEOUTS = Timeouts(
    attempt=1.0,
    connect=2.0,
    call=5.0,
)
_READS = ReadRetries(initial=0.01, maximum=0.05)


def quick_client(
    service: Simulator,
    *,
    credential: Credential | None = None,
    **settings: Unpack[ClientKeywords],
) -> Client:
    """
    Return a client of *service* that settles within 0.2 s and times out after 1 s; *settings* override this.

    It is meant for the embedded service only.  If effects come later than that (``"late 1, then 500"``, or
    ``Faults(rate=0.2)``, whose ``late_up_to`` is 1 s by default), they are missed: pass a longer
    ``reconcile=ReconcilePolicy(…)``, or ``Faults(rate=0.2, late_up_to=0.05)``.

    Raises:
        ConfigurationError: A setting is invalid.
    """
    given: ClientKeywords = {
        "reconcile": _POLICY,
        "timeout": _TIMEOUTS,
        "reads": _READS,
        **settings,
    }
    return Client(service.base_url, credential or ApiKey(service.api_key), **given)


@contextmanager
def serving(**options: Unpack[SimulatorSettings]) -> Generator[Simulator]:
    """
    Run the embedded service in a thread until the block ends; *options* are those of ``Simulator``.

    Script and seed it only while no request is in flight.  Its coroutines belong to the other thread's loop.

    Raises:
        ValueError: An option is invalid.
    """
    # it enters what its function makes
    portal: Any = Portal(cast("Any", partial(Simulator, **options)))
    with portal as entered:
        yield entered.client
