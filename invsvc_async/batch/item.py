"""A write of a batch: its entry in the journal, and its slot during a send."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import attrs
import msgspec
from msgspec.structs import replace

from invsvc_async.api.operations import BY_NAME
from invsvc_async.durable.done_at import done_at
from invsvc_async.durable.entry import Entry, State
from invsvc_async.durable.intents import (
    has_lost_send,
    pack,
    was_seen_undone,
    without_effect,
)
from invsvc_async.durable.last_writes import claim_by, left_by, take_claims_on
from invsvc_async.durable.records import (
    VerdictRecord,
    encoded,
    flags_of,
    record_of,
    verdict_record,
)
from invsvc_async.reconcile.history import Verdict
from invsvc_async.reconcile.kinds import WriteKind, kind_of_write
from invsvc_async.settings import JOURNEY_READER, AnyReader, OnSecret
from invsvc_async.transport.client_core import ClientOptions, Request
from invsvc_async.writes.new_secret import hand_over

if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import Collection

    from invsvc_async.batch.engine import Engine
    from invsvc_async.batch.restored import Restored
    from invsvc_async.durable.leases import Lane
    from invsvc_async.reconcile.intent import Intent
    from invsvc_async.reconcile.outcome import AnyOutcome, Outcome
    from invsvc_async.transport.transport import Exchange
    from invsvc_async.writes.spec import WriteSpec


def discard_secret(_key: str, _webhook: object) -> None:
    """Throw a secret away, as an ``on_secret``. It counts as not stored: nobody wants it."""


def _record_of(outcome: AnyOutcome) -> VerdictRecord:
    """Return the record of *outcome*, with the requests that earlier runs sent for the write."""
    record = record_of(outcome)
    record.tries += len(outcome.started_as.sent)
    return record


def _may_be_replaced(outcome: AnyOutcome) -> bool:
    """Return whether the secret of the new webhook may be lost, so that the webhook has to be replaced."""
    return outcome.secret in {"lost", "returned"}


class Item(msgspec.Struct, eq=False, kw_only=True):
    """
    A write of a batch, whose *entry* is in *lane*; ``spec`` is set if the entry is as in the input.

    An item is the journal of its driver, and writes to its own entry.
    """

    # Whether the entry keeps all that an outcome is rebuilt from: it is not given in the run that sends it.
    keeps_outcome: ClassVar[bool] = False

    entry: Entry  # as it was read; once that is dropped, another write may have its key
    intent: Intent
    lane: Lane  # until when it may be sent
    engine: Engine
    spec: WriteSpec | None = None
    finished: tuple[Entry, VerdictRecord, AnyOutcome] | None = None
    storing: Future[None] | None = None  # done once the result is stored
    in_slot: bool = False
    times_put_back: int = 0
    # it is to be run again, because its last run proves nothing against it
    is_put_back: bool = False
    reader: AnyReader | None = None  # user-supplied: an entry contains only its name
    restored: Restored | None = None  # the doubts of its journal
    # A later write to its thing may have been sent, or not: see ``EarlierWrites.mark``.
    is_perhaps_overtaken: bool = False
    identity: str = ""  # of the intent that was sent or settled last

    @property
    def in_doubt(self) -> bool:
        """Whether the write may have been sent before, and must be settled first."""
        return any(each.may_have_effect for each in self.intent.sent)

    @property
    def lacks_later(self) -> bool:
        """Whether a later write that was sent may be in the input, and not in its restored journal yet."""
        return self.restored is not None and self.restored.lacks_later(self.intent)

    def mark_perhaps_overtaken(self) -> None:
        """
        Note that a later write to its thing may have been sent, or not.

        If it is of the copy, too, it is settled, and not sent again; its reason says "perhaps". If not, it
        counts as overtaken.
        """
        if has_lost_send(self.intent) or was_seen_undone(self.intent):
            self.is_perhaps_overtaken = True
        else:
            self.intent = attrs.evolve(self.intent, newest=False)
            self.spec = None

    @property
    def names_reader(self) -> bool:
        """Whether it needs a user-supplied reader, of which the journal has only the name."""
        return (
            self.intent.reader is not None
            or self.intent.policy.journey_reader == JOURNEY_READER
        )

    def take_readers(self, spec: WriteSpec) -> None:
        """Use the readers of *spec*, which is the same write in the input of this run."""
        self.reader = spec.reader or self.reader
        if self.names_reader and callable(spec.policy.journey_reader):
            changed = attrs.evolve(
                self.intent.policy, journey_reader=spec.policy.journey_reader
            )
            self.intent = attrs.evolve(self.intent, policy=changed)

    @property
    def kind(self) -> WriteKind:
        """The kind of the write, by whose rules its verdict is found."""
        return kind_of_write(BY_NAME[self.intent.operation])

    # --- its slot while it is sent

    def leave(self) -> None:
        """Free its slot."""
        if self.in_slot:
            self.in_slot = False
            self.engine.slots.leave(self)

    # --- the journal of its driver

    async def sending(self, intent: Intent) -> None:
        """Store *intent*, which is about to be sent."""
        self.identity = intent.identity
        await self.lane.hold()
        await self.lane.put(self._entry(State.SENDING, intent))

    def shelved(self, intent: Intent, *, sent: bool) -> None:
        """Store how far it got."""
        self.lane.put(self._entry(State.SENDING if sent else State.TO_DO, intent))

    async def settled(self, outcome: Outcome[Any]) -> None:
        """
        Store the outcome, without the body if it is applied: only with that can a lost secret be replaced.

        ``storing`` is done once it is stored. Nothing of the run is needed until then. If the service or the
        credential is the reason for the outcome, put the write back instead.
        """
        if self.engine.breaker.holds_back(outcome, self.times_put_back):
            self._put_back(outcome)
            return
        self.identity = outcome.started_as.identity
        if outcome.secret is not None:
            outcome = await self._with_secret_kept(outcome)
        applied = outcome.verdict is Verdict.APPLIED
        left = left_by(self.entry.thing, outcome, self.engine.sending.core.writes)
        if self.restored is not None:
            outcome, left = self.restored.judged(outcome, left)
        record = _record_of(outcome)
        is_whole = self.keeps_outcome or _may_be_replaced(outcome)
        if is_whole:
            text = verdict_record(outcome, replace(record))
        else:
            text = encoded(record)
        intent: Intent | None
        if not applied:
            intent = outcome.intent
        elif is_whole:
            intent = outcome.started_as
        else:
            intent = None
        entry = self._entry(
            State.DONE,
            intent,
            taker=self.lane.leases.taker,
            verdict=outcome.verdict.value,
            outcome=text,
            flags=flags_of(record),
            claim=claim_by(outcome),
            done_at=done_at(self.engine.sending.core, self.lane.leases.store),
        )
        self.storing = self.lane.put(entry, left)
        self.finished = entry, record, outcome

    async def _with_secret_kept(self, outcome: Outcome[Any]) -> Outcome[Any]:
        """Hand a secret in *outcome* over to the hook, if nobody has it yet; return the changed outcome."""
        hook = self.engine.sending.on_secret
        if hook is discard_secret:
            return attrs.evolve(outcome, secret="not stored")
        if outcome.secret != "returned":
            return outcome
        if hook is not None:  # another run of the client has got it
            await hand_over(hook, self.entry.key, outcome.value)
            return attrs.evolve(outcome, secret="delivered")
        if self.keeps_outcome:  # it is in no result
            return attrs.evolve(outcome, secret="lost")
        return outcome

    async def take_claims_on(self, listed: Collection[str]) -> None:
        """Note which creates of the batch or outbox made the webhooks with the ids *listed*."""
        store = self.lane.leases.store
        await take_claims_on(self.engine.sending.core.writes, store, listed)

    def _put_back(self, outcome: AnyOutcome) -> None:
        """Store the write as open: to do if it provably had no effect, otherwise to be settled first."""
        in_doubt = outcome.verdict is Verdict.UNKNOWN
        intent = outcome.intent
        self.intent = intent if in_doubt else without_effect(intent)
        if self.spec is not None:
            self.take_readers(self.spec)
        self.is_put_back = True
        self.times_put_back += 1
        self.shelved(self.intent, sent=in_doubt)

    def heard(self, identity: str) -> None:
        """Do nothing: the entries of a batch stay."""

    # Any: of an end
    def _entry(self, state: State, intent: Intent | None, **done: Any) -> Entry:
        if intent is None:
            return replace(
                self.entry,
                state=state,
                common=None,
                intent=None,
                **done,
            )
        kept = pack(intent, self.lane.leases.store.commons)
        return replace(
            self.entry,
            state=state,
            common=kept.common,
            intent=kept.text,
            **done,
        )


class ItemOptions(ClientOptions, kw_only=True, eq=False):
    """The options of an item, whose write takes a slot during a send."""

    item: Item

    @classmethod
    def of(cls, item: Item, view: ClientOptions) -> ItemOptions:
        """Return the options of *view* for *item*."""
        given: dict[str, Any] = msgspec.structs.asdict(view)  # Any: as the fields
        given.update(journal=item, item=item)
        return cls(**given)

    @property
    def on_secret(self) -> OnSecret | None:
        """The hook of the batch or outbox that gets secrets."""
        return self.item.engine.sending.on_secret

    @property
    def pace(self) -> None:
        """None: a batch or outbox has a rate of its own."""
        return

    @property
    def gives_values(self) -> bool:
        """False: results have no secrets."""
        return False

    async def send(self, request: Request, exchange: Exchange) -> Exchange:
        """Send *exchange* as the base class does. A write takes a slot meanwhile, and its lease bounds it."""
        if not exchange.write:
            return await super().send(request, exchange)
        item = self.item
        engine = self.item.engine
        if not item.in_slot:  # it is sent again
            await engine.slots.take_again(item)
            item.in_slot = True
        try:
            until = item.lane.until
            proven = exchange.not_after
            exchange.not_after = until if proven is None else min(until, proven)
            await super().send(request, exchange)
            engine.slots.learn(exchange)
            engine.breaker.learn(item.entry.key, exchange)
            return exchange
        finally:
            item.leave()
