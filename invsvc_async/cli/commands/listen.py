"""``invsvc listen``: receive events on this machine; print, store and forward them."""

from __future__ import annotations

import asyncio
import sys
from base64 import b64encode
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import attrs

from invsvc_async import events
from invsvc_async.api.json_values import is_object
from invsvc_async.cli.files import (
    check_outputs,
    content_of,
    existing_file,
    text_of_secret,
)
from invsvc_async.cli.options import InsecureHttp, Port, check_url, misuse, option
from invsvc_async.cli.output import Exit, as_json, fail, note, tell
from invsvc_async.cli.secrets_file import end_line
from invsvc_async.cli.signals import stopping
from invsvc_async.codec import envelope
from invsvc_async.errors import EventError, InvsvcError, UnreadableResponseError
from invsvc_async.events.event import key_of
from invsvc_async.events.verify import keys_of, signature_of
from invsvc_async.storage.address import without_login
from invsvc_async.storage.private_file import open_private

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable

    from invsvc_async.codec.exact_json import WireObject
    from invsvc_async.events.receiving.admission import Arrival

# s; shorter than the receiver's deadline, which is shorter than the sender's
FORWARD_TIMEOUT = 6.0

_SECRET = (
    "A webhook's secret; others see it in the list of processes: use --secret-file."
)
_SECRETS = "A file with webhooks' secrets, one in a line (- is stdin); or set INVSVC_WEBHOOK_SECRET."
_HEADER = (
    "The secret header of resource events; others see it: use --shared-header-file."
)
_HEADERS = "A file with the shared header, NAME=VALUE; or set INVSVC_SHARED_HEADER."
_STORE = "Append each event to this file, one per line."
_REPLAY = "Process the events of a --store file instead; - is standard input."
_NO_BODY = "not a stored event: `body` is missing or not text"
_FORWARD = "Forward each event to this URL; if that fails, the answer is 500."


async def listen(
    *,
    port: Port = 8765,
    host: Annotated[str, option("Address to listen on.", "ADDRESS")] = "127.0.0.1",
    secret: Annotated[
        list[str] | None, option(_SECRET, "SECRET", envvar="INVSVC_WEBHOOK_SECRET")
    ] = None,
    shared_header: Annotated[
        str | None, option(_HEADER, "NAME=VALUE", envvar="INVSVC_SHARED_HEADER")
    ] = None,
    accept_unsigned: Annotated[
        bool, option("Accept events that nothing authenticates.")
    ] = False,
    secret_file: Annotated[
        Path | None, option(_SECRETS, "FILE", callback=existing_file)
    ] = None,
    shared_header_file: Annotated[
        Path | None, option(_HEADERS, "FILE", callback=existing_file)
    ] = None,
    store: Annotated[Path | None, option(_STORE, "FILE", dir_okay=False)] = None,
    forward: Annotated[str | None, option(_FORWARD, "URL")] = None,
    allow_insecure_http: InsecureHttp = False,
    replay: Annotated[
        Path | None, option(_REPLAY, "FILE", callback=existing_file)
    ] = None,
    print_json: Annotated[
        bool, option("Print each event as one JSON object, as --json does.")
    ] = False,
) -> int:
    """
    Receive events: `invsvc listen --forward http://127.0.0.1:8000/events --store events.jsonl`.

    Forwarded events are signed again with the first secret and have the shared header, so that the
    application verifies them as in production.  `--replay events.jsonl` forwards stored events again, and
    those that --print-json has printed.

    Stop it with Ctrl-C.  Exits with 1 if a replayed event was not accepted.
    """
    secrets = tuple(secret or ())
    if secret_file is not None:
        secrets = (*secrets, *text_of_secret(secret_file).split())
    if shared_header_file is not None:
        shared_header = text_of_secret(shared_header_file).strip()
    if replay is None and not accept_unsigned:
        _check_authentic(secrets, shared_header)
    if forward is not None:
        check_url(forward, "--forward", insecure=allow_insecure_http)
    # `invsvc events` has a --store that is a database
    check_outputs({"--store": store})
    shared = None if shared_header is None else _shared_header(shared_header)
    if print_json:
        as_json.set(True)
    listener = Listener(
        secrets=secrets,
        shared_header=shared,
        store=store,
        forward=forward,
    )
    if replay is not None:
        failed = await replayed(listener, replay, content_of(replay))
        if failed:
            return Exit.FAILED
        return Exit.DONE
    async with listening(
        listener,
        host=host,
        port=port,
        accept_unsigned=accept_unsigned,
    ) as url:
        with stopping() as stopped:
            sys.stderr.write(f"Listening on {url}; press Ctrl-C to stop.\n")
            await stopped.wait()
    return Exit.DONE


