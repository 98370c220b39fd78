"""Programs that end while writes wait; ``python -m tests.soak.queued`` runs many more."""

from __future__ import annotations

import pytest

from tests.soak.queued import trial

pytestmark = pytest.mark.untraced


@pytest.mark.parametrize(
    ("use", "seed"), [("keys", 1), ("keys", 6), ("batch", 2), ("outbox", 3)]
)
async def test_ended_with_writes_waiting(use, seed):
    """Each write takes effect once, in the order of the claims, or was overtaken by one that was sent."""
    made = await trial(seed, (use,))

    assert made.ends
    assert not made.wrong, f"{made}: {made.wrong}"
