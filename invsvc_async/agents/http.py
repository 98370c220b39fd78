"""A server on streamable HTTP, on the loopback interface only, behind a token."""

from __future__ import annotations

import asyncio
import secrets
import socket
from contextlib import contextmanager
from hmac import compare_digest
from typing import TYPE_CHECKING, Any, Final

import uvicorn
from starlette.responses import JSONResponse

from invsvc_async.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from mcp.server.lowlevel import Server
    from starlette.types import ASGIApp, Receive, Scope, Send

HOST: Final = "127.0.0.1"
PATH: Final = "/mcp"
_BEGIN: Final = b"Bearer "
_SHORTEST: Final = 16  # characters of a token that a person chose
_REFUSED: Final = (
    "This server needs the token that it printed: Authorization: Bearer TOKEN."
)


def token_of(given: str | None) -> str:
    """
    Return the token that callers have to send: *given*, or a new one.

    Raises:
        ConfigurationError: *given* is too short, or cannot be sent in a header.
    """
    if given is None:
        return secrets.token_urlsafe(24)
    is_sendable = given.isascii() and given.isprintable() and " " not in given
    if len(given) < _SHORTEST or not is_sendable:
        raise ConfigurationError(
            f"INVSVC_MCP_TOKEN: must have at least {_SHORTEST} characters of ASCII, without spaces."
        )
    return given


async def serve_http(
    server: Server[Any],
    port: int,
    token: str,
    on_ready: Callable[[str], object],
) -> None:
    """
    Answer requests on *port* of this machine until Ctrl-C or SIGTERM; 0 selects a free port.

    *on_ready* is called with the address once the server listens.  Requests without the *token* get a 401.
    The SDK refuses requests to other names of this machine, such as those of a web page by DNS rebinding.

    Raises:
        OSError: The port is taken.
    """
    app = WithToken(server.streamable_http_app(streamable_http_path=PATH), token)
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=2,
    )
    listening = socket.create_server((HOST, port))
    with listening:
        number = listening.getsockname()[1]
        on_ready(f"http://{HOST}:{number}{PATH}")
        await _until_cancelled(_Unsignalled(config), listening)


class _Unsignalled(uvicorn.Server):
    """A server of uvicorn that leaves signals to the command line."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Change no handler of a signal."""
        yield


async def _until_cancelled(server: uvicorn.Server, listening: socket.socket) -> None:
    """Serve until the task is cancelled; then wait until uvicorn has ended, so that there is no traceback."""
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        await asyncio.shield(serving)
    except asyncio.CancelledError:
        server.should_exit = True
        await serving
        raise


class WithToken:
    """An application behind a token."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._token = token.encode()

    async def __call__(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        """Pass on requests with the token, and messages about the start and the end of the application."""
        if scope["type"] == "http" and not self._has_token(scope):
            refusal = JSONResponse(
                {"error": _REFUSED},
                status_code=401,
                headers={"WWW-Authenticate": "Bearer"},
            )
            await refusal(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _has_token(self, scope: Scope) -> bool:
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        return len(given) == 1 and compare_digest(given[0], _BEGIN + self._token)
