"""The intake of a batch: gives each write of the input its key, and finds those that are new."""

from __future__ import annotations

import asyncio
from array import array
from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeAlias

import attrs
import msgspec
from msgspec.structs import replace

from invsvc_async.batch.identity import content_of, key_of, thing_of
from invsvc_async.batch.item import Item, ItemOptions
from invsvc_async.concurrency.cancellation import raise_if_cancelled
from invsvc_async.durable.entry import State
from invsvc_async.errors import ConfigurationError, InvalidRequestError
from invsvc_async.writes.new_intent import intent_of, tag_of
from invsvc_async.writes.write import Write, take_over

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping
    from pathlib import Path

    from invsvc_async.batch.item import Store
    from invsvc_async.batch.journals.protocol import Entries
    from invsvc_async.batch.restored import Restored
    from invsvc_async.durable.entry import Mark
    from invsvc_async.settings import ReconcilePolicy
    from invsvc_async.transport.session import ClientOptions, ClientState
    from invsvc_async.writes.spec import WriteSpec

__all__ = ["Intake", "LeftEntries", "Writes", "chunks"]

Writes: TypeAlias = "Iterable[Write[Any]] | AsyncIterable[Write[Any]] | str | Path"  # Any: of any operation

AT_ONCE = 128  # writes taken in together, with one query of the journal
_REPEATS_KEPT = 10_000  # contents seen more than once, whose count is remembered
_CUT = (
    "writes: what the input awaits was cancelled, but not by this run. Writes before it may have been sent. "
    "Run again; finished writes are skipped."
)


async def chunks(
    writes: Iterable[Write[Any]] | AsyncIterable[Write[Any]],  # Any: of any operation
    *,
    at_once: int = AT_ONCE,
) -> AsyncGenerator[list[Write[Any]], None]:
    """Yield *writes* in lists of what is available, at most *at_once* each."""
    if isinstance(writes, AsyncIterable):
        async for chunk in _async_chunks(writes, at_once):
            yield chunk
    else:
        for chunk in _pieces(iter(writes), at_once):
            yield chunk


def _pieces(source: Iterator[Write[Any]], at_once: int) -> Iterator[list[Write[Any]]]:
    """Yield lists. If the source fails, yield what came before the error first."""
    failure = None
    while failure is None:
        chunk: list[Write[Any]] = []
        try:
            chunk.extend(islice(source, at_once))
        except Exception as error:  # noqa: BLE001 - raised below
            failure = error
        if not chunk:
            break
        yield chunk
    if failure is not None:
        raise failure


async def _async_chunks(writes: AsyncIterable[Write[Any]], at_once: int) -> AsyncIterator[list[Write[Any]]]:
    """Read ahead a little, so that writes do not wait for a slow source."""
    queue: asyncio.Queue[Write[Any] | None] = asyncio.Queue(at_once)

    async def pump() -> None:
        try:
            async for write in writes:
                try:
                    await queue.put(write)
                except asyncio.CancelledError:  # it has no place, and nobody gets it any more
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
            with suppress(asyncio.QueueEmpty):
                while len(chunk) < at_once and chunk[-1] is not None:
                    chunk.append(queue.get_nowait())
            more = chunk[-1] is not None
            if found := [write for write in chunk if write is not None]:
                yield found
        await pumping
    finally:
        pumping.cancel()
        while not queue.empty():
            _close(queue.get_nowait())


class _Asked(msgspec.Struct, eq=False):
    """One write of the input, while its key is looked up in the journal."""

    spec: WriteSpec
    content: bytes
    key: str
    occurrence: int = 0  # 0: the key is user-supplied


class LeftEntries:
    """The numbers of the entries that an earlier run left to this one, in eight bytes each."""

    def __init__(self) -> None:
        self._numbers = array("q")

    def add(self, number: int) -> None:
        """Add the number of an entry. Most come in order."""
        insort(self._numbers, number)

    def __contains__(self, number: int) -> bool:
        place = bisect_left(self._numbers, number)
        return place < len(self._numbers) and self._numbers[place] == number


