"""The outbox: enqueue writes in transactions of the application, send them, and hand out their verdicts."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Self, TypeVar

from invsvc_async.batch.replaced import (
    ReplacementNotes,
    telling_of_replacement,
)
from invsvc_async.batch.result import Result, outcome_in
from invsvc_async.batch.sending import Sending
from invsvc_async.concurrency.uncopied import Uncopied
from invsvc_async.durable.entry import State
from invsvc_async.durable.store.opening import store_at
from invsvc_async.errors import (
    ConfigurationError,
    DeadlineExceededError,
    InvalidRequestError,
    JournalError,
    takes_secrets,
)
from invsvc_async.outbox.caller_connections import run_now
from invsvc_async.outbox.changes import VerdictChanges
from invsvc_async.outbox.consumers import Consumers
from invsvc_async.outbox.dispatching import Dispatching
from invsvc_async.outbox.entries import OutboxEntries
from invsvc_async.outbox.opening import OutboxOpening
from invsvc_async.outbox.postgres import PostgresEnqueuing
from invsvc_async.outbox.sqlite import SqliteOutbox
from invsvc_async.reconcile.enums import Verdict
from invsvc_async.storage.address import check_path, is_postgres
from invsvc_async.writes.write import Write, value_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable
    from pathlib import Path

    from invsvc_async.client import Client
    from invsvc_async.codec.exact_json import WireObject
    from invsvc_async.durable.entry import Entry
    from invsvc_async.models.common import Model
    from invsvc_async.reconcile.outcome import Outcome
    from invsvc_async.transport.client_core import ClientCore
    from invsvc_async.writes.spec import WriteSpec


T = TypeVar("T")
log: logging.Logger = logging.getLogger("invsvc_async.outbox")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST = datetime(9999, 1, 1, tzinfo=UTC)
# if such a write is sent again
_DONE_ANEW = (Verdict.NOT_APPLIED, Verdict.REFUSED, Verdict.UNKNOWN)
_NO_READERS = (
    "An outbox stores data, and another process could not call a function of this one. Leave the reader out: "
    "the write is then UNKNOWN if its answer is lost."
)


class Outbox(Uncopied):
    """
    Writes that are sent if, and only if, a transaction of the application commits.

    :meth:`enqueue` inserts a write in the application's own transaction. :meth:`dispatching` sends what is
    committed, those of one thing in the order of their commits, in any number of processes. Each verdict is
    given at least once, to ``on_result`` or by :meth:`results`, and stays available by its key. Make one with
    :meth:`open`, and use it with ``async with``.
    """

    _why_uncopied = (
        "Both would send its writes. Pass on the outbox itself, or open another one."
    )

    def __init__(self, store: OutboxEntries, sending: Sending) -> None:
        self._store = store
        self._replacements = ReplacementNotes(store)
        self._sending = sending
        self._opening = OutboxOpening(store)
        self._changes = VerdictChanges(store.store, self._opening)
        self._consumers = Consumers(
            store, sending.core.clock, self._opening, self._changes
        )
        self._dispatching = Dispatching(sending, store, self._changes, self._consumers)

    @classmethod
    @takes_secrets
    def open(
        cls,
        path: str | Path,
        client: Client,
        *,
        concurrency: int = 100,
        rate: float | None = None,
        per_team: int | None = None,
        tag: bool = True,
        on_secret: Callable[[str, Any], Awaitable[None] | None]
        | None = None,  # Any: a Webhook
        same_mode: bool = False,
        create: bool = True,
        restored: bool = False,
        moved: bool = False,
        reading: bool = False,
    ) -> Self:
        """
        Return the outbox at *path*. ``async with`` opens it, or creates it.

        *path* is the address of a PostgreSQL database, ``postgresql://…``, or the path of a file of SQLite.
        Either is the application's own database, because they share transactions. In an address,
        ``outbox=NAME`` names one of several, and ``silence=SECONDS`` is after how long a process that gives
        no sign of life is replaced (default 10). Each base URL and credential has an outbox of its own.
        With ``starts_away=true``, ``async with`` also begins while the database cannot be reached: until it
        is back, each use raises ``JournalError``, and :attr:`problem` says why.

        *concurrency*, *rate*, *per_team*, *tag* and *on_secret* are those of :meth:`Batch.open`. *same_mode*
        asserts that a new credential has the team and data mode of the earlier one, whose writes it
        continues. With
        ``create=False`` an outbox that does not exist is an error. With ``reading=True`` it only reads, by
        :meth:`get` and :meth:`wait`, also while another process has a file of SQLite.

        Nothing is sent from an outbox that may lack sends, because its database was restored or copied,
        unless told how, at one start. *restored* says that it is an older copy: each write that it has as
        open is settled before it may be sent, and is UNKNOWN if no read can tell. *moved* says that it is
        complete.

        Raises:
            ConfigurationError: A setting cannot work.
        """
        sending = Sending(
            client=client,
            concurrency=concurrency,
            rate=rate,
            per_team=per_team,
            tag=tag,
            on_secret=on_secret,
            same_mode=same_mode,
        )
        how = {
            "create": create,
            "restored": restored,
            "moved": moved,
            "reading": reading,
        }
        return cls(outbox_at(path, sending.core, same_mode=same_mode, **how), sending)

    async def __aenter__(self) -> Self:
        """
        Open it.

        Raises:
            JournalError: The database cannot be used, or its schema is of another version. If it cannot be
                reached now, and the address has ``starts_away=true``, that is logged instead.
            ConfigurationError: It is open already.
        """
        await self._opening.enter(self._changes.wake)
        if not self._store.store.how.reading:
            self._sending.core.replacements.add(self._replacements)
        return self

    @property
    def problem(self) -> str | None:
        """
        Why the database has not been reached since ``async with`` began; ``None`` once it has.

        For a health check, with ``starts_away=true`` in the address.
        """
        return self._opening.problem

    async def __aexit__(self, *_error: object) -> None:
        if self._opening.has_loop:
            self._opening.check_loop()
        else:
            self._consumers.forget()
        self._opening.shut()
        self._sending.core.replacements.discard(self._replacements)
        self._changes.wake()
        try:
            await self._opening.stop_arriving()
            await self._consumers.end()
            await self._changes.end()
        finally:
            try:
                await self._store.aclose()
            finally:
                self._opening.leave()

    # --- in

    # Any: of any operation
    async def enqueue(
        self,
        connection: object,
        write: Write[Any],
        *,
        not_before: datetime | None = None,
    ) -> str:
        """
        Insert *write* in the transaction of *connection*, and return its key.

        It is sent once the transaction is committed, and never if it is rolled back. *connection* is one of
        asyncpg, psycopg 3 (async) or aiosqlite, or an ``AsyncSession`` or ``AsyncConnection`` of SQLAlchemy,
        to the outbox's database. One statement is executed. Nothing is committed, rolled back or tried again.

        The key is that of ``write.keyed(…)``, or a new one. The same write under the same key is inserted
        once. Until the transaction ends, others that enqueue writes to the same thing wait for it.

        It is not sent before *not_before*, an aware datetime, by the clock of the database; of a file, by
        that of the process that sends. Writes to the same thing that are enqueued later wait for it, and no
        others. Of a write that is there already, the time stays. To take a write back, :meth:`drop` it.

        Raises:
            KeyConflictError: The outbox has another write under this key. Nothing was inserted.
            InvalidRequestError: *connection* is not in a transaction, or not of a supported kind; the write
                has begun or has a user-supplied reader; *not_before* has no time zone. Nothing was inserted.
            JournalError: The outbox is not open, or its own connection failed. Nothing was inserted.
            ConfigurationError: It belongs to another event loop. Nothing was inserted.
            Exception: An error of the driver, as it is.
        """
        due = _epoch_ms(not_before)
        spec = self._accepted(write)
        self._opening.check_open()
        new = self._store.enqueuing.new(spec, due)
        await self._store.enqueuing.insert(connection, new)
        return new.key

    # Any: of any operation
    def enqueue_sync(
        self,
        connection: object,
        write: Write[Any],
        *,
        not_before: datetime | None = None,
    ) -> str:
        """
        Do the same as :meth:`enqueue`, from code without an event loop. The outbox need not be open.

        *connection* is a ``Connection`` of psycopg 3 or sqlite3, a ``Session`` or ``Connection`` of
        SQLAlchemy, or ``django.db.connection`` inside ``atomic()``. Where the outbox is in its database is
        found by statements on it, so the outbox must have been opened there once. Any thread may call this.
        In PostgreSQL, the first write under a policy stores that policy: until it is committed, others that
        are about to do so wait for it.

        Raises:
            KeyConflictError, InvalidRequestError: As :meth:`enqueue`. Nothing was inserted.
            JournalError: The database has none, or one of an earlier version that cannot store the labels,
                the team or *not_before*; or it was opened with ``reading=True``. Nothing was inserted.
            Exception: An error of the driver, as it is.
        """
        due = _epoch_ms(not_before)
        spec = self._accepted(write)
        self._opening.check_writing()
        new = self._store.enqueuing.new(spec, due, apart=True)
        core = self._sending.core
        enqueuing = self._store.enqueuing
        run_now(connection, enqueuing.database, enqueuing.enqueue_there(core, new))
        return new.key

    async def send(self, write: Write[T]) -> T:
        """
        Enqueue *write* in a transaction of its own, wait for the verdict, and return the value of the write.

        It is sent by a process that dispatches this outbox, by this one if it does so; without any, this
        waits until there is one. If this call is cancelled or fails, the write is sent all the same: give it
        a key, to be able to call this again.

        A key whose write was APPLIED or SUPERSEDED gives that outcome again. After another verdict it is done
        anew, as :meth:`retry` does. The secret of a new webhook is in no store: it goes to ``on_secret`` of
        the process that sends. The verdict is also one of :meth:`results`.

        Raises:
            WriteError, ServiceError: As awaiting it does.
            KeyConflictError, InvalidRequestError: As :meth:`enqueue`.
            JournalError: The outbox is closed, the database stayed away, or the write was deleted meanwhile.
        """
        spec = self._accepted(write)
        self._opening.check_open()
        new = self._store.enqueuing.new(spec)
        if not await self._store.enqueuing.insert(None, new):
            await self._store.do_again([new.key], verdicts=_DONE_ANEW)
        outcome: Outcome[T] = await self._outcome_of(new.key, is_there=True)
        return value_of(write, outcome)

    def _accepted(self, write: object) -> WriteSpec:
        spec = self._sending.take_over(write, "outbox")
        if spec.reader is not None or callable(spec.policy.journey_reader):
            operation = spec.operation.name
            raise InvalidRequestError(
                "reader: cannot be stored", operation=operation, hint=_NO_READERS
            )
        return self._sending.as_stored(spec, spec.key or token_hex(16))

    # --- out

    @asynccontextmanager
    async def dispatching(
        self,
        *,
        on_result: Callable[[Result], Awaitable[None] | None] | None = None,
        grace: float = 10.0,
    ) -> AsyncGenerator[None]:
        """
        Send what is committed, while the block runs.

        Any number of processes may do so at once. What a dead one left is taken over: a write that it may
        have sent is settled first. An error of the service or the database is logged, and dispatching goes
        on when it is gone.

        *on_result* gets each verdict, and may be async. If it raises, that is logged, and the verdict is
        given again after 1 s, later after 30 s. Without it, take the verdicts from :meth:`results`. In the
        end, what is being sent may take *grace* seconds; what is left then is settled by the next process.
        Nothing waits for writes that are not due: they stay.

        Raises:
            ConfigurationError: This outbox is dispatching already, or its client belongs to another event
                loop.
            JournalError: It is not open.
        """
        if (
            self._opening.problem is None
        ):  # otherwise it begins once the database is back
            self._opening.check_open()
        async with self._dispatching.run(on_result, grace=grace):
            yield

    def results(self) -> AsyncGenerator[Result]:
        """
        Iterate over verdicts that nobody has acknowledged, and wait for more, until the outbox is closed.

        To ask for the next one acknowledges the one before. Those that a process has not acknowledged when it
        ends, or is silent for too long, are given again, by another one; a kill may also undo what was
        acknowledged within the last 0.2 seconds. Several consumers share the verdicts. The old verdict of a
        write that was retried, resolved or dropped more than a moment ago is not given any more. Webhook
        secrets are not in the verdicts: see ``on_secret``.

        Raises:
            JournalError: The database stayed away.
        """
        return self._consumers.results(Counter())

    # Any: as in get
    async def wait(self, key: str, timeout: float | None = None) -> Outcome[Any]:
        """
        Wait until the write of *key* has a verdict, and return its outcome, as :meth:`get` does.

        The key need not be known yet. Without a process that dispatches this outbox, by :meth:`dispatching`
        or ``invsvc outbox work``, this waits until there is one, or for *timeout* seconds.

        Raises:
            DeadlineExceededError: There was none within *timeout* seconds. The write goes on.
            JournalError: The outbox is not open, or was closed meanwhile, or the database stayed away.
        """
        self._opening.check_loop()
        self._opening.check_reached()
        try:
            async with asyncio.timeout(timeout):
                return await self._outcome_of(key)
        except TimeoutError:
            raise DeadlineExceededError(
                f"outbox: the write of {key!r} got no verdict within {timeout} s. Wait again, and check that "
                "a process dispatches this outbox, and that the transaction was committed. `invsvc outbox "
                "show` says what it waits for, such as its time.",
                goes_on=True,
            ) from None

    # Any: as in get
    async def _outcome_of(self, key: str, *, is_there: bool = False) -> Outcome[Any]:
        """Wait for the outcome of the write of *key*, which *is_there*, or may still be enqueued."""
        while True:
            changed = self._changes.hear()
            entry = await self._store.entry(key)
            if entry is not None and entry.state is State.DONE:
                return await self._told(entry)
            if entry is None and is_there:
                raise JournalError(
                    f"outbox: {key!r} was deleted meanwhile. It may have been applied."
                )
            await self._changes.until(changed)

    # Any: the operation says what its value is
    async def get(self, key: str) -> Outcome[Any] | None:
        """
        Return the outcome of the write of *key*; ``None`` if it has no verdict yet, or is not known.

        It has no history, and no secret of a webhook. If a webhook was replaced because its secret was lost,
        the value is the first one, and the message names the other.

        Raises:
            JournalError: The database stayed away, or the entry is damaged.
        """
        self._opening.check_loop()
        self._opening.check_reached()
        entry = await self._store.entry(key)
        if entry is None or entry.state is not State.DONE:
            return None
        return await self._told(entry)

    async def _told(self, entry: Entry) -> Outcome[Any]:  # Any: as in get
        """Return the outcome of an entry that is done; its message says whether a webhook was replaced."""
        outcome = outcome_in(entry, self._store.store.commons)
        return await telling_of_replacement(self._store, entry.key, outcome)

    async def retry(self, *keys: str) -> list[str]:
        """
        Mark writes as to be done again, and return the keys of those that are; their verdict is forgotten.

        NOT_APPLIED, REFUSED and SUPERSEDED ones are sent anew. UNKNOWN ones are settled first, and sent only
        on proof of absence. APPLIED and open ones stay as they are. If a newer write to the same thing was
        sent meanwhile, the write is NOT_APPLIED again, and its result is marked ``overtaken``.

        Raises:
            JournalError: The database stayed away.
        """
        self._opening.check_open()
        return await self._store.do_again(keys)

    async def resolve(
        self,
        key: str,
        *,
        applied: bool | str | Model | WireObject,
        because: str,
        by: str | None = None,
    ) -> Outcome[Any]:  # Any: as in get
        """
        Store what you have found out about the write of *key* as its verdict, and return the outcome.

        The arguments are those of :meth:`Client.resolve`. The new verdict is given as each one is. A write
        that was not applied is sent once it is retried, or by :meth:`send`.

        Raises:
            InvalidRequestError: The arguments do not say what was found, or name another thing.
            JournalError: The write is not there, a living process has it, its verdict is final, nothing of it
                was sent, the outbox is not open, or the database stayed away, or may be an older copy.
                Nothing was stored.
        """
        self._opening.check_open()
        from invsvc_async.durable.resolve import note, resolution, resolve

        resolved = await resolve(
            self._store.store, key, resolution(applied, because, by)
        )
        note(self._sending.core, resolved)
        self._changes.note_stored()
        await self._changes.tell()
        return resolved.outcome

    async def drop(self, key: str) -> bool:
        """
        Delete the write of *key* if it was not sent, or has a verdict; return whether there was such a write.

        One that may have been sent and has no verdict yet stays: the answer is then False. With a write, its
        verdict is deleted, too, also one that nobody has acknowledged. With an UNKNOWN one, it is forgotten
        that the write may still take effect: after a restart, later writes to its thing do not wait for that.
        :meth:`resolve` it instead.

        Raises:
            JournalError: The database stayed away, or may be an older copy. Nothing was deleted.
        """
        self._opening.check_open()
        return await self._store.drop(key)

    async def prune(self, *, older_than: float, unacknowledged: bool = False) -> int:
        """
        Delete writes that got their verdict more than *older_than* seconds ago; return how many.

        :meth:`get` then no longer finds them, and a write under the key of a deleted one is sent as a new
        one. Open writes and UNKNOWN ones stay, and so do verdicts that nobody has acknowledged; with
        *unacknowledged* these are deleted too. It takes many short transactions, and can be stopped.

        Ages are by the clock of the database; in a file by that of this machine. Neither counts for later
        than the service's clock, as far as answers in the last ten minutes have shown it.

        Raises:
            InvalidRequestError: *older_than* is negative.
            JournalError: The database stayed away.
        """
        self._opening.check_open()
        if not older_than >= 0:
            raise InvalidRequestError(
                f"older_than: must be 0 or more seconds, not {older_than!r}"
            )
        before = await self._store.ago(older_than)
        return await self._store.prune(before, unacknowledged=unacknowledged)


def outbox_at(
    path: str | Path, core: ClientCore, *, same_mode: bool = False, **how: bool
) -> OutboxEntries:
    """Return the entries of *core* at *path*, not open yet. The settings are those of ``Outbox.open``."""
    if is_postgres(str(path)):
        store = store_at(path, "outbox", **how)
        enqueuing = PostgresEnqueuing(store, same_mode=same_mode)
        return OutboxEntries(store, core, enqueuing, same_mode=same_mode)
    check_path(str(path), "outbox")
    if str(path) in ("", ".", ":memory:"):
        raise ConfigurationError(
            f"outbox: {str(path)!r} is not a file. Use postgresql://… or the path of a file."
        )
    return SqliteOutbox(path, core, same_mode=same_mode, **how)


def _epoch_ms(not_before: datetime | None) -> int | None:
    """Return *not_before* in epoch ms, rounded up; ``None`` stays."""
    if not_before is None:
        return None
    if not isinstance(not_before, datetime) or not_before.utcoffset() is None:
        raise InvalidRequestError(
            f"not_before: must be a datetime with a time zone, not {not_before!r}",
            hint="Pass one such as datetime.now(UTC) + timedelta(hours=1).",
        )
    if not_before > _LATEST:
        raise InvalidRequestError(
            f"not_before: {not_before.isoformat()} is too late",
            hint=f"The latest is {_LATEST.isoformat()}.",
        )
    since = not_before - _EPOCH
    return max(-(-since // timedelta(milliseconds=1)), 0)
