"""A forgotten await in each marked line, which checkers report with these settings. Not run."""
# mypy: enable-error-code="unused-awaitable"
# pyright: reportUnusedCallResult=error, reportUnusedCoroutine=error

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from invsvc_async.client import Client


async def forgotten(client: Client) -> None:
    client.webhooks.delete("wh_1")  # forgotten
    client.journeys.update("jrn_1", name="May")  # forgotten
    client.write("PUT", "/a")  # forgotten
    client.webhooks.get("wh_1")  # forgotten
    _ = await client.webhooks.delete("wh_1")
    _ = await client.webhooks.get("wh_1")
