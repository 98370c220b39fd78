"""HTTP proxies, with their credentials kept apart from their addresses, which errors contain."""

from __future__ import annotations

from base64 import b64encode
from functools import lru_cache
from typing import Final
from urllib.request import getproxies, proxy_bypass

import attrs
from yarl import URL

from invsvc_async.errors import ConfigurationError, takes_secrets

AUTHORIZATION: Final = "Proxy-Authorization"


@attrs.frozen
class Proxy:
    """The address of a proxy, without credentials, and the header that has the credentials."""

    url: URL
    headers: dict[str, str] | None = attrs.field(default=None, repr=False)


@takes_secrets
def proxy_from(text: object) -> Proxy:
    """
    Parse ``http://user:password@host:3128``.

    Raises:
        ConfigurationError: It is no address of an HTTP proxy.  The message does not contain it.
    """
    found = _parsed(text) if isinstance(text, str) else None
    if found is None:
        raise ConfigurationError(
            "proxy: must be the URL of an HTTP proxy, such as http://proxy.example:3128 (not SOCKS)."
        )
    return found


@lru_cache(maxsize=16)
def _parsed(text: str) -> Proxy | None:
    """Parse the address *text* of an HTTP proxy; return ``None`` if *text* is no such address."""
    try:
        url = URL(text)
        bare = URL.build(
            scheme=url.scheme,
            host=url.host or "",
            port=url.explicit_port,
        )
    except ValueError:
        return None
    if not _names_host_alone(url):
        return None
    if url.user is None and url.password is None:
        return Proxy(bare)
    return Proxy(bare, {AUTHORIZATION: _basic(url.user or "", url.password or "")})


def _names_host_alone(url: URL) -> bool:
    """Return whether *url* names a host of HTTP, and no path or query."""
    names_host = url.scheme in ("http", "https") and bool(url.host)
    return names_host and url.path in ("", "/") and not url.query_string


def _basic(user: str, password: str) -> str:
    """Return the value of the header that has the login."""
    login = b64encode(f"{user}:{password}".encode()).decode()
    return f"Basic {login}"


@takes_secrets
def proxy_of_environment(url: URL) -> Proxy | None:
    """
    Return the environment's proxy for *url*.

    aiohttp's own ``trust_env`` also reads a login for the service from a .netrc file, and refuses a request
    that has both a login and the header ``Authorization``, which the token is in.

    Raises:
        ConfigurationError: It is no address of an HTTP proxy.
    """
    if proxy_bypass(url.host or ""):
        return None
    text = getproxies().get(url.scheme)
    if text is None:
        return None
    if "://" not in text:
        text = f"http://{text}"
    return proxy_from(text)
