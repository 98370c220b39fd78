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

from invsvc_async.client import Client, options_of
from invsvc_async.codec import envelope
from invsvc_async.durable.intents import in_doubt, seen_undone
from invsvc_async.durable.store.facts import now_of
from invsvc_async.durable.store.restored import NOT_RESTORED, marked
from invsvc_async.durable.store.states import Left
from invsvc_async.errors import ServiceError
from invsvc_async.reconcile.compare import same
from invsvc_async.reconcile.history import Reading, Verdict

if TYPE_CHECKING:
    from invsvc_async.codec.exact_json import Wire
    from invsvc_async.durable.store.opening import Store
    from invsvc_async.reconcile.intent import Intent
    from invsvc_async.reconcile.outcome import AnyOutcome


_UNDONE = (
    "the resource is as an earlier write of this journal left it: what may have been sent since the copy was "
    "made has not arrived, or somebody has undone it. A retry sends this write"
)
_MOST = 10_000  # things whose states are kept
# s by which the clocks of the processes that wrote the journal may disagree
_SLACK = 60.0


@attrs.define(kw_only=True)
class Restored:
    """
    The doubts of a restored journal.

    Entries up to ``through`` are of the copy. While ``is_open``, writes that it does not have are in doubt
    too. Those sends were not before ``earliest`` (server time in s), if that is known.
    """

    through: int
    is_open: bool
    earliest: float | None = None
    met: int = 0  # writes of the input that were in doubt
    # the latest states that own writes left
    _left: OrderedDict[str, Wire] = attrs.field(factory=OrderedDict)

    def of_entry(self, number: int, intent: Intent) -> Intent:
        """Return the intent of an entry that is not done."""
        return in_doubt(intent, self.earliest) if number <= self.through else intent

    def of_new(self, intent: Intent) -> Intent:
        """Return the intent of a write that the journal does not have."""
        self.met += 1
        return in_doubt(intent, self.earliest)

    def learn(self, row: Left) -> None:
        """Note what the journal knows of a thing, unless this run knows more."""
        if row.thing not in self._left:
            self._note(row.thing, row.state)

    def judged(
        self, outcome: AnyOutcome, left: Left | None
    ) -> tuple[AnyOutcome, Left | None]:
        """
        Return the outcome of a write, and the state in which the write *left* its thing.

        A lost send was before every read of this run. So if the read after its settle window shows the thing
        as an earlier write left it, it is still as that one left it.
        """
        if left is None:
            return outcome, left
        if outcome.verdict is not Verdict.UNKNOWN or outcome.attempts:
            self._note(
                left.thing, left.state if outcome.verdict is Verdict.APPLIED else None
            )
            return outcome, left
        reading = outcome.history[-1]
        over = outcome.evidence.window_until
        if (
            isinstance(reading, Reading)
            and over is not None
            and reading.started >= over
        ):
            intent = (
                None
                if reading.stamp is None
                else seen_undone(outcome.started_as, reading.stamp / 1000)
            )
            if intent is not None and self._shows(left.thing, reading.seen):
                evidence = attrs.evolve(outcome.evidence, cause="perhaps undone")
                return attrs.evolve(
                    outcome, message=_UNDONE, evidence=evidence, started_as=intent
                ), None
        self._note(left.thing, None)
        return outcome, Left(left.thing)

    def _note(self, thing: str, state: str | None) -> None:
        self._left.pop(thing, None)
        self._left[thing] = None if state is None else envelope.loads(state.encode())
        if len(self._left) > _MOST:
            self._left.popitem(last=False)

    def _shows(self, thing: str, seen: Wire) -> bool:
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
    restored = Restored(through=found.through, is_open=found.is_open)
    if found.is_open and found.since is not None:
        with suppress(ServiceError):  # it shows the clock as well
            await client.webhooks.list(limit=1)
        core = options_of(client).core
        # By the clock that has noted when the writes were done: not that of this process, if it shares them.
        age = await now_of(store) - found.since / 1000
        now = core.clock.now()
        bounds = core.server_clock.bounds(now, options_of(client).reconcile.clock_slack)
        if bounds is not None and age >= 0:  # otherwise that clock was set back
            restored.earliest = now - age + bounds.low - _SLACK
    return restored
