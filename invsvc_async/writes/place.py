"""
The place of a write among all writes to its thing: once it is sent, it is the last one.

Whatever is sent last decides what the thing shows, so the writes that were sent before it must not be sent
again. But only once it is known whether a byte of it has left. Hence three steps:

- ``take``, before the journal stores the send: this write is the last user of the thing, and the open writes
  to it are *perhaps* overtaken. Without that, a process that is killed now would leave several writes open
  as the newest, and all of them could be sent again.
- ``note_whether_sent``, once the end of the send is in the history, or the run is interrupted: if a byte has
  left, the others are overtaken; if not, all is as it was.
- ``note_end``, when the run ends: who was last, by name, and until when the line stays closed.

A verdict that the write was sent and had no effect follows in ``note_no_effect``: nothing is overtaken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from invsvc_async.reconcile.turn import free_at
from invsvc_async.writes.things import NOT_KNOWN, NOT_NAMED_YET

if TYPE_CHECKING:
    from invsvc_async.reconcile.intent import Intent
    from invsvc_async.writes.register import WriteRegister
    from invsvc_async.writes.run_record import RunRecord
    from invsvc_async.writes.things import Thing


class WritePlace(Struct, eq=False):
    """
    The place of the write of one run. See the top of this file.

    ``thing`` is the record of its line, or ``NO_RECORD`` before the run has found it.
    """

    record: RunRecord
    writes: WriteRegister
    is_create: bool
    thing: Thing
    _users_before: tuple[str, ...] | None = None  # those of the thing, before `take`
    _overtaking: tuple[Intent, ...] = ()  # in doubt since `take`, as they were before

    @property
    def overtakes(self) -> bool:
        """Whether the last send has put other writes in doubt, and its end is not noted yet."""
        return bool(self._overtaking)

    def take(self) -> None:
        """Note this write as the last one sent to the thing, and the open writes as perhaps overtaken."""
        thing = self.thing
        if not self.is_create:
            if self._users_before is None:
                self._users_before = thing.users
            # Most intents are never asked for their identity, which costs more than all the rest here.
            if self.record.is_taken_up:
                own = self.record.intent.identity
            else:
                own = NOT_NAMED_YET
            thing.was_sent_by(own)
        if thing.open:
            doubted = self.writes.open_writes.doubt_others(
                thing, self.record.intent.identity
            )
            self._overtaking = tuple(doubted)

    def note_whether_sent(self) -> None:
        """
        Note the effect of the last send on the other writes to the thing.

        As long as it may have begun and its end is not in the history, nothing is known, so nothing is noted.
        """
        if self.record.under_way() is not None:
            return
        open_writes = self.writes.open_writes
        if self.record.may_have_left():
            open_writes.overtake(*self._overtaking)
        else:
            open_writes.revise(*self._overtaking)
            self._give_back()
        self._overtaking = ()

    def _give_back(self) -> None:
        """Restore the record of the last write to the thing, because this write was not sent."""
        self.note_no_effect()
        self._users_before = None

    def note_end(self) -> None:
        """Note for the next write who was last, and until when an effect may still come."""
        own = self.record.intent.identity
        thing = self.thing
        thing.name_only_user(own)
        if thing.line is None:
            return
        known = self.record.known()
        if known.in_doubt:
            self.writes.lines.close(thing.line, own, free_at(known))

    def note_no_effect(self) -> None:
        """Note that this write did nothing, and so has overtaken no other write."""
        if self._users_before is None:
            return
        # Where no write was known before, NOT_KNOWN stands for the one that was sent last. For example, the
        # users of a write "b" are then ("-", "b"): an unknown write, and after it "b", which did nothing. As
        # ("b",), they would say that "b" was sent last.
        before = self._users_before or (NOT_KNOWN,)
        self.thing.did_nothing(self.record.intent.identity, before)
