"""
The pytest fixtures ``invsvc_service``, ``invsvc_client`` and ``invsvc_database``.

They work with pytest-asyncio (strict or auto, in the loop of the test's scope), with anyio on asyncio, and
with aiohttp's plugin.  A synchronous test gets a service that runs in a thread.  Nothing is imported before
a fixture is used.
"""

from __future__ import annotations

import asyncio
import inspect
import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from uuid import uuid4

import pytest

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator

    from invsvc_async.client import Client
    from invsvc_async.simulator import Simulator

_AIOHTTP = "aiohttp.pytest_plugin"


@pytest.fixture
def invsvc_service_options() -> dict[str, Any]:  # Any: arguments of Simulator
    """Override to pass arguments to the ``Simulator`` of ``invsvc_service``."""
    return {}


@pytest.fixture
def invsvc_client_options() -> dict[str, Any]:  # Any: arguments of Client
    """Override to pass arguments to the ``Client`` of ``invsvc_client``; they override the short windows."""
    return {}


@pytest.fixture
def invsvc_service(request: pytest.FixtureRequest) -> Simulator:
    """
    Run the embedded service for one test: ``invsvc_service.script("webhooks.create", "apply, then reset")``.

    Spec: all of it.
    """
    service: Simulator = request.getfixturevalue(_name(request, "service"))
    return service


@pytest.fixture
def invsvc_client(request: pytest.FixtureRequest) -> Client:
    """Return a client of ``invsvc_service`` with the short settle windows of ``testing.quick_client``."""
    if not _is_async(request):
        pytest.fail("invsvc_client: needs an async test", pytrace=False)
    client: Client = request.getfixturevalue(_name(request, "client"))
    return client


@pytest.fixture
def invsvc_database() -> Generator[str]:
    """
    Return the address of an empty PostgreSQL database, which is dropped after the test.

    ``TEST_DATABASE_URL`` is that of the server, with a role that may create databases; without it, the test
    is skipped.
    """
    server = os.environ.get("TEST_DATABASE_URL")
    name = f"invsvc_test_{uuid4().hex[:12]}"
    if not server:
        pytest.skip("invsvc_database: TEST_DATABASE_URL is not set")
    parts = urlsplit(server)
    _execute(server, f"CREATE DATABASE {name}")
    try:
        query = f"?{parts.query}" if parts.query else ""
        yield f"{parts.scheme}://{parts.netloc}/{name}{query}"
    finally:
        _execute(server, f"DROP DATABASE {name} WITH (FORCE)")


def _execute(address: str, statement: str) -> None:
    import asyncpg  # pyright: ignore[reportMissingTypeStubs]  # it has none

    async def execute() -> None:
        connection = await asyncpg.connect(address)
        try:
            await connection.execute(statement)
        finally:
            await connection.close()

    with ThreadPoolExecutor(1) as thread:  # the loop of the tests stays as it is
        thread.submit(asyncio.run, execute()).result()


# Any: a service, a client
def new_fixtures() -> dict[str, Callable[..., AsyncGenerator[Any]]]:
    """Return both as new functions: pytest-asyncio stores a loop scope on the function that it decorates."""

    async def service(
        invsvc_service_options: dict[str, Any],
    ) -> AsyncGenerator[Simulator]:
        from invsvc_async.simulator import Simulator

        async with Simulator(**invsvc_service_options) as running:
            yield running

    async def client(
        invsvc_service: Simulator, invsvc_client_options: dict[str, Any]
    ) -> AsyncGenerator[Client]:
        from invsvc_async.testing import quick_client

        async with quick_client(invsvc_service, **invsvc_client_options) as connected:
            yield connected

    return {"service": service, "client": client}


_fixtures = new_fixtures()
_invsvc_service = pytest.fixture(name="_invsvc_service")(_fixtures["service"])
_invsvc_client = pytest.fixture(name="_invsvc_client")(_fixtures["client"])


@pytest.fixture
def _invsvc_service_on_a_thread(
    invsvc_service_options: dict[str, Any],
) -> Generator[Simulator]:
    from invsvc_async.testing import serving

    with serving(**invsvc_service_options) as service:
        yield service


def pytest_configure(config: pytest.Config) -> None:
    """Add the fixtures for pytest-asyncio, if it is installed."""
    if config.pluginmanager.hasplugin("asyncio"):
        config.pluginmanager.import_plugin("invsvc_async.testing.asyncio_fixtures")


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize tests that need the loop of aiohttp's plugin as that plugin does."""
    if _wants_its_loop(metafunc.definition, metafunc.fixturenames, metafunc.function):
        metafunc.fixturenames.append("loop_factory")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Request the loop of aiohttp's plugin, which rejects async fixtures without it."""
    names: list[str] = getattr(item, "fixturenames", [])
    if _wants_its_loop(item, names, getattr(item, "function", None)):
        names.insert(0, "loop")


def _wants_its_loop(
    item: pytest.Item | pytest.Collector,
    names: list[str],
    function: object,
) -> bool:
    if not item.config.pluginmanager.hasplugin(_AIOHTTP):
        return False
    if {"invsvc_service", "invsvc_client"}.isdisjoint(names) or "loop" in names:
        return False
    if not inspect.iscoroutinefunction(function):
        return False
    return not any(item.get_closest_marker(name) for name in ("asyncio", "anyio"))


def _name(request: pytest.FixtureRequest, what: str) -> str:
    if not _is_async(request):
        return f"_invsvc_{what}_on_a_thread"
    item: pytest.Item = request.node
    marker = item.get_closest_marker("asyncio")
    by_anyio = item.get_closest_marker("anyio")
    if by_anyio:
        backend = request.getfixturevalue("anyio_backend_name")
        if backend != "asyncio":
            pytest.fail(
                f"invsvc_{what} runs on asyncio, not {backend}. Override anyio_backend",
                pytrace=False,
            )
    if not (marker or by_anyio) and _runs_only_marked(item.config):
        # pytest's own words do not say why nothing runs it
        words = "nothing runs this async test. Mark the test with pytest.mark.asyncio or pytest.mark.anyio"
        pytest.fail(
            f"invsvc_{what}: {words}, or set asyncio_mode = auto", pytrace=False
        )
    if marker is None or by_anyio:
        return f"_invsvc_{what}"
    return f"_invsvc_{what}_in_{_scope_of(marker, request.config)}"


def _scope_of(marker: pytest.Mark, config: pytest.Config) -> object:
    """Return the scope of the event loop of a test with *marker*."""
    default = config.getini("asyncio_default_test_loop_scope")
    return marker.kwargs.get("loop_scope") or marker.kwargs.get("scope") or default


def _runs_only_marked(config: pytest.Config) -> bool:
    """Return whether async tests run only with a marker."""
    has = config.pluginmanager.hasplugin
    if has(_AIOHTTP) or not has("asyncio"):
        return False
    return bool(config.getini("asyncio_mode") == "strict")


def _is_async(request: pytest.FixtureRequest) -> bool:
    function = request.function
    inner = getattr(getattr(function, "hypothesis", None), "inner_test", function)
    return inspect.iscoroutinefunction(inner)
