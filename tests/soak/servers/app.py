"""
One receiver for every server: as an application of ASGI, WSGI, Django and aiohttp.

Its handler writes its begin and its end to the file ``$NOTES``, with the number of the process.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from typing import TYPE_CHECKING, Any

from invsvc_async import events
from tests.events.bodies import HEADER, SECRET
from tests.soak.servers.setups import DEADLINE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

HANDLES = 0.1  # s that each event takes, so that the end of a worker finds some that are being handled
_POLICY = events.InboxPolicy(timeout=10.0, poll=0.2, concurrency=4, initial=0.01)

receiver = events.Receiver(
    secrets=[SECRET],
    shared_header=HEADER,
    mode="inbox",
    store=events.PostgresStore(os.environ["STORE"], table=os.environ["TABLE"]),
    inbox=_POLICY,
    deadline=DEADLINE,
)
_notes = os.open(os.environ["NOTES"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


def note(word: str, key: str = "-") -> None:
    """Add a line to the notes: one write, which lines of other processes do not cut."""
    os.write(_notes, f"{word} {key} {os.getpid()}\n".encode())


@receiver.on("*")
async def handle(event: events.Event) -> None:
    """Take as long as some requests do."""
    key = str(event.dedupe_key)
    note("begin", key)
    await asyncio.sleep(HANDLES)
    note("end", key)


async def asgi(scope: Any, receive: Any, send: Any) -> None:
    """Serve as an application of ASGI, which starts and stops with its server."""
    await receiver.asgi_app(scope, receive, send)


def wsgi(environ: dict[str, Any], start_response: Any) -> Any:
    """Serve as an application of WSGI."""
    return receiver.wsgi_app(environ, start_response)


async def _running(_app: object) -> AsyncIterator[None]:
    async with receiver:
        yield


def aiohttp_app(_arguments: object = None) -> Any:
    """Create the application of aiohttp."""
    from aiohttp import web

    app = web.Application()
    app.cleanup_ctx.append(_running)
    app.router.add_route("*", "/events", receiver.aiohttp_handler)
    return app


async def aiohttp_app_of_gunicorn() -> Any:
    """Create the same for gunicorn, which awaits it."""
    return aiohttp_app()


def _in_django() -> list[Any]:
    from django.conf import settings
    from django.urls import path

    settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"])
    return [path("events", receiver.django_view)]


def django_wsgi(environ: dict[str, Any], start_response: Any) -> Any:
    """Serve through Django under WSGI."""
    return _django("wsgi")(environ, start_response)


async def django_asgi(scope: Any, receive: Any, send: Any) -> None:
    """Serve as in ``examples/receive_django_asgi.py``: all but events through Django under ASGI."""
    if scope["type"] == "lifespan" or scope.get("path") == "/events":
        await receiver.asgi_app(scope, receive, send)
    else:
        await _django("asgi")(scope, receive, send)


def _django(kind: str) -> Any:
    with _making:  # the first requests come in several threads
        if kind not in _made:
            globals()["urlpatterns"] = _in_django()
            from django.core import asgi as of_asgi, wsgi as of_wsgi

            make = (
                of_wsgi.get_wsgi_application
                if kind == "wsgi"
                else of_asgi.get_asgi_application
            )
            _made[kind] = make()
        return _made[kind]


_made: dict[str, Any] = {}
_making = threading.Lock()


# The hooks of gunicorn's configuration, as examples/gunicorn_hooks.py has them, for servers of WSGI and Django.
def post_worker_init(_worker: object) -> None:
    """Start the receiver in a worker of gunicorn."""
    note("worker")
    receiver.sync.start()


def worker_exit(_server: object, _worker: object) -> None:
    """Stop the receiver as a worker of gunicorn ends."""
    receiver.sync.stop()


def serve_with_waitress(port: int) -> None:
    """Serve until SIGTERM, as a program of one's own does: waitress has no hooks, and no workers."""
    import waitress

    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    with receiver.sync:
        waitress.serve(wsgi, host="127.0.0.1", port=port, threads=8)


if __name__ == "__main__":
    serve_with_waitress(int(sys.argv[1]))
else:
    note("worker")
