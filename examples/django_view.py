"""
Django views without `async`, which share one client.

Call ``start`` in each worker process of the server, such as in gunicorn's ``post_worker_init``.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import wraps
from typing import TYPE_CHECKING

import msgspec
from django.http import HttpResponse, JsonResponse

from examples.sync_script import made
from invsvc_async import InvsvcError, Portal, enc_hook
from invsvc_async.web import answer_to, status_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.http import HttpRequest

portal = Portal(made)
opened = ExitStack()


def start() -> None:
    """Open the client; it is closed by ``opened.close()``, or when the process ends."""
    opened.enter_context(portal)


def with_errors(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """Answer errors of the client."""

    @wraps(view)
    def answered(request: HttpRequest, journey: str) -> HttpResponse:
        try:
            return view(request, journey)
        except InvsvcError as error:
            status, body, headers = answer_to(error)
            return JsonResponse(body, status=status, headers=headers)

    return answered


@with_errors
def show(_request: HttpRequest, journey: str) -> HttpResponse:
    """Answer the model with all its digits."""
    found = portal.call(portal.client.journeys.get(journey))
    return HttpResponse(found.to_json(), content_type="application/json")


@with_errors
def rename(request: HttpRequest, journey: str) -> HttpResponse:
    """Write, and answer the verdict."""
    write = portal.client.journeys.update(journey, name=request.POST["name"])
    outcome = portal.call(write.outcome())
    shown = msgspec.json.encode(outcome, enc_hook=enc_hook)
    return HttpResponse(
        shown, content_type="application/json", status=status_of(outcome)
    )
