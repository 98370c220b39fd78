"""
The doubts of a journal that was restored from an older copy: each write may have been sent since.

Such a write gets a send at a time that is not known exactly. It is settled like any write in doubt, and sent
only on proof of absence.
"""

from __future__ import annotations

from collections import OrderedDict
from contextlib import suppress
from typing import TYPE_CHECKING

import attrs

from invsvc_async.api.operations import BY_NAME
from invsvc_async.client import Client, options_of
from invsvc_async.codec import envelope
from invsvc_async.durable.intents import (
    has_lost_send,
    in_doubt,
    seen_undone,
    was_seen_undone,
)
from invsvc_async.durable.store.facts import now_of
from invsvc_async.durable.store.restored import NOT_RESTORED, marked
from invsvc_async.durable.store.states import Left
from invsvc_async.errors import ServiceError
from invsvc_async.reconcile.compare import same
from invsvc_async.reconcile.history import Reading, Verdict
from invsvc_async.reconcile.kinds import kind_of_write

if TYPE_CHECKING:
    from invsvc_async.codec.exact_json import Wire
    from invsvc_async.durable.store.opening import Store
    from invsvc_async.reconcile.intent import Intent
    from invsvc_async.reconcile.outcome import AnyOutcome


_UNDONE = (
    "the resource is as an earlier write of this journal left it: what may have been sent since the copy was "
    "made has not arrived, or was undone. "
)
_RETRY = "A retry sends this write, unless a later one was sent"
_READ_FIRST = (
    "Give the whole input, then retry: a later write of it, which the journal does not have yet, may have "
    "undone this one"
)
_MOST = 10_000  # things whose states are kept
# s by which the clocks of the processes that wrote the journal may disagree
_SLACK = 60.0


@attrs.define(kw_only=True)
class Restored:
    """
    The doubts of a restored journal.

    Entries up to ``through`` are of the copy. While ``is_open``, writes that it does not have are in doubt
    too. Those sends were not before ``earliest`` (server time in s), if that is known. ``awaits_input`` is
    whether later writes that were sent may still be in the input of a batch, and not in its journal.
    """

    through: int
    is_open: bool
    awaits_input: bool = False
    earliest: float | None = None
    met: int = 0  # how many writes of the input were in doubt
    # The latest states in which the writes of this journal left things, by thing.
    _left: OrderedDict[str, Wire] = attrs.field(factory=OrderedDict)

    def of_entry(self, number: int, intent: Intent) -> Intent:
        """Return the intent of an entry that is not done."""
        return in_doubt(intent, self.earliest) if number <= self.through else intent

    def lacks_later(self, intent: Intent) -> bool:
        """
        Return whether *intent* could be sent over a later write to its thing that is still in the input only.

        It was seen undone: that later write may have undone it.  Or it is to delete its thing: that the thing
        is there does not tell whether the later write has changed it.
        """
        if not self.awaits_input:
            return False
        if was_seen_undone(intent):
            return True
        deletes = kind_of_write(BY_NAME[intent.operation]).deletes
        return deletes and has_lost_send(intent)

    def of_new(self, intent: Intent) -> Intent:
        """Return the intent of a write that the journal does not have."""
        self.met += 1
        return in_doubt(intent, self.earliest)

    def learn(self, row: Left) -> None:
        """Note the state in which a thing was left, by the journal, unless this run knows a later state."""
        if row.thing not in self._left:
            self._note(row.thing, row.state)

    def judged(
        self, outcome: AnyOutcome, left: Left | None
    ) -> tuple[AnyOutcome, Left | None]:
        """
        Return the outcome of a write as it is stored, and the state in which the write *left* its thing.

        - A write without a thing, or one that left nothing: as they are.
        - One that is certain, or was sent in this run: as they are, and the state is noted.
        - An UNKNOWN one that was only in doubt because of the copy: if a read proves that it is undone, with
        that
          cause, and nothing is left; otherwise the state of the thing is not known.
        """
        if left is None:
            return outcome, left
        if outcome.verdict is Verdict.APPLIED:
            self._note(left.thing, left.state)
            return outcome, left
        if outcome.verdict is not Verdict.UNKNOWN or outcome.attempts:
            self._note(left.thing, None)
            return outcome, left
        undone = self._undone(outcome, left.thing)
        if undone is not None:
            return undone, None
        self._note(left.thing, None)
        return outcome, Left(left.thing)

    def _undone(self, outcome: AnyOutcome, thing: str) -> AnyOutcome | None:
        """
        Return *outcome* with the cause "perhaps undone"; ``None`` if no read shows that.

        The lost send, if there was one, was before every read of this run. So if a read after its settle
        window shows the thing as an earlier write left it, the lost send has no effect any more.
        """
        reading = outcome.history[-1]
        over = outcome.evidence.window_until
        if not isinstance(reading, Reading) or over is None:
            return None
        if reading.started < over:
            return None
        if reading.stamp is None:
            return None
        intent: Intent | None = outcome.started_as
        if not was_seen_undone(outcome.started_as):
            intent = seen_undone(outcome.started_as, reading.stamp / 1000)
        if intent is None or not self._is_as_left(thing, reading.seen):
            return None
        evidence = attrs.evolve(outcome.evidence, cause="perhaps undone")
        return attrs.evolve(
            outcome,
            message=_UNDONE + (_READ_FIRST if self.awaits_input else _RETRY),
            evidence=evidence,
            started_as=intent,
        )

    def _note(self, thing: str, state: str | None) -> None:
        """Note the *state* of *thing* as JSON; ``None``: it is not known."""
        self._left.pop(thing, None)
        self._left[thing] = None if state is None else envelope.loads(state.encode())
        if len(self._left) > _MOST:
            self._left.popitem(last=False)

    def _is_as_left(self, thing: str, seen: Wire) -> bool:
        """Return whether *seen* has all that a write of this journal is known to have left of *thing*."""
        known = self._left.get(thing)
        if not isinstance(known, dict) or not known or not isinstance(seen, dict):
            return False
        return all(same(value, seen.get(name)) for name, value in known.items())


async def restored_of(store: Store, client: Client) -> Restored | None:
    """
    Return the doubts of the journal in *store*; ``None`` if it was not restored.

    While its input was not read again, this reads the service's clock.

    Raises:
        TransportError: The service cannot be reached.
    """
    found = await store.run(marked)
    if found == NOT_RESTORED:
        return None
    restored = Restored(
        through=found.through,
        is_open=found.is_open,
        awaits_input=found.is_open and store.how.kind == "batch",
    )
    if found.is_open and found.since is not None:
        with suppress(
            ServiceError
        ):  # An error that the service answers shows its clock, too.
            await client.webhooks.list(limit=1)
        core = options_of(client).core
        # By the clock that has noted when the writes were done: not that of this process, if it shares them.
        age = await now_of(store) - found.since / 1000
        now = core.clock.now()
        bounds = core.server_clock.bounds(now, options_of(client).reconcile.clock_slack)
        # The copy was made *age* s ago, at the earliest time that the service's clock may have shown then. If
        # the age is negative, the clock that it is measured by was set back. But if that clock is behind the
        # service's, *since* is a time of the service (``durable/done_at.py``), and the age is too short.
        if bounds is not None and age >= 0:
            made = min(now - age + bounds.low, found.since / 1000)
            restored.earliest = made - _SLACK
    return restored
