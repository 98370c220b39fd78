"""The writes of a batch, in a file or in a database that machines share."""

from __future__ import annotations

from collections import Counter
from contextlib import aclosing
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlencode

import attrs
import msgspec

from invsvc_async.api.operations import TABLE
from invsvc_async.batch.input_notes import InputNotes
from invsvc_async.batch.replaced import count_replaced, with_replacements
from invsvc_async.batch.result import (
    Result,
    Summary,
    Worker,
    kept_outcome,
    outcome_in,
)
from invsvc_async.durable.entries import Entries, counts_of
from invsvc_async.durable.entry import Entry, State
from invsvc_async.durable.records import verdict_and_record
from invsvc_async.durable.store import inputs, lists
from invsvc_async.durable.store.members import with_status
from invsvc_async.durable.store.opening import store_at
from invsvc_async.errors import ConfigurationError, JournalError
from invsvc_async.reconcile.history import Verdict
from invsvc_async.reconcile.kinds import kind_of_write
from invsvc_async.storage.address import is_postgres, user_in, without_login

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from invsvc_async.batch.file_check import Checkpoint
    from invsvc_async.durable.store.opening import Store
    from invsvc_async.transport.client_core import ClientCore


BEGUN = "begun"  # the fact that says when the batch was begun, epoch ms
_PAGE = 500  # entries that are done, read at once
_WITH_SECRET = [
    each.name
    for each in TABLE
    if each.kind == "write" and kind_of_write(each).has_secret
]
_SILENT = 3  # times the silence, after which people are told that a worker is not alive
# options of an address that say which one it is, and how a command reaches it; none has a password
_WHICH = ("batch", "outbox", "journal", "namespace", "same_mode", "silence")
_SERVER = ("host", "port", "user", "dbname", "passfile", "service", "servicefile")
_TLS = ("sslmode", "sslcert", "sslkey", "sslrootcert", "sslcrl")
_SHOWN = (*_WHICH, *_SERVER, *_TLS, "target_session_attrs")


class BatchEntries(Entries):
    """The writes of one batch."""

    def __init__(
        self,
        store: Store,
        core: ClientCore | None = None,
        *,
        same_mode: bool = False,
    ) -> None:
        super().__init__(store, core, same_mode=same_mode)
        self.input_notes: InputNotes = InputNotes(store)


async def has_secrets(entries: BatchEntries) -> bool:
    """Return whether the answer to a write of *entries* that is not done has a secret."""
    return await lists.has_open(entries.store, _WITH_SECRET)


async def summary_of(entries: Entries) -> Summary:
    """Return the counts of *entries*, and how many inputs were begun and not read to their end."""
    states: Counter[int] = Counter()
    verdicts: Counter[Verdict] = Counter()
    lost = overtaken = replaced = 0
    for state, verdict, flags, many in await counts_of(entries):
        states[state] += many
        if state == State.DONE:
            verdicts[Verdict(verdict)] += many
            lost += many * (flags & 1)
            overtaken += many * (flags >> 1)
    # of other stores, entries are deleted, and what is noted of them is not
    if lost and isinstance(entries, BatchEntries):
        replaced = await count_replaced(entries)
    return Summary(
        to_do=states[State.TO_DO],
        sending=states[State.SENDING],
        verdicts={verdict: many for verdict, many in verdicts.items() if many},
        secrets_lost=lost - replaced,
        secrets_replaced=replaced,
        overtaken=overtaken,
        open_inputs=await inputs.count(entries.store),
    )


async def pages_of(
    entries: Entries, verdict: Verdict | None = None
) -> AsyncIterator[list[Entry]]:
    """Iterate over the entries that are done, all or those with *verdict*, in their order."""
    after = 0
    while page := await entries.done(verdict, after, _PAGE):
        yield page
        after = page[-1].seq


async def results_of(
    entries: Entries, verdict: Verdict | None = None
) -> AsyncIterator[Result]:
    """Iterate over the results in a store, all or those with *verdict*, in the order of the input."""
    async for page in pages_of(entries, verdict):
        for result in await results_in(entries, page):
            yield result


async def results_in(entries: Entries, page: Sequence[Entry]) -> list[Result]:
    """Return the results of *page*, entries that are done, with what stands in the place of webhooks."""
    return await with_replacements(entries, [result_of(entries, each) for each in page])


def result_of(entries: Entries, entry: Entry) -> Result:
    """Return the result of an entry that is done. Only that of a batch is stored as such."""
    commons = entries.store.commons
    if isinstance(entries, BatchEntries):
        return Result.of(entry, outcome=kept_outcome(entry, commons))
    found = Result.of(entry, outcome=outcome_in(entry, commons))
    result = attrs.evolve(found, key=entries.key_of(entry))
    if not result.secret_lost or not entry.heard:
        return result
    if verdict_and_record(entry)[1].had == "returned":
        return attrs.evolve(result, secret="not stored")
    return result


async def workers_of(entries: Entries) -> list[Worker]:
    """Return the processes of the last day that send *entries*, the longest-running first."""
    if not entries.store.is_shared:
        raise ConfigurationError(
            "workers: a file has none, because one process uses it. Use postgresql://…."
        )
    return [
        Worker(
            **msgspec.json.decode(each.status),
            begun=datetime.fromtimestamp(each.begun, UTC),
            seen=datetime.fromtimestamp(each.seen, UTC),
            silent=each.silent,
            alive=each.sends >= 0 and each.silent < _SILENT * entries.store.silence,
            ended=each.sends < 0,
        )
        for each in await with_status(entries.store)
    ]


# the name of an address in which a password could be mistaken for something else
UNNAMED = "postgresql://…"


def name_of(path: str | Path) -> str:
    """Return *path* for display and for commands: an address without its password, and with known options."""
    if not is_postgres(str(path)):
        return str(path)
    place = without_login(str(path))
    if place is None:
        return UNNAMED
    options = [
        each for each in parse_qsl(str(path).partition("?")[2]) if each[0] in _SHOWN
    ]
    user = user_in(str(path))
    name = f"postgresql://{user}@{place}" if user else f"postgresql://{place}"
    if options:
        return f"{name}?{urlencode(options, safe='/,')}"
    return name


async def checkpoint_at(path: str | Path) -> Checkpoint | None:
    """Return how far the latest input was taken in at *path*, if that is known. It need not exist."""
    try:
        entries = entries_of(path, reading=True)
        await entries.open()
    except (
        ConfigurationError,
        JournalError,
    ):  # the journal is opened later, which says what is wrong
        return None
    async with aclosing(entries):
        return await entries.input_notes.checkpoint()


def entries_of(path: str | Path, **settings: bool) -> BatchEntries:
    """Return the entries at *path*, not open yet. Settings and errors are those of :func:`store_at`."""
    return BatchEntries(store_at(path, "batch", **settings))
