"""
Sending a request with ``session.request`` of an aiohttp session.

aiohttp may repeat a request whose connection was lost; the gate does not let the second one out.
"""

from __future__ import annotations

from functools import lru_cache
from math import inf
from typing import TYPE_CHECKING, Any

import aiohttp

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable

    from aiohttp.client_middlewares import ClientMiddlewareType
    from yarl import URL

    from invsvc_async.transport.proxy import Proxy
    from invsvc_async.transport.send_gate import Gate


# Keeps aiohttp from judging the status and from decompressing: the transport does both. The transport's own
# session is made with these options; a user-supplied one gets them with each request.
RAW_ANSWERS: dict[str, Any] = {"raise_for_status": False, "auto_decompress": False}


class SessionSender:
    """Sends requests with *session*, which *is_of_user* or the transport's own, perhaps through a proxy."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        loop: asyncio.AbstractEventLoop,
        *,
        is_of_user: bool,
        proxy: Proxy | None = None,
        trust_env: bool = False,
    ) -> None:
        self._session = session
        self._loop = loop
        self._own_pool = not is_of_user
        # of each request
        self._options: dict[str, Any] = RAW_ANSWERS if is_of_user else {}
        self._proxy = proxy
        self._trust_env = trust_env

    def request(self, gate: Gate) -> Awaitable[aiohttp.ClientResponse]:
        """
        Send the request of *gate*, and return the head of its answer.

        Raises:
            TimeoutError: Its deadline has passed.
        """
        exchange = gate.exchange
        headers = exchange.headers
        options = self._options
        # An open connection would send the request at once.
        if self._loop.time() >= exchange.deadline:
            raise TimeoutError
        proxy = self._proxy_for(exchange.url)
        if proxy is not None:
            options = dict[str, Any](
                options, proxy=proxy.url, proxy_headers=proxy.headers
            )
            if proxy.headers is not None and exchange.url.scheme == "http":
                # aiohttp sends a proxy's headers in CONNECT only
                headers = {**headers, **proxy.headers}
        # The gate is the body, and checks as aiohttp writes it. For a read without a body, a middleware does.
        data: Gate | None = gate
        middlewares: tuple[ClientMiddlewareType, ...] = ()
        if not exchange.write and exchange.content is None:
            data = None
            middlewares = (gate.send_read,)
        return self._session.request(
            exchange.method,
            exchange.url,
            data=data,
            headers=headers,
            timeout=timeout_of(exchange.connect_timeout, own_pool=self._own_pool),
            allow_redirects=False,
            middlewares=middlewares,
            **options,
        )

    def _proxy_for(self, url: URL) -> Proxy | None:
        """Return the given proxy, or else the proxy of the environment, if the client may look there."""
        if self._proxy is not None or not self._trust_env:
            return self._proxy
        from invsvc_async.transport.proxy import proxy_of_environment

        return proxy_of_environment(url)


@lru_cache(maxsize=16)
def timeout_of(connect: float, *, own_pool: bool) -> aiohttp.ClientTimeout:
    """Return what limits the time to connect to *connect* seconds, and nothing else."""
    # No total: aiohttp rounds that up, and the deadline limits everything. Waiting for a place in the pool of
    # a user-supplied session is not connecting.
    if own_pool:
        return aiohttp.ClientTimeout(
            total=None,
            ceil_threshold=inf,
            connect=connect,
        )
    return aiohttp.ClientTimeout(
        total=None,
        ceil_threshold=inf,
        sock_connect=connect,
    )
