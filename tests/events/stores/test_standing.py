"""What a claim is told of an event that cannot be claimed."""

from __future__ import annotations

import pytest

from invsvc_async.events import Delivery, Standing
from invsvc_async.events.stores import Entry
from tests.events.bodies import delivery

pytestmark = pytest.mark.one_python


async def test_claim_of_what_is_being_handled_or_has_failed(kept) -> None:
    """A dead letter is as good as handled: the sender need not come again. What has a claim is busy."""
    given = delivery()
    bare = Delivery(key=given.key, type=given.type, body=None)
    claim = await kept.store.claim(bare, lease=10)
    assert isinstance(claim, Entry)
    assert await kept.store.claim(bare, lease=10) is Standing.BUSY
    assert await kept.store.bury(claim, reason="it failed")
    assert await kept.store.claim(bare, lease=10) is Standing.HANDLED
    assert await kept.store.claim(given, lease=10) is Standing.HANDLED