def _check_authentic(secrets: tuple[str, ...], shared_header: str | None) -> None:
    if not secrets and not shared_header:
        raise misuse(
            "nothing authenticates events. Use --secret-file, --shared-header-file or --accept-unsigned"
        )


def _shared_header(text: str) -> events.SharedHeader:
    name, equals, value = text.partition("=")
    if not equals:
        raise misuse("must be NAME=VALUE", "--shared-header")
    return events.SharedHeader(name, value)


class ForwardError(InvsvcError):
    """The application did not accept a forwarded event."""


@attrs.frozen(kw_only=True)
class Listener:
    """Stores, prints and forwards each event, in this order."""

    secrets: tuple[str, ...] = attrs.field(default=(), repr=False)
    shared_header: events.SharedHeader | None = None
    store: Path | None = None
    forward: str | None = None
    _stored: set[tuple[str, bool]] = attrs.field(
        factory=set[tuple[str, bool]],
        init=False,
        repr=False,
    )

    async def handle(self, event: events.Event) -> None:
        """Store an event, unless it is a retry of a stored event; then print and forward the event."""
        # with its family: an id in another one is that of another event
        key = key_of(event)
        if self.store is not None and (key, event.is_test) not in self._stored:
            await asyncio.to_thread(
                _append, self.store, envelope.dumps(_record(event)) + b"\n"
            )
            if key is not None:
                self._stored.add((key, event.is_test))
        await self.emit(event)

    async def keep_unreadable(self, body: bytes, error: EventError | None) -> None:
        """Store and print an authentic body that is no event. The service does not send such a body again."""
        record = _unreadable_record(body, error)
        if self.store is not None:
            await asyncio.to_thread(_append, self.store, envelope.dumps(record) + b"\n")
        tell(record, f"{_now()}\tunreadable\t{len(body)} bytes\t{error}")
        sys.stdout.flush()

    async def emit(self, event: events.Event) -> None:
        """Print an event and forward it."""
        family = event.version if isinstance(event, events.ResourceEvent) else "signed"
        cells = [_now(), event.type, family, event.id or ""]
        if event.is_test:
            cells.append("test")
        tell(_record(event), "\t".join(cells).rstrip())
        sys.stdout.flush()
        if self.forward is not None:
            await _post(self.forward, event.raw, self.headers_for(event))

    def headers_for(self, event: events.Event) -> dict[str, str]:
        """Return headers like the service's; signed events are signed again, with the first secret."""
        headers = {"Content-Type": "application/json"}
        if event.is_test:
            return {**headers, "X-Service-Test": "true"}
        if isinstance(event, events.ResourceEvent):
            shared = self.shared_header
            if shared is None:
                return headers
            return {**headers, shared.name: shared.value}
        headers["X-Service-Event"] = event.type
        if self.secrets:
            headers["X-Service-Signature"] = signature_of(
                event.raw, keys_of(self.secrets)[0].raw
            )
        return headers


