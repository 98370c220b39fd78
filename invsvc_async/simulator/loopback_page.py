"""
A page of HTML, and the data that the page reads, for people at this machine.

The page is one file that loads nothing from elsewhere.  Only this machine may open it, and pages of other
sites may not: neither by a request of their own nor through a host name that they point here.
"""

from __future__ import annotations

import ipaddress
import secrets
from contextlib import asynccontextmanager
from functools import wraps
from importlib.resources import files
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from aiohttp import web

from invsvc_async.simulator import replies
from invsvc_async.simulator.loopback_acts import LONGEST, Sessions, acting

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
    from ssl import SSLContext

    from invsvc_async.simulator.json_records import Json
    from invsvc_async.simulator.loopback_acts import Act

    Handler = Callable[[web.Request], Awaitable[web.Response]]
    Page = tuple[str, str]  # its package and file
    # takes the query; a ValueError is a 400
    Data = Callable[[Mapping[str, str]], Awaitable[Json]]

HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
POLICY = (
    "default-src 'none'; connect-src 'self'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
PATIENCE = 1.0  # s for answers under way when the server stops


def mount_page(
    app: web.Application,
    path: str,
    page: Page,
    data: Data,
    is_open: Callable[[], bool] = lambda: True,
    acts: Mapping[str, Act] | None = None,
) -> None:
    """
    Add *page*, named by its package and file, at *path*, and *data* as JSON at ``data`` below it.

    In the file, ``NONCE`` is replaced by that of the page's policy, and ``SHARED_STYLE`` by the style that
    all pages have.  Until *is_open* returns true, both are a 404.

    Each of *acts* is at its name below the page, for POST requests of the page's sessions alone.  In the
    file, ``PAGE_SESSION`` is replaced by the token of a new session.
    """
    sessions = Sessions()

    async def show(_request: web.Request) -> web.Response:
        nonce = secrets.token_urlsafe(16)
        headers = {**HEADERS, "Content-Security-Policy": POLICY.format(nonce=nonce)}
        style = (
            files("invsvc_async.simulator")
            .joinpath("loopback_page.css")
            .read_text(encoding="utf-8")
        )
        text = files(page[0]).joinpath(page[1]).read_text(encoding="utf-8")
        text = text.replace("SHARED_STYLE", style).replace("NONCE", nonce)
        if acts:
            text = text.replace("PAGE_SESSION", sessions.begin())
        return web.Response(
            text=text,
            content_type="text/html",
            headers=headers,
        )

    app.router.add_get(path, local(show, is_open))
    app.router.add_get(
        f"{path}data",
        local(answering(lambda request: data(request.query), HEADERS), is_open),
    )
    for name, act in (acts or {}).items():
        app.router.add_post(
            f"{path}{name}", local(acting(act, sessions, HEADERS), is_open)
        )


def answering(
    ask: Callable[[web.Request], Awaitable[Json]], headers: dict[str, str] | None = None
) -> Handler:
    """Return a handler that answers what *ask* returns, as JSON; an error about the request is a 400."""

    async def answer(request: web.Request) -> web.Response:
        try:
            return replies.answer(200, await ask(request), headers)
        except (ValueError, TypeError, KeyError) as error:
            return replies.answer(400, {"problem": str(error)})

    return answer


@asynccontextmanager
async def serving_page(
    page: Page,
    data: Data,
    *,
    port: int = 0,
    acts: Mapping[str, Act] | None = None,
    beside: Mapping[str, tuple[Page, Data]] | None = None,
) -> AsyncGenerator[str]:
    """
    Serve *page* and *data* on the loopback interface; yields the address.

    The address has a random part, so that other users of this machine cannot guess it.  *acts* are as in
    `mount_page`; *beside* are more pages with their data, by the names of their folders below the page.

    Raises:
        OSError: The port is taken.
    """
    path = _secret_path()
    app = _application()
    mount_page(app, path, page, data, acts=acts)
    for name, (other, its_data) in (beside or {}).items():
        mount_page(app, f"{path}{name}/", other, its_data)
    async with serving(app, port=port) as root:
        yield root + path


def _secret_path() -> str:
    """Return the path of a page, which only who is told it knows."""
    return f"/{secrets.token_urlsafe(16)}/"


def _application() -> web.Application:
    """Return an application that reads no long requests."""
    return web.Application(client_max_size=LONGEST)


@asynccontextmanager
async def serving(
    app: web.Application,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    patience: float = PATIENCE,
    ssl: SSLContext | None = None,
) -> AsyncGenerator[str]:
    """Serve *app* until the block ends; yields the root of its addresses, such as ``http://127.0.0.1:8000``."""
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=patience)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port, backlog=4096, ssl_context=ssl).start()
        scheme = "https" if ssl else "http"
        shown = f"[{host}]" if ":" in host else host
        yield f"{scheme}://{shown}:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


# --- who may open it


def local(handler: Handler, is_open: Callable[[], bool] = lambda: True) -> Handler:
    """
    Return *handler* behind a check of who sends a request.

    It refuses, with a 403, requests of other machines, and what a page of another site could send.  Until
    *is_open* returns true, all get a 404.
    """

    @wraps(handler)
    async def checked(request: web.Request) -> web.Response:
        if not is_open():
            return replies.answer(404, {"problem": "The page is not enabled."})
        if not is_loopback(request.remote):
            return replies.answer(
                403, {"problem": "This address answers only to this machine."}
            )
        problem = _refusal(
            request.host,
            request.headers.get("Origin"),
            request.headers.get("Sec-Fetch-Site"),
        )
        if problem is None:
            return await handler(request)
        return replies.answer(403, {"problem": problem})

    return checked


def is_loopback(address: str | None) -> bool:
    """Return whether *address* is of the loopback interface."""
    found = _ip(address or "")
    if found is None:
        return False
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
        found = found.ipv4_mapped
    return found.is_loopback


def _refusal(
    host: str,
    origin: str | None,
    site: str | None,
) -> str | None:
    """Return why a request may come from another site's page, or None."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        name = ""
    # No other site, and no search list of a network, can make one of these its own.
    if name != "localhost" and _ip(name) is None:
        return f"Host: {host!r} may be another site's name. Use localhost or an IP address."
    # A browser always sends Origin with a POST from a page; "null" is that of a page without a site.
    is_other_origin = origin is not None and origin != f"http://{host}"
    is_other_site = site in {"cross-site", "same-site"}
    if is_other_origin or is_other_site:
        return "Origin: the request comes from a web page of another site. Send it from a program."
    return None


def _ip(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None
