"""What the tests of engines share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from invsvc_async.testing import serving
from tests.support.database import database

if TYPE_CHECKING:
    from collections.abc import Generator

    from invsvc_async.simulator import Simulator


@pytest.fixture(scope="module")
def patch():
    """Yield changes of the environment that last as long as the engine of a file runs."""
    with pytest.MonkeyPatch.context() as context:
        yield context


@pytest.fixture
def service_in_environment(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Generator[Simulator]:
    """Yield a service that ``Client.from_env`` finds, with a journal of the test that workers share."""
    with serving() as running:
        monkeypatch.setenv("INVSVC_BASE_URL", running.base_url)
        monkeypatch.setenv("INVSVC_API_KEY", running.api_key)
        engine = request.module.__name__.rpartition(".test_")[2]
        namespace = f"{engine}-{request.node.name[:50]}"
        place = database().at(namespace=namespace, silence=1)
        monkeypatch.setenv("INVSVC_JOURNAL", place)
        yield running
