"""A store of writes in one schema of a PostgreSQL database, which processes and machines share."""

from __future__ import annotations

import asyncio
import logging
import re
from contextlib import asynccontextmanager, suppress
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import parse_qsl, urlencode, urlunsplit

from invsvc_async.concurrency.cancellation import raise_if_cancelled, settle
from invsvc_async.durable.entry import Entry, LostEntryError, entry_in
from invsvc_async.durable.intents import Commons
from invsvc_async.durable.store.members import living_members
from invsvc_async.durable.store.puts import Put, last_puts, put_in_database, put_unkeyed
from invsvc_async.durable.store.restored import (
    SETTLED,
    PlaceError,
    mark_restored,
    place_of,
    wrong_with_place,
)
from invsvc_async.durable.store.schemas import StoreSchemas, dialect_in
from invsvc_async.durable.store.statements import entry_sql, store_sql
from invsvc_async.durable.store.tables import Opening, check, create, is_old, upgrade
from invsvc_async.errors import ConfigurationError, JournalError
from invsvc_async.storage.address import split
from invsvc_async.storage.postgres_pool import (
    AT_ONCE,
    AWAY,
    PATIENCE,
    READ_ONLY,
    STANDBY,
    Pool,
    in_transaction,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping, Sequence

    from invsvc_async.durable.store.lanes import OwnedLane
    from invsvc_async.durable.store.states import Left
    from invsvc_async.storage.dialect import Cell, Connection, Script
    from invsvc_async.transport.client_core import ClientCore


T = TypeVar("T")
log: logging.Logger = logging.getLogger("invsvc_async.writes")

_LONGEST = 86_400  # s of silence
# s between looks whether the server has ended an act: at first, and later
_LOOK_SOON = 0.005
_LOOK_AGAIN = 0.1
_TO_WRITE = 10.0  # s that a write of a client waits for a database that is away
_RECONNECT = 1.0  # s between tries to listen
_OF_ANOTHER = "now belongs to another process, or was dropped or reopened. Nothing is sent for it here."
# Locks a name of our own, not a row.
_LOCK_NAME = "SELECT pg_advisory_xact_lock(hashtext($1))"
# An upgrade of tables: one process does it, and those that open the store meanwhile wait for that one.
_LONGEST_UPGRADE = 3600.0  # s, for all of them
# It changes tables that transactions of the application may be using; others wait behind it.
_SHORT_LOCK_TIMEOUT = "SET LOCAL lock_timeout = '2s'"
_MAY_NOT = "42501"  # SQLSTATE: the role does not own the tables, or may not create any


# When a copy of an outbox is refused, its last number: what is enqueued later was not sent, so
# ``mark_restored`` goes only that far.  A fact for each place, because a copy may contain that of an earlier
# one.
_COPIED_THROUGH = "copied through at "  # and the place


class InUseError(JournalError):
    """Processes of an earlier version of the package use the store."""


class PostgresStore(Pool):
    """
    The store in the database at *address*.

    The address has besides PostgreSQL's own settings the name of one of several stores and, in seconds, how
    long a process that gives no sign of life counts as living: ``?outbox=NAME&silence=10``.  With
    ``starts_away=true``, an outbox or a client may start before its database can be reached.

    In which schema it is: see ``StoreSchemas``.
    """

    # How often a new connection found the database in another place.  The ``Mark`` is read again then: this
    # process or another one may have noted there that it is a copy.
    marks: int = 0
    # Several processes use it at a time, and go by the clock of the database.
    is_shared: bool = True

    def __init__(self, address: str, how: Opening) -> None:
        self.how: Opening = how
        kind = how.kind
        parts = split(address, f"the {kind}'s address")
        query = dict(parse_qsl(parts.query))
        self.silence: float
        called, self.silence = _pop_settings(kind, query)
        # Whether the opening may be left for later.
        self.starts_away: bool = _pop_starts_away(kind, query)
        plain = urlunsplit(parts._replace(query=urlencode(query)))
        patience = _TO_WRITE if kind == "journal" else PATIENCE
        # One of the connections listens.
        super().__init__(plain, f"the {kind}'s database", size=6, patience=patience)
        self._create = how.create and not how.reading
        self.schemas: StoreSchemas = StoreSchemas(
            how, called, self._name, creates=self._create
        )
        # Somebody waits for an answer, or the opening is tried again later.
        if not self._create or self.starts_away:
            self.to_open = AT_ONCE
        # What a person has said of the place. It counts until ``check_place`` has accepted the place.
        self._restored = how.restored
        self._moved = how.moved
        self._place: dict[str, str] | None = None  # once it is checked
        self._in_place = 0  # how many blocks of ``in_place`` run
        self.version: int = 0  # of its tables, once it is open
        self.schema: str = ""  # once it is open
        self._dialect = dialect_in(self.schema, self.how)
        self.commons: Commons = Commons()
        # Ends of processes that could not be noted: by name, their last status.
        self.ends_to_note: dict[str, str | None] = {}
        self._pending: list[tuple[Put, asyncio.Future[None]]] = []
        # Those that the current statement stores.  A signal handler may end the task, so this tells what is
        # unanswered.
        self._pending_now: list[tuple[Put, asyncio.Future[None]]] = []
        self._flushing: asyncio.Task[None] | None = None

    # --- opening

    async def open_for(self, core: ClientCore | None, *, same_mode: bool) -> None:
        """Connect, and create what is missing. *same_mode* continues what an older credential has left."""
        # A journal that exists can be looked at without a client, if there is no other of its name.
        needs_client = self.how.kind == "outbox" or self._create
        if core is None and self.how.kind != "batch" and needs_client:
            raise ConfigurationError(
                f"{self.how.kind}: belongs to no client. Pass it to one."
            )
        prepare = partial(self._prepare, core=core, same_mode=same_mode)
        await self.connect(prepare, application_name=f"invsvc {self.how.kind}")
        if self.how.reading:
            return
        try:
            if self.how.kind != "outbox":  # which does so before it sends
                await self.check_place()
            if is_old(self.how, self.version):
                await self._upgrade()
        except BaseException:
            await self.aclose()
            raise

    async def _prepare(
        self,
        connection: Connection,
        *,
        core: ClientCore | None,
        same_mode: bool,
    ) -> None:
        prefix = self.schemas.prefix
        await connection.execute(_LOCK_NAME, prefix)
        if self._create:
            await self._check_writable(connection)
        facts: dict[str, str] = {}
        mine = None
        if core is None:
            is_batch = self.how.kind == "batch"
            self.schema = (
                prefix if is_batch else await self.schemas.only_one(connection)
            )
        else:
            facts["base_url"] = core.base_url
            mine = ""
            if self.how.is_of_credential:
                mine = core.credential.fingerprint(core.base_url) or ""
            finding = self.schemas.choose(core.base_url, mine, same_mode=same_mode)
            self.schema = await self._dialect.run(connection, finding)
        self._dialect = dialect_in(self.schema, self.how)
        if not await connection.fetchval(store_sql.HAS_TABLE, f"{self.schema}.facts"):
            if not self._create:
                raise self.schemas.none_here()
            if not await connection.fetchval("SELECT to_regnamespace($1)", self.schema):
                await connection.execute(f"CREATE SCHEMA {self.schema}")
            await self._dialect.run(connection, create(self.how, **facts))
        self.version = await self._dialect.run(connection, check(self._name, self.how))
        if mine is not None and not self.how.reading:
            await connection.execute(
                store_sql.NOTE_CREDENTIAL.format(schema=self.schema),
                f"credential {mine}",
            )

    async def _check_writable(self, connection: Connection) -> None:
        """Raise JournalError if the server refuses changes."""
        if await connection.fetchval("SHOW transaction_read_only") != "on":
            return
        is_standby = await connection.fetchval("SELECT pg_is_in_recovery()")
        raise JournalError(f"{self._name}: {STANDBY if is_standby else READ_ONLY}")

    async def _upgrade(self) -> None:
        """
        Bring tables of an earlier version up to date, unless another process has done it meanwhile.

        A process that was killed counts as living for a while, so that is waited for.

        Raises:
            JournalError: Processes of an earlier version use it, or the role may not change its tables.
        """
        log.warning(
            "%s: its tables have version %d. They are brought up to date.",
            self.schema,
            self.version,
        )
        loop = asyncio.get_running_loop()
        until = loop.time() + min(self.silence + 1.0, self.to_open)
        while True:
            try:
                await self.steadily(
                    partial(in_transaction, act=self._upgrade_in),
                    within=_LONGEST_UPGRADE,
                )
            except InUseError:
                if loop.time() >= until:
                    raise
                await asyncio.sleep(_RECONNECT)
            except JournalError as error:
                if getattr(error.__cause__, "sqlstate", None) != _MAY_NOT:
                    raise
                raise self._may_not_upgrade() from error
            else:
                return

    async def _upgrade_in(self, connection: Connection) -> None:
        await connection.execute(_LOCK_NAME, f"{self.schema} tables")
        version = await self._dialect.run(connection, check(self._name, self.how))
        if is_old(self.how, version):
            others = await self._dialect.run(connection, living_members(self.silence))
            if others:
                raise InUseError(
                    f"{self._name}: its tables have version {version}, and processes of an earlier version "
                    f"of the package use them ({', '.join(others[:3])}). Nothing was changed. Stop them, and "
                    "open it again."
                )
            await connection.execute(_SHORT_LOCK_TIMEOUT)
            await self._dialect.run(connection, upgrade(self.how, version))
            version = await self._dialect.run(connection, check(self._name, self.how))
        self.version = version

    def _may_not_upgrade(self) -> JournalError:
        advice = f"Let their owner open the {self.how.kind} once"
        if self.how.kind == "outbox":
            command = f"invsvc outbox schema --from {self.version}"
            advice += f", or run what `{command}` prints for its address"
        return JournalError(
            f"{self._name}: its tables have version {self.version}, an earlier one, and the role of the "
            f"address may not change them. Nothing was changed. {advice}."
        )

    async def connected(self, connection: Connection) -> None:
        """
        Check a new connection: the address may lead to another server meanwhile.

        Raises:
            PlaceError: It does, or the server went back in time.
        """
        # Once it ends, the next one may find an older copy of the database.
        connection.add_termination_listener(lambda _: self.commons.stored.clear())
        await super().connected(connection)
        if (before := self._place) is None:
            return
        place = await self._dialect.run(connection, place_of())
        wrong = wrong_with_place(before, place)
        if wrong is None:
            return
        has_to_be_said = not (self._restored or self._moved)
        if self.how.asks_people and has_to_be_said:
            raise self._place_error(wrong)
        self.commons.stored.clear()
        self._place = await in_transaction(
            connection,
            lambda connection: self._dialect.run(connection, self._checked_place()),
        )
        self.marks += 1

    async def until_ended(
        self, connection: Connection, lost: Mapping[str, float]
    ) -> None:
        """
        Wait until the server has ended what it did for the *lost* connections.

        A statement before that does not see what they are about to commit, and neither does the second try of
        an act see what its first try does.
        """
        loop = asyncio.get_running_loop()
        pause = _LOOK_SOON
        while True:
            ages = [loop.time() - since for since in lost.values()]
            if not await connection.fetchval(store_sql.MAY_STILL_CHANGE, [*lost], ages):
                return
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LOOK_AGAIN)

    async def check_place(self) -> None:
        """
        Check the place, and use connections to no other one from now on.

        Raises:
            PlaceError: The store may lack sends that were made.
            JournalError: The database stayed away.
        """
        try:
            self._place = await self.run(self._checked_place)
        except PlaceError:
            # What is enqueued from now on cannot have been sent.
            if self.how.kind == "outbox":
                await self.rows(
                    store_sql.NOTE_LAST_NUMBER, _note(await self.run(place_of))
                )
            raise
        if self._restored or self._moved:
            await self.rows(store_sql.DELETE_FACTS_LIKE, f"{_COPIED_THROUGH}%")
        self._restored = self._moved = False

    @asynccontextmanager
    async def in_place(self) -> AsyncGenerator[None]:
        """
        Check the place of an outbox, and use connections to no other one while the block runs.

        For what sends, and what asks whether something was sent.  Otherwise, connections to any place are
        allowed: an outbox takes in writes wherever its database is.  Of a batch and the journal of a client,
        the opening has checked the place.

        Raises:
            PlaceError, JournalError: As ``check_place``.
        """
        if self.how.kind != "outbox":
            yield
            return
        self._in_place += 1
        try:
            await self.check_place()
            yield
        finally:
            self._in_place -= 1
            if not self._in_place:
                self._place = None

    def _checked_place(self) -> Script[dict[str, str]]:
        """Return the place, and store it.  A store that counts as a copy, and may lack sends, is marked."""
        place = yield from place_of()
        found = yield store_sql.LOCK_NOTED_PLACE, ()
        before = {name.removeprefix("place "): value for name, value in found}
        is_copy = self._is_copy(before, place)
        for name, value in place.items():
            yield store_sql.SET_FACT, (f"place {name}", value)
        if is_copy:
            noted = yield store_sql.LOCK_FACT, (_note(place),)
            yield from mark_restored(int(noted[0][0]) if noted else None)
        return place

    def _is_copy(self, before: dict[str, str], place: dict[str, str]) -> bool:
        """
        Return whether the store, which was in the place *before*, counts as a copy in *place*.

        Raises:
            PlaceError: It may be one, and a person has to say whether it is complete.
        """
        if self._restored:
            return True
        if self._moved:
            return False
        wrong = wrong_with_place(before, place)
        if wrong is None:
            return False
        if self.how.asks_people:
            raise self._place_error(wrong)
        log.error(SETTLED, self._told_of(wrong))
        return True

    def _place_error(self, wrong: str) -> PlaceError:
        return PlaceError(
            f"{self._told_of(wrong)}. Its last sends may be missing, so nothing was sent. If nothing is "
            f"missing (a clean switch-over), run {self.how.run_by} with --moved (moved=True). Otherwise run "
            "it with --restored (restored=True), which settles what may have been sent before it sends."
        )

    def _told_of(self, wrong: str) -> str:
        return f"{self.how.kind} {self.schemas.called}: {wrong}"

    async def aclose(self) -> None:
        """Store what is pending, if the database answers, and disconnect."""
        if self._flushing is not None:
            await asyncio.wait([self._flushing], timeout=self.wait_of(self.patience))
        if self._flushing is not None and not self._flushing.done():
            self._flushing.cancel()
            await self.idle()
        await super().aclose()

    def abandon(self) -> None:
        """Drop the connections soon, without waiting, from any thread: nobody will close this."""
        loop = self._loop
        if loop is None or loop.is_closed():
            self.give_up()
            return
        with suppress(RuntimeError):  # it is closed just now
            loop.call_soon_threadsafe(self.give_up)

    # --- statements

    async def run(self, script: Callable[[], Script[T]]) -> T:
        """Run a new *script* in a transaction; again while the database is away."""
        return await self.ask(
            lambda connection: self._dialect.run(connection, script())
        )

    async def rows(self, text: str, *values: Cell) -> Sequence[Cell]:
        """
        Run a statement as a transaction of its own, and return the rows.

        It runs again if its reply was lost, so its second run must do no harm.
        """
        return await self.fetch(*self._dialect.translated(text, values))

    async def entries(self, where: str, *values: Cell) -> list[Entry]:
        """Select entries; *where* is our own text, and calls the table *e*."""
        text = entry_sql.in_database(where)
        found = await self.rows(text, *values)
        known_table = None if self._place is None else self._place.get("entries")
        is_of_other_table = bool(found) and known_table not in (None, found[0][-1])
        if is_of_other_table:
            # The tables were made anew while this connection was open, as by ``pg_restore --clean``.  A new
            # connection checks whether they are a copy (``connected``).
            await self._pool.expire_connections()
            found = await self.rows(text, *values)
        made = [entry_in(row[:-1]) for row in map(tuple, found)]
        if self.commons.lack(made):
            self.commons.load(await self.rows(entry_sql.SELECT_COMMONS))
        return made

    async def open_in(
        self,
        places: Mapping[int, int],
        known: Sequence[int],
        each: int,
    ) -> list[Entry]:
        """
        Return up to *each* open entries of each lane, in their order, without those *known* already.

        *places* has, by lane, the place after which to begin.
        """
        text = entry_sql.NEXT_OPEN
        if self.how.kind == "outbox":  # In others, nothing waits for its time.
            text = entry_sql.NEXT_OPEN_AND_BEHIND
        asked = [*places], [*places.values()], list(known), each
        while True:
            rows = await self.rows(text, *asked)
            if not rows:
                return []
            found = await self.entries(entry_sql.STILL_OPEN, [seq for seq, _ in rows])
            if len(found) == len(rows):
                break
            # some were dropped, ended or moved meanwhile, so others are next
        if behind := {seq for seq, is_behind in rows if is_behind}:
            for entry in found:
                entry.is_behind = entry.seq in behind
        return found

    def is_away(self, error: JournalError) -> bool:
        """Return whether *error* says that the database is away; a refused statement is another error."""
        return isinstance(error.__cause__, AWAY)

    async def notify(self, *what: str) -> None:
        """Notify those that listen, in all processes."""
        if what:
            await self.rows(store_sql.NOTIFY, self.schema, [(each,) for each in what])

    async def listen(self, woken: Callable[[str], None]) -> None:
        """
        Call *woken* with each notification, until cancelled; with ``""`` if some may have been missed.

        A transaction may commit numbers below those that were read, so a lane is read from its beginning.
        Behind a pooler in transaction mode there are no notifications.
        """
        while True:
            try:
                async with self.lent() as connection:
                    lost = asyncio.Event()
                    connection.add_termination_listener(lambda _, lost=lost: lost.set())
                    # told: the connection, the process of the server, the channel, and the text.
                    await connection.add_listener(
                        self.schema, lambda *told: woken(told[3])
                    )
                    woken("")
                    raise_if_cancelled()  # listening may have hidden it
                    await lost.wait()
            except Exception as error:  # noqa: BLE001 - whatever it is, there is polling
                log.debug("%s: cannot listen (%s)", self._name, type(error).__name__)
            raise_if_cancelled()
            await asyncio.sleep(_RECONNECT)

    # --- storing

    def put(
        self,
        entry: Entry,
        lane: OwnedLane,
        left: Left | None = None,
    ) -> asyncio.Future[None]:
        """
        Store *entry*, and the state in which the write *left* its thing, if *lane* is still owned (``puts``).

        *entry* gets the time at which the database has stored its verdict.
        """
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._pending.append((Put(entry, lane, left), done))
        if self._flushing is None or self._flushing.done():
            self._flushing = asyncio.create_task(self._flush())
            self._flushing.add_done_callback(self._fail_puts)
        return done

    async def idle(self) -> None:
        """Wait until everything pending is stored."""
        while self._flushing is not None and not self._flushing.done():
            await asyncio.wait([self._flushing])

    async def _flush(self) -> None:
        """Store all pending entries in one statement, and entries that were added meanwhile in the next."""
        while self._pending:
            pending = self._pending_now = self._pending
            self._pending = []
            try:
                await self.store_commons()
                kept = await self._store([given for given, _ in pending])
            except Exception as error:  # noqa: BLE001 - raised where it is awaited
                for _, done in pending:
                    settle(done, None, error)
                self._pending_now = []
                continue
            for (entry, lane, _), done in pending:
                is_stored = (entry.seq or entry.key) in kept
                if is_stored:
                    settle(done, None, None)
                else:
                    lane.doubt()
                    settle(
                        done, None, LostEntryError(f"entry {entry.key!r} {_OF_ANOTHER}")
                    )
            self._pending_now = []

    def _fail_puts(self, flushing: asyncio.Task[None]) -> None:
        """Fail what a task left unanswered that was cancelled, or ended by a signal handler's exception."""
        unanswered = self._pending_now
        self._pending_now = []
        if self._flushing is flushing:
            self._flushing = None
            unanswered = [*unanswered, *self._pending]
            self._pending = []
        if flushing.cancelled():
            why = "the journal was closed while its database was away"
        else:
            why = f"storing was interrupted by {type(flushing.exception()).__name__}"
        for _, done in unanswered:
            settle(done, None, JournalError(f"{why}. Run again to continue."))

    async def _store(self, given: Sequence[Put]) -> set[int | str]:
        """Store entries; return the numbers of those that are stored, or the keys of those without one."""
        unkeyed, by_number, lefts, changed = last_puts(given)
        stored: set[int | str] = set()
        if unkeyed:
            text, values = put_unkeyed(unkeyed, changed)
            stored.update(key for (key,) in await self.rows(text, *values))
        if by_number:
            entries = {entry.seq: entry for entry, _, _ in by_number}
            for seq, done_at in await self._put_by_number(by_number, lefts):
                entries[seq].done_at = done_at  # by the clock of the database
                stored.add(seq)
        return stored

    async def _put_by_number(
        self, puts: Sequence[Put], lefts: Sequence[tuple[Cell, ...]]
    ) -> Sequence[Cell]:
        """Run the statement that stores *puts*, again while the database is away; return its rows."""
        # In the journal of a client, an end is stored before the next run of its key here (``run_ends``).  So
        # who reopens it meanwhile is another process, or a person, and the entry goes to another lane.
        stays_in_lane = self.how.kind != "journal"
        tries = count()

        async def put(connection: Connection) -> Sequence[Cell]:
            was_tried = next(tries) > 0
            text, values = put_in_database(
                puts,
                lefts,
                counted=self.how.counted,
                is_again=was_tried and stays_in_lane,
            )
            found: Sequence[Cell] = await connection.fetch(
                *self._dialect.translated(text, values)
            )
            return found

        return await self.steadily(put)

    async def store_commons(self) -> None:
        """Store the common parts of intents that the database may not have yet."""
        if fresh := self.commons.fresh():
            await self.rows(entry_sql.INSERT_COMMONS, fresh)
            self.commons.stored.update(number for number, _ in fresh)