class Intake:
    """
    Turns the writes of the input of one run into items.

    *store* is where the entries of new items go. *held* are the items under way, by key. *left* are the
    numbers of the entries that an earlier run left to this one. *on_met* is called for each write that is in
    the journal and not done. Tags are made from *epoch*, the identity of the journal. While *restored*
    is open, new items are in doubt.
    """

    def __init__(
        self,
        entries: Entries,
        store: Store,
        session: ClientState,
        held: Mapping[str, Item],
        run: int,
        *,
        left: LeftEntries,
        tag: bool,
        on_secret: Callable[..., Any] | None,
        on_met: Callable[[str, WriteSpec], None],
        epoch: str,
        restored: Restored | None = None,
    ) -> None:
        self._entries, self._store, self._session = entries, store, session
        self._held = held
        self.run: int = run  # the number of the input's part to which the next writes belong
        self._left = left
        self._tag, self._on_secret, self._on_met = tag, on_secret, on_met
        self._epoch = epoch
        self._restored = restored if restored is not None and restored.is_open else None
        self._own = session.writes.own
        self._repeats: OrderedDict[bytes, int] = OrderedDict()
        self._policies: dict[int, tuple[ReconcilePolicy, ReconcilePolicy]] = {}
        self.skipped: int = 0  # done by an earlier run

    async def take(self, writes: list[Write[Any]]) -> list[Item]:
        """
        Return the items of new writes.

        Raises:
            InvalidRequestError: Two writes have the same key, or the journal has another write under a key.

        """
        for write in writes:
            _close(write)
        fresh: list[Item] = []
        asked = [self._asked(write) for write in writes]
        taken: set[str] = set()
        while asked:
            later: list[_Asked] = []
            here: list[_Asked] = []
            for each in asked:
                (later if each.key in taken or self._is_fed(each.key) else here).append(each)
                taken.add(each.key)
            marks: Mapping[str, Mark] = {}
            if here:
                marks = await self._entries.marks([each.key for each in here], self.run)
            for each in here:
                mark = marks.get(each.key)
                if mark is not None and mark.met:
                    later.append(each)
                elif (item := self._new(each, mark)) is not None:
                    fresh.append(item)
            asked = [self._next(each) for each in later]
        return fresh

    def _asked(self, write: object) -> _Asked:
        if not isinstance(write, Write):
            raise InvalidRequestError(f"writes: contains a {type(write).__name__}, which is not a write")
        spec = take_over(write)
        if spec.options.session is not self._session:
            raise InvalidRequestError(
                f"{spec.operation.name}: this write was made by another client than the batch's"
            )
        content = content_of(spec.request, spec.team, spec.tag)
        if spec.key is not None:
            return _Asked(spec, content, spec.key)
        occurrence = self._repeats.get(content, 0) + 1
        return _Asked(spec, content, key_of(content, occurrence), occurrence)

    def _is_fed(self, key: str) -> bool:
        item = self._held.get(key)
        return item is not None and item.fed

    def _next(self, asked: _Asked) -> _Asked:
        """Change the key of an equal write to that of its next occurrence."""
        if not asked.occurrence:
            raise InvalidRequestError(
                f"key: two writes of this input have the key {asked.key!r}; give each its own"
            )
        self._repeats[asked.content] = asked.occurrence
        self._repeats.move_to_end(asked.content)
        if len(self._repeats) > _REPEATS_KEPT:
            self._repeats.popitem(last=False)
        asked.occurrence += 1
        asked.key = key_of(asked.content, asked.occurrence)
        return asked

    def _new(self, asked: _Asked, mark: Mark | None) -> Item | None:
        item = self._held.get(asked.key)
        if item is None and mark is None:
            return self._item(asked)
        before = item.content if item is not None else mark.content if mark is not None else b""
        if before != asked.content:
            raise InvalidRequestError(
                f"key: the journal has another write under the key {asked.key!r}; give this one its own key, "
                "or run the input that the batch was begun with"
            )
        if item is not None:
            item.fed, item.run = True, self.run
        if item is None and mark is not None and mark.state is State.DONE:
            self.skipped += mark.seq not in self._left
        else:
            self._on_met(asked.key, asked.spec)
        return None

    def _item(self, asked: _Asked) -> Item:
        spec, tag = asked.spec, asked.spec.tag
        if self._tag and tag is None and spec.creates_webhook:
            tag = tag_of(self._epoch, asked.key)
        item = Item(
            key=asked.key,
            content=asked.content,
            run=self.run,
            thing=thing_of(spec.request, spec.team, tag),
            entries=self._store,
            on_secret=self._on_secret,
            own=self._own,
            restored=self._restored,
        )
        options, policy = options_for(item, spec.options), self._waiting(spec.policy)
        item.spec = replace(spec, options=options, key=asked.key, tag=tag, policy=policy)
        if self._restored is not None:
            item.take_up(self._restored.of_new(intent_of(item.spec)))
        return item

    def _waiting(self, policy: ReconcilePolicy) -> ReconcilePolicy:
        """Return *policy* with ``wait_when_limited=True``."""
        known = self._policies.get(id(policy))
        if known is None or known[0] is not policy:
            if len(self._policies) > 1000:
                self._policies.clear()
            known = self._policies[id(policy)] = policy, attrs.evolve(policy, wait_when_limited=True)
        return known[1]


def _close(write: object) -> None:
    """Close *write*: it is run by this batch, or not at all."""
    if isinstance(write, Write):
        write.close()


def options_for(item: Item, view: ClientOptions) -> ItemOptions:
    """Return the options under which *item* is sent."""
    return ItemOptions(
        session=view.session,
        timeouts=view.timeouts,
        reads=view.reads,
        reconcile=view.reconcile,
        names=view.names,
        team=view.team,
        headers=view.headers,
        journal=item,
        item=item,
    )
