"""
Be one write of a batch under way: note in the journal what it does, and hold a place only while it sends.
"""

from __future__ import annotations

import inspect
import time
from typing import TYPE_CHECKING, Any, Protocol

import attrs
import msgspec

from invsvc_async.batch.result import Result
from invsvc_async.batch.siblings import left_by
from invsvc_async.codec.envelope import retry_after
from invsvc_async.journal.entry import ANSWERED, Entry, State
from invsvc_async.journal.outcome_record import encoded, record_of
from invsvc_async.journal.packed_intent import pack
from invsvc_async.reconcile.findings import is_unique
from invsvc_async.reconcile.history import Verdict
from invsvc_async.settings import JOURNEY_READER
from invsvc_async.transport.session import ClientOptions

if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import AsyncIterator, Awaitable, Callable

    from invsvc_async.batch.pacing import Slots
    from invsvc_async.batch.siblings import Left
    from invsvc_async.journal.packed_intent import Commons
    from invsvc_async.reconcile.intent import Intent
    from invsvc_async.reconcile.outcome import Outcome
    from invsvc_async.reconcile.own_writes import OwnWrites
    from invsvc_async.settings import AnyReader
    from invsvc_async.transport.session import Request
    from invsvc_async.transport.transport import Exchange
    from invsvc_async.writes.spec import WriteSpec

__all__ = ["Item", "ItemOptions"]


def _claim_of(outcome: Outcome[Any], webhook_id: str | None) -> str | None:  # Any: of any operation
    """Return the id of the webhook that was made, and whether an answer gave it or only a match."""
    return webhook_id if webhook_id is None or outcome.secret_lost else f"{ANSWERED}{webhook_id}"


class Store(Protocol):
    """Where an item's entry is kept."""

    @property
    def commons(self) -> Commons:
        """The common parts of intents."""
        ...

    def put(self, entry: Entry, left: Left | None = None) -> Future[None]:
        """Store *entry*, and with it what it *left* of its thing; durably once the future is done."""
        ...

    def shelve(self, entry: Entry) -> None:
        """Store it without waiting and without fail."""
        ...


class Lease(Protocol):
    """The right to send, until a time of the client's clock."""

    until: float

    async def hold(self) -> None:
        """Wait until it is valid; LostChunkError: it is another's for good."""
        ...


