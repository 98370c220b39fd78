"""The receiver of the applications beside this file: ``uvicorn examples.receive:receiver.asgi_app``."""

import os

from invsvc_async.events import Receiver, SharedHeader

receiver = Receiver(
    secrets=(),  # those of your webhooks, if they subscribe to signed events
    shared_header=SharedHeader(
        "X-Events-Key", os.environ["EVENTS_KEY"]
    ),  # as set in the dashboard
    mode="inbox",
    store="events.db",
)


@receiver.on("invoice.created")
async def on_invoice(event):
    """Handle an event, later and perhaps twice."""
    print(event.type, event.dedupe_key)
