"""A conformance client on this package: ``invsvc conformance -- python …/sdk.py``."""

from __future__ import annotations

import asyncio
from typing import Any

import lines

from invsvc_async import ApiKey, Client, ReconcilePolicy, Timeouts, Write


def as_write(client: Client, task: lines.Task) -> Write[Any]:
    """Call the method for a line; the id is the last part of its path."""
    body, team = dict(task["body"] or {}), task["query"].get("team")
    thing = task["path"].rpartition("/")[2]
    match task["operation"]:
        case "webhooks.create":
            return client.webhooks.create(**body, team=team)
        case "webhooks.update":
            return client.webhooks.update(thing, **body, team=team)
        case "webhooks.delete":
            return client.webhooks.delete(thing, team=team)
        case _:
            return client.journeys.update(thing, **body, team=team)


async def main() -> None:
    """Share one client, with settle windows that fit the kit's late commits."""
    policy = ReconcilePolicy(
        settle_after_error=lines.SETTLE,
        settle_after_loss=lines.SETTLE * 1.5,
        deadline=40.0,
        max_resends=2,
    )
    async with Client(
        lines.BASE_URL,
        ApiKey(lines.API_KEY),
        reconcile=policy,
        timeout=Timeouts(attempt=lines.ATTEMPT, connect=lines.ATTEMPT),
    ) as client:

        async def write(task: lines.Task) -> tuple[str, str]:
            outcome = await as_write(client, task).outcome()
            return outcome.verdict, outcome.message

        await lines.each(write)


asyncio.run(main())
