"""
Stand behind ``invsvc listen``: what is done with each event, live or replayed; never answer one by itself.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import attrs
from aiohttp import ClientError, ClientSession, ClientTimeout

from invsvc_async import events
from invsvc_async._errors import InvsvcError
from invsvc_async.api.json_values import is_object
from invsvc_async.cli.output import fail, note, private
from invsvc_async.codec import envelope
from invsvc_async.events.verify import keys_of, signature_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from aiohttp import web

__all__ = ["Desk", "ForwardError", "listening", "replayed"]

FORWARD_TIME = 6.0  # s: below the receiver's deadline, which is below the sender's


class ForwardError(InvsvcError):
    """The application that events are sent on to did not take one."""


@attrs.frozen(kw_only=True)
class Desk:
    """What is done with an event: it is stored, printed and sent on, in this order."""

    secrets: tuple[str, ...] = attrs.field(default=(), repr=False)
    shared_header: events.SharedHeader | None = None
    store: Path | None = None
    forward: str | None = None
    as_json: bool = False
    _stored: set[str] = attrs.field(factory=set[str], init=False, repr=False)

    async def take(self, event: events.Event) -> None:
        """
        Take a live event.

        Raises:
            ForwardError: It could not be sent on; it is stored all the same.

        """
        await self._keep(event)
        await self.pass_on(event)

    async def pass_on(self, event: events.Event) -> None:
        """Print an event and send it on."""
        self._print(event)
        if self.forward is not None:
            await _post(self.forward, event.raw, self.headers_for(event))

    def headers_for(self, event: events.Event) -> dict[str, str]:
        """Make the headers that the service would have sent: signed events anew, with the first secret."""
        headers = {"Content-Type": "application/json"}
        if event.is_test:
            return {**headers, "X-Service-Test": "true"}
        if isinstance(event, events.ResourceEvent):
            shared = self.shared_header
            return headers if shared is None else {**headers, shared.name: shared.value}
        headers["X-Service-Event"] = event.type
        if self.secrets:
            headers["X-Service-Signature"] = signature_of(event.raw, keys_of(self.secrets)[0])
        return headers

    async def _keep(self, event: events.Event) -> None:
        """Store an event; one that is only tried again is there already."""
        if self.store is None or event.dedupe_key in self._stored:
            return
        await asyncio.to_thread(_append, self.store, envelope.dumps(_record(event)) + b"\n")
        if event.dedupe_key is not None:
            self._stored.add(event.dedupe_key)

    def _print(self, event: events.Event) -> None:
        if self.as_json:
            line = envelope.dumps(_record(event)).decode()
        else:
            family = event.version if isinstance(event, events.ResourceEvent) else "signed"
            test = "test" if event.is_test else ""
            cells = (_now(), event.type, family, event.id or "", test)
            line = "\t".join(cells).rstrip()
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


@asynccontextmanager
async def listening(desk: Desk, *, host: str, port: int, accept_unsigned: bool) -> AsyncGenerator[str]:
    """
    Receive deliveries on *host* and *port* (0: a free one) at any path, and give the address.

    Raises:
        ConfigurationError: Nothing would authenticate an event, and *accept_unsigned* was not said.
        OSError: The address cannot be listened on.

    """
    from invsvc_async.events.receiving.web import serving

    receiver = events.Receiver(
        secrets=desk.secrets, shared_header=desk.shared_header, accept_unsigned=accept_unsigned
    )
    receiver.on("*")(desk.take)
    receiver.on_test(desk.take)

    def tell(request: web.Request, response: web.Response) -> None:
        if response.status >= 300:
            asked = f"{request.method} {request.rel_url.raw_path}"  # raw: it is for a terminal
            note(f"answered {response.status} ({response.text}) to {asked}")

    async with serving(receiver, host=host, port=port, tell=tell) as chosen:
        yield f"http://{f'[{host}]' if ':' in host else host}:{chosen}/"


async def replayed(desk: Desk, path: Path) -> int:
    """Pass on every event of a stored file, in its order, and count the failures."""
    failed = 0
    for number, line in await asyncio.to_thread(_lines, path):
        try:
            await desk.pass_on(_event_of(line))
        except InvsvcError as error:
            failed += 1
            fail(f"{path}, line {number}: {error}")
    return failed


def _lines(path: Path) -> list[tuple[int, bytes]]:
    with path.open("rb") as file:
        return [(number, line) for number, line in enumerate(file, 1) if line.strip()]


def _record(event: events.Event) -> dict[str, Any]:  # Any: JSON
    """Tell an event as it is stored; its body is a text, because it must come back byte for byte."""
    return {
        "received_at": _now(), "type": event.type, "id": event.id, "test": event.is_test,
        "body": event.raw.decode(),
    }  # fmt: skip


def _event_of(line: bytes) -> events.Event:
    record = envelope.loads(line)
    if not is_object(record) or not isinstance(record.get("body"), str):
        raise ForwardError("is no stored event: it has no text `body`")
    headers = {"X-Service-Test": "true"} if record.get("test") is True else {}
    return events.parse(record["body"].encode(), headers=headers)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _append(path: Path, line: bytes) -> None:
    with open(path, "ab", opener=private) as file:
        file.write(line)


async def _post(url: str, body: bytes, headers: dict[str, str]) -> None:
    """Send an event on as the service would: straight there, through no proxy, and after no redirect."""
    if not url.startswith(("http://", "https://")):
        raise ForwardError(f"{url} is no http(s) address")
    try:
        async with (
            asyncio.timeout(FORWARD_TIME),  # of the whole: aiohttp rounds its own up
            ClientSession(timeout=ClientTimeout(total=None)) as session,
            session.post(url, data=body, headers=headers, allow_redirects=False) as answer,
        ):
            status = answer.status
    except TimeoutError:
        told = f"{url} did not answer in {FORWARD_TIME:g} s"
        raise ForwardError(f"{told}. Look at its log, then --replay") from None
    except (ClientError, OSError, ValueError) as error:
        raise ForwardError(f"{url} was not reached: {error}. Start it, then --replay") from None
    if status >= 300:
        raise ForwardError(f"{url} answered {status}. Look at its log, then --replay")