def _note(place: dict[str, str]) -> str:
    """Return the name of the note of the last entry that may have been sent before this *place*."""
    return f"{_COPIED_THROUGH}{sorted(place.items())}"


def _pop_settings(kind: str, query: dict[str, str]) -> tuple[str, float]:
    """Remove the name and the silence from the *query* of an address, and return them; both are checked."""
    what = f"the {kind}'s address"
    for other in ({"batch", "journal", "outbox"} - {kind}) & {*query}:
        raise ConfigurationError(
            f"{what}: has a {other}. Name it with {kind}=… instead."
        )
    called = query.pop(kind, "default")
    most = 40 if kind == "batch" else 30
    if not re.fullmatch(rf"[a-z0-9_]{{1,{most}}}", called):
        raise ConfigurationError(
            f"{what}: {kind} is invalid. Use 1 to {most} characters of a-z, 0-9 and _."
        )
    try:
        silence = float(query.pop("silence", 10.0))
    except ValueError as error:
        raise ConfigurationError(f"{what}: {error}. Use numbers.") from None
    if not 1 <= silence <= _LONGEST:  # This refuses NaN, too.
        raise ConfigurationError(
            f"{what}: silence is out of range. Use 1 to {_LONGEST} seconds."
        )
    return called, silence


def _pop_starts_away(kind: str, query: dict[str, str]) -> bool:
    """Remove ``starts_away`` from the *query* of an address, and return whether it is there."""
    given = query.pop("starts_away", None)
    if given not in {None, "true"}:
        raise ConfigurationError(
            f"the {kind}'s address: starts_away is invalid. Use starts_away=true, or leave it out."
        )
    if given is not None and kind == "batch":
        raise ConfigurationError(
            "the batch's address: has starts_away. Leave it out: a batch waits."
        )
    return given is not None
