"""The service and the client of the fault tests."""

from tests.faults.conftest import client, service  # noqa: F401 - pytest finds it by name
