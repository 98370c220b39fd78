"""
The record of one run of a write: its intent, its history, and the send that may be under way.

What the record says, who changes it, and what breaks otherwise:

- **The intent**, made when it is first asked for: most writes need none. The start of the run replaces it.
- **The history**, to which each phase of the run adds what happened. It is the only ground of ``decide``. An
  event that is missing may let the write be sent twice.
- **The mark** of a send, which is set before a byte can leave. From then on the send counts as lost, until
  its end is in the history. There is no gap between the two: an exception of a signal handler, which may come
  between any two instructions, finds the one or the other. The mark of a send that has begun is never taken
  away: the longer history makes it void.
- **The facts** that the history establishes. They are built once for each history and intent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
from msgspec import Struct

from invsvc_async.reconcile.facts import Known
from invsvc_async.reconcile.history import Attempt, End
from invsvc_async.reconcile.stored_intent import stored

if TYPE_CHECKING:
    from collections.abc import Callable

    from invsvc_async.api.operations import Operation
    from invsvc_async.reconcile.history import Event, History, Send
    from invsvc_async.reconcile.intent import Intent


class SendMark(Struct, frozen=True):
    """A send that may have begun at *since* (local s), while the history was *after*."""

    send: Send
    since: float
    after: History


class RunRecord(Struct, eq=False):
    """
    The intent and the history of a run. See the top of this file.

    ``intent_or_maker`` is the intent, or the function that makes it; ``intent`` is the same, made.
    ``is_taken_up`` is whether another run may have sent the write before this one.
    """

    operation: Operation
    intent_or_maker: Intent | Callable[..., Intent]
    is_taken_up: bool
    history: History = ()
    _mark: SendMark | None = None
    _facts: Known | None = None

    # --- the intent

    @property
    def intent(self) -> Intent:
        """The intent at the start of the run; :meth:`current_intent` returns it with the sends since."""
        intent = self.intent_or_maker
        if callable(intent):
            intent = self.intent_or_maker = intent()
        return intent

    @property
    def trace(self) -> str | None:
        """The trace in which the write was begun; ``None`` if there is none, or no intent yet."""
        intent = self.intent_or_maker
        if callable(intent):
            return None
        return intent.trace

    @property
    def may_be_known(self) -> bool:
        """Whether another run, or an earlier await, may have sent the write, and so knows its identity."""
        return self.is_taken_up or bool(self.history)

    def start(
        self, intent: Intent | Callable[..., Intent], history: History = ()
    ) -> None:
        """Begin with *intent*, after the events of *history*."""
        self.intent_or_maker = intent
        self.history = history
        # When a run starts anew, the history may be the same as before the last send, and that mark would
        # count again. The end of that send is known: it never left.
        self._mark = None
        self._facts = None

    def replace_intent(self, intent: Intent) -> None:
        """Go on with another revision of the intent, after the same events."""
        self.start(intent, self.history)

    def with_send(
        self,
        send: Send,
        at: float,
        *,
        livemode: bool | None,
    ) -> Intent:
        """Return the intent with all sends so far, and with *send*, which begins *at* (local s)."""
        return stored(
            self.known(),
            livemode=livemode,
            send=send,
            at=at,
        )

    def current_intent(self, *, livemode: bool | None) -> Intent:
        """Return the intent with all sends so far, as another process needs it."""
        mark = self.under_way()
        if mark is None:
            return stored(self.known(), livemode=livemode)
        return self.with_send(mark.send, mark.since, livemode=livemode)

    # --- the history

    def add(self, event: Event) -> None:
        """Add *event* at the end of the history. It voids the mark of a send."""
        self.history = (*self.history, event)

    def note_token_renewed(self) -> None:
        """Note that the token was renewed after the last attempt, which was answered 401."""
        *before, last = self.history
        assert isinstance(last, Attempt)
        self.history = (*before, attrs.evolve(last, token_renewed=True))

    def known(self) -> Known:
        """Return what the history establishes."""
        facts = self._facts
        if facts is None or facts.history is not self.history:
            facts = self._facts = Known(self.operation, self.intent, self.history)
        return facts

    def may_have_effect(self) -> bool:
        """
        Return whether an attempt, in this run or another, may have had an effect.

        The *sends* of ``known().windows`` are only those: an attempt that was refused is none of them.
        """
        return bool(self.known().windows.sends)

    def may_have_left(self) -> bool:
        """
        Return whether a byte of the write may have left, in this run or another.

        That includes attempts that were refused, and so had no effect.
        """
        return self.may_have_effect() or not self.known().never_left

    # --- the send that may be under way

    def mark(self, send: Send, since: float) -> None:
        """Mark *send* before a byte of it can leave; *since* is when it may have begun (local s)."""
        self._mark = SendMark(send, since, self.history)

    def unmark(self) -> None:
        """Remove the mark, because provably nothing was begun."""
        self._mark = None

    def under_way(self) -> SendMark | None:
        """Return the mark of a send that may have begun, and of which there is no record yet."""
        mark = self._mark
        if mark is not None and mark.after is self.history:
            return mark
        return None

    def note_lost_send(self, now: float) -> None:
        """Record a send as lost whose end was not recorded: a signal handler raised just then."""
        mark = self.under_way()
        if mark is None:
            return
        lost = Attempt(
            started=mark.since,
            ended=now,
            end=End.LOST,
            timeout=mark.send.attempt_timeout,
        )
        self.add(lost)
