"""The loop that the environment asks for."""

from __future__ import annotations

from tests.faults.conftest import pytest_asyncio_loop_factories  # noqa: F401 - pytest finds it by name
