"""
Event deliveries of the service: bodies, headers, signatures, retries, duplicates and reordering.

There are 21 types in three families, and three payload versions.  Resource events are not signed, and signed
events are not retried.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import re
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING

import aiohttp

from invsvc_async.simulator import samples
from invsvc_async.simulator.json_records import Json, Record, is_array, is_object, json_text

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping

    from invsvc_async.simulator.calls import Answer
    from invsvc_async.simulator.faults import Faults
    from invsvc_async.simulator.state import Book, State, Version

ATTEMPTS = 16  # of a resource event, in total
LONGEST_BACKOFF = 16  # times the first one
OVERTAKEN = 0.05  # seconds by which a reordered delivery is delayed
RETRIED = frozenset({408, 429})  # and every 5xx
SIGNED = frozenset({"sat.invoice.synced", "invoice_batch.completed"})
SIX_HOURS = 6 * 3_600_000  # ms; v1.1 shifts an invoice's date back by six hours


@dataclass(frozen=True, slots=True)
class Attempt:
    """One POST of a delivery; `at` is in seconds of the monotonic clock."""

    at: float
    status: int | None  # `None`: no answer
    error: str | None = None


@dataclass(slots=True)
class Delivery:
    """The delivery of one event to one receiver, with its attempts."""

    event: str
    url: str
    body: bytes
    headers: dict[str, str]
    copies: int = 1
    most: int = ATTEMPTS  # attempts of each copy; the two signed events have one
    attempts: list[Attempt] = field(default_factory=list[Attempt])
    given_up: bool = False  # for a newer one, because too many were under way

    @property
    def statuses(self) -> list[int | None]:
        """The status of each attempt, or `None` if there was no answer."""
        return [attempt.status for attempt in self.attempts]

    @property
    def delivered(self) -> bool:
        """Whether any attempt was answered 2xx."""
        return any(status is not None and 200 <= status < 300 for status in self.statuses)


def signature(body: bytes, secret: str) -> str:
    """Return the value of ``X-Service-Signature`` for the raw *body*."""
    return f"sha256={hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()}"


class Post:
    """
    Sends deliveries, with one session for all of them.

    *most* bounds memory: only as many of the latest deliveries are kept in `sent`, and if as many automatic
    ones are under way, the oldest is given up for a new one.
    """

    def __init__(
        self,
        state: State,
        chance: random.Random,
        plan: Callable[[], Faults],
        *,
        backoff: float,
        attempt_timeout: float,
        most: int | None = None,
    ) -> None:
        self.sent: list[Delivery] = []
        self._most = most
        self._state, self._chance, self._plan = state, chance, plan
        self._backoff = backoff
        self._timeout = aiohttp.ClientTimeout(total=attempt_timeout)
        self._session: aiohttp.ClientSession | None = None
        self._under_way: dict[asyncio.Task[Delivery], Delivery] = {}  # in the order of their starts
        self._is_stopped = False

    def prepare(
        self,
        event: str,
        body: Mapping[str, Json],
        url: str,
        *,
        secret: str | None = None,
        headers: Mapping[str, str] | None = None,
        signed: bool = False,
    ) -> Delivery:
        """Build a delivery: text, headers and, for the two signed events or if asked, the signature."""
        text = json_text(body).encode()
        sent = {"Content-Type": "application/json"}
        if event in SIGNED:
            sent["X-Service-Event"] = event
        if secret is not None and (signed or event in SIGNED):
            sent["X-Service-Signature"] = signature(text, secret)
        if event not in SIGNED and not body.get("test"):
            sent |= headers or {}
        if body.get("test"):
            sent["X-Service-Test"] = "true"
        return Delivery(event, url, text, sent)

    def to_webhook(
        self, event: str, book: Book, hook: Record, resource: Mapping[str, Json] | None
    ) -> Delivery:
        """Build the delivery of *event* to one webhook, with its version, secret and headers."""
        version: Version = book.delivery_versions.get(hook["id"], "v1")
        body = body_of(self._state, event, book, version=version, webhook=hook["id"], resource=resource)
        headers = book.delivery_headers.get(hook["id"])
        return self.prepare(event, body, hook["url"], secret=book.secrets.get(hook["id"]), headers=headers)

    def emit(
        self, event: str, book: Book, resource: Mapping[str, Json] | None = None
    ) -> list[asyncio.Task[Delivery]]:
        """Start the delivery of *event* to every active webhook of *book* that subscribes to it."""
        hooks = [
            hook
            for hook in book.webhooks.items.values()
            if hook["status"] == "active" and event in hook["events"]
        ]
        return [self._start(self.to_webhook(event, book, hook, resource)) for hook in hooks]

    def on_effect(self, operation: str, book: Book, answer: Answer) -> None:
        """Emit the events that a write of the service causes."""
        if operation != "invoices.income_batch" or isinstance(answer.body, bytes):
            return
        batch = answer.body["data"]
        for folio in batch["accepted"]:
            self.emit("invoice.created", book, book.invoices.items[folio])
        count = batch["total"]
        counts = {"queued": 0, "stamped": count, "failed": 0, "duplicate": 0, "needs_review": 0}
        told = {"id": batch["id"], "total": count, "accepted": count, "rejected": 0, "counts": counts}
        self.emit("invoice_batch.completed", book, {**told, "result": "completed"})

    async def settled(self) -> None:
        """Wait until all deliveries have ended."""
        while self._under_way:
            await asyncio.wait(self._under_way)

    async def stop(self) -> None:
        """Cancel running deliveries and close the session. What is emitted from then on is not sent."""
        self._is_stopped = True
        while under_way := list(self._under_way):
            for task in under_way:
                task.cancel()
            await asyncio.wait(under_way)  # unlike gather(), it yields even if all have ended
        if self._session is not None:
            await self._session.close()

    async def send(self, delivery: Delivery) -> Delivery:
        """Send every copy of *delivery*, each with its retries."""
        self.sent.append(delivery)
        if self._most is not None:
            del self.sent[: -self._most]
        for _ in range(delivery.copies):
            await self._send_one(delivery)
        return delivery

    def _start(self, delivery: Delivery) -> asyncio.Task[Delivery]:
        plan = self._plan()
        if self._chance.random() < plan.duplicate_deliveries:
            delivery.copies = 2
        pause = OVERTAKEN if self._chance.random() < plan.reorder_deliveries else 0.0

        async def later() -> Delivery:
            try:
                await asyncio.sleep(pause)
                if not self._is_stopped:
                    await self.send(delivery)
            except asyncio.CancelledError:
                if not delivery.given_up:
                    raise
            return delivery

        if self._most is not None and len(self._under_way) >= self._most:
            oldest = next(iter(self._under_way))
            self._under_way.pop(oldest).given_up = True
            oldest.cancel()
        task = asyncio.create_task(later())
        self._under_way[task] = delivery
        task.add_done_callback(lambda task: self._under_way.pop(task, None))
        return task

    async def _send_one(self, delivery: Delivery) -> None:
        for number in range(1 if delivery.event in SIGNED else delivery.most):
            if number:
                await asyncio.sleep(self._backoff * min(2 ** (number - 1), LONGEST_BACKOFF))
            attempt = await self._attempt(delivery)
            delivery.attempts.append(attempt)
            if attempt.status is not None and attempt.status not in RETRIED and attempt.status < 500:
                return

    async def _attempt(self, delivery: Delivery) -> Attempt:
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=self._timeout)
        at = self._state.clock.steady()
        try:
            async with self._session.post(
                delivery.url, data=delivery.body, headers=delivery.headers, allow_redirects=False
            ) as response:
                return Attempt(at, response.status)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            return Attempt(at, None, str(error) or type(error).__name__)


# --- bodies


def body_of(
    state: State, event: str, book: Book, *, version: Version, webhook: str,
    resource: Mapping[str, Json] | None = None, test: bool = False, connected_team: str | None = None,
) -> dict[str, Json]:  # fmt: skip
    """Make the body of one delivery about *resource*.  For a signed event, that is fields of ``data``."""
    if event in SIGNED:
        body = _signed(state, event, book, resource or {})
    else:
        shown = resource or made_up(state, event, book)
        if version == "v2":
            body = {
                "id": state.new_id("del_"),
                "type": event,
                "created": state.clock.now_ms(),
                "livemode": book.livemode,
                "data": {"object": shown},
            }
        else:
            body = _v1(state, event, book, shown, webhook, connected_team, version=version, test=test)
    return {**body, "test": True} if test else body


def changed(body: Mapping[str, Json], path: str, value: Json) -> dict[str, Json]:
    """
    Return *body* with another value at *path*, such as ``data.object.total``; objects on the way are added.

    Raises:
        ValueError: The path leads through something other than an object.
    """
    name, dot, rest = path.partition(".")
    if not dot:
        return {**body, name: value}
    inner = body.get(name, {})
    if not name or not is_object(inner):
        raise ValueError(f"{path!r}: there is no object at {name!r}")
    return {**body, name: changed(inner, rest, value)}


def made_up(state: State, event: str, book: Book) -> Record:
    """Make a resource of the event's kind, in the form in which the API returns it."""
    kind = event.partition(".")[0]
    if kind == "invoice":
        status = "canceled" if event == "invoice.canceled" else "valid"
        return samples.new_invoice(state, book, {"status": status, "metadata": {"order_id": 17}})
    if kind == "customer":
        return samples.new_client(state, book)
    return Record({
        "id": state.new_id(f"{kind}_"), "status": event.rpartition(".")[2],
        "currency": "MXN", "total": Decimal("1160.00"), "created_at": state.clock.now_ms(),
        "metadata": {"order_id": 17}, "livemode": book.livemode, "team": book.team,
    })  # fmt: skip


