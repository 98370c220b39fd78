"""
The entries of keys in a journal: claiming, finding, taking and releasing them, and waiting for other runs.

A run is the journal of its driver, which stores in one entry.

Each change is guarded in its own statement.  A claim inserts an entry unless its key has one.  An entry is
taken only out of a lane that nobody living owns, released and stored only by the owner of its lane, and
reopened only from the verdict that was seen.  When a process counts as dead is decided in ``leases``.

Who waits for another run looks from time to time, and at once when the store hears of a change in that lane.
"""

from __future__ import annotations

import asyncio
import inspect
import weakref
from contextlib import suppress
from functools import partial
from math import inf
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, TypeVar, cast

import attrs
from msgspec.structs import replace

from invsvc_async.concurrency.cancellation import settle
from invsvc_async.concurrency.deadline import set_within
from invsvc_async.durable.done_at import done_at
from invsvc_async.durable.entry import ENTRY, Entry, LostLaneError, State, entry_in
from invsvc_async.durable.intents import Packed, pack
from invsvc_async.durable.key_names import key_in
from invsvc_async.durable.key_order import MINE, Turn, begin, lost_lane
from invsvc_async.durable.last_writes import claim_by, left_by
from invsvc_async.durable.records import done_entry, entry_of
from invsvc_async.durable.store.members import dead, living, member_of
from invsvc_async.durable.store.restored import IS_OPEN
from invsvc_async.durable.store.scripts import HEARD, add
from invsvc_async.errors import ConfigurationError, JournalError
from invsvc_async.reconcile.enums import Verdict
from invsvc_async.reconcile.findings import is_unique
from invsvc_async.transport.transport import CLOSED
from invsvc_async.writes.line_names import line_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Coroutine, Mapping, Sequence

    from invsvc_async.durable.journal import ClientJournal
    from invsvc_async.durable.key_starts import Start
    from invsvc_async.durable.leases import Lane
    from invsvc_async.durable.store.opening import Store
    from invsvc_async.durable.store.postgres import PostgresStore
    from invsvc_async.durable.store.states import Left
    from invsvc_async.reconcile.intent import Intent, Sent
    from invsvc_async.reconcile.outcome import AnyOutcome, Outcome
    from invsvc_async.storage.dialect import Cell, Script
    from invsvc_async.transport.client_core import ClientOptions
    from invsvc_async.writes.spec import WriteSpec


T = TypeVar("T")
FREED: Final = 0  # the lane of entries that nobody has: their process lives, or may
ENDED: Final = -1  # the same; their process is provably done with them
_AT_ONCE = 256  # entries claimed in one statement
# s between looks at what is waited for, in case no notification comes: the owner of a lane may fall silent.
_FIRST = 0.2
_LONGEST = 2.0
_AGAIN: Final = 1.0  # s between tries to store how a run ended
_TO_LEAVE: Final = 10.0  # s for which the next run waits for that
_TO_END: Final = 1.0  # s that the journal has to store what runs have left

# An entry, who has it, and whether its verdict is to be returned by somebody (1), or by one who is gone (2).
_FOUND: Final = f"""
SELECT {ENTRY}, l.owner, CASE WHEN l.owner IS NULL OR {dead("l.owner")} THEN 0 ELSE 1 END AS lives,
    CASE WHEN u.seq IS NULL THEN 0 WHEN {dead("u.taker")} THEN 2 ELSE 1 END AS untold
FROM {{s}}entries AS e LEFT JOIN {{s}}lanes AS l ON l.id = e.lane LEFT JOIN {{s}}unheard AS u ON u.seq = e.seq
"""
_LOOK: Final = f"{_FOUND} WHERE e.key {{any 2 text}}"
_NEW: Final = """key:text thing:text digest:text operation:text state:smallint common:bigint intent:text
    taker:text"""
