"""A short soak under every fault and cancellations; ``python -m tests.soak.chaos`` is the long one."""

from __future__ import annotations

import pytest

from invsvc_async import ReconcilePolicy, Verdict
from tests.soak.chaos import CANCELLED, OWN_WAYS, soak

pytestmark = pytest.mark.untraced

SHORT = ReconcilePolicy(settle_after_error=0.6, settle_after_loss=0.9, deadline=120.0)
WRITES = 600


@pytest.mark.parametrize(
    "stores", ["none", OWN_WAYS], ids=["letter by letter", "in its own way"]
)
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
async def test_soak_under_every_fault(tls, stores):
    """No duplicate, no wrong verdict or reason, nothing left behind, and unknown is only what nothing can tell."""
    soaked = await soak(
        writes=WRITES,
        at_once=200,
        seed=11,
        faults="rate=0.3,reads=0.1,late=0.2",
        stores=stores,
        policy=SHORT,
        attempt=5.0,
        tls=tls,
    )

    told = [f"{each.why}\n{each.report.story}" for each in soaked.judged.wrong]
    assert [
        each for each in soaked.failures() if not each.endswith("are unknown")
    ] == [], told
    # Look-alikes without a tag are told apart by time, as exactly as answers are quick: a busy machine tells fewer.
    most = WRITES / (10 if stores == "none" else 3)
    assert soaked.unknown_with_reader < most, soaked.unknown_reasons
    assert soaked.judged.asked == WRITES
    assert soaked.judged.sends > WRITES  # the faults made it send again
    assert soaked.cancelled > WRITES * CANCELLED / 2
    assert soaked.judged.verdicts[Verdict.APPLIED] > WRITES / 2
