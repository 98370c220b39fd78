"""Forces one of the two ways to send requests, so that a test runs with each."""

from __future__ import annotations

import aiohttp
import pytest

from invsvc_async.transport import sender_choice


@pytest.fixture(params=["lean", "session"], autouse=True)
def sender(request, monkeypatch):
    """Have transports send through aiohttp's connections, whatever its version, or with its session."""
    monkeypatch.setattr(sender_choice, "IS_ON", request.param == "lean")
    monkeypatch.setattr(sender_choice, "TESTED", {aiohttp.__version__})
    return request.param