_NUMBER: Final = "nextval('{s}entries_seq_seq')"
_COLUMNS: Final = "key, thing, digest, operation, state, common, intent"
_columns_of: attrgetter[tuple[Cell, ...]] = attrgetter(*_COLUMNS.split(", "))
# PostgreSQL claims keys in one statement, which also returns the entries that were there.  The lock on the
# row of a thing is held until the commit, so the numbers of its entries are in the order of their commits.
#
# A write is next to its thing, and may be inserted as one that is being sent, if the store has none before
# it, or this process has applied the one before: that one has waited for all others, none of which is sent
# after it, and what it left is known here.  ``before`` is as of the lock.  Whether that one was applied may
# be read as of the statement's start, because it stays so.  In a database that may lack keys, none is next:
# the connection may be the first one to it, and the run looks only then.
_CLAIM: Final = f"""
WITH turn AS MATERIALIZED (SELECT {{durably}} AS done),
whole AS (SELECT NOT EXISTS ({IS_OPEN}) AS is_so),
owned AS MATERIALIZED (SELECT id FROM {{s}}lanes WHERE id = $3 AND owner = $4 {{share}}),
new AS MATERIALIZED (
    SELECT owned.id, given.* FROM turn CROSS JOIN owned CROSS JOIN {{rows 2 {_NEW}}}
    WHERE NOT EXISTS (SELECT 1 FROM {{s}}entries AS e WHERE e.key = given.key)
), line AS (
    INSERT INTO {{s}}states AS s (thing, place, newest, before)
    SELECT thing, 0, {_NUMBER}, 0 FROM new WHERE thing IS NOT NULL ORDER BY thing
    ON CONFLICT (thing) DO UPDATE SET before = s.newest, newest = {_NUMBER}
    RETURNING thing, newest, before = 0 OR EXISTS (
        SELECT 1 FROM {{s}}entries WHERE seq = before AND lane = $3 AND verdict = '{Verdict.APPLIED}'
    ) AS is_next
), made AS (
    INSERT INTO {{s}}entries (seq, place, lane, {_COLUMNS})
    SELECT number, number, id, key, thing, digest, operation,
        CASE WHEN is_so AND (thing IS NULL OR is_next) THEN state ELSE {State.TO_DO:d} END, common, intent
    FROM (SELECT coalesce(newest, {_NUMBER}) AS number, * FROM new LEFT JOIN line USING (thing)) AS numbered
        CROSS JOIN whole
    ON CONFLICT (key) DO NOTHING RETURNING seq, key
), told AS (
    INSERT INTO {{s}}unheard (seq, taker)
    SELECT made.seq, given.taker FROM made JOIN {{rows 2 {_NEW}}} USING (key) WHERE given.taker IS NOT NULL
)
SELECT given.key, made.seq, is_so AND (given.thing IS NULL OR is_next), found
FROM whole CROSS JOIN {{rows 2 {_NEW}}} LEFT JOIN made USING (key) LEFT JOIN line USING (thing)
    LEFT JOIN LATERAL ({_FOUND} WHERE e.key = given.key) AS found ON true
"""
# Those that are not next, in the transaction that has inserted them.
_NOT_YET: Final = f"""
UPDATE {{s}}entries AS e SET state = {State.TO_DO:d} WHERE seq {{any 1 bigint}} AND thing IS NOT NULL AND (
    EXISTS (SELECT 1 FROM {{s}}entries AS o WHERE o.thing = e.thing AND o.done_at IS NULL AND o.seq <> e.seq)
    OR EXISTS (SELECT 1 FROM {{s}}entries AS u WHERE u.thing = e.thing AND u.verdict = '{Verdict.UNKNOWN}')
    OR EXISTS (SELECT 1 FROM {{s}}states AS s WHERE s.thing = e.thing AND NOT EXISTS (
        SELECT 1 FROM {{s}}entries WHERE seq = s.place AND lane = $2 AND verdict = '{Verdict.APPLIED}'
    ))
) RETURNING seq
"""
_TAKER: Final = """
INSERT INTO {s}unheard (seq, taker) SELECT seq, taker FROM {rows 1 seq:bigint taker:text} WHERE true
    ON CONFLICT (seq) DO UPDATE SET taker = excluded.taker
"""
_TAKE: Final = """
UPDATE {s}entries SET lane = $3 WHERE seq = $1 AND lane = $2 AND done_at IS NULL RETURNING seq
"""
_TAKEN: Final = (
    "SELECT seq FROM {s}entries WHERE seq = $1 AND lane = $2 AND done_at IS NULL"
)
_REOPEN: Final = f"""
UPDATE {{s}}entries SET lane = $5, state = $4, verdict = NULL, outcome = NULL, done_at = NULL, flags = 0
    WHERE seq = $1 AND state = {State.DONE:d} AND verdict = $2 AND done_at = $3 RETURNING seq
"""
_OWN: Final = """
WHERE key = $1 AND lane = $2 AND done_at IS NULL
    AND EXISTS (SELECT 1 FROM {s}lanes WHERE id = $2 AND owner = $3)
"""
_FREE: Final = f"UPDATE {{s}}entries SET lane = {FREED} {_OWN}"
_FREE_UNSENT: Final = (
    f"UPDATE {{s}}entries SET lane = {FREED}, state = {State.TO_DO:d} {_OWN}"
)


