"""The intake of a batch: gives each write of the input a key, and finds the new writes."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

import msgspec

from invsvc_async.batch.file_check import Met
from invsvc_async.batch.sending import content_of, new_entry
from invsvc_async.concurrency.cancellation import raise_if_cancelled
from invsvc_async.durable.entry import Entry, State
from invsvc_async.durable.store.lanes import lane_for
from invsvc_async.errors import ConfigurationError, InvalidRequestError
from invsvc_async.writes.new_intent import intent_of
from invsvc_async.writes.write import AnyWrite, Write

if TYPE_CHECKING:
    from invsvc_async.batch.entries import BatchEntries
    from invsvc_async.batch.sending import Sending
    from invsvc_async.durable.store.adding import KnownEntry
    from invsvc_async.reconcile.intent import Intent
    from invsvc_async.writes.spec import WriteSpec


AT_ONCE = 128  # writes taken in together, with one query of the journal
_TO_END = 1.0  # s that an input has to end once its run is over
_REPEATS_KEPT = 10_000  # contents seen more than once, whose count is remembered
_CUT = (
    "writes: what the input awaits was cancelled, but not by this run. Writes before it may have been sent. "
    "Run again; finished writes are skipped."
)


def chunks(
    writes: Iterable[AnyWrite] | AsyncIterable[AnyWrite],
) -> AsyncGenerator[list[AnyWrite], None]:
    """Yield *writes* in lists of what is available, at most 128 each."""
    if isinstance(writes, AsyncIterable):
        return _read_ahead(writes)
    return _pieces(iter(writes))


async def _pieces(source: Iterator[AnyWrite]) -> AsyncGenerator[list[AnyWrite], None]:
    """Yield lists. If the source fails, yield what came before the error first."""
    while True:
        chunk: list[AnyWrite] = []
        try:
            chunk.extend(islice(source, AT_ONCE))
        except Exception:
            if chunk:
                yield chunk
            raise
        if not chunk:
            return
        yield chunk


async def _read_ahead(
    writes: AsyncIterable[AnyWrite],
) -> AsyncGenerator[list[AnyWrite], None]:
    """Read ahead a little, so that writes do not wait for a slow source."""
    queue: asyncio.Queue[AnyWrite | None] = asyncio.Queue(AT_ONCE)

    async def pump() -> None:
        try:
            async for write in writes:
                try:
                    raise_if_cancelled()  # the input survived that
                    await queue.put(write)
                except (
                    asyncio.CancelledError
                ):  # it has no place, and nobody gets it any more
                    _close(write)
                    raise
        except asyncio.CancelledError:
            raise_if_cancelled()
            raise ConfigurationError(_CUT) from None
        finally:
            await queue.put(None)

    pumping = asyncio.create_task(pump())
    try:
        more = True
        while more:
            chunk = [await queue.get()]
            chunk += [queue.get_nowait() for _ in range(queue.qsize())]
            more = chunk[-1] is not None
            if found := [write for write in chunk if write is not None]:
                yield found
        await pumping
    finally:
        pumping.cancel()
        while not queue.empty():
            _close(queue.get_nowait())
        await asyncio.wait([pumping], timeout=_TO_END)


class Asked(msgspec.Struct, eq=False):
    """A write of the input, with its key; a new write also has an intent and an entry."""

    spec: WriteSpec
    digest: str
    key: str
    intent: Intent | None = None
    entry: Entry | None = None

    def intent_of(self, entry: Entry) -> Intent | None:
        """Return the intent, if *entry* is as it was stored; otherwise ``None``."""
        made = self.entry
        if made is None:
            return None
        if (entry.intent, entry.common) == (made.intent, made.common):
            return self.intent
        return None


class Intake:
    """
    Turns the writes of one input into entries that are not stored yet.

    ``skipped`` counts those that were done before the input was *begun*, in s by the store's clock. Tags are
    made from the identity of the journal, which *may_know* some of the writes.
    """

    def __init__(
        self,
        sending: Sending,
        entries: BatchEntries,
        *,
        may_know: bool,
        begun: float,
    ) -> None:
        self._sending = sending
        self._entries = entries
        self._may_know = may_know
        self._seen = Met()
        self._repeats: OrderedDict[str, int] = OrderedDict()
        self._began = int(begun * 1000)
        self.skipped: int = 0

    def close(self) -> None:
        """Forget the keys."""
        self._seen.close()

    async def take(self, writes: list[AnyWrite]) -> list[Asked]:
        """
        Return the writes that are new, or not done.

        Raises:
            InvalidRequestError: Two writes have the same key, or the journal has another write under a key.
        """
        for write in writes:
            _close(write)
        asked = {each.key: each for each in map(self._asked, writes)}
        known = await self._entries.input_notes.known(asked) if self._may_know else {}
        to_do: list[Asked] = []
        for key, found in known.items():
            met = asked.pop(key)
            if self.meet(found, met):
                to_do.append(met)
        return to_do + [self._new(each) for each in asked.values()]

    def meet(self, known: KnownEntry, asked: Asked) -> bool:
        """
        Return whether the write that the journal has under the key of *asked* is to do; if not, count it.

        Raises:
            InvalidRequestError: It is another write.
        """
        if known.digest != asked.digest:
            raise InvalidRequestError(
                f"key: the journal has another write under the key {asked.key!r}; give this one its own key, "
                "or run the input that the batch was begun with"
            )
        if known.state != State.DONE:
            return True
        if known.done_at is not None and known.done_at < self._began:
            self.skipped += 1
        return False

    def _asked(self, write: object) -> Asked:
        spec = self._sending.take_over(write, "batch")
        digest = content_of(spec)
        return Asked(spec, digest, self._key_of(spec, digest))

    def _key_of(self, spec: WriteSpec, digest: str) -> str:
        """Return the key of a write; equal ones without a key of the user's are numbered."""
        if spec.key is not None:
            if self._seen.first(spec.key) is not None:
                raise InvalidRequestError(
                    f"key: two writes of this input have the key {spec.key!r}; give each its own"
                )
            return spec.key
        occurrence = self._repeats.get(digest, 0) + 1
        key = digest if occurrence == 1 else f"{digest}-{occurrence}"
        while self._seen.first(key) is not None:
            occurrence += 1
            key = f"{digest}-{occurrence}"
        if occurrence > 1:
            self._repeats[digest] = occurrence
            self._repeats.move_to_end(digest)
            if len(self._repeats) > _REPEATS_KEPT:
                self._repeats.popitem(last=False)
        return key

    def _new(self, asked: Asked) -> Asked:
        """Add the intent and the entry of a new write. A restored journal may have it in doubt."""
        restored = self._sending.restored
        entries = self._entries
        asked.spec = spec = self._sending.as_stored(asked.spec, asked.key)
        asked.intent = intent = intent_of(spec)
        if restored is not None and restored.is_open:
            asked.intent = intent = restored.of_new(intent)
        asked.entry = entry = new_entry(
            spec, intent, entries.store.commons, asked.digest
        )
        entry.lane = lane_for(entry.key, entry.thing, entries.lanes)
        return asked


def _close(write: object) -> None:
    """Close *write*: it is run by this batch, or not at all."""
    if isinstance(write, Write):
        write.close()
