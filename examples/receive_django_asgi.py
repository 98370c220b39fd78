"""Receive events in Django under ASGI: ``uvicorn examples.receive_django_asgi:application``."""

from django.core.asgi import get_asgi_application

from examples import receive_django  # noqa: F401 - in a project: settings.py
from examples.receive import receiver

django = get_asgi_application()


async def application(scope, receive, send):
    """Serve events, and the start and end of the server, by the receiver; all else by Django."""
    if scope["type"] == "lifespan" or scope.get("path") == "/events":
        await receiver.asgi_app(scope, receive, send)
    else:
        await django(scope, receive, send)
