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
from typing import TYPE_CHECKING

import aiohttp

from invsvc_async.simulator import samples
from invsvc_async.simulator.json_records import (
    Json,
    Record,
    is_array,
    is_object,
    json_text,
)
from invsvc_async.simulator.plan_checks import check_seconds
from invsvc_async.simulator.state import Book, ServiceState, Version, seeded

if TYPE_CHECKING:
    from collections.abc import Mapping

    from invsvc_async.simulator.calls import Answer
    from invsvc_async.simulator.faults import Plan

ATTEMPTS = 16  # of a resource event, in total
LONGEST_BACKOFF = 16  # times the first one
OVERTAKEN = 0.05  # seconds by which a reordered delivery is delayed
RETRIED = frozenset({408, 429})  # and every 5xx
SIGNED = frozenset({"sat.invoice.synced", "invoice_batch.completed"})
SIX_HOURS = 6 * 3_600_000  # ms; v1.1 shifts an invoice's date back by six hours


@dataclass(frozen=True, slots=True)
class DeliveryAttempt:
    """One POST of a delivery; `at` is in seconds of the monotonic clock."""

    at: float
    status: int | None  # `None`: no answer
    error: str | None = None


@dataclass(slots=True)
class EventDelivery:
    """The delivery of an event to a receiver, with its attempts."""

    event: str
    url: str
    body: bytes
    headers: dict[str, str]
    copies: int = 1
    most: int = ATTEMPTS  # attempts of each copy; the two signed events have one
    attempts: list[DeliveryAttempt] = field(default_factory=list[DeliveryAttempt])
    given_up: bool = False  # for a newer one, because too many were under way

    @property
    def statuses(self) -> list[int | None]:
        """The status of each attempt, or `None` if there was no answer."""
        return [attempt.status for attempt in self.attempts]

    @property
    def delivered(self) -> bool:
        """Whether any attempt was answered 2xx."""
        return any(map(_is_success, self.statuses))


def _is_success(status: int | None) -> bool:
    return status is not None and 200 <= status < 300


def _is_final(status: int | None) -> bool:
    """Return whether nothing is sent again after an attempt that ended with *status*."""
    if status is None or status in RETRIED:
        return False
    return status < 500


def signature(body: bytes, secret: str) -> str:
    """Return the value of ``X-Service-Signature`` for the raw *body*."""
    return f"sha256={hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()}"


def prepare(
    event: str,
    body: Mapping[str, Json],
    url: str,
    secret: str | None,
    headers: Mapping[str, str] | None,
    *,
    signed: bool = False,
) -> EventDelivery:
    """Build a delivery: text, headers and, for the two signed events or if asked, the signature."""
    text = json_text(body).encode()
    sent = {"Content-Type": "application/json"}
    is_test = bool(body.get("test"))
    if is_test:
        sent["X-Service-Test"] = "true"
    if event in SIGNED:
        sent["X-Service-Event"] = event
    elif not is_test:
        sent |= headers or {}
    is_signed = signed or event in SIGNED
    if secret is not None and is_signed:
        sent["X-Service-Signature"] = signature(text, secret)
    return EventDelivery(event, url, text, sent)


class Post:
    """
    Sends deliveries, with one session for all of them.

    *kept* bounds memory: only as many of the latest are kept in `sent`, and if as many automatic
    ones are under way, the oldest is given up for a new one.
    """

    def __init__(
        self,
        state: ServiceState,
        seed: int,
        plan: Plan,
        *,
        backoff: float,
        timeout: float,
        kept: int | None,
    ) -> None:
        check_seconds("delivery_backoff", backoff)
        check_seconds("delivery_timeout", timeout)
        if kept is not None and kept < 1:
            raise ValueError(f"deliveries_kept: {kept!r} is not valid. Use at least 1.")
        self.sent: list[EventDelivery] = []
        self._most = kept
        self._state = state
        self._chance = seeded(seed, "deliveries")
        self._plan = plan
        self._backoff = backoff
        self._timeout = aiohttp.ClientTimeout(total=timeout)
        self._session: aiohttp.ClientSession | None = None
        # in the order of their starts
        self._under_way: dict[asyncio.Task[EventDelivery], EventDelivery] = {}
        self._is_stopped = False

    def emit(
        self,
        event: str,
        book: Book,
        resource: Mapping[str, Json] | None = None,
    ) -> list[asyncio.Task[EventDelivery]]:
        """Start the delivery of *event* to every active webhook of *book* that subscribes to it."""
        started: list[asyncio.Task[EventDelivery]] = []
        for known_as, hook in book.webhooks.items.items():
            if hook["status"] != "active" or event not in hook["events"]:
                continue
            to = book.receivers[known_as]
            body = body_of(
                self._state, event, book, to.version, known_as, resource=resource
            )
            sent = prepare(event, body, hook["url"], to.secret, to.headers)
            started.append(self._start(sent))
        return started

    def on_effect(
        self,
        operation: str,
        book: Book,
        answer: Answer,
    ) -> None:
        """Emit the events that a write of the service causes."""
        if operation != "invoices.income_batch" or isinstance(answer.body, bytes):
            return
        batch = answer.body["data"]
        for folio in batch["accepted"]:
            self.emit("invoice.created", book, book.invoices.items[folio])
        count = batch["total"]
        counts = {
            "queued": 0,
            "stamped": count,
            "failed": 0,
            "duplicate": 0,
            "needs_review": 0,
        }
        told = {
            "id": batch["id"],
            "total": count,
            "accepted": count,
            "rejected": 0,
            "counts": counts,
        }
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
            # unlike gather(), it yields even if all have ended
            await asyncio.wait(under_way)
        if self._session is not None:
            await self._session.close()

    async def send(self, delivery: EventDelivery) -> EventDelivery:
        """Send every copy of *delivery*, each with its retries."""
        self.sent.append(delivery)
        if self._most is not None:
            del self.sent[: -self._most]
        for _ in range(delivery.copies):
            await self._send_copy(delivery)
        return delivery

    async def _send_copy(self, delivery: EventDelivery) -> None:
        most = 1 if delivery.event in SIGNED else delivery.most
        for number in range(most):
            if number:
                wait = self._backoff * min(2 ** (number - 1), LONGEST_BACKOFF)
                await asyncio.sleep(wait)
            attempt = await self._attempt(delivery)
            delivery.attempts.append(attempt)
            if _is_final(attempt.status):
                return

    def _start(self, delivery: EventDelivery) -> asyncio.Task[EventDelivery]:
        plan = self._plan()
        if self._chance.random() < plan.duplicate_deliveries:
            delivery.copies = 2
        pause = OVERTAKEN if self._chance.random() < plan.reorder_deliveries else 0.0

        async def later() -> EventDelivery:
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

    async def _attempt(self, delivery: EventDelivery) -> DeliveryAttempt:
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=self._timeout)
        at = self._state.clock.steady()
        try:
            async with self._session.post(
                delivery.url,
                data=delivery.body,
                headers=delivery.headers,
                allow_redirects=False,
            ) as response:
                return DeliveryAttempt(at, response.status)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            return DeliveryAttempt(at, None, str(error) or type(error).__name__)


