"""
The embedded service and a client of it with short settle windows, for tests on real sockets.

Both use the time of the loop, which is virtual, except on uvloop.
"""

import pytest

from invsvc_async import ApiKey, Client, ReadRetries, ReconcilePolicy, Timeouts
from invsvc_async.simulator import Simulator
from tests.support.virtual_time import LoopClock, service_clock

# The windows are those of the rules, shrunk: late commits of the tests stay well inside them.
SHORT = ReconcilePolicy(
    settle_after_error=0.25, settle_after_loss=0.4, deadline=20.0, reads_lag=0.13
)
QUICK = Timeouts(attempt=0.3, connect=2.0, call=5.0)
NO_WAIT = ReadRetries(initial=0.01, maximum=0.05)


@pytest.fixture
async def service():
    async with new_service() as running:
        yield running


@pytest.fixture
async def client(service):
    async with client_of(service) as made:
        yield made


def new_service():
    """Make a simulator that follows the running loop."""
    return Simulator(seed=7, clock=service_clock())


def client_of(service, **settings):
    """Make a client of *service*, or of what passes on to it, with short windows; *settings* go before."""
    base_url = settings.pop("base_url", service.base_url)
    credential = settings.pop("credential", None) or ApiKey(service.api_key)
    defaults = {
        "reconcile": SHORT,
        "timeout": QUICK,
        "reads": NO_WAIT,
        "clock": LoopClock(),
    }
    return Client(base_url, credential, **{**defaults, **settings})