class Found(NamedTuple):
    """
    An entry of a key, as it was seen.

    ``owner`` is the token of its lane; ``lives`` is whether that process does.  ``untold`` is 0 if the secret
    of a new webhook was returned, or there is none; 1 if a living process is about to return it; 2 if one
    that is gone was.
    """

    entry: Entry
    owner: str | None
    lives: bool
    untold: int


# an entry that was inserted: its number, and whether its run is next
_Made: TypeAlias = tuple[int, bool]
_Asked: TypeAlias = "tuple[KeyedRun, Entry, asyncio.Future[Found | _Made | None]]"


class KeyTakenError(JournalError):
    """A write must not be sent now: its key has the entry *found*, or its run is not next."""

    def __init__(self, found: Found | None) -> None:
        super().__init__("the key is taken")
        self.found = found


@attrs.define(eq=False)
class KeyedRun:
    """
    A run of a write under a key, which is claimed before the first send.

    The run is ``over`` if its entry is another run's, or about to be released.
    """

    claims: Claims
    lane: Lane
    name: str  # the key of its entry
    thing: str | None
    digest: str
    options: ClientOptions
    # who returns the secret of a new webhook; None: nobody need
    taker: str | None = None
    seq: int = 0  # of its entry, once it is claimed
    creates: bool = False  # what other creates may look alike to, if it has a thing
    place: int = 0  # of its entry, in the order of its thing
    # its turn has come: it has to wait for no other write to its thing
    is_next: bool = False
    has_to_wait: bool = False  # it was about to be sent, and its turn had not come
    passed: list[int] = attrs.field(
        factory=list
    )  # earlier entries that nobody has, and that may have been sent
    start: Start | None = None  # in the order of its thing, until its key is claimed
    sent: Packed | None = None  # the intent as it was stored before the last send
    sent_before: tuple[Sent, ...] = ()  # by earlier runs, without an effect
    over: bool = False
    overtaken: bool = False  # a later write to its thing was sent
    outcome: AnyOutcome | None = None
    called: float | None = None  # when it was awaited, local s
    waited: float = 0.0  # s since then, for earlier writes to its thing

    @classmethod
    def of(
        cls,
        spec: WriteSpec,
        claims: Claims,
        lane: Lane,
        name: str,
        digest: str,
        called: float,
    ) -> KeyedRun:
        """Return a run of *spec*, which was *called* then (local s)."""
        asks = spec.creates_webhook and spec.options.core.on_secret is None
        return cls(
            claims=claims,
            lane=lane,
            name=name,
            thing=changed_by(spec),
            digest=digest,
            options=spec.options,
            taker=lane.token if asks else None,
            creates=spec.kind.creates,
            called=called,
        )

    def bound(self) -> ClientOptions:
        """Return its options with this as the journal."""
        return replace(self.options, journal=self)

    async def sending(self, intent: Intent) -> float:
        """Store *intent*, which is about to be sent; claim the key if the run has not claimed it before."""
        await self.lane.hold()
        self.sent = pack(intent, self.claims.store.commons)
        entry = self.entry(State.SENDING, intent, self.sent)
        if not self.seq:
            await self.claim(entry)
            self.has_to_wait = not self.is_next
        elif self.is_next or self.thing is None:
            await self.lane.put(entry)
        else:
            self.is_next = await self.claims.begin(self, entry) is Turn.BEGUN
            self.has_to_wait = not self.is_next
        if self.has_to_wait:
            raise KeyTakenError(None)
        return self.lane.until

    async def claim(self, entry: Entry) -> None:
        """Claim the key as ``Claims.claim`` does, and let the next run for the same thing claim its own."""
        try:
            await self.claims.claim(self, entry)
        finally:
            self.has_started()

    def has_started(self) -> None:
        """Allow the next run for the same thing to claim its key: this run has claimed, or need not."""
        if self.start is not None:
            self.start.leave()

    async def settled(self, outcome: Outcome[Any]) -> None:
        """
        Store the outcome.

        Raises:
            LostLaneError: Another process has the entry, and its verdict counts.
            JournalError: It could not be stored. That is tried again while the journal is open.
        """
        if not self.seq:  # it ended before its first send
            await self.claim(self.entry(State.TO_DO, outcome.intent))
        left = left_by(self.thing, outcome, self.options.core.writes)
        store = self.claims.store
        claim = claim_by(outcome)
        ended = done_at(self.options.core, store)
        entry = done_entry(
            outcome,
            self.sent,
            store.commons,
            done_at=ended,
            claim=claim,
            **self._known(),
        )
        try:
            await self.lane.put(entry, left)
        except LostLaneError:
            raise
        except JournalError as error:
            self.over = True
            self.claims.leave(self.name, self.lane, entry, left)
            raise JournalError(
                f"{outcome.started_as.operation} ({key_in(self.name)}): its verdict, {outcome.verdict}, "
                f"could not be stored: {error} Run it again under the same key."
            ) from error
        self.outcome = outcome
        self.lane.leases.done += 1
        self.claims.tell(self.lane.number)

    def shelved(self, intent: Intent, *, sent: bool) -> None:
        """Store how far the run got, and release the entry; a run that has to wait keeps its entry."""
        if not self.has_to_wait:
            self.let_go(self.entry(State.SENDING if sent else State.TO_DO, intent))

    def let_go(self, entry: Entry | None = None) -> None:
        """Release the entry for any run, unless the run has a verdict; store it first as *entry*."""
        if self.seq and not self.over and self.outcome is None:
            self.over = True
            self.claims.leave(self.name, self.lane, entry)

    def heard(self, identity: str) -> None:
        """Note that the awaiter has the verdict, and with it the secret of a new webhook."""
        del identity
        if self.taker is not None:
            self.claims.start(self.claims.note_heard(self.seq))

    def entry(
        self, state: State, intent: Intent, packed: Packed | None = None
    ) -> Entry:
        """Return the entry of *intent*, whose packed form may be known."""
        return entry_of(
            state, intent, self.claims.store.commons, packed, **self._known()
        )

    def _known(self) -> dict[str, Any]:  # Any: fields of Entry
        return {
            "seq": self.seq,
            "place": self.place,
            "key": self.name,
            "thing": self.thing,
            "digest": self.digest,
        }


