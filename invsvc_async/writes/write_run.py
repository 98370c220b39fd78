"""
What one run of a write has, in all its phases.

A run goes through these phases. Each has a file, whose functions take the ``WriteRun``:

==============  ==================================================================  ==============
phase           what happens                                                        file
==============  ==================================================================  ==============
**waiting**     other writes to the thing run, or may still have an effect          ``driver``
**starting**    it is learnt what other writes and runs did: the history begins     ``starting``
**sending**     one request, if ``decide`` says so                                  ``sending``
**settling**    a read of the state; ``driver`` itself makes the pauses             ``settling``
**concluding**  the verdict is stored, then noted for later writes                  ``concluding``
**ended**       ``result.done`` is set: the verdict is known, and stored            none
==============  ==================================================================  ==============

The driver alternates sending and settling, as ``decide`` says, until there is a verdict. A run that is
interrupted, in any phase, is shelved (``concluding``), and may be driven again: it then waits and starts once
more, from its record.

Who changes what:

- ``record``: every phase. It decides what is done next. See ``run_record``.
- ``place``: starting finds the thing, sending takes the place, concluding notes the end. See ``place``.
- ``answers``: sending keeps values and errors; the outcome of another run brings its own error.
- ``result``: settling keeps what was read, concluding the verdict, or starting that of another run; the
  driver adds up the times.
- ``call_ends``: settling, before a first send; a run that starts again forgets it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from msgspec import Struct

if TYPE_CHECKING:
    from invsvc_async.reconcile.intent import Intent
    from invsvc_async.reconcile.outcome import AnyOutcome, Outcome
    from invsvc_async.transport.client_core import ClientCore
    from invsvc_async.writes.answers import Answers
    from invsvc_async.writes.place import WritePlace
    from invsvc_async.writes.results import WriteResult
    from invsvc_async.writes.run_journal import RunJournal
    from invsvc_async.writes.run_record import RunRecord
    from invsvc_async.writes.spec import WriteSpec


T = TypeVar("T")


class WriteRun(Struct, Generic[T], eq=False):
    """
    One run of the write that *spec* asks for. See the top of this file.

    ``call_ends`` is a time of the event loop, by which a call that began with a read has to be sent.
    """

    spec: WriteSpec
    core: ClientCore
    record: RunRecord
    place: WritePlace
    journal: RunJournal | None
    answers: Answers[T]
    result: WriteResult[T]
    call_ends: float | None = None

    def current_intent(self) -> Intent:
        """Return the intent with all sends so far, as another process needs it."""
        intent = self.record.current_intent(livemode=self.core.livemode)
        return self.result.noted_in(intent)

    def keep(self, outcome: AnyOutcome) -> None:
        """Use the *outcome* of another run, or a fuller one, as the outcome of this run, which ends."""
        self.result.keep(outcome)
        self.record.replace_intent(outcome.started_as)

    def outcome(self) -> Outcome[T]:
        """Return the outcome. There must be a verdict."""
        result = self.result
        if result.outcome is None:
            assert result.done is not None
            result.outcome = result.new_outcome(result.done, result.found)
        return result.outcome
