"""
Which way a transport sends: through aiohttp's connections, or with ``session.request``.

The first is much cheaper, but rests on what aiohttp does not document. So it is taken for the versions of
aiohttp that tests have shown to have it, and where nothing was put between session and network.
"""

from __future__ import annotations

from types import FunctionType
from typing import TYPE_CHECKING, Final

import aiohttp

if TYPE_CHECKING:
    from invsvc_async.transport.proxy import Proxy

# Versions of aiohttp for which `nox -s aiohttp` is to pass.
TESTED: Final = frozenset(
    {
        "3.13.4",
        "3.13.5",
        "3.14.0",
        "3.14.1",
        "3.14.2",
        "3.14.3",
        "3.14.4",
        "3.14.5",
    }
)
# Whether the first way is taken at all: tests of the other way switch it off.
IS_ON = True
LEAN: Final = "through aiohttp's connections, without its session"
BY_SESSION: Final = "with an aiohttp session"


def why_by_session(
    session: aiohttp.ClientSession,
    *,
    is_of_user: bool,
    proxy: Proxy | None,
    trust_env: bool,
) -> str | None:
    """Return why requests are sent with ``session.request``, or ``None`` if they need not be."""
    if is_of_user:
        return "the session was passed"
    if not IS_ON:
        return "the other way is switched off"
    if proxy is not None or trust_env:
        return "there may be a proxy"
    if aiohttp.__version__ not in TESTED:
        return f"aiohttp {aiohttp.__version__} is not among the versions that were tested without it"
    if session.trace_configs:
        return "the session has trace configs, as of an instrumentation"
    if _is_replaced(aiohttp.ClientSession._request):  # noqa: SLF001 - what is replaced, by aioresponses too
        return "something stands in for the session's requests, as in tests"
    return None


def _is_replaced(method: object) -> bool:
    """Return whether *method* is not aiohttp's own; a wrapper may have its name and module."""
    if type(method) is not FunctionType:
        return True
    return method.__code__.co_filename != aiohttp.client.__file__
