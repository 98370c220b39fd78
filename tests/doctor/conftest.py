"""The event loop of the tests of the checkup: that of the tests of the simulator."""

from __future__ import annotations

from tests.simulator.conftest import pytest_asyncio_loop_factories  # noqa: F401 - pytest finds it by name