def _v1(
    state: State,
    event: str,
    book: Book,
    resource: Mapping[str, Json],
    webhook: str,
    connected_team: str | None,
    *,
    version: Version,
    test: bool,
) -> dict[str, Json]:
    internal = in_camel_case(resource)
    body: dict[str, Json] = {"event": event}
    if not test:
        body |= {"team": book.team, "webhook": webhook, "livemode": book.livemode}
    if connected_team is not None:
        body["connectedTeam"] = connected_team
        metadata = state.teams.items[connected_team]["metadata"]
        if metadata:
            body["connectedTeamMetadata"] = _as_texts(metadata)
    if version == "v1.1":
        if event == "invoice.created":
            internal |= {"customer": internal.get("client"), "date": internal["date"] - SIX_HOURS}
        return {"payload": {**body, "data": internal}}
    return {**body, "data": internal}


def in_camel_case(resource: Mapping[str, Json]) -> dict[str, Json]:
    """Turn a resource into the internal form of v1: camelCase names, metadata values as strings."""
    return {
        re.sub(r"_([a-z])", lambda found: found[1].upper(), name): _as_texts(value)
        if name == "metadata"
        else _inner(value)
        for name, value in resource.items()
    }


def _inner(value: Json) -> Json:
    if is_object(value):
        return in_camel_case(value)
    return [_inner(item) for item in value] if is_array(value) else value


