"""How transactions of the application enqueue writes: the statements, on its own connections."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

from invsvc_async.batch.sending import content_of, new_entry
from invsvc_async.durable.intents import Commons
from invsvc_async.errors import JournalError, KeyConflictError
from invsvc_async.writes.new_intent import intent_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from invsvc_async.durable.entry import Entry
    from invsvc_async.durable.store.enqueued import Statement
    from invsvc_async.durable.store.opening import Store
    from invsvc_async.outbox.caller_connections import Database
    from invsvc_async.storage.dialect import Script
    from invsvc_async.transport.client_core import ClientCore
    from invsvc_async.writes.spec import WriteSpec


_TRIES = 5  # to insert a write whose key others delete at the same time


class Enqueuing(ABC):
    """
    The enqueueing of writes in one kind of database, for the outbox in *store*.

    The statements are in the SQL that drivers have in common, with ``$1``, ``$2``, … as parameters; each
    returns rows.
    """

    database: ClassVar[Database]

    def __init__(self, store: Store) -> None:
        self.store: Store = store
        self._apart = Commons()  # of what synchronous code enqueues, in any thread

    def new(
        self,
        spec: WriteSpec,
        not_before: int | None = None,
        *,
        apart: bool = False,
    ) -> Entry:
        """
        Return the entry of a write that is to be enqueued: on the event loop, or *apart* from it.

        It is not to be sent before *not_before* (epoch ms).
        """
        commons = self._apart if apart else self.store.commons
        new = new_entry(spec, intent_of(spec), commons, content_of(spec))
        new.not_before = not_before
        return new

    def common_of(self, new: Entry) -> str:
        """Return the text of the common part of its intent."""
        assert new.common is not None
        return self._apart.texts.get(new.common) or self.store.commons.texts[new.common]

    @abstractmethod
    async def insert(self, connection: object | None, new: Entry) -> bool:
        """Enqueue *new* in the transaction of *connection*, or in one of its own, as :meth:`enqueue`."""

    @abstractmethod
    def find(self, core: ClientCore, new: Entry) -> Script[str]:
        """
        Return where the outbox of *core* is in the database of the script, and prepare it for *new*.

        Raises:
            JournalError: It is not there, or its tables are of an earlier version that cannot store *new*.
        """

    def lock_things(self, keys: Sequence[str]) -> Script[None]:
        """Lock what the entries of *keys* write to, until the transactions that enqueue to it have ended."""
        del keys
        yield from ()  # Of a file, there is one transaction at a time.

    @abstractmethod
    def statements(self, place: str, new: Entry) -> tuple[Statement, Statement]:
        """
        Return statements that insert *new* at *place*, or compare *new* with the entry there.

        The first returns no row if the key is not new.
        """

    def enqueue(self, place: str, new: Entry) -> Script[bool]:
        """
        Insert *new* at *place*; return whether its key was new.

        Raises:
            KeyConflictError: The key has another write.
            JournalError: The rights of the role do not suffice to read what is there.
        """
        insert, find = self.statements(place, new)
        for _ in range(_TRIES):
            if (yield insert):
                return True
            if found := (yield find):
                if found[0][0]:
                    return False
                raise KeyConflictError(
                    f"key: the outbox has another write under the key {new.key!r}",
                    hint="Give this one its own key.",
                )
            # It was deleted between the two statements, so this one can be inserted now.
        raise JournalError(
            f"outbox: the write under the key {new.key!r} cannot be read. Nothing was inserted. Check the "
            "rights of the connection's role, or give this write its own key."
        )

    def enqueue_there(self, core: ClientCore, new: Entry) -> Script[bool]:
        """Find the outbox of *core*, and insert *new*, as :meth:`find` and :meth:`enqueue`."""
        place = yield from self.find(core, new)
        return (yield from self.enqueue(place, new))


def too_old_for(columns: Iterable[str]) -> JournalError:
    """Return the error for tables of an earlier version, which lack *columns* that a write needs."""
    return JournalError(
        f"{', '.join(columns)}: cannot be stored, because the tables of the outbox are of an earlier version "
        "of the package. Open the outbox there once with `async with`, or run `invsvc outbox work`, of this "
        "version. Nothing was inserted."
    )


def not_there(core: ClientCore) -> JournalError:
    """Return the error for a database without an outbox of *core*."""
    return JournalError(
        f"connection: its database has no outbox for {core.base_url} and this credential. Open the outbox "
        "there once with `async with`, or run `invsvc outbox work`; check the name in its address, and the "
        "profile. Nothing was inserted."
    )
