"""
Django views without `async`, which share one client.

Call ``start`` in each worker process of the server, such as in gunicorn's ``post_worker_init``.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from django.http import HttpResponse, JsonResponse

from examples.sync_script import made
from invsvc_async import Portal, ServiceError, Verdict

if TYPE_CHECKING:
    from django.http import HttpRequest

STATUS = {Verdict.APPLIED: 200, Verdict.UNKNOWN: 202}
portal = Portal(made)
opened = ExitStack()


def start() -> None:
    """Open the client; it is closed by ``opened.close()``, or when the process ends."""
    opened.enter_context(portal)


def show(_request: HttpRequest, journey: str) -> HttpResponse:
    """Answer the model with all its digits."""
    try:
        found = portal.call(portal.client.journeys.get(journey))
    except ServiceError as error:
        return JsonResponse({"error": error.code}, status=error.status)
    return HttpResponse(found.to_json(), content_type="application/json")


def rename(request: HttpRequest, journey: str) -> JsonResponse:
    """Write, and answer the verdict; 202 means that it is not known yet."""
    write = portal.client.journeys.update(journey, name=request.POST["name"])
    outcome = portal.call(write.outcome())
    shown = {"verdict": outcome.verdict, "message": outcome.message}
    return JsonResponse(shown, status=STATUS.get(outcome.verdict, 409))
