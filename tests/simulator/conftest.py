"""A plain HTTP client for the simulator; the package's own client is not used here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import aiohttp
import pytest

from invsvc_async.simulator.json_records import read_json

if TYPE_CHECKING:
    from invsvc_async.simulator import Simulator

HOOK = {"url": "https://me.example/in", "events": ["invoice.created"]}


class Answered(NamedTuple):
    """A complete answer: status, parsed body (or bytes), headers."""

    status: int
    body: Any
    headers: dict[str, str]


class Caller:
    """Sends one request as the holder of *token*."""

    def __init__(self, session: aiohttp.ClientSession, service: Simulator) -> None:
        self.session, self.service, self.token = session, service, service.api_key

    async def __call__(
        self, method: str, path: str, *, json=None, body=None, token="", params=None
    ) -> Answered:
        """Call *path*; the default token is the live API key, `None` sends none."""
        token = self.token if token == "" else token
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        async with self.session.request(
            method,
            self.service.base_url + path,
            json=json,
            data=body,
            headers=headers,
            params=params,
        ) as response:
            raw = await response.read()
            is_json = response.content_type == "application/json"
            return Answered(
                response.status,
                read_json(raw) if is_json else raw,
                dict(response.headers),
            )


def plain_session(**options: Any) -> aiohttp.ClientSession:
    """Return a session that sends each request once: aiohttp retries a lost GET, PUT or DELETE by itself."""
    session = aiohttp.ClientSession(**options)
    session._retry_connection = False
    return session


@pytest.fixture
async def call(service):
    """Return the plain client."""
    async with plain_session() as session:
        yield Caller(session, service)
