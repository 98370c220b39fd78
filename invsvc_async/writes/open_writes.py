"""The writes that were left open, by the client or by an earlier process with the same journal."""

from __future__ import annotations

import logging
from collections import OrderedDict
from typing import TYPE_CHECKING

import attrs
from msgspec import Struct

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterator

    from invsvc_async.reconcile.intent import Intent
    from invsvc_async.writes.journal import Journal
    from invsvc_async.writes.things import Records, Thing

log: logging.Logger = logging.getLogger("invsvc_async")

UNSETTLED_KEPT = 10_000


class OpenWrite(Struct, eq=False):
    """A write whose outcome is not known: its newest revision, and whether the client's journal has it."""

    intent: Intent
    # What it changes, as later writes may; None: it replaces nothing, such as a create.
    thing: Thing | None
    in_journal: bool


class OpenWrites:
    """All writes whose outcomes are not known, by identity."""

    def __init__(self, records: Records, journal: Journal | None) -> None:
        self._records = records
        self._journal = journal
        self.unsettled: OrderedDict[str, OpenWrite] = OrderedDict()  # of this client
        # All others in the journal, most of them of the process before. None: the journal was not read yet.
        # Empty: it was read, and has no others.
        self.leftovers: dict[str, OpenWrite] | None = None
        # The lines of further writes that were in doubt when the journal was read, as keyed ones. Writes
        # without a key look at what is there one after the other, so that they keep their order.
        self.lines_in_doubt: dict[str, asyncio.Lock] = {}
        # By identity, also of those that were settled: when this client began the first send (local s).
        self.first_sends: OrderedDict[str, float] = OrderedDict()

    def opened(self, identity: str) -> Intent | None:
        """Return the newest revision of an open intent."""
        each = self._opened(identity)
        if each is None:
            return None
        return each.intent

    def _opened(self, identity: str) -> OpenWrite | None:
        own = self.unsettled.get(identity)
        if own is not None:
            return own
        others = self.leftovers
        if others is None:
            return None
        return others.get(identity)

    def _pop(self, identity: str) -> OpenWrite | None:
        own = self.unsettled.pop(identity, None)
        if own is not None:
            return own
        others = self.leftovers
        if others is None:
            return None
        return others.pop(identity, None)

    def leave_open(
        self,
        intent: Intent,
        line: str | None,
        *,
        in_journal: bool = False,
    ) -> None:
        """Keep *intent*, of *line*, whose outcome is unknown. If there are too many, drop the oldest one."""
        identity = intent.identity
        before = self._opened(identity)
        in_journal = in_journal or (before is not None and before.in_journal)
        # First this: a signal handler may raise in between, and the intent is not to be lost.
        self.unsettled[identity] = OpenWrite(
            intent, self._enter_in_thing(line, intent), in_journal
        )
        self.unsettled.move_to_end(identity)
        if self.leftovers is not None:
            self.leftovers.pop(identity, None)
        if len(self.unsettled) > UNSETTLED_KEPT:
            identity, oldest = next(iter(self.unsettled.items()))
            if oldest.in_journal and self.leftovers is not None:
                # It stays known, because the journal must be told when a newer write is sent.
                del self.unsettled[identity]
                self.leftovers[identity] = oldest
            else:
                self.forget(identity)
            log.error(
                "more than %d unsettled writes: intent %s is no longer in client.unsettled",
                UNSETTLED_KEPT,
                oldest.intent.key,
            )

    def note_first_send(self, identity: str, at: float | None) -> None:
        """Note that the first send began *at*, if this client made it: an intent may not say when."""
        if at is None:
            return
        self.first_sends[identity] = at
        if len(self.first_sends) > UNSETTLED_KEPT:
            self.first_sends.popitem(last=False)

    def add_leftover(self, intent: Intent, line: str | None) -> None:
        """Keep *intent* of an earlier process."""
        assert self.leftovers is not None
        if intent.identity in self.unsettled:
            self.unsettled[intent.identity].in_journal = True
        else:
            self.leftovers[intent.identity] = OpenWrite(
                intent, self._enter_in_thing(line, intent), in_journal=True
            )

    def _enter_in_thing(self, line: str | None, intent: Intent) -> Thing | None:
        """Note *intent* as open in the record of its thing, unless it is a create; return the record."""
        # Imported late: a client that only reads does not need it.
        from invsvc_async.writes.line_names import replaces

        if line is None or not replaces(intent):
            return None
        thing = self._records.of(line)
        if thing.open is None:
            thing.open = {}
        thing.open[intent.identity] = None
        return thing

    def leave_journal(self, identity: str) -> bool:
        """Note that an intent is no longer in the client's journal; return whether it was."""
        each = self._opened(identity)
        if each is None or not each.in_journal:
            return False
        each.in_journal = False
        return True

    def forget(self, identity: str) -> None:
        """Forget an intent, because its outcome is known, or another process settles it now."""
        each = self._pop(identity)
        if each is None or each.thing is None:
            return
        if each.thing.open is not None:
            each.thing.open.pop(identity, None)

    def doubt_others(self, thing: Thing, own: str) -> list[Intent]:
        """
        Mark the open writes to *thing* as perhaps overtaken by the write *own*, in the journal, too.

        That holds however far the send of *own* gets. Return those that no other write had overtaken, as
        they were.
        """
        before = [*self._not_overtaken(thing, own)]
        self.revise(*(attrs.evolve(intent, newest=None) for intent in before))
        return before

    def _not_overtaken(self, thing: Thing, own: str) -> Iterator[Intent]:
        """Yield the open writes to *thing* but *own* that are not known to be overtaken."""
        for identity in thing.open or ():
            if identity == own:
                continue
            intent = self.opened(identity)
            if intent is None:
                continue
            if intent.newest is not False:
                yield intent

    def overtake(self, *intents: Intent) -> None:
        """Mark those of *intents* that are open as overtaken, in the journal, too."""
        self.revise(*(attrs.evolve(intent, newest=False) for intent in intents))

    def note_order(self, intent: Intent) -> None:
        """Note whether an open *intent* was sent last, as the order of keys says now."""
        each = self._opened(intent.identity)
        if each is not None and each.intent.newest is None:
            each.intent = attrs.evolve(each.intent, newest=intent.newest)

    def revise(self, *intents: Intent) -> None:
        """Keep *intents* in place of the revisions of them that are open, in the journal, too."""
        for intent in intents:
            each = self._opened(intent.identity)
            if each is not None:
                each.intent = intent
                if each.in_journal and self._journal is not None:
                    self._journal.shelved(intent, sent=True)
