"""
Django views without `async`, which share the client of examples/sync_script.py.

Call ``service.start()`` in each worker process of the server, such as in gunicorn's ``post_worker_init``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.http import HttpResponse, JsonResponse

from examples.sync_script import service
from invsvc_async import ServiceError, Verdict

if TYPE_CHECKING:
    from django.http import HttpRequest

STATUS = {Verdict.APPLIED: 200, Verdict.UNKNOWN: 202}


def show(_request: HttpRequest, journey: str) -> HttpResponse:
    """Answer the model with all its digits."""
    try:
        found = service.journey(journey)
    except ServiceError as error:
        return JsonResponse({"error": error.code}, status=error.status)
    return HttpResponse(found.to_json(), content_type="application/json")


def rename(request: HttpRequest, journey: str) -> JsonResponse:
    """Write, and answer the verdict; 202 means that it is not known yet."""
    outcome = service.rename(journey, request.POST["name"])
    shown = {
        "verdict": outcome.verdict,
        "message": outcome.message,
        "intent": outcome.intent.to_json(),
    }
    return JsonResponse(shown, status=STATUS.get(outcome.verdict, 409))
