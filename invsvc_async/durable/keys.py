"""
Keys of the user's own: a write under a key has one effect, whichever process runs it, and however often.

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

The writes to one thing have one order in all processes, that of their claims: see ``store/order``, and
``key_queue`` for what a run waits for.  The statements are in ``store/claims``.

A verdict is returned once it is stored.  If another process has the entry by then, that one's verdict counts.

A run passes through these methods, each of which adds one thing:

=========================  ================================================================================
``run``                    the close of the client ends its waits
``_in_order_of_starts``    the keys of one thing are claimed in the order in which their runs were started
``_one_at_a_time``         one run of the key at a time in this process; the next returns its outcome
``_by_entry``              looks at the entry, again and again, until there is an outcome
``_step``                  does what the table above says: ``_claim_and_send``, ``_reopen_and_run``,
                           ``_take_and_run``, or one of the other rows
``_send_first``, ``_go_on``  wait for earlier writes to the thing, and make drivers, until one has a verdict
``_drive``                 drives one driver to its end
=========================  ================================================================================
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

import attrs
from msgspec.structs import replace

from invsvc_async.durable.entries import Entries
from invsvc_async.durable.entry import Entry, LostLaneError, State
from invsvc_async.durable.intents import as_new, in_doubt, without_effect
from invsvc_async.durable.key_claims import Claims
from invsvc_async.durable.key_names import (
    Doubts,
    Namespaces,
    conflict_error,
    conflict_of,
    digests_of,
    key_in,
)
from invsvc_async.durable.key_queue import Queue
from invsvc_async.durable.key_starts import StartOrder
from invsvc_async.durable.keyed_run import KeyedRun, KeyTakenError, NotNext, changed_by
from invsvc_async.durable.records import intent_of, outcome_of, verdict_and_record
from invsvc_async.durable.resolve import is_being_done, note, resolve
from invsvc_async.durable.store.claims import (
    Abandoned,
    Claimed,
    Finished,
    Held,
    Teller,
    abandoned,
    load_common_of,
    note_digest,
)
from invsvc_async.durable.store.order import is_overtaken
from invsvc_async.errors import ConfigurationError, InvalidRequestError, JournalError
from invsvc_async.reconcile.enums import Verdict
from invsvc_async.reconcile.intent import Intent
from invsvc_async.writes.driver import AnyDriver, Driver, new_run, run_of
from invsvc_async.writes.new_intent import (
    intent_of as new_intent,
    new_tag,
    with_reader,
)
from invsvc_async.writes.recovery import check_scope
from invsvc_async.writes.starting import new_start

if TYPE_CHECKING:
    from collections.abc import Awaitable, Generator, Mapping

    from invsvc_async.durable.journal import ClientJournal
    from invsvc_async.durable.key_starts import KeyStart
    from invsvc_async.durable.resolve import Resolution
    from invsvc_async.durable.store.claims import Seen
    from invsvc_async.durable.store.opening import Store
    from invsvc_async.models.webhooks import Webhook
    from invsvc_async.reconcile.outcome import AnyOutcome, Outcome
    from invsvc_async.transport.client_core import ClientCore, ClientOptions
    from invsvc_async.writes.spec import WriteSpec


log: logging.Logger = logging.getLogger("invsvc_async.writes")

_FINAL = (Verdict.APPLIED, Verdict.SUPERSEDED)
# These settings of an intent are replaced by those of the run that goes on with it.  The windows stay: they
# belong to what was sent.
_OF_A_RUN: Final = ("deadline", "resend", "max_resends", "journey_reader")
_OLDEST: Final = 1e11  # s; the store counts in 64 bits
_TO_RETURN = 5.0  # s that a run has to note that it returned a secret
_LOOK = 0.02  # s between looks
_NO_SECRETS = (
    "on_secret: is not set, and a keyed write creates a webhook. Its secret is returned once, to the run "
    "that made it. Pass Client(on_secret=…) to keep secrets."
)


@attrs.define(eq=False)
class _RunsHere:
    """The runs of a key in this process, which take place one at a time."""

    lock: asyncio.Lock = attrs.field(factory=asyncio.Lock)  # the present run has it
    many: int = 0  # runs that have begun, or wait for the lock
    # set when the present run ends
    ended: asyncio.Event = attrs.field(factory=asyncio.Event)
    last: AnyDriver | None = None  # the last run that has an outcome
    digest: str = ""  # of its write

    def wake_waiters(self) -> None:
        """Wake those that wait for the end of the present run."""
        self.ended.set()
        self.ended = asyncio.Event()


class Keys:
    """The keys of a journal.  *named* are the options about keys in the journal's address."""

    def __init__(
        self, journal: ClientJournal, store: Store, named: Mapping[str, str]
    ) -> None:
        self._journal = journal
        self._life = journal.life
        self.store: Store = store
        self.claims: Claims = Claims(journal.life, store)
        self._names = Namespaces(
            store, named=named.get("namespace"), same_mode="same_mode" in named
        )
        self.doubts: Doubts = Doubts(store, complete="complete" in named)
        self._runs: dict[str, _RunsHere] = {}  # by the keys of entries
        self._starts = StartOrder()
        self._queue = Queue(self, self.claims, journal.life)

    @property
    def core(self) -> ClientCore:
        """The state of the journal's client."""
        core = self._life.core
        assert core is not None
        return core

    # --- what users call

    def run(self, spec: WriteSpec) -> Awaitable[AnyDriver]:
        """
        Run a write under its key, and return the driver with the verdict.

        Raises:
            KeyConflictError: The key has another write.
            ConfigurationError: The namespace of its key is not certain, or the client is closed.
            JournalError: The journal cannot be used; nothing was sent.
        """
        return spec.options.core.under_way.tracked(
            partial(self._in_order_of_starts, spec)
        )

    async def _name(self, key: str, team: str | None) -> str:
        await self._life.open()
        return await self._names.name(key, team, self.core)

    async def outcome_of(self, key: str, team: str | None) -> AnyOutcome | None:
        """Return the stored outcome under *key*, or ``None`` if there is none."""
        found = await self.claims.look(await self._name(key, team))
        return await self._outcome(found) if isinstance(found, Finished) else None

    async def has(self, key: str, team: str | None) -> bool:
        """Return whether there is a write under *key*, with a verdict or without one."""
        return await self.claims.look(await self._name(key, team)) is not None

    async def verdict_of(self, intent: Intent) -> AnyOutcome | None:
        """Return the stored outcome of *intent*; ``None`` if it has none, or is UNKNOWN."""
        known = await self.outcome_of(intent.key, intent.scope.team)
        if (
            known is None
            or known.verdict is Verdict.UNKNOWN
            or known.intent.identity != intent.identity
        ):
            return None
        self.core.writes.forget(intent.identity)
        return known

    async def forget(self, key: str, team: str | None) -> bool:
        """
        Delete *key* and all that is stored of its write; return whether the key was there.

        Raises:
            JournalError: The write may have been sent, and has no verdict.
        """
        name = await self._name(key, team)
        if await Entries(self.store).drop(name):
            return True
        if (found := await self.claims.look(name)) is not None:
            is_held = isinstance(found, Held)
            why = ", because it is being done" if is_held else ""
            raise JournalError(
                f"forget: the write under the key {key!r} may have been sent, and has no verdict{why}. Await "
                "it, or resolve it.",
                is_conflict=True,
            )
        return False

    async def resolve(
        self, key: str | Intent, team: str | None, finding: Resolution
    ) -> AnyOutcome:
        """
        Store what a person has found out about the write under *key*, or of an intent; return its outcome.

        Raises:
            InvalidRequestError: *key* is neither; or as :func:`resolve`.
            JournalError: A run of it lives, here or elsewhere; or as :func:`resolve`.
        """
        if isinstance(key, str):
            return await self._resolve(key, team, finding, None)
        if not isinstance(key, Intent):
            raise InvalidRequestError(
                f"key: must be a key or an Intent, not a {type(key).__name__}"
            )
        if key.nonce is None:  # without a key of the user's own
            return await self._journal.resolve(key, finding)
        return await self._resolve(key.key, key.scope.team, finding, key.identity)

    async def _resolve(
        self, key: str, team: str | None, finding: Resolution, identity: str | None
    ) -> AnyOutcome:
        name = await self._name(key, team)
        if name in self._runs:
            raise is_being_done(key)
        with self._runs_of(name) as runs:
            async with runs.lock:  # a run that begins here waits
                await self.claims.until_end_is_stored(name)
                mine = (await self._life.own_lane()).token
                resolved = await resolve(
                    self.store, name, finding, key=key, identity=identity, mine=mine
                )
        note(self.core, resolved)
        return resolved.outcome

    async def prune(self, older_than: float) -> int:
        """Delete what was done more than *older_than* seconds ago, but for UNKNOWN ones; return how many."""
        # The comparison is false for NaN, too.
        if not (isinstance(older_than, (int, float)) and abs(older_than) < _OLDEST):
            raise InvalidRequestError(
                f"older_than: must be a number of seconds, not {older_than!r:.50}"
            )
        await self._life.open()
        entries = Entries(self.store, self.core)
        return await entries.prune(await entries.ago(older_than), unacknowledged=True)

    # --- a run

    async def _in_order_of_starts(self, spec: WriteSpec) -> Driver[Any]:
        """Run the write; its key is claimed after the keys of earlier starts for the same thing."""
        thing = changed_by(spec)
        if thing is None:
            return await self._one_at_a_time(spec, None)
        start = self._starts.enter(thing)  # at once: what follows waits for the journal
        try:
            return await self._one_at_a_time(spec, start)
        finally:
            start.leave()

    async def _one_at_a_time(
        self, spec: WriteSpec, start: KeyStart | None
    ) -> Driver[Any]:
        """Run the write, or return the outcome of a run in this process that ended meanwhile."""
        called = self.core.clock.now()
        name = await self._name(spec.key or "", spec.team)
        with self._runs_of(name) as runs:
            before = runs.last
            may_have_to_wait = runs.many > 1 or spec.options.core.under_way.closed
            if may_have_to_wait:
                # The run before this one claims the key, so later starts need not wait for this one.
                if start is not None:
                    start.leave()
                await self.claims.while_open(runs.lock.acquire())
            else:
                # The lock is free: there is no wait that a close of the client would have to end.
                await runs.lock.acquire()
            try:
                outcome = _outcome_since(before, runs, spec)
                if outcome is not None:
                    return _replay(spec, outcome)
                runs.last = await self._by_entry(spec, name, runs, start, called)
                return runs.last
            finally:
                runs.lock.release()
                runs.wake_waiters()

    @contextmanager
    def _runs_of(self, name: str) -> Generator[_RunsHere]:
        runs = self._runs.setdefault(name, _RunsHere())
        runs.many += 1
        try:
            yield runs
        finally:
            runs.many -= 1
            if not runs.many:
                del self._runs[name]
                runs.wake_waiters()

    def has_run(self, name: str) -> bool:
        """Return whether a run of the key has begun here, and has not ended."""
        return name in self._runs

    async def until_run_ends(self, name: str) -> None:
        """Wait until the run of the key that has begun here ends, whatever came of it."""
        runs = self._runs.get(name)
        if runs is not None:
            await self.claims.while_open(runs.ended.wait())

    async def _by_entry(
        self,
        spec: WriteSpec,
        name: str,
        runs: _RunsHere,
        start: KeyStart | None,
        called: float,
    ) -> Driver[Any]:
        """Do what the entry of the key says, until the write has an outcome."""
        if spec.lacks_tag:
            spec = replace(spec, tag=new_tag())
        digest = digests_of(spec)
        # Whether this run has met another one of its write, whose verdict it returns, whatever that is.  The
        # first such run is the last one here, if its verdict was still to be stored.
        awaited = await self.claims.until_end_is_stored(name)
        has_entry = awaited or spec.resumes is not None
        seen = await self._look(spec, name) if has_entry else None
        while True:
            lane = await self._life.own_lane()
            run = KeyedRun.of(spec, self.claims, lane, name, digest, called)
            run.start = start
            try:
                step = await self._step(run, spec, seen, awaited=awaited)
            except LostLaneError:
                run.lose_entry()
                step = None
            finally:
                run.let_go()
            if isinstance(step, Driver):
                runs.digest = run.digest
                return step
            if step is None:
                awaited = awaited or _has_met_another(run, seen)
                step = await self._look(spec, name)
            seen = step

    async def _step(
        self, run: KeyedRun, spec: WriteSpec, seen: Seen | None, *, awaited: bool
    ) -> Driver[Any] | Seen | None:
        """
        Do what follows from the entry that was *seen*, as the table at the top of the file says.

        Return the run that has the outcome; or the entry that is there instead, as it was seen meanwhile;
        ``None`` if it has to be looked at.  *awaited* is whether the verdict of another run counts.
        """
        if seen is not None:
            # What is claimed is the entry that is there, so the next start for the thing may claim its own.
            run.let_next_start()
            self._check_entry(run, spec, seen.entry)
        match seen:
            case None if awaited:
                raise JournalError(
                    f"key {spec.key!r}: it was forgotten while its verdict was awaited. Nothing was sent now."
                )
            case None:
                return await self._claim_and_send(run, spec)
            case Finished() as done if awaited or done.entry.verdict in _FINAL:
                return _replay(spec, await self._outcome(done))
            case Finished() as done:
                return await self._reopen_and_run(run, spec, done.entry)
            case Held() as held:
                await self.claims.wait(held)
                return None
            case Abandoned(entry=entry):
                return await self._take_and_run(run, spec, entry)

    def _check_entry(self, run: KeyedRun, spec: WriteSpec, entry: Entry) -> None:
        """
        Raise KeyConflictError if *entry* is not of the write of *spec*; else *run* has the entry's digest.

        What is resumed is not compared by its body, which has got a tag since.
        """
        if spec.resumes is None:
            conflict = conflict_of(spec, entry.digest, run.digest)
            if conflict is not None:
                raise conflict_error(spec, conflict)
        run.digest = entry.digest

    async def _look(self, spec: WriteSpec, name: str) -> Seen | None:
        """Return the entry of a key; raise ConfigurationError if it lacks the write that *spec* resumes."""
        lane = await self._life.own_lane()
        found = await self.claims.look(name, lane.token)
        resumes = spec.resumes
        if resumes is None:
            return found
        if (
            found is None
            or (await self.intent_in(found.entry)).identity != resumes.identity
        ):
            raise ConfigurationError(
                f"{spec.operation.name}: this journal does not have the write of this intent under the key "
                f"{spec.key!r}. Use the client whose journal has it."
            )
        return found

    async def _claim_and_send(
        self, run: KeyedRun, spec: WriteSpec
    ) -> Driver[Any] | Seen:
        """
        Claim the key in the order of starts, and run the write; return the entry if the key has one.

        If nothing has to be read before the first send, and the journal has all keys, the claim is a part of
        the store before that send, and nothing is claimed here.
        """
        has_all = not (await self.doubts.mark()).is_open
        if run.start is not None:
            await self.claims.while_open(self._starts.until_first(run.start))
        # A later create of the same URL may be under way, so an untagged create waits in any case.
        may_be_next = run.thing is None or not run.creates
        if not (has_all and may_be_next and _is_sent_at_once(spec, run.thing)):
            claim = await run.claim(run.entry(State.TO_DO, new_intent(spec)))
            if not isinstance(claim, Claimed):
                return claim
            run.is_next = run.is_next and may_be_next
            if not run.is_next:
                await self._wait_for_earlier(run)
        return await self._send_first(run, spec)

    async def _reopen_and_run(
        self, run: KeyedRun, spec: WriteSpec, entry: Entry
    ) -> Driver[Any] | Seen | None:
        """Do a write anew without effect, or settle an UNKNOWN one; return ``None`` if another run does."""
        run.own(entry)
        is_unknown = entry.verdict == Verdict.UNKNOWN
        state = State.SENDING if is_unknown else State.TO_DO
        if not await self.claims.reopen(entry, state, run.lane):
            run.disown()
            return None
        return await self._go_on(
            run, spec, replace(entry, state=state), sender_gone=False
        )

    async def _take_and_run(
        self, run: KeyedRun, spec: WriteSpec, entry: Entry
    ) -> Driver[Any] | Seen | None:
        """Go on with an entry that nobody has; return ``None`` if another run has taken it."""
        run.own(entry)
        taken = await self.claims.take(entry, run.lane)
        if taken is None:
            run.disown()
            return None
        return await self._go_on(run, spec, entry, sender_gone=taken.is_gone)

    async def _go_on(
        self, run: KeyedRun, spec: WriteSpec, entry: Entry, *, sender_gone: bool
    ) -> Driver[Any] | Seen:
        """
        Go on with an acquired *entry*, once the turn of the run has come.

        *sender_gone* is whether the process that had it before is provably done with it.
        """
        await self.claims.note_who_returns(run)
        if entry.state is State.TO_DO:
            run.sent_before = without_effect(await self.intent_in(entry)).sent
        while True:
            await self._wait_for_earlier(run)
            if entry.state is State.TO_DO and not await self.doubts.has(entry):
                return await self._send_first(run, spec)
            driver = await self._resumed_driver(
                run, entry, sender_gone=sender_gone, spec=spec
            )
            ended = await self._drive(run, driver)
            if not isinstance(ended, NotNext):
                return ended

    async def _wait_for_earlier(self, run: KeyedRun) -> None:
        """Wait for the earlier writes to the thing of *run*, if others may change it."""
        run.has_to_wait = False
        if run.thing is not None:
            await self._queue.wait(run)

    async def _resumed_driver(
        self,
        run: KeyedRun,
        entry: Entry,
        *,
        sender_gone: bool,
        spec: WriteSpec | None = None,
    ) -> Driver[Any]:
        """Return a driver that goes on with *entry*, which may have been sent; without *spec*, by reads."""
        intent = attrs.evolve(await self.intent_in(entry), newest=not run.overtaken)
        if await self.doubts.has(entry):
            intent = in_doubt(intent)
        if spec is not None:
            policy = attrs.evolve(
                intent.policy,
                **{name: getattr(spec.policy, name) for name in _OF_A_RUN},
            )
            intent = with_reader(attrs.evolve(intent, policy=policy), spec.reader)
        reader = None if spec is None else spec.reader
        return run_of(
            run.bound(),
            intent,
            reader=reader,
            journaled=True,
            gone_since=self._known_gone_since() if sender_gone else None,
            reads_only=spec is None,
        )

    def _known_gone_since(self) -> float:
        """
        Return since when a sender that is provably gone is known to be gone (local s).

        A file was opened only after its last process had ended; in a database, that is known from now on.
        """
        return self.core.clock.now() if self.store.is_shared else self._life.opened

    async def _send_first(self, run: KeyedRun, spec: WriteSpec) -> Driver[Any] | Seen:
        """
        Run a write of which nothing was sent, once its turn has come.

        The turn may be lost before the send, and the store put back from a copy while the run waits for it
        again.  So the wait and the check are repeated, and each time another driver is made.
        """
        await self.doubts.check()
        if not run.overtaken:
            if run.seq and spec.resumes is None:
                await self._note_body(run, spec)
            if spec.creates_webhook and self.core.on_secret is None:
                self.core.warn_once("on_secret", _NO_SECRETS)
        while True:
            driver = (
                self._overtaken_driver(run, spec)
                if run.overtaken
                else self._first_driver(run, spec)
            )
            ended = await self._drive(run, driver)
            if not isinstance(ended, NotNext):
                return ended
            await self.doubts.check()
            await self._wait_for_earlier(run)

    async def _note_body(self, run: KeyedRun, spec: WriteSpec) -> None:
        """Store the digest of *spec* if it has another body than before, of which nothing was applied."""
        digest = digests_of(spec)
        if digest != run.digest:
            run.digest = digest
            await note_digest(self.store, run.seq, run.lane.number, digest)

    def _first_driver(self, run: KeyedRun, spec: WriteSpec) -> AnyDriver:
        """Return a driver of a write of which nothing was sent, or nothing that had an effect."""
        bound = replace(spec, options=run.bound())
        if spec.resumes is not None:
            intent = attrs.evolve(
                as_new(spec.resumes, run.sent_before), policy=spec.policy
            )
            return Driver(bound, intent)  # not `new_run`: its body has a tag already
        if run.sent_before:
            return new_run(bound, attrs.evolve(new_intent(bound), sent=run.sent_before))
        return new_run(bound)

    def _overtaken_driver(self, run: KeyedRun, spec: WriteSpec) -> AnyDriver:
        """Return a driver that sends nothing, because a newer write to its thing was sent."""
        intent = attrs.evolve(new_intent(spec), sent=run.sent_before, newest=False)
        return run_of(
            run.bound(), intent, reader=spec.reader, journaled=True, reads_only=False
        )

    async def _drive(
        self, run: KeyedRun, driver: Driver[Any]
    ) -> Driver[Any] | Seen | NotNext:
        """Drive the write to its outcome, unless it must not be sent now; then return why not."""
        if run.called is not None:
            driver.result.begin(run.called, run.waited)
        try:
            await driver.drive()
        except KeyTakenError as error:
            driver.take_back()
            return error.why
        except LostLaneError:  # whoever has it settles it
            self.core.writes.forget(driver.intent.identity)
            raise
        returns_no_secret = run.secret_by is None
        if run.outcome is not None and returns_no_secret:
            driver.tell_verdict_only()  # nobody asks whether the awaiter has the verdict
        return driver

    # --- what processes have left

    async def settle_left(
        self, options: ClientOptions, *, same_mode: bool
    ) -> list[Outcome[Any]]:
        """Settle the keyed writes that nobody has and this client may read; return their outcomes."""
        settled: list[Outcome[Any] | None] = []
        for entry in await abandoned(self.store):
            try:
                if await self.may_settle(entry, options, same_mode=same_mode):
                    settled.append(await self.settle(entry.key, options))
            except JournalError as error:
                if not self.store.is_shared or self.store.is_away(error):
                    raise
                log.error("left in the journal: %s", error)
        return [outcome for outcome in settled if outcome is not None]

    async def may_settle(
        self, entry: Entry, options: ClientOptions, *, same_mode: bool = False
    ) -> bool:
        """
        Return whether reads of this client may show the write of *entry*.

        They may if its key is one that this client may run, or its credential is the same.
        """
        same_mode = same_mode or await self._names.has(entry.key, self.core)
        try:
            check_scope(
                options.without_team(), await self.intent_in(entry), same_mode=same_mode
            )
        except InvalidRequestError:
            return False
        return True

    async def settle(self, name: str, options: ClientOptions) -> Outcome[Any] | None:
        """Settle the write of an entry that nobody has, by reads alone, unless a run of it began here."""
        if name in self._runs:
            return None
        with self._runs_of(name) as runs:
            async with runs.lock:
                await self.claims.until_end_is_stored(name)
                lane = await self._life.own_lane()
                match await self.claims.look(name, lane.token):
                    case Abandoned(entry=entry, sent=True):
                        run = KeyedRun.of_entry(
                            entry, self.claims, lane, options.without_team()
                        )
                        return await self._take_and_settle(run, entry)
                    case _:
                        return None

    async def _take_and_settle(
        self, run: KeyedRun, entry: Entry
    ) -> Outcome[Any] | None:
        """Acquire *entry*, and settle its write by reads alone; return ``None`` if another run has it."""
        try:
            taken = await self.claims.take(entry, run.lane)
            if taken is None:
                run.lose_entry()
                return None
            if run.thing is not None and not run.creates:
                run.overtaken = await is_overtaken(self.store, run.thing, run.place)
            driver = await self._resumed_driver(run, entry, sender_gone=taken.is_gone)
            await self._drive(run, driver)
        except LostLaneError:
            run.lose_entry()
        finally:
            run.let_go()
        return run.outcome

    # --- back from an entry

    async def intent_in(self, entry: Entry) -> Intent:
        """Return the intent of *entry*, under the user's key."""
        return intent_of(await self._readable(entry), self.store.commons)

    async def _readable(self, entry: Entry) -> Entry:
        """Return *entry* under the user's key; load its common part if another process has stored that."""
        if self.store.commons.lack([entry]):
            await load_common_of(self.store, entry)
        return replace(entry, key=key_in(entry.key))

    async def _outcome(self, done: Finished) -> Outcome[Any]:
        """Return the outcome of an entry that is done."""
        entry = done.entry
        outcome = outcome_of(await self._readable(entry), self.store.commons)
        had_secret = verdict_and_record(entry)[1].had == "returned"
        if had_secret and await self._until_returned(done):
            outcome = attrs.evolve(outcome, secret="not stored")
        return attrs.evolve(outcome, replayed=True)

    async def _until_returned(self, done: Finished) -> bool:
        """
        Wait, some seconds, for the note that the secret was returned; return whether it came.

        The run that made a webhook notes that soon after its verdict, which others see before.
        """
        latest: Seen | None = done
        until = asyncio.get_running_loop().time() + _TO_RETURN
        while (
            isinstance(latest, Finished)
            and latest.teller is Teller.LIVING
            and asyncio.get_running_loop().time() < until
        ):
            await asyncio.sleep(_LOOK)
            latest = await self.claims.look(done.entry.key)
        return isinstance(latest, Finished) and latest.teller is Teller.NOBODY