@asynccontextmanager
async def listening(
    listener: Listener,
    *,
    host: str,
    port: int,
    accept_unsigned: bool,
) -> AsyncGenerator[str]:
    """Receive deliveries on *host* and *port* (0: any free port) at any path; yields the URL."""
    from aiohttp import web

    from invsvc_async.simulator.loopback_page import serving

    receiver = events.Receiver(
        secrets=listener.secrets,
        shared_header=listener.shared_header,
        accept_unsigned=accept_unsigned,
    )
    receiver.on("*")(listener.handle)
    receiver.on_test(listener.handle)

    async def keep_if_unreadable(
        arrival: Arrival, running: Awaitable[events.Receipt]
    ) -> events.Receipt:
        receipt = await running
        if receipt.outcome == "dead letter":
            await listener.keep_unreadable(arrival.body, receipt.error)
        return receipt

    receiver.on_delivery = keep_if_unreadable

    async def respond(request: web.Request) -> web.Response:
        response = await receiver.aiohttp_handler(request)
        if response.status >= 300:
            target = f"{request.method} {request.rel_url.raw_path}"  # raw: escapes control characters
            note(f"answered {response.status} ({response.text}) to {target}")
        return response

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", respond)
    async with receiver, serving(app, host=host, port=port) as root:
        yield f"{root}/"


async def replayed(
    listener: Listener,
    path: Path,
    content: bytes,
) -> int:
    """Process every event that *path* has stored, in lines, and return the number of failures."""
    failed = 0
    for number, line in enumerate(content.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            await listener.emit(_event_in(line))
        except InvsvcError as error:
            failed += 1
            fail(f"{path}, line {number}: {error}", error)
    return failed


def _event_in(line: bytes) -> events.Event:
    """
    Return the event that *line* has stored.

    Raises:
        ForwardError: The line is no event.
        EventError: The body of the event cannot be read.
    """
    try:
        record = envelope.loads(line)
    except UnreadableResponseError:
        raise ForwardError("not a stored event: it is not JSON") from None
    if not is_object(record):
        raise ForwardError(_NO_BODY)
    if "unreadable" in record:
        raise ForwardError("an authentic delivery that could not be read. Look at it")
    if not isinstance(record.get("body"), str):
        raise ForwardError(_NO_BODY)
    headers = {"X-Service-Test": "true"} if record.get("test") is True else {}
    return events.parse(record["body"].encode(), headers=headers)


def _record(event: events.Event) -> WireObject:
    """Return the stored form of an event.  Its body is text, and so is preserved byte for byte."""
    body = event.raw.decode()
    return {
        "received_at": _now(),
        "type": event.type,
        "id": event.id,
        "test": event.is_test,
        "body": body,
    }


def _unreadable_record(body: bytes, error: EventError | None) -> WireObject:
    """Return the stored form of an unreadable body: text, or base64 if the body is not UTF-8."""
    record: WireObject = {"received_at": _now(), "type": "", "id": None, "test": False}
    record["unreadable"] = str(error)
    try:
        return {**record, "body": body.decode()}
    except UnicodeDecodeError:
        return {**record, "body_base64": b64encode(body).decode()}


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _append(path: Path, line: bytes) -> None:
    with open(path, "ab+", opener=open_private) as file:
        end_line(file.fileno())
        file.write(line)


async def _post(
    url: str,
    body: bytes,
    headers: dict[str, str],
) -> None:
    """Forward an event like the service: without proxies and redirects."""
    from aiohttp import ClientError, ClientSession, ClientTimeout

    place = without_login(url) or "--forward"  # the URL may contain a password
    try:
        async with (
            asyncio.timeout(FORWARD_TIMEOUT),  # aiohttp rounds its own timeout up
            ClientSession(timeout=ClientTimeout(total=None)) as session,
            session.post(
                url,
                data=body,
                headers=headers,
                allow_redirects=False,
            ) as answer,
        ):
            status = answer.status
    except TimeoutError:
        message = f"{place}: no answer within {FORWARD_TIMEOUT:g} s"
        raise ForwardError(f"{message}. Check its log, then use --replay") from None
    except (ClientError, OSError, ValueError) as error:
        # which quotes the URL
        why = "" if isinstance(error, ValueError) else f": {error}"
        raise ForwardError(
            f"{place}: not reachable{why}. Start it, then use --replay"
        ) from None
    if status >= 300:
        raise ForwardError(
            f"{place}: answered {status}. Check its log, then use --replay"
        )
