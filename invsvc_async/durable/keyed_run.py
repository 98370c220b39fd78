"""One run of a write under a key: the journal of its driver, which stores in one entry."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import attrs
from msgspec.structs import replace

from invsvc_async.durable.entry import Entry, LostLaneError, State
from invsvc_async.durable.intents import Packed, pack
from invsvc_async.durable.last_writes import left_by
from invsvc_async.durable.records import is_answered, verdict_record
from invsvc_async.errors import JournalError
from invsvc_async.writes.new_intent import line_of
from invsvc_async.writes.results import secret_passed_on

if TYPE_CHECKING:
    from invsvc_async.durable.key_claims import Found
    from invsvc_async.durable.keys import Keys
    from invsvc_async.durable.last_writes import Left
    from invsvc_async.durable.leases import Lane
    from invsvc_async.reconcile.intent import Intent
    from invsvc_async.reconcile.outcome import AnyOutcome, Outcome
    from invsvc_async.transport.session import ClientOptions
    from invsvc_async.writes.spec import WriteSpec

__all__ = ["KeyTakenError", "KeyedRun"]

_AGAIN: Final = 1.0  # s between tries to store a verdict


class KeyTakenError(JournalError):
    """A write must not be sent now: its key has the entry *found*, or its run is not next."""

    def __init__(self, found: Found | None) -> None:
        super().__init__("the key is taken")
        self.found = found


@attrs.define(eq=False)
class KeyedRun:
    """
    One run; its key is claimed before the first send, or by the store before that.

    It is ``over`` if its entry is another run's, or about to be released.
    """

    keys: Keys
    lane: Lane
    name: str  # the key of its entry
    key: str
    thing: str | None
    digest: str
    options: ClientOptions
    taker: str | None = None  # who returns the secret of a new webhook; None: nobody need
    seq: int = 0  # of its entry, once it is claimed
    is_next: bool = True  # no other write to its thing has to be waited for, or looked at
    sent: Packed | None = None  # the intent as it was stored before the last send
    over: bool = False
    overtaken: bool = False  # a later write to its thing may have had an effect
    outcome: AnyOutcome | None = None

    @classmethod
    def of(cls, spec: WriteSpec, keys: Keys, lane: Lane, name: str, digest: str) -> KeyedRun:
        """Return a run of *spec*."""
        thing = None if spec.creates_webhook else line_of(spec.request, spec.team, spec.tag)
        asks = spec.creates_webhook and keys.session.on_secret is None
        taker = lane.token if asks else None
        return cls(keys, lane, name, spec.key or "", thing, digest, spec.options, taker=taker)

    def bound(self, options: ClientOptions) -> ClientOptions:
        """Return *options* with this as the journal."""
        return replace(options, journal=self)

    async def sending(self, intent: Intent) -> float:
        """Store *intent*, which is about to be sent; claim its key, if that was not done before."""
        await self.lane.hold()
        self.sent = pack(intent, self.keys.store.commons)
        entry = self.entry(State.SENDING, intent, self.sent)
        if self.seq:
            await self.lane.put(entry)
        elif (found := await self.keys.claims.claim(self, entry)) is not None:
            raise KeyTakenError(found)
        elif not self.is_next:
            raise KeyTakenError(None)
        return self.lane.until

    async def settled(self, outcome: Outcome[Any]) -> None:
        """
        Pass the secret on, then store the outcome.

        Raises:
            LostLaneError: Another process has the entry, and its verdict counts.
            JournalError: It could not be stored. That is tried again while the journal is open.
        """
        session = self.options.session
        if outcome.secret == "returned" and (hook := session.on_secret) is not None:
            outcome = await secret_passed_on(outcome, self.key, hook)
        if not self.seq:  # it ended before its first send
            found = await self.keys.claims.claim(self, self.entry(State.TO_DO, outcome.intent))
            if found is not None:
                raise KeyTakenError(found)
        left = left_by(self.thing, outcome, session.writes)
        as_sent = self.sent if is_answered(outcome) else None
        entry = self.entry(
            State.DONE, outcome.started_as if as_sent else outcome.intent, as_sent,
            verdict=outcome.verdict.value, outcome=verdict_record(outcome),
            done_at=time.time_ns() // 1_000_000,
        )  # fmt: skip
        try:
            await self.lane.put(entry, left)
        except LostLaneError:
            raise
        except JournalError as error:
            self.over = True
            self.keys.start(self._store_later(entry, left))
            raise JournalError(
                f"{outcome.started_as.operation} ({self.key}): its verdict, {outcome.verdict}, could not be "
                f"stored: {error} Run it again under the same key."
            ) from error
        self.outcome = outcome
        self.keys.claims.tell(self.lane.number)

    async def _store_later(self, entry: Entry, left: Left | None) -> None:
        while not self.keys.ended:
            await asyncio.sleep(_AGAIN)
            with suppress(JournalError):
                with suppress(LostLaneError):
                    await self.lane.put(entry, left)
                self.keys.claims.tell(self.lane.number)
                return

    def shelved(self, intent: Intent, *, sent: bool) -> None:
        """Store how far it got, and let any run have it; one that is not next goes on once it is."""
        if self.is_next:
            self.let_go(self.entry(State.SENDING if sent else State.TO_DO, intent))

    def let_go(self, entry: Entry | None = None) -> None:
        """Release its entry for any run, unless it has a verdict; store it first as *entry*."""
        if self.seq and not self.over and self.outcome is None:
            self.over = True
            self.keys.start(self._released(entry))

    async def _released(self, entry: Entry | None) -> None:
        if entry is not None:
            with suppress(JournalError):
                await self.lane.put(entry)
        await self.keys.claims.free(self.seq, self.lane)
        self.keys.claims.tell(self.lane.number)

    def heard(self, identity: str) -> None:
        """Note that the awaiter has the verdict, and with it the secret of a new webhook."""
        del identity
        if self.taker is not None:
            self.keys.start(self.keys.claims.note_heard([self.seq]))

    def entry(
        self, state: State, intent: Intent, packed: Packed | None = None, **done: Any
    ) -> Entry:  # Any: fields of Entry
        """Return the entry of *intent*, whose packed form may be known."""
        packed = packed or pack(intent, self.keys.store.commons)
        return Entry(
            seq=self.seq, key=self.name, thing=self.thing, digest=self.digest, state=state,
            operation=intent.operation, common=packed.common, intent=packed.text, **done,
        )  # fmt: skip
