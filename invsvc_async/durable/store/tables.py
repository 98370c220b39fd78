"""
What the tables of a store of writes are for, and how a store is opened.  Their SQL is in ``schema_sql``.

=========  ============================================================================================
facts      what holds for the whole store, by name
commons    common parts of intents, by number
members    the processes that use it, with their last signs of life; ``sends`` is 1 of those that send, 0 of
           others, and -1 of those that have ended; ``hungry`` is 1 of those that have nothing to send
lanes      parts of the store, each with the token of the process that owns it; ``NULL``: nobody does.  In the
           journal of a client, ``credential`` tells that of the client that made the lane
entries    the writes
unheard    verdicts that nobody has acknowledged; ``taker`` is the process that gives one to the
           application: the one that sent the write, or that has taken the verdict from the store.  In the
           journal of a client, instead, the creates whose process still has to return the secret of a
           webhook, which is not stored (``Teller`` in ``conditions``)
states     what the last write left of each thing; in PostgreSQL also the numbers of ``newest``, the last
           entry whose key was claimed, and of the one ``before``
counts     in a batch, how many entries there are of each state, verdict and ``flags``, in parts: each process
           chooses one and adds to it, so that they seldom wait for each other
=========  ============================================================================================

``flags`` is what is counted of an outcome: 1 if the secret of a webhook is lost, plus 2 if the entry was
overtaken.  ``labels`` are those of the user (``noted``).  ``team`` is the one that a request names, or
``""``.  ``not_before`` and ``due_at`` are those of ``due``.

``lane``, ``done_at`` and ``digest`` say more than their names: see ``conditions``.  ``seq`` identifies an
entry.  ``place`` is its place in the order of the writes to one thing.

The columns that are written at each send (``state``, ``common``, ``intent``) are in no index and no condition
of one, and the fill factor leaves room on the row's page for its second version, so such an update writes no
index (HOT).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

import attrs

from invsvc_async.durable.store.fact_names import NAMES, NAMES_OF_TODAY
from invsvc_async.durable.store.migrations import schema_of
from invsvc_async.durable.store.statements import entry_sql, schema_sql, store_sql
from invsvc_async.errors import JournalError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from invsvc_async.storage.dialect import Script


T = TypeVar("T")


@attrs.frozen
class Opening:
    """
    Of which *kind* a store is, and how it is opened.

    A new one has so many *lanes* (0: each process makes its own), and with *counted*, it counts its entries.

    *run_by* is how errors call what a person runs with the store, such as ``"the batch"``; ``None`` for a
    client's journal, for which nobody runs anything.  So it also decides about what needs a person: see
    ``asks_people``.

    A store that was *restored* is marked so; one that was *moved* is accepted as complete.  With *reading*,
    nothing is changed, and another process may own a file.
    """

    kind: str
    lanes: int = 0
    counted: bool = False
    run_by: str | None = None
    create: bool = True
    reading: bool = False
    restored: bool = False
    moved: bool = False

    @property
    def asks_people(self) -> bool:
        """
        Whether a store is refused that may lack sends, because it is a copy or was put back from one.

        A person then says whether it is *restored* or *moved*.  Otherwise it is logged, and what is open is
        settled as if it had been sent since.
        """
        return self.run_by is not None

    @property
    def is_of_credential(self) -> bool:
        """
        Whether each credential of a base URL has a store of its own, in PostgreSQL.

        The journals of clients are one store for a base URL, and a batch is known by its name alone.
        """
        return self.kind == "outbox"


_JOURNAL: Final = "the journal of "
_CALLED: Final = {
    "batch": "a batch",
    "outbox": f"{_JOURNAL}an outbox",
    "journal": f"{_JOURNAL}a client",
}


def create(how: Opening, **facts: str) -> Script[None]:
    """Create the tables of a new store, with lanes that nobody owns, and further *facts*."""
    # Without lanes, it is the journal of a client, whose ``unheard`` has no verdicts.
    texts = [*schema_sql.TABLES, *schema_sql.COUNT_SENDS]
    if how.lanes:
        texts.append(schema_sql.NOTE_UNHEARD_BY_TRIGGER)
    if how.counted:
        texts += [schema_sql.COUNTS_TABLE, *schema_sql.COUNT_BY_TRIGGERS]
    for text in texts:
        yield text, ()
    version = schema_of(counted=how.counted).version
    yield (
        store_sql.INSERT_FACTS,
        (
            [
                ("schema", str(version)),
                ("kind", how.kind),
                (NAMES, NAMES_OF_TODAY),
                *facts.items(),
            ],
        ),
    )
    if how.lanes:
        yield store_sql.insert_free_lanes(how.lanes), ()


def check(name: str, how: Opening) -> Script[int]:
    """
    Return the version of the tables of what errors call *name*.

    Raises:
        JournalError: The package does not know that version; the store is of another kind, or lacks lanes.
    """
    schema = schema_of(counted=how.counted)
    facts = dict((yield store_sql.VERSION_AND_KIND, ()))
    version = schema.check(name, facts.get("schema"))
    kind = facts.get("kind", "of no kind")
    if kind != how.kind:
        found = _CALLED.get(kind, kind)
        wanted = _CALLED.get(how.kind, how.kind)
        raise JournalError(f"{name}: it is {found}, not {wanted}. Choose another path.")
    [(lanes,)] = yield store_sql.COUNT_LANES, ()
    if how.lanes not in (0, lanes):
        raise JournalError(
            f"{name}: it has {lanes} lanes instead of {how.lanes}, so some of its writes would never be sent"
            f": a development version of the package made it, or somebody has deleted lanes. {schema.anew}."
        )
    return version


def upgrade(how: Opening, found: int) -> Script[None]:
    """
    Bring the tables of a store of the version *found* up to date, under its lock, and note that.

    Whoever has lanes loses them, and is given no others (``in_version``): a process of the earlier version
    that was only suspended stores nothing more.  What it has sent may still arrive.  So its lanes do not
    count as released (NULL), but belong to a process that does not live.  A file is not upgraded before such
    a process is gone, so its opening releases all lanes after that.
    """
    schema = schema_of(counted=how.counted)
    yield store_sql.note_version(schema.version), ()
    yield store_sql.DISOWN_LANES, ()
    yield from schema.upgrade(found)


def in_version(
    how: Opening, version: int, script: Callable[[], Script[T]]
) -> Script[T]:
    """
    Run *script*, which gives lanes to this process, if the tables still have *version*.

    Those of a file have: while a process has it open, no other one changes them.  Version 0.1.0 of the
    package does not check this.

    Raises:
        JournalError: They have another version by now.
    """
    rows = yield store_sql.LOCK_VERSION, ()  # none in a file
    found = int(rows[0][0]) if rows else version
    if found == version:
        return (yield from script())
    if found > version:
        why = "a later version of the package has brought them up to date"
        advice = "Start this process again with that version."
    else:
        why = "the database was put back from a copy that is older than these"
        advice = "Start this process again, which brings them up to date."
    raise JournalError(
        f"{how.kind}: its tables have version {found} now, and this process works with version {version}: "
        f"{why}. Nothing was sent. {advice}"
    )


def is_old(how: Opening, version: int) -> bool:
    """Return whether tables of this *version* have to be brought up to date, to work with them."""
    return version < schema_of(counted=how.counted).version


def change_counts(changes: Mapping[tuple[int, str, int], int]) -> Script[None]:
    """
    Add *changes*, by state, verdict and flags, to the counts, if they are kept.

    In PostgreSQL; in a file, triggers do that.
    """
    rows = [
        (int(state), verdict, flags, many)
        for (state, verdict, flags), many in sorted(changes.items())
        if many
    ]
    if rows:
        yield entry_sql.ADD_TO_COUNTS, (rows,)


def move_count(
    before: tuple[int, str, int], after: tuple[int, str, int]
) -> Script[None]:
    """
    Count an entry as *after* (state, verdict and flags) instead of *before*, if counts are kept.

    In PostgreSQL; in a file, triggers do that.
    """
    if before != after:
        yield from change_counts({before: -1, after: 1})


def move_count_in_file(
    before: tuple[int, str, int], after: tuple[int, str, int]
) -> Script[None]:
    """Do as ``move_count`` in the file of a batch, whose triggers see no change that keeps the state."""
    yield entry_sql.ADD_TO_COUNTS_OF_FILE, ([(*before, -1), (*after, 1)],)
