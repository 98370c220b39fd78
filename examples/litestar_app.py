"""
One client in a Litestar application, whose handlers return models, pages and outcomes.

``INVSVC_BASE_URL=… INVSVC_API_KEY=… uvicorn --factory examples.litestar_app:create_app``
"""

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from litestar import Litestar, Request, get, put
from litestar.datastructures import State
from litestar.response import Response

from invsvc_async import Client, Invoice, Model, Outcome, Page, ReconcilePolicy, Verdict, enc_hook

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

STATUS = {Verdict.APPLIED: 200, Verdict.UNKNOWN: 202}


@get("/invoices")
async def invoices(state: State) -> Page[Invoice]:
    """Read one page; `enc_hook` encodes it with all its digits."""
    client: Client = state.client
    return await client.invoices.egress(limit=10)


@put("/journeys/{journey:str}")
async def rename(request: Request[Any, Any, State]) -> Response[Any]:
    """Write, and answer the outcome; 202 means that it is not known yet."""
    client: Client = request.app.state.client
    name = (await request.json())["name"]
    outcome = await client.journeys.update(request.path_params["journey"], name=name).outcome()
    return Response(outcome, status_code=STATUS.get(outcome.verdict, 409))


@asynccontextmanager
async def service(app: Litestar) -> "AsyncGenerator[None]":
    """Open the client while the application runs."""
    async with Client.from_env(reconcile=ReconcilePolicy(deadline=25.0)) as client:
        app.state.client = client
        yield


def create_app() -> Litestar:
    """Create the application; one hook encodes all classes of this package."""
    encoders = {Model: enc_hook, Page: enc_hook, Outcome: enc_hook}
    return Litestar([invoices, rename], lifespan=[service], type_encoders=encoders)
