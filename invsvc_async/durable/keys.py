"""
Keys of the user's own: a write under one has one effect, whichever process runs it, and however often.

The entry of a key stays in the journal once it is done.  A run of a write first claims its key, in one
statement that inserts an entry, or returns the one that is there:

=========================  ================================================================================
the key's entry            what a run does
=========================  ================================================================================
none                       inserts it, sends, stores the verdict
open, its process lives    waits for the verdict, and returns it
open, nobody has it        moves it to its own lane; settles what may have been sent, sends only on proof
APPLIED, SUPERSEDED        returns the stored outcome
NOT_APPLIED, REFUSED       does it anew: nothing happened.  One of several runs wins, the others wait
UNKNOWN                    settles it again
of another write           raises KeyConflictError
=========================  ================================================================================

An entry is in the lane of the process that runs it, so what a zombie stores is rejected, as in all stores.  A
run that ends without a verdict releases its entry to the lane ``FREED``, where any run may take it.  What a
process left that is provably done with it is in the lane ``ENDED``.

The writes to one thing have one order in all processes, that of their claims: each waits until the earlier
ones are done, or settles those that nobody has.

A verdict is returned once it is stored.  If another process has the entry by then, that one's verdict counts.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

import attrs
from msgspec.structs import replace

from invsvc_async.durable.entries import Entries
from invsvc_async.durable.entry import Entry, LostLaneError, State
from invsvc_async.durable.intents import as_new, in_doubt
from invsvc_async.durable.key_claims import ENDED, FREED, Claims, Found, KeyedRun, KeyTakenError
from invsvc_async.durable.key_names import Doubts, Namespaces, check_same, digests_of, key_in
from invsvc_async.durable.last_writes import Left, close_line, learn
from invsvc_async.durable.records import intent_of, outcome_of, verdict_and_record
from invsvc_async.durable.resolve import is_being_done, note, resolve
from invsvc_async.errors import ConfigurationError, InvalidRequestError, JournalError
from invsvc_async.reconcile.enums import Verdict
from invsvc_async.reconcile.intent import Intent
from invsvc_async.writes.driver import AnyDriver, Driver, new_run, run_of
from invsvc_async.writes.new_intent import (
    intent_of as new_intent,
    new_start,
    new_tag,
    with_reader,
)
from invsvc_async.writes.recovery import check_scope

if TYPE_CHECKING:
    from collections.abc import Awaitable, Generator, Mapping

    from invsvc_async.durable.journal import ClientJournal
    from invsvc_async.durable.resolve import Resolution
    from invsvc_async.durable.store import Store
    from invsvc_async.models.webhooks import Webhook
    from invsvc_async.reconcile.outcome import AnyOutcome, Outcome
    from invsvc_async.transport.session import ClientOptions, ClientState
    from invsvc_async.writes.spec import WriteSpec


log: logging.Logger = logging.getLogger("invsvc_async.writes")

_FINAL = (Verdict.APPLIED, Verdict.SUPERSEDED)
# Settings of the run that goes on with a write: what was sent is settled within the windows of its own.
_OF_A_RUN: Final = ("deadline", "resend", "max_resends", "journey_reader")
_RECENT = 600_000  # ms after its verdict for which an UNKNOWN write may still have an effect
_OLDEST: Final = 1e11  # s; the store counts in 64 bits
_TO_RETURN, _LOOK = 5.0, 0.02  # s that a run has to note that it returned a secret; s between looks
# Of a thing, beside the write at a place: an earlier one that is open, whether a later one may have had an
# effect, whether others are UNKNOWN, and what the last one left.
_UNKNOWN: Final = f"e.thing = $1 AND e.verdict = '{Verdict.UNKNOWN}' AND e.seq <> $2 AND e.done_at > $3"
_OTHERS: Final = f"""
SELECT earlier.key, earlier.place, s.place > $4 OR EXISTS (
        SELECT 1 FROM {{s}}entries WHERE thing = $1 AND done_at IS NULL AND place > $4
    ), EXISTS (SELECT 1 FROM {{s}}entries AS e WHERE {_UNKNOWN}), s.team, s.state, s.stamp