class Item(msgspec.Struct, eq=False, kw_only=True):
    """
    One write: ``write`` where it is fresh, ``intent`` where the journal had it.

    It is the journal that its driver writes to, in its own entry.
    """

    key: str
    content: bytes
    run: int
    thing: str | None
    entries: Store
    own: OwnWrites  # what the client's answers showed
    on_secret: Callable[[str, Any], Awaitable[None] | None] | None = None  # Any: a Webhook
    spec: WriteSpec | None = None
    intent: Intent | None = None
    fed: bool = True  # the input of this run held it
    stored: bool = False
    result: Result | None = None
    storing: Future[None] | None = None  # done once that is stored
    slots: Slots | None = None
    in_slot: bool = False
    sender_gone: bool = True  # whoever may have sent it before is provably dead
    reader: AnyReader | None = None  # the caller's own: an entry has but its name
    waits: bool = False  # for the input to bring it
    lease: Lease | None = None  # how long the right to send it lasts, where others may take it over
    on_end: Callable[[], None] | None = None
    answer: bytes = b""  # the last one to it

    @property
    def is_overtaken(self) -> bool:
        """Whether a later write to the same thing may have had an effect, so this one must not be sent."""
        return self.intent is not None and self.intent.newest is False

    @property
    def in_doubt(self) -> bool:
        """Whether it may have been sent before, so that it is to be settled first."""
        if self.intent is None:
            return False
        return any(each.end is None or each.end.kind != "not applied" for each in self.intent.sent)

    @property
    def names_reader(self) -> bool:
        """Whether a reader of the caller's own is to settle it, of which the journal has but the name."""
        intent = self.intent
        return intent is not None and (
            intent.reader is not None or intent.policy.journey_reader == JOURNEY_READER
        )

    def take_readers(self, spec: WriteSpec) -> None:
        """Take the readers of *spec*, which is this write in the input of this run."""
        self.reader = spec.reader or self.reader
        if self.names_reader and self.intent is not None and callable(spec.policy.journey_reader):
            changed = attrs.evolve(self.intent.policy, journey_reader=spec.policy.journey_reader)
            self.intent = attrs.evolve(self.intent, policy=changed)

    @property
    def creates_webhook(self) -> bool:
        """Whether its answer contains a secret."""
        return self.spec is not None and self.spec.creates_webhook

    # --- the place it holds while it sends

    async def enter(self) -> None:
        """Take a place where it has none: it is sent again."""
        if not self.in_slot and self.slots is not None:
            await self.slots.take_again()
            self.in_slot = True

    def leave(self) -> None:
        """Give its place back."""
        if self.in_slot and self.slots is not None:
            self.in_slot = False
            self.slots.leave()

    def bound(self, exchange: Exchange) -> None:
        """Let *exchange* out only while the lease lasts."""
        if self.lease is not None:
            until, proven = self.lease.until, exchange.not_after
            exchange.not_after = until if proven is None else min(until, proven)

    def learn(self, exchange: Exchange) -> None:
        """Tell the places how a request went."""
        if self.slots is not None:
            limited = exchange.status == 429 and exchange.answer_headers is not None
            self.slots.learn(exchange, retry_after(exchange.answer_headers or {}) if limited else None)

    # --- the journal of its driver

    async def open(self) -> None:
        """Be open: the entries are."""

    async def sending(self, intent: Intent) -> None:
        """Store the revision that is about to be sent."""
        if self.lease is not None:
            await self.lease.hold()
        self.stored = True
        await self.entries.put(self._entry(State.SENDING, intent))

    def shelved(self, intent: Intent, *, sent: bool) -> None:
        """Note how far it got; nothing is noted of what was never stored."""
        if self.stored:
            self.entries.shelve(self._entry(State.SENDING if sent else State.TO_DO, intent))

    async def settled(self, outcome: Outcome[Any]) -> None:
        """
        Hand the secret over, then have what became of it stored; of what is applied, no body is kept.

        ``storing`` tells when it is: nothing of the run that made it need be kept until then.
        """
        value = outcome.value
        if self.on_secret is not None and getattr(value, "secret", None) is not None:
            handed = self.on_secret(self.key, value)
            if handed is not None and inspect.isawaitable(handed):
                await handed
        applied = outcome.verdict is Verdict.APPLIED
        intent = outcome.started_as if applied else outcome.intent
        untagged = applied and intent.operation == "webhooks.create" and not is_unique(intent.tag)
        record = record_of(outcome)
        entry = self._entry(
            State.DONE,
            intent,
            keep=not applied,
            verdict=outcome.verdict.value,
            outcome=encoded(record),
            claim=_claim_of(outcome, record.thing) if untagged else None,
            done_at=time.time_ns() // 1_000_000,
        )
        self.storing = self.entries.put(entry, left_by(self.thing, outcome, self.own, self.answer))
        self.result = Result.of(entry, record, outcome)

    def heard(self, identity: str) -> None:
        """Do nothing: the entries of a batch stay."""

    async def aclose(self) -> None:
        """Stay: the entries are the batch's."""

    def open_intents(self) -> AsyncIterator[Intent]:
        """Never asked for: a batch takes its entries up itself."""
        raise NotImplementedError

    def unheard(self) -> AsyncIterator[Outcome[Any]]:  # Any: of any operation
        """Never asked for: a batch gives its results itself."""
        raise NotImplementedError

    def _entry(
        self, state: State, intent: Intent, *, keep: bool = True, **done: Any
    ) -> Entry:  # Any: what Entry has of an end
        packed = pack(intent, self.entries.commons) if keep else None
        return Entry(
            key=self.key,
            content=self.content,
            state=state,
            run=self.run,
            operation=intent.operation,
            common=None if packed is None else packed.common,
            intent=None if packed is None else packed.text,
            **done,
        )


@attrs.define(kw_only=True, eq=False, repr=False)
class ItemOptions(ClientOptions):
    """A view whose writes are one item's: each send takes a place, and how it went is learnt from."""

    item: Item

    def send(self, request: Request, exchange: Exchange) -> Awaitable[Exchange]:
        """Put *exchange* on the wire, as :class:`View` does; a write's takes a place while it lasts."""
        return self._in_a_place(request, exchange) if exchange.write else super().send(request, exchange)

    async def _in_a_place(self, request: Request, exchange: Exchange) -> Exchange:
        await self.item.enter()
        try:
            self.item.bound(exchange)
            await super().send(request, exchange)
            self.item.learn(exchange)
            self.item.answer = exchange.answer
            return exchange
        finally:
            self.item.leave()