# --- bodies


def body_of(
    state: ServiceState,
    event: str,
    book: Book,
    version: Version,
    webhook: str,
    *,
    resource: Mapping[str, Json] | None = None,
    test: bool = False,
    connected_team: str | None = None,
) -> dict[str, Json]:
    """Make the body of one delivery about *resource*.  For a signed event, that is fields of ``data``."""
    marked = {"test": True} if test else {}
    if event in SIGNED:
        return _signed(state, event, book, resource or {}) | marked
    shown = resource or _made_up(state, event, book)
    if version == "v2":
        known_as = _delivery_id(state, event)
        created = state.clock.now_ms()
        body: dict[str, Json] = {"id": known_as, "type": event, "created": created}
        return {**body, "livemode": book.livemode, "data": {"object": shown}} | marked
    body = {"event": event}
    if not test:
        body |= {"team": book.team, "webhook": webhook, "livemode": book.livemode}
    if connected_team is not None:
        body["connectedTeam"] = connected_team
        if metadata := state.teams.items[connected_team]["metadata"]:
            body["connectedTeamMetadata"] = _internal(metadata, "metadata")
    body["data"] = internal = _internal(shown)
    if version == "v1":
        return body | marked
    if event == "invoice.created":
        internal |= {
            "customer": internal.get("client"),
            "date": internal["date"] - SIX_HOURS,
        }
    return {"payload": body} | marked


def _delivery_id(state: ServiceState, event: str) -> str:
    """Make a unique id, which differs by the type of *event* also where a service has the same seed."""
    unique = f"{state.new_id('')} {event}".encode()
    return f"del_{hashlib.blake2b(unique, digest_size=12).hexdigest()}"


def type_of(body: Mapping[str, Json]) -> str:
    """Return the type that *body* names, in any version; v1.1 may have a wrapper around it."""
    wrapped = body.get("payload")
    inner = wrapped if is_object(wrapped) else body
    return str(inner.get("type") or inner.get("event"))


def _internal(value: Json, name: str = "") -> Json:
    """Return the internal form of v1: camelCase names, and the values in *name* "metadata" as strings."""
    if is_array(value):
        return [_internal(item) for item in value]
    if not is_object(value):
        return value
    if name == "metadata":
        return {key: _as_text(item) for key, item in value.items()}
    return {_camel_case(key): _internal(item, key) for key, item in value.items()}


def _as_text(value: Json) -> str:
    if isinstance(value, str):
        return value
    return json_text(value)


def _camel_case(name: str) -> str:
    return re.sub(r"_([a-z])", lambda found: found[1].upper(), name)


def changed(
    body: Mapping[str, Json],
    path: str,
    value: Json,
) -> dict[str, Json]:
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


def _made_up(state: ServiceState, event: str, book: Book) -> Record:
    """Make a resource of the event's kind, in the form in which the API returns it."""
    kind = event.partition(".")[0]
    if kind == "invoice":
        status = "canceled" if event == "invoice.canceled" else "valid"
        return samples.new_invoice(
            state, book, {"status": status, "metadata": {"order_id": 17}}
        )
    if kind == "customer":
        return samples.new_client(state, book)
    status = event.rpartition(".")[2]
    return samples.sample(
        state, "event", book, id=state.new_id(f"{kind}_"), status=status
    )


def _signed(
    state: ServiceState,
    event: str,
    book: Book,
    fields: Mapping[str, Json],
) -> dict[str, Json]:
    if event == "sat.invoice.synced":
        uuid = state.new_folio()
        issuer = samples.new_tax_id(state)
        receiver = samples.new_tax_id(state)
        data = samples.sample(state, event, uuid=uuid, team=book.team) | {
            "issuer": {"rfc": issuer, "name": "ACEROS DEL NORTE"},
            "receiver": {"rfc": receiver, "name": "EMPRESA DE EJEMPLO"},
        }
    else:
        data = samples.sample(
            state, event, id=state.new_id("batch_"), livemode=book.livemode
        )
    known_as = f"evt_{state.random.getrandbits(64):016x}"
    created = state.clock.now_ms() // 1000
    return {
        "id": known_as,
        "event": event,
        "created_at": created,
        "data": data | dict(fields),
    }
