"""
What a run of a write does, by the entry of its key.

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

In which lane an entry is, and the order of the writes to one thing, is said in ``keys``.

A run passes through these methods, each of which adds one thing:

=========================  ================================================================================
``by_entry``               looks at the entry, again and again, until there is an outcome; without an entry,
                           ``_claim_and_send``
``_step``                  does what the other rows of the table above say: ``_reopen_and_run``,
                           ``_take_and_run``, and so on
``_send_first``, ``_go_on``  wait for earlier writes to the thing, and make drivers, until one has a verdict
``drive``                  drives one driver to its end
=========================  ================================================================================
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import attrs
from msgspec.structs import replace

from invsvc_async.durable.entry import Entry, LostEntryError, State
from invsvc_async.durable.intents import without_effect
from invsvc_async.durable.key_drivers import (
    drive,
    first_driver,
    intent_anew,
    overtaken_driver,
    replay,
)
from invsvc_async.durable.key_names import check_same, digests_of
from invsvc_async.durable.keyed_run import KeyedRun, NotNext, changed_by
from invsvc_async.durable.store.claims import (
    Abandoned,
    Claimed,
    Finished,
    Held,
)
from invsvc_async.errors import ConfigurationError, JournalError
from invsvc_async.reconcile.enums import Verdict
from invsvc_async.writes.driver import Driver
from invsvc_async.writes.new_intent import intent_of as new_intent, new_tag
from invsvc_async.writes.starting import new_start

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from invsvc_async.durable.journal_life import JournalLife
    from invsvc_async.durable.key_claims import Claims
    from invsvc_async.durable.key_names import Doubts
    from invsvc_async.durable.key_queue import Queue
    from invsvc_async.durable.key_runs import RunsOfKey
    from invsvc_async.durable.key_scopes import KeyScopes
    from invsvc_async.durable.key_starts import KeyStart, StartOrder
    from invsvc_async.durable.store.claims import Seen
    from invsvc_async.durable.stored_keys import StoredKeys
    from invsvc_async.reconcile.intent import Intent
    from invsvc_async.writes.spec import WriteSpec


T = TypeVar("T")

_FINAL = (Verdict.APPLIED, Verdict.SUPERSEDED)
_NO_SECRETS = (
    "on_secret: is not set, and a keyed write creates a webhook. Its secret is returned once, to the run "
    "that made it. Pass Client(on_secret=…) to keep secrets."
)


@attrs.frozen(eq=False)
class KeySteps:
    """
    The steps of the runs of keys in one journal.

    They use what these runs share: the *claims* of keys, the order of *starts*, the *queue* for each thing,
    the writes that are *stored* and their *scopes*, and the *doubts* about a journal that was put back from a
    copy.
    """

    life: JournalLife
    claims: Claims
    starts: StartOrder
    queue: Queue
    stored: StoredKeys
    scopes: KeyScopes
    doubts: Doubts

    async def by_entry(
        self,
        spec: WriteSpec,
        thing: str | None,
        name: str,
        runs: RunsOfKey,
        start: KeyStart | None,
        called: float,
    ) -> Driver[Any]:
        """Do what the entry of the key says, until the write has an outcome."""
        if spec.lacks_tag:
            spec = replace(spec, tag=new_tag())
        digest = digests_of(spec)
        # Whether this run has met another one of its write: then it returns that one's verdict, whatever that
        # is.  It has met the last run in this process if the verdict of that was still to be stored.
        awaited = await self.claims.ends.until_stored(name)
        may_have_arrived = False  # what earlier passes have sent
        has_entry = awaited or spec.resumes is not None
        seen = await self._look(spec, name) if has_entry else None
        step: Driver[Any] | Seen | None
        while True:
            lane = await self.life.own_lane()
            run = KeyedRun.of(spec, thing, self.claims, lane, name, digest, called)
            run.start = start
            has_met_another = _is_of_living(seen)  # if it has to be looked at again
            try:
                if seen is None and not awaited:  # by far the most
                    step = await self._claim_and_send(run, spec)
                else:
                    if seen is None:
                        raise _forgotten(spec, may_have_arrived=may_have_arrived)
                    step = await self._step(run, spec, seen, awaited=awaited)
            except LostEntryError:
                run.lose_entry()
                step = None
                # What the run had acquired is another one's now, which does the same write beside this one.
                has_met_another = bool(run.seq)
            finally:
                run.let_go()
            may_have_arrived = may_have_arrived or run.may_have_arrived
            if isinstance(step, Driver):
                runs.digest = run.digest
                return step
            if step is None:
                awaited = awaited or has_met_another
                step = await self._look(spec, name)
            seen = step

    async def _step(
        self,
        run: KeyedRun,
        spec: WriteSpec,
        seen: Seen,
        *,
        awaited: bool,
    ) -> Driver[Any] | Seen | None:
        """
        Do what follows from the entry that was *seen*, as the table at the top of the file says.

        Return the run that has the outcome; or the entry that is there instead, as it was seen meanwhile;
        ``None`` if it has to be looked at.  *awaited* is whether the verdict of another run counts.
        """
        # What is claimed is the entry that is there, so the next start for the thing may claim its own.
        run.let_next_start()
        await self._check_entry(run, spec, seen.entry)
        match seen:
            case Finished() as done if awaited or done.entry.verdict in _FINAL:
                return replay(spec, await self.stored.outcome_of(done))
            case Finished() as done:
                return await self._reopen_and_run(run, spec, done.entry)
            case Held() as held:
                await self.claims.waits.wait(held)
                return None
            case Abandoned(entry=entry):
                return await self._take_and_run(run, spec, entry)

    async def _check_entry(
        self,
        run: KeyedRun,
        spec: WriteSpec,
        entry: Entry,
    ) -> None:
        """
        Raise KeyConflictError if *entry* is not of the write of *spec*; else *run* has the entry's digest.

        What is resumed is known by its identity, and has got a tag in its body since.
        """
        if spec.resumes is None:
            elsewhere = await self.scopes.elsewhere(entry, spec.team)
            check_same(spec, entry.digest, run.digest, elsewhere)
        run.digest = entry.digest

    async def _look(self, spec: WriteSpec, name: str) -> Seen | None:
        """Return the entry of a key; raise ConfigurationError if it lacks the write that *spec* resumes."""
        lane = await self.life.own_lane()
        found = await self.claims.look(name, lane.token)
        resumes = spec.resumes
        if resumes is None:
            return found
        if (
            found is None
            or (await self.stored.intent_in(found.entry)).identity != resumes.identity
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
            seen = await self._until_first(run, spec, run.start)
            if seen is not None:
                return seen
        run.options.check_start()
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

    async def _until_first(
        self, run: KeyedRun, spec: WriteSpec, start: KeyStart
    ) -> Seen | None:
        """
        Wait until *start*, of *run*, is the first of its thing; return the entry if the key gets one.

        A write without a key may have started before.  It waits for the ends of keyed runs that started
        before itself, and one of these may wait for the run of this key, if another process has made an entry
        for the key.  So this run goes on with the entry then, instead of waiting for the first two.
        """
        start.come_back()
        while True:
            start.is_found = False
            if self.starts.has_unkeyed_before(start):
                seen = await self._look(spec, run.name)
                if seen is not None:
                    return seen
            await self.claims.waits.while_open(self.starts.until_first(start))
            if not start.is_found:
                return None

    async def _reopen_and_run(
        self,
        run: KeyedRun,
        spec: WriteSpec,
        entry: Entry,
    ) -> Driver[Any] | Seen | None:
        """Do a write anew without effect, or settle an UNKNOWN one; return ``None`` if another run does."""
        is_unknown = entry.verdict == Verdict.UNKNOWN
        state = State.SENDING if is_unknown else State.TO_DO
        reopen = partial(self.claims.reopen, entry, state, run.lane)
        if not await self._acquire(run, entry, state, reopen):
            return None
        return await self._go_on(
            run, spec, replace(entry, state=state), sender_gone=False
        )

    async def _take_and_run(
        self,
        run: KeyedRun,
        spec: WriteSpec,
        entry: Entry,
    ) -> Driver[Any] | Seen | None:
        """Go on with an entry that nobody has; return ``None`` if another run has taken it."""
        take = partial(self.claims.take, entry, run.lane)
        taken = await self._acquire(run, entry, entry.state, take)
        if taken is None:
            return None
        return await self._go_on(run, spec, entry, sender_gone=taken.is_gone)

    async def _acquire(
        self,
        run: KeyedRun,
        entry: Entry,
        state: State,
        acquire: Callable[[], Awaitable[T]],
    ) -> T:
        """
        Return the result of *acquire*, which moves *entry* to the lane of *run*, in *state*.

        It is false if another run has changed the entry.

        Raises:
            LostEntryError: The lane belongs to another process.
        """
        run.own(entry)
        run.in_doubt = run.creates and state is State.SENDING and run.thing is not None
        try:
            if run.in_doubt:
                acquired = await self.queue.in_turn(run, acquire)
                run.is_next = True  # `begin` need not be asked: no other one is sent before it ends
            else:
                acquired = await acquire()
        except LostEntryError:
            run.disown()
            raise
        if not acquired:
            run.disown()
        return acquired

    async def _go_on(
        self,
        run: KeyedRun,
        spec: WriteSpec,
        entry: Entry,
        *,
        sender_gone: bool,
    ) -> Driver[Any] | Seen:
        """
        Go on with an acquired *entry*, once the turn of the run has come.

        *sender_gone* is whether the process that had it before is provably done with it.
        """
        await self.claims.note_who_returns(run)
        is_moved = False
        if entry.state is State.TO_DO:
            intent = await self.stored.intent_in(entry)
            run.sent_before = without_effect(intent).sent
            # Nothing of it had an effect.  This client may have it open, if another run has found that.
            run.options.core.writes.forget(intent.identity)
            if not await self.doubts.has(entry):
                is_moved = await self._move_to_thing(run, spec, intent)
        while True:
            await self._wait_for_earlier(run)
            # If the journal was put back from a copy since the move, ``_send_first`` sends nothing.  The
            # write is not settled here then: *entry* is as it was before the move.
            if is_moved:
                return await self._send_first(run, spec)
            if entry.state is State.TO_DO and not await self.doubts.has(entry):
                return await self._send_first(run, spec)
            driver = await self.stored.driver_of(
                run, entry, sender_gone=sender_gone, spec=spec
            )
            ended = await drive(run, driver)
            if not isinstance(ended, NotNext):
                return ended

    async def _move_to_thing(
        self,
        run: KeyedRun,
        spec: WriteSpec,
        stored: Intent,
    ) -> bool:
        """
        Move the entry of *run* to the thing of *spec*, unless it is there; return whether it was moved.

        A write that is done anew may change another thing than before: a create that has got a tag, or none
        any more; or that has another URL, if only its operation has to match.  Others find the writes to a
        thing by their entries, so the entry has the new thing before the run waits for its turn there.

        *stored* is the intent of the entry, which stays if it is resumed.
        """
        thing = changed_by(spec)
        if thing == run.thing:
            return False
        if spec.resumes is None:
            await run.note_anew(intent_anew(run, spec), digests_of(spec), thing)
        else:
            await run.note_anew(without_effect(stored), run.digest, thing)
        self.queue.leave_thing(run)
        return True

    async def _wait_for_earlier(self, run: KeyedRun) -> None:
        """Wait for the earlier writes to the thing of *run*, if others may change it."""
        run.has_to_wait = False
        if run.thing is not None:
            await self.queue.wait(run)

    async def _send_first(self, run: KeyedRun, spec: WriteSpec) -> Driver[Any] | Seen:
        """
        Run a write of which nothing was sent, once its turn has come.

        The turn may be lost before the send, and the store put back from a copy while the run waits for it
        again.  So the wait and the check are repeated, and each time another driver is made.
        """
        core = run.options.core
        await self.doubts.check()
        if not run.overtaken:
            if run.seq and spec.resumes is None:
                await self._note_body(run, spec)
            if spec.creates_webhook and core.on_secret is None:
                core.warn_once("on_secret", _NO_SECRETS)
        while True:
            driver = (
                overtaken_driver(run, spec)
                if run.overtaken
                else first_driver(run, spec)
            )
            ended = await drive(run, driver)
            if not isinstance(ended, NotNext):
                return ended
            await self.doubts.check()
            await self._wait_for_earlier(run)

    async def _note_body(self, run: KeyedRun, spec: WriteSpec) -> None:
        """Store *spec* if it has another body than before, of which nothing was applied."""
        digest = digests_of(spec)
        if digest != run.digest:
            await run.note_anew(intent_anew(run, spec), digest, run.thing)


def _forgotten(spec: WriteSpec, *, may_have_arrived: bool) -> JournalError:
    """Return the error for a key that was forgotten while the verdict of its write was awaited."""
    told = "Nothing was sent now."
    if may_have_arrived:
        told = (
            "This run has sent it, so it may have been applied. Look whether it was before you run it again, "
            "which would send it again."
        )
    return JournalError(
        f"key {spec.key!r}: it was forgotten while its verdict was awaited. {told}"
    )


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
