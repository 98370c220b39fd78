"""The way from a stored entry to an item that can be sent."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec.structs import replace

from invsvc_async.batch.item import Item, ItemOptions
from invsvc_async.durable.entry import Entry, LostEntryError
from invsvc_async.durable.last_writes import left_unread
from invsvc_async.durable.records import intent_of, verdict_of_unfit
from invsvc_async.errors import InvalidRequestError, JournalError
from invsvc_async.writes.recovery import check_scope

if TYPE_CHECKING:
    from collections.abc import Callable

    from invsvc_async.batch.engine import Engine
    from invsvc_async.batch.intake import Asked
    from invsvc_async.batch.sending import Sending
    from invsvc_async.durable.leases import Lane
    from invsvc_async.durable.store.opening import Store


class ItemMaker:
    """
    Makes items of the type *item_type*, for *engine*, of the entries of *store*.

    *on_unfit* is called when an entry that this version cannot send got its verdict. Without it, such an
    entry is an error.
    """

    def __init__(
        self,
        sending: Sending,
        store: Store,
        engine: Engine,
        item_type: type[Item],
        on_unfit: Callable[[], None] | None,
    ) -> None:
        self._sending = sending
        self._store = store
        self._engine = engine
        self._item_type = item_type
        self._on_unfit = on_unfit

    async def item_of(
        self,
        entry: Entry,
        lane: Lane,
        asked: Asked | None,
    ) -> Item | None:
        """
        Return the item of *entry*, in *lane*; *asked* is what the input has of it.

        Of an entry that this version cannot send, store the verdict, and return ``None``.
        """
        try:
            return self._made(entry, lane, asked)
        except (JournalError, InvalidRequestError) as error:
            if self._on_unfit is None:
                raise
            restored = self._sending.restored
            is_of_copy = restored is not None and entry.seq <= restored.through
            ended = verdict_of_unfit(entry, error, is_of_copy=is_of_copy)
            with suppress(LostEntryError):
                await lane.put(ended, left_unread(ended))
            self._on_unfit()
            return None

    def _made(
        self,
        entry: Entry,
        lane: Lane,
        asked: Asked | None,
    ) -> Item:
        """
        Make the item of *entry*.

        Raises:
            JournalError: This version cannot read it.
            InvalidRequestError: It belongs to another service, team or data mode than the client.
        """
        sending = self._sending
        restored = sending.restored
        known = None if asked is None else asked.intent_of(entry)
        intent = known or intent_of(entry, self._store.commons)
        if restored is not None:
            intent = restored.of_entry(entry.seq, intent)
        item = self._item_type(
            entry=entry,
            lane=lane,
            engine=self._engine,
            intent=intent,
            restored=restored,
        )
        if asked is not None and intent is known and not intent.sent:  # it is new
            item.spec = replace(
                asked.spec, options=ItemOptions.of(item, asked.spec.options)
            )
        else:
            anywhere = sending.options.without_team()
            check_scope(
                anywhere, intent, same_mode=sending.same_mode, in_doubt=item.in_doubt
            )
        return item
