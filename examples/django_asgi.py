"""
A Django application under ASGI: ``uvicorn --workers 4 examples.django_asgi:application``.

Django answers no lifespan events, so ``application`` does: it opens everything before the first request, and
closes it after the last.  Uvicorn and Hypercorn send these events; Daphne does not.
"""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.core.asgi import get_asgi_application
from django.http import HttpResponse, JsonResponse
from django.urls import path

from examples.shop import Shop, shown
from invsvc_async import InvsvcError
from invsvc_async.web import answer_to, status_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from django.http import HttpRequest

# In a project: settings.py.
settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"])
shop = Shop()


def with_errors(view: Callable[..., Awaitable[HttpResponse]]) -> Any:  # Any: a view
    """Answer errors of the client."""

    @wraps(view)
    async def answered(request: HttpRequest, **named: str) -> HttpResponse:
        try:
            return await view(request, **named)
        except InvsvcError as error:
            status, body, headers = answer_to(error)
            return JsonResponse(body, status=status, headers=headers)

    return answered


@with_errors
async def invoices(_: HttpRequest) -> HttpResponse:
    """Answer one page with all its digits."""
    page = await shop.client.invoices.egress(limit=10)
    return HttpResponse(page.to_json(), content_type="application/json")


@with_errors
async def rename(request: HttpRequest, journey: str) -> HttpResponse:
    """Write at once, and answer the outcome; 202 means that it is not known yet."""
    outcome = await shop.client.journeys.update(
        journey, name=request.GET["name"]
    ).outcome()
    return HttpResponse(
        shown(outcome), content_type="application/json", status=status_of(outcome)
    )


@with_errors
async def register(_: HttpRequest, name: str) -> HttpResponse:
    """Store a customer, and the webhook to be created."""
    await shop.register(name)
    return HttpResponse(status=202)


urlpatterns = [
    path("invoices", invoices),
    path("journeys/<journey>/name", rename),
    path("customers/<name>", register),
]
django = get_asgi_application()


async def live(receive: Any, send: Any) -> None:  # Any: as in ASGI
    """Be open from the start of the server to its end.  If opening fails, the server does not start."""
    await receive()
    phase = "startup"
    try:
        async with shop.running():
            await send({"type": "lifespan.startup.complete"})
            phase = "shutdown"
            await receive()
    except Exception as error:  # noqa: BLE001 - reported through the protocol
        await send({"type": f"lifespan.{phase}.failed", "message": str(error)})
    else:
        await send({"type": "lifespan.shutdown.complete"})


async def application(
    scope: dict[str, Any], receive: Any, send: Any
) -> None:  # Any: as in ASGI
    """Serve events by the receiver, and the other paths by Django."""
    if scope["type"] == "lifespan":
        await live(receive, send)
    elif scope["type"] == "http" and scope["path"] == "/events":
        await shop.receiver.asgi_app(scope, receive, send)
    else:
        await django(scope, receive, send)
