"""The service and the client of the batches' tests."""

from __future__ import annotations

from tests.batch.conftest import client, service  # noqa: F401 - pytest finds it by name
