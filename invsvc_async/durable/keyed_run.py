"""
A run of a write under a key: the journal of a driver, for one entry.

The driver knows a journal that accepts a send, or raises.  So that a key has another entry, or that the turn
of the run has not come, passes through the driver as :class:`KeyTakenError`; ``keys`` makes a result of it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeAlias

import attrs
import msgspec
from msgspec.structs import replace

from invsvc_async.api.operations import BY_NAME
from invsvc_async.durable.done_at import done_at
from invsvc_async.durable.entry import Entry, LostEntryError, State
from invsvc_async.durable.intents import Packed, pack
from invsvc_async.durable.key_names import key_in
from invsvc_async.durable.last_writes import claim_by, left_by, take_claims_on
from invsvc_async.durable.records import done_entry, entry_of
from invsvc_async.durable.store.claims import Claimed, Seen
from invsvc_async.durable.store.conditions import WaitsFor
from invsvc_async.durable.store.order import Turn, WritesBeside
from invsvc_async.errors import JournalError
from invsvc_async.reconcile.kinds import kind_of_write
from invsvc_async.writes.line_names import thing_of

if TYPE_CHECKING:
    from collections.abc import Collection

    from invsvc_async.durable.key_claims import Claims
    from invsvc_async.durable.key_starts import KeyStart
    from invsvc_async.durable.leases import Lane
    from invsvc_async.durable.store.claims import Claim
    from invsvc_async.durable.store.states import Left
    from invsvc_async.reconcile.intent import Intent, Sent
    from invsvc_async.reconcile.outcome import AnyOutcome, Outcome
    from invsvc_async.transport.client_core import ClientOptions
    from invsvc_async.writes.noted import Noted
    from invsvc_async.writes.spec import WriteSpec


@attrs.frozen
class NotNext:
    """The turn of a run has not come: it waits for an earlier write to its thing, or is overtaken."""


WhyNot: TypeAlias = Seen | NotNext


class KeyTakenError(JournalError):
    """A write must not be sent now; *why*: its key has another entry, or its run is not next."""

    def __init__(self, why: WhyNot) -> None:
        super().__init__("the key is taken")
        self.why: WhyNot = why


# made for every keyed write, and attrs classes are slower
class KeyedRun(msgspec.Struct, eq=False):
    """
    A run of a write under a key: the journal of its driver, for the one entry of the key.

    ================  =====================================  =================================================
    the run           is known by                            what happens
    ================  =====================================  =================================================
    starts            ``seq == 0``                           its key is claimed, in the order of ``start``, or
                                                             it gets an entry that is there by ``own``
    has its entry     ``seq``, and ``place`` in the order    waits until its turn has come; an attempt to send
                      of its thing                           before that sets ``has_to_wait``
    may send          ``is_next``; or ``begin`` in the       each send stores the intent, as ``sent``
                      store says so
    has its verdict   ``outcome``                            the verdict is stored, and the entry stays
    has no entry      ``is_over``                            another process has the entry, or its release is
                                                             under way: nothing else is stored or released
    ================  =====================================  =================================================

    That a later write to its thing was sent (``overtaken``) may be found at any time before its own first
    send; then it sends nothing, and has that as its verdict.
    """

    claims: Claims
    lane: Lane
    name: str  # the key of its entry
    thing: str | None
    digest: str
    options: ClientOptions
    noted: Noted  # stored with its key, by the run that claims it
    # The token of the process that returns the secret of a new webhook; None: no run has to.
    secret_by: str | None = None
    # A create that has a thing may be taken for another create of that thing.
    creates: bool = False
    in_doubt: bool = False  # it creates, and may have been sent before this run
    start: KeyStart | None = None
    seq: int = 0
    place: int = 0
    is_next: bool = False
    has_to_wait: bool = False
    beside: WritesBeside = WritesBeside()  # the other writes to its thing, as found
    sent: Packed | None = None
    sent_before: tuple[Sent, ...] = ()  # by earlier runs, without an effect
    may_have_arrived: bool = False  # a request of this run may have been sent
    is_over: bool = False
    overtaken: bool = False
    outcome: AnyOutcome | None = None
    called: float | None = None  # when it was awaited, local s
    waited: float = 0.0  # s since then, for earlier writes to its thing

    @classmethod
    def of(
        cls,
        spec: WriteSpec,
        thing: str | None,
        claims: Claims,
        lane: Lane,
        name: str,
        digest: str,
        called: float,
    ) -> KeyedRun:
        """Return a run of *spec*, which changes *thing* and was *called* then (local s)."""
        is_kept_by_nobody = spec.options.core.on_secret is None
        has_to_return = spec.creates_webhook and is_kept_by_nobody
        return cls(
            claims=claims,
            lane=lane,
            name=name,
            thing=thing,
            digest=digest,
            options=spec.options,
            noted=spec.noted,
            secret_by=lane.token if has_to_return else None,
            creates=spec.kind.creates,
            called=called,
        )

    @classmethod
    def of_entry(
        cls,
        entry: Entry,
        claims: Claims,
        lane: Lane,
        options: ClientOptions,
    ) -> KeyedRun:
        """Return a run that goes on with *entry*."""
        return cls(
            claims=claims,
            lane=lane,
            name=entry.key,
            thing=entry.thing,
            digest=entry.digest,
            options=options,
            noted=entry.noted,
            seq=entry.seq,
            place=entry.place,
            creates=kind_of_write(BY_NAME[entry.operation]).creates,
        )

    @property
    def waits_for(self) -> WaitsFor:
        """Which other writes to its thing it waits for."""
        if not self.creates:
            return WaitsFor.EARLIER
        if self.in_doubt:
            return WaitsFor.SENT
        return WaitsFor.EARLIER_AND_SENT

    def bound(self) -> ClientOptions:
        """Return the options of the driver, whose journal is this run."""
        return replace(self.options, journal=self)

    async def sending(self, intent: Intent) -> float:
        """
        Store *intent*, which is about to be sent; claim the key if the run has not claimed it before.

        The entry is packed after the lane is held, which may take long, and stored in one of three ways.

        Raises:
            KeyTakenError: The key has another entry, or the run is not next.
            LostEntryError: Another process has the entry.
            JournalError: The journal cannot be used.
        """
        await self.lane.hold()
        self.sent = pack(intent, self.claims.store.commons)
        entry = self.entry(State.SENDING, intent, self.sent)
        try:
            await self._store_as_sending(entry)
        except LostEntryError:
            self.lose_entry()  # see `settled`
            raise
        if self.has_to_wait:
            raise KeyTakenError(NotNext())
        self.may_have_arrived = True
        return self.lane.until

    async def _store_as_sending(self, entry: Entry) -> None:
        """Store *entry*, of a write that is about to be sent; note whether the run has to wait first."""
        if not self.seq:
            # The claim inserts the entry as being sent if no earlier write to the thing is in the way.
            await self._claim_now(entry)
            self.has_to_wait = not self.is_next
        elif self.is_next or self.thing is None:
            # The turn has come already, and stays; or other writes do not matter.
            await self.lane.put(entry)
        else:
            # Whether it has come is decided in the store, beside other processes.
            self.is_next = await self.claims.begin(self, entry) is Turn.BEGUN
            self.has_to_wait = not self.is_next

    async def claim(self, entry: Entry) -> Claim:
        """Claim the key as ``Claims.claim`` does, and let the next run for the same thing claim its own."""
        try:
            return await self.claims.claim(self, entry)
        finally:
            self.let_next_start()

    async def note_anew(self, intent: Intent, digest: str, thing: str | None) -> None:
        """
        Store the *intent*, the *digest* and the *thing* with which the entry of the run is done anew.

        Raises:
            LostEntryError: Another process has the entry.
            JournalError: The journal cannot be used.
        """
        is_moved = thing != self.thing
        self.thing = thing
        self.digest = digest
        entry = self.entry(State.TO_DO, intent)
        self.place = await self.claims.note_anew(self, entry, is_moved=is_moved)

    async def _claim_now(self, entry: Entry) -> None:
        """Claim the key in the middle of the run; raise KeyTakenError if it has another entry."""
        claim = await self.claim(entry)
        if not isinstance(claim, Claimed):
            raise KeyTakenError(claim)

    def note_claimed(self, claimed: Claimed, lane: Lane) -> None:
        """Note that the entry of the run was inserted in *lane*."""
        self.lane = lane
        self.seq = claimed.seq
        # A new entry has the place of its number.
        self.place = claimed.seq
        self.is_next = claimed.is_next

    def own(self, entry: Entry) -> None:
        """
        Count *entry* as that of the run, before it is moved to the lane of the run.

        The move may take place although its answer is lost; the run then has to release the entry.

        Its thing is the one by which other runs wait for the entry, so that is the thing of the run, too:
        what may have been sent went there, whatever the run was called with.
        """
        self.seq = entry.seq
        self.place = entry.place
        self.thing = entry.thing

    def disown(self) -> None:
        """Note that *own* was wrong: another run has moved the entry, or changed it."""
        self.seq = 0

    def lose_entry(self) -> None:
        """Note that another process has the entry: nothing of it is stored or released here any more."""
        self.is_over = True

    def let_next_start(self) -> None:
        """Allow the next run for the same thing to claim its key: this run has claimed, or need not."""
        if self.start is not None:
            self.start.leave()

    async def settled(self, outcome: Outcome[Any]) -> None:
        """
        Store the outcome.

        Raises:
            LostEntryError: Another process has the entry, and its verdict counts.
            JournalError: It could not be stored. That is tried again while the journal is open.
        """
        if not self.seq:
            # The run ended before its first send, so it has no entry.  The claim says whether it gets one:
            # a verdict is not stored beside that of another run.
            await self._claim_now(self.entry(State.TO_DO, outcome.intent))
        left = left_by(self.thing, outcome, self.options.core.writes)
        store = self.claims.store
        claim = claim_by(outcome)
        ended = done_at(self.options.core, store)
        entry = done_entry(
            outcome,
            self.sent,
            store.commons,
            key=self.name,
            done_at=ended,
            claim=claim,
        )
        self._fill(entry)
        try:
            await self.lane.put(entry, left)
        except LostEntryError:
            # What the run has got so far would be stored over what the other process has stored, if this one
            # takes the entry back meanwhile.
            self.lose_entry()
            raise
        except asyncio.CancelledError:
            # It is about to be stored: what the run has got so far must not be stored over it.
            self._end_with(entry, left)
            raise
        except JournalError as error:
            self._end_with(entry, left)
            raise JournalError(
                f"{outcome.started_as.operation} ({key_in(self.name)}): its verdict, {outcome.verdict}, "
                f"could not be stored: {error} Run it again under the same key.",
                is_away=error.is_away,
            ) from error
        self.outcome = outcome
        self.lane.leases.done += 1
        self.claims.waits.notify(self.lane.number)

    async def take_claims_on(self, listed: Collection[str]) -> None:
        """Note which creates of the journal made the webhooks with the ids *listed*."""
        await take_claims_on(self.options.core.writes, self.claims.store, listed)

    def _end_with(self, entry: Entry, left: Left | None) -> None:
        """End the run, before the next run of the key; store *entry*, its verdict, until that succeeds."""
        self.is_over = True
        self.claims.ends.end_run(self.name, self.lane, entry, left)

    def shelved(self, intent: Intent, *, sent: bool) -> None:
        """Store how far the run got, and release the entry; a run that has to wait keeps its entry."""
        if not self.has_to_wait:
            self.let_go(self.entry(State.SENDING if sent else State.TO_DO, intent))

    def let_go(self, entry: Entry | None = None) -> None:
        """
        Release the entry for any run, unless the run has a verdict; store it first as *entry*.

        A second call does nothing.
        """
        is_claimed = bool(self.seq)
        has_open_entry = is_claimed and not self.is_over and self.outcome is None
        if has_open_entry:
            self.is_over = True
            self.claims.ends.end_run(self.name, self.lane, entry)

    def heard(self, identity: str) -> None:
        """Note that the awaiter has the verdict, and with it the secret of a new webhook."""
        del identity  # of a journal's protocol; this one has one entry
        if self.secret_by is not None:
            self.claims.ends.start(self.claims.note_returned(self.seq))

    def entry(
        self,
        state: State,
        intent: Intent,
        packed: Packed | None = None,
    ) -> Entry:
        """Return the entry of *intent*, whose packed form may be known."""
        entry = entry_of(
            state, intent, self.claims.store.commons, packed, key=self.name
        )
        self._fill(entry)
        return entry

    def _fill(self, entry: Entry) -> None:
        """Set the fields of *entry* that the run knows, one by one, because arguments take longer."""
        entry.seq = self.seq
        entry.place = self.place
        entry.thing = self.thing
        entry.digest = self.digest
        entry.noted = self.noted


def changed_by(spec: WriteSpec) -> str | None:
    """
    Return the name of the thing that a keyed write changes.

    That of a create without a tag is its URL, because a webhook of another create of that URL may be taken
    for its own. ``None`` for a write that waits for no other.
    """
    gets_tag = spec.lacks_tag
    if gets_tag:
        return None
    return thing_of(spec.options.core, spec.request, spec.tag)