def _as_texts(metadata: Mapping[str, Json]) -> dict[str, str]:
    return {name: str(value) for name, value in metadata.items()}


def _signed(state: State, event: str, book: Book, fields: Mapping[str, Json]) -> dict[str, Json]:
    inner = _synced(state, book) if event == "sat.invoice.synced" else _batch(state, book)
    return {
        "id": f"evt_{state.random.getrandbits(64):016x}",
        "event": event,
        "created_at": state.clock.now_ms() // 1000,
        "data": inner | dict(fields),
    }


def _synced(state: State, book: Book) -> dict[str, Json]:
    return {
        "uuid": state.new_folio(),
        "direction": "received",
        "resource_status": "ready",
        "issuer": {"rfc": samples.new_tax_id(state), "name": "ACEROS DEL NORTE"},
        "receiver": {"rfc": samples.new_tax_id(state), "name": "EMPRESA DE EJEMPLO"},
        "total": Decimal("1234567890.123456789"),
        "currency": "MXN",
        "issue_date": "2026-05-04T10:20:30",
        "invoice_type": "I",
        "status": "Vigente",
        "team": book.team,
        "credit_charged": True,
    }


def _batch(state: State, book: Book) -> dict[str, Json]:
    counts = {"queued": 0, "stamped": 2, "failed": 0, "duplicate": 0, "needs_review": 0}
    told = {"total": 3, "accepted": 2, "rejected": 1, "counts": counts, "result": "partially_completed"}
    return {"id": state.new_id("batch_"), "livemode": book.livemode, **told}
