"""The loop of ``examples/lost_secret.py``: a webhook whose secret somebody has, whatever answers are lost."""

from __future__ import annotations

from examples.lost_secret import create_with_secret
from invsvc_async import ApiKey, Client, ReconcilePolicy

URL = "https://me.example/hook"


async def test_two_lost_answers(service, tmp_path):
    """Two webhooks are deleted, and the third is kept; run again, it is returned without a request to write."""
    secrets = {}
    policy = ReconcilePolicy(settle_after_error=0.1, settle_after_loss=0.2)
    client = Client(
        service.base_url, ApiKey(service.api_key), journal=tmp_path / "calls.db", reconcile=policy,
        on_secret=lambda _, webhook: secrets.setdefault(webhook.id, webhook.secret),
    )  # fmt: skip
    service.script("webhooks.create", *["apply, then reset"] * 2)
    async with client:
        made = await create_with_secret(client, "order-17", URL)
        again = await create_with_secret(client, "order-17", URL)

    created = [entry.target for entry in service.ledger.effects("webhooks.create")]
    deleted = [entry.target for entry in service.ledger.effects("webhooks.delete")]
    assert created == [*deleted, made.id]
    assert len(deleted) == 2
    assert [*secrets] == [made.id] == [again.id]
    assert service.arrivals("webhooks.create") == 3
