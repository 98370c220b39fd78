"""The FastAPI example with short windows, so that a test need not wait long for what a dead worker held."""

from __future__ import annotations

from examples import fastapi_app, shop
from invsvc_async import Outbox, ReconcilePolicy
from invsvc_async.events import InboxPolicy
from invsvc_async.events.receiving import worker


class QuickOutbox:
    """Opens an outbox that replaces a silent process after one second."""

    @staticmethod
    def open(address, client, **settings):
        return Outbox.open(f"{address}&silence=1", client, **settings)


def create_app():
    """Return the application.  Late effects of the service land within 0.15 s, well inside the windows."""
    worker._MARGIN = 0.5
    shop.HANDLING = InboxPolicy(timeout=5.0, poll=0.1, initial=0.05, maximum=0.2)
    shop.POLICY = ReconcilePolicy(
        settle_after_error=0.5, settle_after_loss=0.6, deadline=60.0
    )
    shop.Outbox = QuickOutbox
    return fastapi_app.create_app()
