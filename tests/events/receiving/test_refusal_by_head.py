"""Deliveries that their headers rule out: by when they are answered, and what a WSGI server may say of them."""

from __future__ import annotations

import asyncio
import io
from typing import Any

import pytest

from invsvc_async import events
from tests.events.bodies import HEADER, SECRET, SHARED, encoded, v2

pytestmark = [pytest.mark.one_python, pytest.mark.loop_time]

RESOURCE = encoded(v2("invoice.created"))


class Vault:
    """A source of shared headers, which answers once, and then as late as it is told."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.asked = seconds, 0

    async def __call__(self) -> events.SharedHeader:
        self.asked += 1
        if self.asked > 1:
            await asyncio.sleep(self.seconds)
        return HEADER


@pytest.mark.parametrize(
    ("until", "takes"),
    [(None, 2.0), (0.5, 0.5), (5.0, 5.0)],
    ids=["the deadline by default", "sooner", "later"],
)
async def test_refusal_that_waits_for_newer_secrets(
    until: float | None, takes: float
) -> None:
    """It waits until the time that it was given, and without one for as long as the deadline of the receiver."""
    receiver = events.Receiver(
        secrets=(), shared_header=Vault(3600.0), deadline=2.0, refresh_after=1.0
    )
    async with receiver:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        receipt = await receiver.refusal(
            None if until is None else begun + until, {SHARED[0].lower(): "other"}
        )
        waited = loop.time() - begun
    assert receipt is not None
    assert receipt.status == 503
    assert waited == pytest.approx(takes, abs=0.2)


def posted(receiver: events.Receiver, environ: dict[str, Any]) -> str:
    """Give a delivery to the WSGI application, with what its server says beside the body; return the status."""
    said: list[str] = []
    name, value = SHARED
    given: dict[str, Any] = {f"HTTP_{name.upper().replace('-', '_')}": value}
    given |= {"REQUEST_METHOD": "POST", "wsgi.input": io.BytesIO(RESOURCE), **environ}
    receiver.wsgi_app(given, lambda status, _headers: said.append(status))
    return said[0]


@pytest.mark.parametrize(
    ("environ", "status"),
    [
        ({"CONTENT_TYPE": "application/json", "CONTENT_LENGTH": str(len(RESOURCE))}, "200 OK"),
        (  # as a gateway does that passes on all headers: the ones without a value say nothing
            {
                "CONTENT_TYPE": "", "HTTP_CONTENT_TYPE": "application/json",
                "CONTENT_LENGTH": str(len(RESOURCE)),
            },
            "200 OK",
        ),
        ({"CONTENT_TYPE": "", "CONTENT_LENGTH": str(len(RESOURCE))}, "415 Unsupported Media Type"),
        ({"CONTENT_TYPE": "text/plain", "CONTENT_LENGTH": "3"}, "415 Unsupported Media Type"),
    ],
)  # fmt: skip
def test_headers_of_a_wsgi_server(environ: dict[str, Any], status: str) -> None:
    """A variable without a value is no header, beside one of the same name that has a value."""
    receiver = events.Receiver(secrets=SECRET, shared_header=HEADER)

    @receiver.on("*")
    async def handle(_: events.Event) -> None: ...

    with receiver.sync:
        assert posted(receiver, environ) == status