class Claims:
    """The entries of keys in *store*, the store of *journal*, and the waits for entries in this process."""

    def __init__(self, journal: ClientJournal, store: Store) -> None:
        self._journal = journal
        self.store: Store = store
        self.ended: bool = False
        self._tasks: set[asyncio.Task[object]] = set()
        # of them, those that end runs, by key
        self._leaving: dict[str, asyncio.Task[Any]] = {}
        # By key: what is to be claimed in the next statement.
        self._asked: dict[str, _Asked] = {}
        self._asked_now: dict[str, _Asked] = {}  # in the current one
        self._claiming: asyncio.Task[None] | None = None
        self._waiting: dict[asyncio.Event, int] = {}  # for something in a lane
        self._hearing: asyncio.Task[None] | None = None
        self._telling: asyncio.Task[None] | None = None
        # lanes of which other processes are to be told that something has ended
        self._told: set[int] = set()

    @property
    def alone_since(self) -> float:
        """The local time since which only this process can have sent anything: the opening of a file."""
        return inf if self._journal.is_shared else self._journal.opened

    async def claim(self, run: KeyedRun, entry: Entry) -> None:
        """
        Insert *entry* in the lane of *run*, together with other claims; as TO DO if *run* is not next.

        Raises:
            KeyTakenError: Its key has an entry.
            LostLaneError: The lane belongs to another process.
            JournalError: The journal cannot be used.
        """
        while True:
            future: asyncio.Future[Found | _Made | None] = (
                asyncio.get_running_loop().create_future()
            )
            self._asked[run.name] = run, entry, future
            if self._claiming is None or self._claiming.done():
                self._claiming = asyncio.get_running_loop().create_task(
                    self._claim_all()
                )
                self._claiming.add_done_callback(self._fail_claims)
            made = await future
            if isinstance(made, Found):
                raise KeyTakenError(made)
            if made is not None:
                return
            # It was inserted by somebody else while the statement ran; or the lane is lost.
            if not await self.store.rows(MINE, run.lane.number, run.lane.token):
                run.lane.doubt()
                raise lost_lane()

    async def _claim_all(self) -> None:
        while self._asked:
            # One for each thing: the next one has to see it.
            firsts: dict[str, str] = {}
            for name, (run, _, _) in self._asked.items():
                firsts.setdefault(run.thing or name, name)
            for name in sorted([*firsts.values()][:_AT_ONCE]):
                self._asked_now[name] = self._asked[name]
                del self._asked[name]
            asked = self._asked_now
            made = None
            lane = next(iter(asked.values()))[0].lane
            try:
                made = await self._inserted(lane, [*asked.values()])
            except Exception as error:  # noqa: BLE001 - raised where it is awaited
                for _, _, future in asked.values():
                    settle(future, None, error)
            for name, (run, _, future) in asked.items():
                result = None if made is None else made.get(name)
                inserted = None if isinstance(result, Found) else result
                if made is not None and not future.done():
                    if inserted is not None:
                        # Now: its run may be cancelled before it goes on.
                        run.lane = lane
                        run.seq = run.place = inserted[0]
                        run.is_next = inserted[1]
                    future.set_result(result)
                elif (
                    name not in self._asked
                ):  # it may have been inserted, and its run goes no further
                    self.leave(name, lane, is_unsent=inserted is not None)
            self._asked_now = {}

    def _fail_claims(self, claiming: asyncio.Task[None]) -> None:
        """Fail what a task has not answered that a signal handler's exception has ended."""
        if self._claiming is not claiming:
            return
        unanswered = {**self._asked_now, **self._asked}
        self._asked_now = {}
        self._asked = {}
        self._claiming = None
        for name, (run, _, future) in unanswered.items():
            if not future.done():
                settle(future, None, _interrupted(claiming))
                self.leave(name, run.lane)  # it may have been inserted

    async def _inserted(
        self, lane: Lane, given: Sequence[_Asked]
    ) -> dict[str, Found | _Made]:
        """Insert entries; return by key what was made of each, or the entry that was there."""
        store = self.store
        if not self._journal.is_shared:
            return await store.run(
                partial(_insert, given, store.commons.texts, lane, store.silence)
            )
        rows = [(*_columns_of(entry), run.taker) for run, entry, _ in given]
        await cast("PostgresStore", store).store_commons()
        found = await store.rows(_CLAIM, store.silence, rows, lane.number, lane.token)
        return {
            key: (made, is_next) if made is not None else _found_in(row)
            for key, made, is_next, row in found
            if made is not None or row is not None
        }

    async def look(self, name: str) -> Found | None:
        """Return the entry of a key."""
        rows = await self.store.rows(_LOOK, self.store.silence, [name])
        return _found_in(rows[0]) if rows else None

    async def take(
        self, found: Found, lane: Lane, *, to: int | None = None
    ) -> bool | None:
        """
        Move an entry that nobody has to *lane*, or to the one with the number *to*.

        Return whether its last process is provably done with it; ``None`` if somebody has it.

        Raises:
            LostLaneError: The lane belongs to another process.
        """
        seq = found.entry.seq
        before = found.entry.lane
        # only the reply to an earlier try was lost
        if before == lane.number and to is None:
            return False
        target = lane.number if to is None else to
        taking = self.store.run(
            partial(_take, seq, before, target, lane, self.store.silence)
        )
        return await (
            self._to_its_end(found.entry.key, taking) if to is None else taking
        )

    async def reopen(self, found: Found, state: State, lane: Lane) -> bool:
        """Reopen the done entry of *found* in *lane*; return ``False`` if the entry has changed since."""
        entry = found.entry
        values = entry.seq, entry.verdict, entry.done_at, int(state), lane.number
        return bool(
            await self._to_its_end(entry.key, self.store.rows(_REOPEN, *values))
        )

    async def _to_its_end(self, name: str, moving: Coroutine[Any, Any, T]) -> T:
        """Await *moving*; if the wait is cancelled, *moving* goes on, and the end of the run waits for it."""
        task = self.start(moving)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            self._leaving[name] = task
            raise

    async def note_taker(self, run: KeyedRun) -> None:
        """Note who returns the secret of a new webhook."""
        if run.taker is not None:
            await self.store.rows(_TAKER, [(run.seq, run.taker)])

    async def note_heard(self, seq: int) -> None:
        """Note that a secret was returned; if the note cannot be stored, later runs call the secret lost."""
        with suppress(JournalError):
            await self.store.rows(HEARD, [seq])

    async def begin(self, run: KeyedRun, entry: Entry) -> Turn:
        """
        Store *entry* as being sent if the turn of *run* has come.

        Raises:
            LostLaneError: Another process has it.
            JournalError: The journal cannot be used.
        """
        commons = self.store.commons
        common = [each for each in commons.fresh() if each[0] == entry.common]
        script = partial(
            begin,
            entry,
            run.lane,
            common,
            self.store.silence,
            run.passed,
            creates=run.creates,
        )
        try:
            return await self._to_its_end(run.name, self.store.run(script))
        except LostLaneError:
            run.lane.doubt()
            raise

    # --- waiting

    async def until_closed(self, waiting: Awaitable[object]) -> None:
        """Await *waiting*; raise ConfigurationError if the client is closed, or is meanwhile."""
        core = self._journal.core
        assert core is not None
        if not core.under_way.closed:
            with suppress(TimeoutError), core.under_way.until_closed():
                await waiting
                return
        elif inspect.iscoroutine(waiting):
            waiting.close()
        raise ConfigurationError(CLOSED)

    async def wait(self, found: Found) -> None:
        """Wait until an entry is done, released, or its owner is silent."""
        if self._hearing is None and self._journal.is_shared:
            # Weakly: a client that is dropped without being closed is to be collected.
            woken = weakref.WeakMethod(self._woken)
            hearing = self.store.hear(lambda what: (wake := woken()) and wake(what))
            self._hearing = asyncio.get_running_loop().create_task(hearing)
        lane = found.entry.lane
        pause = _FIRST
        event = asyncio.Event()
        self._waiting[event] = lane
        try:
            while (
                (now := await self.look(found.entry.key)) is not None
                and now.lives
                and now.entry.lane == lane
                and now.entry.state is not State.DONE
            ):
                await self.until_closed(set_within(event, pause))
                event.clear()
                pause = min(2 * pause, _LONGEST)
        finally:
            del self._waiting[event]

    def _woken(self, what: str) -> None:
        for event, lane in self._waiting.items():
            if what in ("", str(lane)):
                event.set()

    def tell(self, lane: int) -> None:
        """Wake all waits for something in *lane*: here and, if others use the journal, in other processes."""
        if self._waiting:
            self._woken(str(lane))
        if self._journal.has_company:
            self._told.add(lane)
            if self._telling is None or self._telling.done():
                self._telling = asyncio.get_running_loop().create_task(self._tell())

    async def _tell(self) -> None:
        try:
            while self._told:
                told, self._told = self._told, set()
                with suppress(JournalError):  # there is a look behind it
                    await self.store.tell(*map(str, told))
        finally:
            self._telling = None

    # --- beside the runs

    def start(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run *coroutine* beside the runs."""
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def leave(
        self,
        name: str,
        lane: Lane,
        entry: Entry | None = None,
        left: Left | None = None,
        *,
        is_unsent: bool = False,
    ) -> None:
        """
        End a run of a key before the next run in this process: store *entry*, and release it if open.

        One that *is_unsent*, although it was inserted as one that is being sent, is released as TO DO.
        """
        earlier = self._leaving.get(name)
        free = _FREE_UNSENT if is_unsent else _FREE
        self._leaving[name] = self.start(
            self._left(name, lane, entry, left, earlier, free)
        )

    async def _left(
        self,
        name: str,
        lane: Lane,
        entry: Entry | None,
        left: Left | None,
        earlier: asyncio.Task[object] | None,
        free: str,
    ) -> bool:
        """Do what :meth:`leave` says, until it is done; return whether there was a verdict."""
        has_verdict = entry is not None and entry.state is State.DONE
        if earlier is not None:
            await asyncio.wait([earlier])
        while True:
            with suppress(JournalError):
                with suppress(LostLaneError):  # another process has it
                    if entry is not None:
                        await lane.put(entry, left)
                    if not has_verdict:
                        await self.store.rows(free, name, lane.number, lane.token)
                break
            if self.ended:
                break
            await asyncio.sleep(_AGAIN)
        self.tell(lane.number)
        if self._leaving[name] is asyncio.current_task():
            del self._leaving[name]
        return has_verdict

    async def until_left(self, name: str) -> bool:
        """
        Wait until the last run of a key in this process has ended; return whether it had a verdict to store.

        Raises:
            JournalError: It has not, because the journal cannot store that.
        """
        if (task := self._leaving.get(name)) is None:
            return False
        await self.until_closed(asyncio.wait([task], timeout=_TO_LEAVE))
        if not task.done():
            raise JournalError(
                f"key {key_in(name)!r}: the journal could not store yet how its last run ended. Nothing was "
                "sent now. Run it again."
            )
        return bool(task.result())

    async def end(self) -> None:
        """End what is under way beside the runs, all of which have ended."""
        self.ended = True
        if self._hearing is not None:
            self._hearing.cancel()
        # what it inserts for runs that were cancelled is to be released
        if self._claiming is not None:
            await asyncio.wait([self._claiming], timeout=_TO_END)
        if self._tasks:
            await asyncio.wait([*self._tasks], timeout=_TO_END)


def changed_by(spec: WriteSpec) -> str | None:
    """
    Return the name of the thing that a keyed write changes.

    That of a create without a tag is its URL, because a webhook of another create of that URL may be taken
    for its own. ``None`` for a write that waits for no other.
    """
    has_tag = spec.lacks_tag or is_unique(spec.tag)  # it gets one
    return (
        None
        if spec.creates_webhook and has_tag
        else line_of(spec.request, spec.team, spec.tag)
    )


def _found_in(row: Sequence[Cell]) -> Found:
    *entry, owner, lives, untold = row
    return Found(entry_in(entry), owner, bool(lives), untold)


def _interrupted(task: asyncio.Task[None]) -> JournalError:
    error = None if task.cancelled() else task.exception()
    why = "" if error is None else f" by {type(error).__name__}"
    return JournalError(
        f"journal: the claim of the key was interrupted{why}. Nothing was sent. Run it again under the "
        "same key."
    )


def _insert(
    given: Sequence[_Asked], commons: Mapping[int, str], lane: Lane, silence: float
) -> Script[dict[str, Found | _Made]]:
    """Insert entries in a file; return as ``Claims._inserted``."""
    ours: set[int] = set()
    known = yield from add(
        [replace(entry, lane=lane.number) for _, entry, _ in given], commons, ours=ours
    )
    made = {key: seq for key, (seq, *_) in known.items() if seq in ours}
    late: set[int] = set()
    if made and any(run.thing is not None for run, *_ in given):
        late = {seq for (seq,) in (yield _NOT_YET, ([*made.values()], lane.number))}
    if takers := [
        (made[run.name], run.taker)
        for run, *_ in given
        if run.taker and run.name in made
    ]:
        yield _TAKER, (takers,)
    result: dict[str, Found | _Made] = {
        key: (seq, seq not in late) for key, seq in made.items()
    }
    if others := known.keys() - made:
        for row in (yield _LOOK, (silence, [*others])):
            found = _found_in(row)
            result[found.entry.key] = found
    return result


def _take(
    seq: int, before: int, to: int, mine: Lane, silence: float
) -> Script[bool | None]:
    if not (yield MINE, (mine.number, mine.token)):
        raise lost_lane()
    owners = yield "SELECT owner FROM {s}lanes WHERE id = $1 {update}", (before,)
    owner = owners[0][0] if owners else None
    alive = yield from living(silence, [owner])
    if owner is not None and owner != mine.token and member_of(owner) in alive:
        return None
    moved = yield _TAKE, (seq, before, to)
    if not moved:  # unless an earlier try has done it, whose reply was lost
        moved = yield _TAKEN, (seq, to)
    return (before == ENDED or (bool(owners) and owner is None)) if moved else None
