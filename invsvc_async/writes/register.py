"""
The register of a client's writes, which all views of the client share.

Each part has its own class: the records of things (``things``), the queues of writes to the same thing
(``lines``), what answers showed (``shown``), the writes that were left open (``open_writes``), and, here,
which write made what, and how writes ended that were once in doubt. Code of this folder uses the parts; other
folders ask the register.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from functools import cached_property
from typing import TYPE_CHECKING, Any

from invsvc_async.concurrency.clock import SystemClock
from invsvc_async.concurrency.single_flight import SingleFlight
from invsvc_async.writes.lines import Lines
from invsvc_async.writes.open_writes import OpenWrites
from invsvc_async.writes.shown import Shown
from invsvc_async.writes.things import NOT_KNOWN, Records

if TYPE_CHECKING:
    from msgspec import Raw

    from invsvc_async.codec.exact_json import Wire
    from invsvc_async.concurrency.clock import Clock
    from invsvc_async.reconcile.intent import Intent
    from invsvc_async.reconcile.outcome import Outcome
    from invsvc_async.writes.hanging import HangingSends
    from invsvc_async.writes.journal import Journal
    from invsvc_async.writes.things import LastState, Listed

CLAIMS_KEPT = 50_000
# Of these, so many of creates with a unique tag: such a thing is recognised without a claim, unless its tag
# is edited away.
TAGGED_KEPT = 2_000
ENDED_KEPT = 1000


class ClaimedThings(OrderedDict[str, tuple[str, bool]]):
    """
    The write that made each new thing, by the id of the thing, so that no write claims a foreign thing.

    A value is the identity of the write, and whether that is certain: an answer or a unique tag said so. It
    is a guess if the thing was found by a match.
    """

    def __init__(self) -> None:
        super().__init__()
        self._tagged: deque[str] = deque()  # the ids of things with a unique tag

    def claim(
        self,
        made: str,
        identity: str,
        *,
        is_certain: bool,
        has_unique_tag: bool = False,
    ) -> None:
        """Note that the write *identity* made the thing with the id *made*."""
        if has_unique_tag and made not in self:
            self._tagged.append(made)
        if is_certain or made not in self:
            self[made] = identity, is_certain
        if len(self._tagged) > TAGGED_KEPT:
            self.pop(self._tagged.popleft(), None)
        if len(self) > CLAIMS_KEPT:
            self.popitem(last=False)


class EndedWrites(OrderedDict[str, "Outcome[Any]"]):
    """The outcomes of writes that were once in doubt, by identity, in case an intent is taken up again."""

    def keep(self, identity: str, outcome: Outcome[Any]) -> None:
        """Keep *outcome*. If there are too many, the oldest one goes."""
        self[identity] = outcome
        self.move_to_end(identity)
        if len(self) > ENDED_KEPT:
            self.popitem(last=False)


class WriteRegister:
    """
    All that a client knows of its writes.

    ``is_of_one_mode`` is whether all answers are of one data mode; see ``Shown``.
    """

    def __init__(
        self,
        *,
        is_of_one_mode: bool,
        journal: Journal | None = None,
        clock: Clock | None = None,
    ) -> None:
        clock = clock or SystemClock()
        self.is_of_one_mode = is_of_one_mode
        self.journal = journal
        self.records: Records = Records(clock)
        self.lines: Lines = Lines(self.records, clock)
        self.shown: Shown = Shown(self.records, is_of_one_mode=is_of_one_mode)
        self.open_writes: OpenWrites = OpenWrites(self.records, journal)
        self.claims: ClaimedThings = ClaimedThings()
        self.ended: EndedWrites = EndedWrites()
        # The lists that creates are looked for in, each read once for all that wait for it.
        self.listings: SingleFlight = SingleFlight()
        self.looking: asyncio.Lock = asyncio.Lock()  # for what is open in the journal
        self.lookers: int = 0  # writes that look, or wait until another has looked

    @cached_property
    def hanging(self) -> HangingSends:
        """The sends that are under way, of which those that hang are looked at."""
        from invsvc_async.writes.hanging import HangingSends

        return HangingSends()

    # --- of more than one part

    def close_for_unknown(
        self,
        line: str,
        owner: str,
        until: float,
    ) -> None:
        """
        Keep *line* closed to all but *owner*, whose outcome is not known, and may still have an effect.

        What was read of the thing until then is no baseline of the next write.
        """
        self.lines.close(line, owner, until)
        self.shown.forget_state(line)

    def must_look(self) -> bool:
        """
        Return whether a write has to look at the journal first, or to wait until another has looked.

        One that is begun when the first look has just ended waits, too: otherwise it would pass those that
        were begun before it, and still wait.
        """
        return self.lookers > 0 or self.open_writes.leftovers is None

    def knows(self, identity: str) -> bool:
        """Return whether this client has left the write open, or has settled it after doubt."""
        return identity in self.open_writes.unsettled or identity in self.ended

    # --- of one part, for other folders

    def closed_for(self, line: str | None) -> float:
        """Return for how many more seconds *line* is not open to all."""
        return self.lines.closed_for(line)

    def is_last(self, line: str, identity: str) -> bool | None:
        """
        Return whether the write with *identity* was sent last in *line*, but for those that did nothing.

        ``None`` if it is not known which was.
        """
        users = self.last_users(line)
        if identity in users:
            return True
        is_sender_known = bool(users) and users[0] != NOT_KNOWN
        if is_sender_known:
            return False
        return None

    def last_users(self, line: str) -> tuple[str, ...]:
        """Return the write of *line* that was sent last, then later writes that did nothing, if known."""
        return self.records.known(line).users

    def learn_state(
        self,
        team: str | None,
        line: str,
        shown: Wire | Raw,
        started: float,
        ended: float,
        *,
        stamp: int | None = None,
        weight: int = 0,
        written: bool = False,
    ) -> None:
        """Keep the state of the thing in *line*, as :meth:`Shown.learn_state`."""
        self.shown.learn_state(
            team,
            line,
            shown,
            started,
            ended,
            stamp=stamp,
            weight=weight,
            written=written,
        )

    def last_state(self, team: str | None, line: str) -> LastState | None:
        """Return the last known state of the thing in *line*, as members of *team* see it."""
        return self.shown.last_state(team, line)

    def forget_state(self, line: str) -> None:
        """Forget the state of the thing in *line*, because an open write may have changed it."""
        self.shown.forget_state(line)

    def learn_list(
        self,
        read: str,
        team: str | None,
        items: list[Wire],
    ) -> None:
        """Keep the last list (wire form) that the operation *read* has shown of the *team*."""
        self.shown.learn_list(read, team, items)

    def last_list(self, read: str, team: str | None) -> Listed | None:
        """Return the last list that the operation *read* has shown of the *team*."""
        return self.shown.last_list(read, team)

    def opened(self, identity: str) -> Intent | None:
        """Return the newest revision of an open intent."""
        return self.open_writes.opened(identity)

    def leave_open(
        self,
        intent: Intent,
        line: str | None,
        *,
        in_journal: bool = False,
    ) -> None:
        """Keep *intent*, of *line*, whose outcome is unknown."""
        self.open_writes.leave_open(intent, line, in_journal=in_journal)

    def revise(self, *intents: Intent) -> None:
        """Keep *intents* in place of the revisions of them that are open, in the journal, too."""
        self.open_writes.revise(*intents)

    def forget(self, identity: str) -> None:
        """Forget an intent, because its outcome is known, or another process settles it now."""
        self.open_writes.forget(identity)

    def claim(
        self,
        webhook_id: str,
        identity: str,
        *,
        is_certain: bool,
        has_unique_tag: bool = False,
    ) -> None:
        """Note the write that made a webhook, so that no later write claims the webhook."""
        self.claims.claim(
            webhook_id, identity, is_certain=is_certain, has_unique_tag=has_unique_tag
        )

    def keep_ended(self, identity: str, outcome: Outcome[Any]) -> None:
        """Keep the outcome of a write that was in doubt, in case its intent is settled or resumed again."""
        self.ended.keep(identity, outcome)
