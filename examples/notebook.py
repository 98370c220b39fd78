# %% [markdown]
# # A tour in cells, with the embedded service
# A notebook has its own event loop, so its cells can `await`; as a script, this uses `asyncio.run`.

# %%
"""A tour in notebook cells: read, lose an answer, and look at the story."""

import asyncio
from decimal import Decimal

from invsvc_async import Client
from invsvc_async.simulator import Simulator
from invsvc_async.testing import quick_client


# %% Read a list: amounts are Decimals with the service's own digits
async def totals(client: Client) -> Decimal:
    """Sum up the valid invoices."""
    return sum(
        [invoice.total async for invoice in client.invoices.egress(status="valid")],
        Decimal(0),
    )


# %% Write, and lose the answer: the client still finds the verdict
async def lost_answer(service: Simulator, client: Client) -> None:
    """Script a fault, and print what the client found out."""
    service.script("journeys.update", "apply, then reset")
    outcome = await client.journeys.update("jrn_1", name="Dunning, May").outcome()
    print(outcome.verdict, "after", service.arrivals("journeys.update"), "request")
    print(outcome.explain())


# %%
async def main() -> None:
    """Run every cell."""
    async with Simulator(seed=7) as service, quick_client(service) as client:
        print("total of valid invoices:", await totals(client))
        await lost_answer(service, client)


# %%
asyncio.run(main())
