"""The embedded service, named by the environment as the examples expect it."""

from __future__ import annotations

import pytest

from invsvc_async.testing import serving


@pytest.fixture
def service(tmp_path, monkeypatch):
    """Run the service on a thread, so that examples may run as processes too, in an empty directory."""
    monkeypatch.chdir(tmp_path)
    with serving(seed=7) as running:
        monkeypatch.setenv("INVSVC_BASE_URL", running.base_url)
        monkeypatch.setenv("INVSVC_API_KEY", running.api_key)
        monkeypatch.setenv("EVENTS_KEY", "a secret of the dashboard")
        yield running
