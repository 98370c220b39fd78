"""The service and the client of the fault tests, on the loop that the environment asks for."""

from tests.faults.conftest import client, pytest_asyncio_loop_factories, service  # noqa: F401 - pytest finds it by name