def _outcome_since(
    before: AnyDriver | None, runs: _RunsHere, spec: WriteSpec
) -> Outcome[Any] | None:
    """
    Return the outcome of the run of *runs* that has ended since *before* was the last one.

    ``None`` if there is none, or it is of another write than the one that *spec* resumes.

    Raises:
        KeyConflictError: It is of another write than *spec*.
    """
    if runs.last is before or runs.last is None:
        return None
    outcome = runs.last.outcome()
    if spec.resumes is None:
        _check_same(spec, runs.digest)
        return outcome
    is_resumed = spec.resumes.identity == outcome.started_as.identity
    return outcome if is_resumed else None


def _check_same(spec: WriteSpec, stored: str) -> None:
    """Raise KeyConflictError unless *spec* is the write whose digests are *stored*."""
    conflict = conflict_of(spec, stored, digests_of(spec))
    if conflict is not None:
        raise conflict_error(spec, conflict)


def _has_met_another(run: KeyedRun, seen: Seen | None) -> bool:
    """
    Return whether another run did the same write beside *run*, and so has the verdict to return.

    Either it has taken the entry that *run* had; or a living process had the entry that was *seen*.
    """
    has_lost_entry = bool(run.seq)
    return has_lost_entry or _is_of_living(seen)


def _is_of_living(seen: Seen | None) -> bool:
    """Return whether a living process has the entry that was *seen*, or has found its verdict."""
    match seen:
        case Finished(lives=lives):
            return lives
        case Held():
            return True
        case _:
            return False


def _is_sent_at_once(spec: WriteSpec, thing: str | None) -> bool:
    """Return whether nothing has to be read before the first send: a run that starts now would send."""
    return new_start(spec, thing, partial(new_intent, spec)).first is not None


def _replay(spec: WriteSpec, outcome: Outcome[Any]) -> Driver[Any]:
    """
    Return a driver that has the outcome of another run, and call ``on_replay``.

    With a verdict, the intent is no longer open in this client.
    """
    changes: dict[str, Any] = {"replayed": True}
    if outcome.secret == "returned":
        value = attrs.evolve(cast("Webhook", outcome.value), secret=None)
        changes |= {"value": value, "secret": "not stored"}
    driver = new_run(spec)
    core = spec.options.core
    driver.tell_verdict_only()
    outcome = attrs.evolve(outcome, **changes)
    if outcome.verdict is not Verdict.UNKNOWN:
        core.writes.forget(outcome.started_as.identity)
    driver.keep(outcome)
    core.tell(core.on_replay, outcome)
    return driver
