"""Receive events in Quart: ``hypercorn examples.receive_quart:app``."""

from quart import Quart, request

from examples.receive import receiver

app = Quart(__name__)


@app.while_serving
async def lifespan():
    """Keep the store open and the worker running."""
    async with receiver:
        yield


@app.post("/events")
async def events():
    """Answer a delivery."""
    receipt = await receiver.answer(request.method, request.headers, request.body)
    return receipt.outcome, receipt.status, dict(receipt.headers)
