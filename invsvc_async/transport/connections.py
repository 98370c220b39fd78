"""The session of a transport, with its connections, and the sender that is chosen for it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import aiohttp
from aiohttp import hdrs

from invsvc_async.errors import ConfigurationError
from invsvc_async.transport.lean_sender import LeanSender
from invsvc_async.transport.sender_choice import BY_SESSION, LEAN, why_by_session
from invsvc_async.transport.session_sender import RAW_ANSWERS, SessionSender

if TYPE_CHECKING:
    import asyncio
    import ssl as tls
    from collections.abc import Callable

    from invsvc_async.transport.proxy import Proxy

log: logging.Logger = logging.getLogger("invsvc_async.transport")

# s, well below the usual 15 of servers: a write on a connection that the server closes is LOST
_KEEP_IDLE = 10.0
# bytes: a page of 100 invoices is read without pausing the socket (saves a tenth of a walk)
_READ_AT_ONCE = 2**19
_NEVER_BY_DEFAULT = (
    hdrs.EXPECT,
    hdrs.CONTENT_LENGTH,
    hdrs.TRANSFER_ENCODING,
    hdrs.CONTENT_ENCODING,
)


class Connections:
    """
    The *session* of a transport, and the sender of requests that was chosen for it.

    A user-supplied session is not closed. Without one, a session is made at the first request: *most* says
    then how many connections it may have. ``sent_by`` says how requests are sent, in words, once that is
    known.
    """

    def __init__(
        self,
        name: str,
        session: aiohttp.ClientSession | None,
        *,
        most: Callable[[], int],
        ssl: tls.SSLContext | aiohttp.Fingerprint | bool,
        proxy: Proxy | None,
        trust_env: bool,
    ) -> None:
        self._name = name
        self._session = session
        self.is_of_user: bool = session is not None
        self._most = most
        self._tls = ssl
        self._proxy = proxy
        self._trust_env = trust_env
        self._sender: SessionSender | LeanSender | None = None
        # the method of aiohttp's sessions that was in place when the sender was chosen
        self._method_at_choice: object = None
        self.sent_by: str | None = None

    @property
    def is_left_open(self) -> bool:
        """Whether there is a session that the user does not close."""
        return self._session is not None and not self.is_of_user

    def check_fit(self, loop: asyncio.AbstractEventLoop) -> None:
        """
        Check a user-supplied session before its first request, which is sent in *loop*.

        Raises:
            ConfigurationError: It is unsuitable.
        """
        if self._session is not None:
            _refuse_unfit(self._session, loop)

    def sender(self, loop: asyncio.AbstractEventLoop) -> SessionSender | LeanSender:
        """
        Return the sender of requests; the session is made if there is none.

        Raises:
            ConfigurationError: The user-supplied session is closed.
        """
        session = self._session
        if session is None:
            session = self._session = self._own_session()
        elif self.is_of_user and session.closed:
            raise ConfigurationError(
                "session: the aiohttp session is closed. Pass an open one."
            )
        # Chosen anew if a library that stands in for the network was switched on, or off, since.
        if self._sender is None or self._method_at_choice is not _sending_method():
            self._sender = self._chosen_sender(session, loop)
        return self._sender

    async def close(self) -> None:
        """Close the session, unless it is the user's."""
        if self._session is not None and not self.is_of_user:
            await self._session.close()

    def _own_session(self) -> aiohttp.ClientSession:
        """Make the session of a transport that was given none."""
        # aiohttp makes its TLS context at import, so no certificates are read on the loop.
        connector = aiohttp.TCPConnector(
            limit=self._most(),
            keepalive_timeout=_KEEP_IDLE,
            ssl=self._tls,
        )
        return aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            read_bufsize=_READ_AT_ONCE,
            **RAW_ANSWERS,
        )

    def _chosen_sender(
        self, session: aiohttp.ClientSession, loop: asyncio.AbstractEventLoop
    ) -> SessionSender | LeanSender:
        """Choose how requests are sent, and say so in the log."""
        self._method_at_choice = _sending_method()
        reason = why_by_session(
            session,
            is_of_user=self.is_of_user,
            proxy=self._proxy,
            trust_env=self._trust_env,
        )
        self.sent_by = LEAN if reason is None else f"{BY_SESSION}: {reason}"
        log.debug("%s sends requests %s", self._name, self.sent_by)
        if reason is None and session.connector is not None:
            return LeanSender(session.connector, loop, read_bufsize=_READ_AT_ONCE)
        return SessionSender(
            session,
            loop,
            is_of_user=self.is_of_user,
            proxy=self._proxy,
            trust_env=self._trust_env,
        )


def _sending_method() -> object:
    """Return the method by which aiohttp's sessions send, which stand-ins for the network replace."""
    return aiohttp.ClientSession._request  # noqa: SLF001 - the method that other libraries replace


def _refuse_unfit(
    session: aiohttp.ClientSession, loop: asyncio.AbstractEventLoop
) -> None:
    """Raise ``ConfigurationError`` if a user-supplied session cannot be used in *loop*, or sends too much."""
    advice = "Remove it from the session's headers"
    sent = next((name for name in _NEVER_BY_DEFAULT if name in session.headers), None)
    if session._loop is not loop:  # noqa: SLF001 - its public property is deprecated
        problem = "belongs to another event loop. Make it in this one"
    elif sent is not None:
        problem = f"sends {sent} by default, which breaks the rules of writes. {advice}"
    elif hdrs.AUTHORIZATION in session.headers:
        why = "would go to this service in requests that need no credential"
        problem = f"sends Authorization by default, which {why}. {advice}"
    elif session.auth is not None:
        problem = "has an `auth`, but the client sends its own credential. Remove it"
    else:
        return
    raise ConfigurationError(f"session: the aiohttp session {problem}.")
