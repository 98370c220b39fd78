"""The register of a client's writes."""

from __future__ import annotations

import pytest

from invsvc_async.reconcile.intent import Intent, Scope
from invsvc_async.transport.write_register import LeftOpen

SCOPE = Scope(base_url="https://host.example/v2")


@pytest.mark.parametrize(
    ("operation", "newest"),
    [("webhooks.update", False), ("webhooks.delete", False), ("webhooks.create", None)],
)
def test_open_write_that_a_newer_one_follows(operation, newest):
    """A change of the same thing overtakes it; a create of the same URL does not."""
    left_open = LeftOpen()
    left_open.add(Intent(key="older", operation=operation, scope=SCOPE), "the line", in_journal=True)
    revised = left_open.overtake("the line", "newer")

    assert [intent.newest for intent in revised] == [False] * (newest is False)
    assert left_open.get("older").newest is newest
    left_open.take("older")
    assert not left_open