FROM (SELECT {{arg 1 text}} AS thing) AS given LEFT JOIN {{s}}states AS s USING (thing) LEFT JOIN (
    SELECT key, place FROM {{s}}entries WHERE thing = $1 AND done_at IS NULL AND place < $4 AND place > $5
        ORDER BY place LIMIT 1
) AS earlier ON true
"""
_DIGEST: Final = "UPDATE {s}entries SET digest = $3 WHERE seq = $1 AND lane = $2 AND done_at IS NULL"
_LEFT_OPEN: Final = f"e.lane {{any 1 bigint}} AND e.done_at IS NULL AND e.state = {State.SENDING:d}"
_NO_SECRETS = (
    "on_secret: is not set, and a keyed write creates a webhook. Its secret is returned once, to the run "
    "that made it. Pass Client(on_secret=…) to keep secrets."
)


@attrs.define(eq=False)
class _Turn:
    """The runs of one key in this process, one at a time."""

    lock: asyncio.Lock = attrs.field(factory=asyncio.Lock)
    users: int = 0
    last: AnyDriver | None = None  # the last of them that has an outcome
    digest: str = ""


class Keys:
    """The keys of one journal.  *named* is what its address says of them."""

    def __init__(self, journal: ClientJournal, store: Store, named: Mapping[str, str]) -> None:
        self.journal: ClientJournal = journal
        self.store: Store = store
        self.claims: Claims = Claims(journal, store)
        self._names = Namespaces(store, named=named.get("namespace"), same_mode="same_mode" in named)
        self.doubts: Doubts = Doubts(store, complete="complete" in named)
        self._turns: dict[str, _Turn] = {}  # by the keys of entries

    @property
    def session(self) -> ClientState:
        """The state of the journal's client."""
        assert self.journal.session is not None
        return self.journal.session

    # --- what users call

    def run(self, spec: WriteSpec) -> Awaitable[AnyDriver]:
        """
        Run a write under its key, and return the driver that has its verdict.

        Raises:
            KeyConflictError: The key has another write.
            ConfigurationError: The namespace of its key is not certain, or the client is closed.
            JournalError: The journal cannot be used; nothing was sent.
        """
        return spec.options.session.tracked(partial(self._in_turn, spec))

    async def _name(self, key: str, team: str | None) -> str:
        await self.journal.open()
        return await self._names.name(key, team, self.session)

    async def outcome_of(self, key: str, team: str | None) -> AnyOutcome | None:
        """Return the stored outcome under *key*, or ``None`` if there is none."""
        found = await self.claims.look(await self._name(key, team))
        return None if found is None or found.entry.state is not State.DONE else await self._outcome(found)

    async def verdict_of(self, intent: Intent) -> AnyOutcome | None:
        """Return the stored outcome of *intent*; ``None`` if it has none, or is UNKNOWN."""
        known = await self.outcome_of(intent.key, intent.scope.team)
        if known is None or known.verdict is Verdict.UNKNOWN or known.intent.identity != intent.identity:
            return None
        self.session.writes.take(intent.identity)
        return known

    async def forget(self, key: str, team: str | None) -> bool:
        """
        Delete *key* and what is known of its write; return whether it was there.

        Raises:
            JournalError: It may have been sent, and has no verdict.
        """
        name = await self._name(key, team)
        if await Entries(self.store).drop(name):
            return True
        if (found := await self.claims.look(name)) is not None:
            why = ", because it is being done" if found.lives else ""
            raise JournalError(
                f"forget: the write under the key {key!r} may have been sent, and has no verdict{why}. Await "
                "it, or resolve it."
            )
        return False

    async def resolve(self, key: str | Intent, team: str | None, finding: Resolution) -> AnyOutcome:
        """
        Store what a person has found out about the write under *key*, or of an intent; return its outcome.

        Raises:
            InvalidRequestError: *key* is neither; or as :func:`resolve`.
            JournalError: A run of it lives, here or elsewhere; or as :func:`resolve`.
        """
        if isinstance(key, str):
            return await self._resolve(key, team, finding, None)
        if not isinstance(key, Intent):
            raise InvalidRequestError(f"key: must be a key or an Intent, not a {type(key).__name__}")
        if key.nonce is None:  # without a key of the user's own
            return await self.journal.resolve(key, finding)
        return await self._resolve(key.key, key.scope.team, finding, key.identity)

    async def _resolve(
        self, key: str, team: str | None, finding: Resolution, identity: str | None
    ) -> AnyOutcome:
        name = await self._name(key, team)
        if name in self._turns:
            raise is_being_done(key)
        with self._turn_of(name) as turn:
            async with turn.lock:  # a run that begins here waits
                await self.claims.until_left(name)
                mine = (await self.journal.own_lane()).token
                resolved = await resolve(self.store, name, finding, key=key, identity=identity, mine=mine)
        note(self.session, resolved)
        return resolved.outcome

    async def prune(self, older_than: float) -> int:
        """Delete what was done more than *older_than* seconds ago, but for UNKNOWN ones; return how many."""
        if not (isinstance(older_than, (int, float)) and abs(older_than) < _OLDEST):  # nor NaN
            raise InvalidRequestError(f"older_than: must be a number of seconds, not {older_than!r:.50}")
        await self.journal.open()
        entries = Entries(self.store, self.session)
        return await entries.prune(await entries.ago(older_than), unacknowledged=True)

    # --- a run

    async def _in_turn(self, spec: WriteSpec) -> Driver[Any]:
        """Run the write, or return the outcome of a run in this process that ended meanwhile."""
        called = self.session.clock.now()
        name = await self._name(spec.key or "", spec.team)
        with self._turn_of(name) as turn:
            before = turn.last
            if turn.users > 1 or spec.options.session.closed:
                await self.claims.until_closed(turn.lock.acquire())
            else:
                await turn.lock.acquire()  # at once
            try:
                if turn.last is not before and turn.last is not None:
                    outcome = turn.last.outcome()
                    if spec.resumes is None:
                        check_same(spec, turn.digest, digests_of(spec))
                    if spec.resumes is None or spec.resumes.identity == outcome.started_as.identity:
                        return _replayed(spec, outcome)
                turn.last = await self._run(spec, name, turn, called)
                return turn.last
            finally:
                turn.lock.release()

    @contextmanager
    def _turn_of(self, name: str) -> Generator[_Turn]:
        turn = self._turns.setdefault(name, _Turn())
        turn.users += 1
        try:
            yield turn
        finally:
            turn.users -= 1
            if not turn.users:
                del self._turns[name]

    async def _run(self, spec: WriteSpec, name: str, turn: _Turn, called: float) -> Driver[Any]:
        """Claim the key, and do what its entry says; see the top of this file."""
        if spec.creates_webhook and spec.tag is None:
            spec = replace(spec, tag=new_tag())
        digest = digests_of(spec)
        waited = await self.claims.until_left(name)  # then the verdict counts, whatever it is
        found = await self._look(spec, name) if waited or spec.resumes is not None else None
        while True:
            if spec.resumes is not None and found is not None:
                digest = found.entry.digest  # its body has a tag by now
            run = KeyedRun.of(spec, self.claims, await self.journal.own_lane(), name, digest, called)
            try:
                if found is not None:
                    check_same(spec, found.entry.digest, digest)
                    run.digest = found.entry.digest
                    driver = await self._met(run, spec, found, waited=waited)
                elif waited:
                    raise JournalError(
                        f"key {spec.key!r}: it was forgotten while its verdict was awaited. Nothing was sent "
                        "now."
                    )
                else:
                    await self._begun(run, spec)
                    driver = await self._first(run, spec)
                if driver is not None:
                    turn.digest = run.digest
                    return driver
            except KeyTakenError as taken:
                found = taken.found
                continue
            except LostLaneError:  # another process has it
                run.over = True
            finally:
                run.let_go()
            waited = waited or bool(run.seq) or (found is not None and found.lives)
            found = await self._look(spec, name)

    async def _look(self, spec: WriteSpec, name: str) -> Found | None:
        """Return the entry of a key; raise ConfigurationError if it is not that of what *spec* resumes."""
        found, resumes = await self.claims.look(name), spec.resumes
        if resumes is None:
            return found
        if found is None or (await self._intent(found.entry)).identity != resumes.identity:
            raise ConfigurationError(
                f"{spec.operation.name}: this journal does not have the write of this intent under the key "
                f"{spec.key!r}. Use the client whose journal has it."
            )
        return found

    async def _begun(self, run: KeyedRun, spec: WriteSpec) -> None:
        """
        Claim the key now, unless the claim can be a part of the store before the first send.

        That is so if nothing has to be read before that send, and the journal has all keys.
        """
        has_all = not (await self.doubts.mark()).is_open
        if has_all and new_start(spec, run.thing, partial(new_intent, spec)).first is not None:
            return
        await self.claims.claim(run, run.entry(State.TO_DO, new_intent(spec)))
        if not run.is_next:
            await self._after_earlier(run, run.seq)

    async def _met(self, run: KeyedRun, spec: WriteSpec, found: Found, *, waited: bool) -> Driver[Any] | None:
        """Do what follows from an entry; return ``None`` if it has to be looked at again."""
        entry, verdict = found.entry, found.entry.verdict
        is_done = entry.state is State.DONE
        if is_done and (waited or verdict in _FINAL):
            return _replayed(spec, await self._outcome(found))
        if not is_done and found.lives and found.owner != run.lane.token:
            await self.claims.wait(found)
            return None
        run.seq = entry.seq  # if its move fails, it may be in this lane all the same
        if is_done:
            state = State.SENDING if verdict == Verdict.UNKNOWN else State.TO_DO
            gone = False if await self.claims.reopen(found, state, run.lane) else None
            entry = replace(entry, state=state)
        else:
            gone = await self.claims.take(found, run.lane)
        if gone is None:  # another run has it
            run.seq = 0
            return None
        return await self._again(run, spec, entry, gone=gone)

    async def _again(self, run: KeyedRun, spec: WriteSpec, entry: Entry, *, gone: bool) -> Driver[Any]:
        """Go on with an entry that this process has now; *gone* is whether its last one is done with it."""
        await self.claims.note_taker(run)
        run.overtaken = run.thing is not None and await self._after_earlier(run, entry.place)
        if entry.state is State.TO_DO and not await self.doubts.has(entry):
            return await self._first(run, spec)
        return await self._driven(run, await self._left(run, entry, gone=gone, spec=spec))

    async def _left(
        self, run: KeyedRun, entry: Entry, *, gone: bool, spec: WriteSpec | None = None
    ) -> Driver[Any]:
        """Return a run that goes on with what may have been sent; without *spec*, it only reads."""
        intent = await self._intent(entry)
        if await self.doubts.has(entry):
            intent = in_doubt(intent)
        newest = False if run.overtaken else None if self.journal.is_shared else intent.newest
        intent = attrs.evolve(intent, newest=newest)
        if spec is not None:
            policy = attrs.evolve(intent.policy, **{name: getattr(spec.policy, name) for name in _OF_A_RUN})
            intent = with_reader(attrs.evolve(intent, policy=policy), spec.reader)
        # What is in a file was left before it was opened.
        since = self.session.clock.now() if self.journal.is_shared else self.journal.opened
        reader, gone_since = None if spec is None else spec.reader, since if gone else None
        return run_of(
            run.bound(), intent, reader=reader, journaled=True, gone_since=gone_since, reads_only=spec is None
        )

    async def _first(self, run: KeyedRun, spec: WriteSpec) -> Driver[Any]:
        """Run a write of which nothing was sent."""
        await self.doubts.check()
        if run.overtaken:
            intent = attrs.evolve(new_intent(spec), newest=False)
            driver = run_of(run.bound(), intent, reader=spec.reader, journaled=True, reads_only=False)
            return await self._driven(run, driver)
        if run.seq and spec.resumes is None and (digest := digests_of(spec)) != run.digest:
            run.digest = digest  # of another body than before, of which nothing was applied
            await self.store.rows(_DIGEST, run.seq, run.lane.number, digest)
        spec = replace(spec, options=run.bound())
        if spec.creates_webhook and self.session.on_secret is None:
            self.session.warn_once("on_secret", _NO_SECRETS)
        if spec.resumes is None:
            try:
                return await self._driven(run, new_run(spec))
            except KeyTakenError as taken:
                if taken.found is not None:
                    raise
                await self.doubts.check()
                await self._after_earlier(run, run.seq)
                return await self._driven(run, new_run(spec))
        intent = attrs.evolve(as_new(spec.resumes), policy=spec.policy)
        return await self._driven(run, Driver(spec, intent))  # the body has its tag already

    async def _driven(self, run: KeyedRun, driver: Driver[Any]) -> Driver[Any]:
        if run.called is not None:
            driver.result.begin(run.called, run.waited)
        try:
            await driver.drive()
        except KeyTakenError:
            driver.take_back()
            raise
        except LostLaneError:  # whoever has it settles it
            self.session.writes.take(driver.intent.identity)
            raise
        if run.outcome is not None and run.taker is None:  # nobody asks whether the awaiter has it
            driver.journal = None
        return driver

    # --- the order of the writes to one thing

    async def _after_earlier(self, run: KeyedRun, place: int) -> bool:
        """
        Wait until the earlier writes to the thing of *run* are done; settle those that nobody has.

        Return whether a later one may have had an effect.
        """
        thing = run.thing or ""
        after = 0
        begun = self.session.clock.now()
        since = time.time_ns() // 1_000_000 - _RECENT
        while True:
            [(key, earlier, later, unknown, *left)] = await self.store.rows(
                _OTHERS, thing, run.seq, since, place, after
            )
            if key is None:
                break
            found = await self.claims.look(key)
            if found is None or found.entry.state is State.DONE:
                continue
            if found.lives and (found.owner != run.lane.token or key in self._turns):
                await self.claims.wait(found)
            elif found.entry.state is State.TO_DO:
                # Nothing of it was sent. Nothing can be before a run takes it, and sees that it is overtaken.
                if found.entry.lane == FREED or await self.claims.take(found, run.lane, to=FREED) is not None:
                    after = earlier
            elif key in self._turns:  # a run here is about to take it
                await self.claims.until_closed(asyncio.sleep(_LOOK))
            elif await self._may_settle(found.entry, run.options):
                await self._settle(key, run.options)
            else:
                close_line(self.session, thing, await self._intent(found.entry), sender_gone=False)
                after = earlier
        learn(self.session.writes, [Left(thing, *left)])
        for entry in await self.store.entries(_UNKNOWN, thing, run.seq, since) if unknown else ():
            close_line(self.session, thing, await self._intent(entry))
        run.is_next = True
        run.waited += self.session.clock.now() - begun
        return bool(later)

    # --- what processes have left

    async def settle_left(self, options: ClientOptions, *, same_mode: bool) -> list[Outcome[Any]]:
        """Settle the keyed writes that nobody has and this client may read; return their outcomes."""
        settled: list[Outcome[Any] | None] = []
        for entry in await self.store.entries(f"{_LEFT_OPEN} ORDER BY e.seq", [FREED, ENDED]):
            try:
                if await self._may_settle(entry, options, same_mode=same_mode):
                    settled.append(await self._settle(entry.key, options))
            except JournalError as error:
                if not self.journal.is_shared or self.store.is_away(error):
                    raise
                log.error("left in the journal: %s", error)
        return [outcome for outcome in settled if outcome is not None]

    async def _may_settle(self, entry: Entry, options: ClientOptions, *, same_mode: bool = False) -> bool:
        """
        Return whether reads of this client may show the write of *entry*.

        They may if its key is one that this client may run, or its credential is the same.
        """
        same_mode = same_mode or await self._names.has(entry.key, self.session)
        try:
            check_scope(options.without_team(), await self._intent(entry), same_mode=same_mode)
        except InvalidRequestError:
            return False
        return True

    async def _settle(self, name: str, options: ClientOptions) -> Outcome[Any] | None:
        """Settle the write of an entry that nobody has, by reads alone, unless a run of it began here."""
        if name in self._turns:
            return None
        with self._turn_of(name) as turn:
            async with turn.lock:
                await self.claims.until_left(name)
                found, lane = await self.claims.look(name), await self.journal.own_lane()
                if found is None or (entry := found.entry).state is not State.SENDING:
                    return None
                options = options.without_team()
                run = KeyedRun(self.claims, lane, name, entry.thing, entry.digest, options, seq=entry.seq)
                try:
                    if (gone := await self.claims.take(found, lane)) is None:
                        run.over = True
                        return None
                    await self._driven(run, await self._left(run, entry, gone=gone))
                except LostLaneError:
                    run.over = True
                finally:
                    run.let_go()
                return run.outcome

    # --- back from an entry

    async def _intent(self, entry: Entry) -> Intent:
        return intent_of(await self._readable(entry), self.store.commons)

    async def _readable(self, entry: Entry) -> Entry:
        """Return *entry* under the user's key; load its common part if another process has stored that."""
        if self.store.commons.lack([entry]):
            await self.store.entries("e.seq = $1", entry.seq)
        return replace(entry, key=key_in(entry.key))

    async def _outcome(self, found: Found) -> Outcome[Any]:
        """Return the outcome of an entry that is done."""
        entry = found.entry
        outcome = outcome_of(await self._readable(entry), self.store.commons)
        if verdict_and_record(entry)[1].had == "returned":
            # The run that made a webhook notes soon after that it returned its secret.
            latest: Found | None = found
            until = asyncio.get_running_loop().time() + _TO_RETURN
            while latest is not None and latest.untold == 1 and asyncio.get_running_loop().time() < until:
                await asyncio.sleep(_LOOK)
                latest = await self.claims.look(entry.key)
            if latest is not None and not latest.untold:
                outcome = attrs.evolve(outcome, secret="not stored")
        return attrs.evolve(outcome, replayed=True)


def _replayed(spec: WriteSpec, outcome: Outcome[Any]) -> Driver[Any]:
    """Return a run that has the outcome of another one."""
    changes: dict[str, Any] = {"replayed": True}
    if outcome.secret == "returned":
        value = attrs.evolve(cast("Webhook", outcome.value), secret=None)
        changes |= {"value": value, "secret": "not stored"}
    driver, session = new_run(spec), spec.options.session
    driver.journal = None
    outcome = attrs.evolve(outcome, **changes)
    if outcome.verdict is not Verdict.UNKNOWN:
        session.writes.take(outcome.started_as.identity)
    driver.keep(outcome)
    session.tell(session.on_replay, outcome)
    return driver
