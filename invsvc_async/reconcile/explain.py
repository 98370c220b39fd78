"""Explanations of verdicts, and their stories: an outcome as JSON, which can be replayed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from invsvc_async.api.operations import BY_NAME
from invsvc_async.codec import envelope
from invsvc_async.errors import InvalidRequestError
from invsvc_async.reconcile.decide import decide
from invsvc_async.reconcile.facts import Known, start_of
from invsvc_async.reconcile.history import (
    Attempt,
    Closed,
    Done,
    End,
    Reading,
    Resumed,
    Tick,
)
from invsvc_async.reconcile.json_form import (
    check_version,
    event_from_wire,
    intent_from_json,
    parsed,
)

if TYPE_CHECKING:
    from invsvc_async.codec.exact_json import Wire
    from invsvc_async.reconcile.history import Decision, Event, History
    from invsvc_async.reconcile.intent import Intent


def tell(
    intent: Intent,
    history: History,
    verdict: str,
    reason: str,
) -> str:
    """Format the history of a write in a few lines; times are in seconds since the first event."""
    begun = start_of(history[0]) if history else 0.0
    lines = [f"{intent.operation}, intent {intent.key}"]
    lines += [
        f"  {start_of(event) - begun:+9.3f} s  {_told(event)}"
        for event in history
        if not isinstance(event, Tick)
    ]
    lines.append(f"  verdict: {verdict} - {reason}")
    return "\n".join(lines)


def _told(event: Event) -> str:
    match event:
        case Attempt():
            return _told_attempt(event)
        case Reading():
            return _told_reading(event)
        case Closed():
            return "the client was closed"
        case _:
            return "taken up from its intent: of the runs before, only the sends in it count"


def _told_attempt(attempt: Attempt) -> str:
    error = attempt.error
    took = f"after {attempt.ended - attempt.started:.3f} s"
    if attempt.end is End.NOT_SENT:
        if error:
            return f"not sent: {error.message}"
        return "not sent: no byte left"
    if attempt.end is End.LOST:
        lost = f"sent, answer lost {took}"
        if error:
            return f"{lost}: {error.message}"
        return lost
    answered = f"sent, answered HTTP {attempt.status}"
    if error and error.code:
        return f"{answered} {error.code} {took}"
    if attempt.readable or attempt.own_envelope or attempt.of_authentication:
        return f"{answered} {took}"
    return f"{answered} {took}, not the service's envelope"


def _told_reading(reading: Reading) -> str:
    if reading.finding is not None:
        return f"the caller's reader found: {type(reading.finding).__name__}"
    if reading.status is None and reading.error is not None:
        return f"read failed: {reading.error.message}"
    answered = f"read the state: HTTP {reading.status}"
    if not isinstance(reading.seen, list):
        return answered
    items = "item" if reading.raw_count == 1 else "items"
    return f"{answered}: {reading.raw_count} {items}"


def from_json(text: str | bytes) -> tuple[Intent, History, str]:
    """
    Decode the JSON of an outcome to the intent as it was at the start, its history, and the verdict.

    Raises:
        InvalidRequestError: The text is damaged, of a newer version, or something else.
    """
    plain = parsed(text, "a story")
    if "history" not in plain:
        raise InvalidRequestError("not a story: it has no history")
    return story_of(plain, "a story")


def story_of(plain: dict[str, Wire], what: str) -> tuple[Intent, History, str]:
    """
    Return the intent, the history (empty if there is none), and the verdict in *plain*.

    Raises:
        InvalidRequestError: One of them is missing or not valid.  The message names *what* it is not.
    """
    check_version(plain, what)
    events = plain.get("history", [])
    intent = plain.get("intent")
    verdict = plain.get("verdict")
    if (
        not isinstance(events, list)
        or not isinstance(intent, dict)
        or not isinstance(verdict, str)
    ):
        raise InvalidRequestError(f"not {what}: intent, history or verdict is missing")
    return (
        intent_from_json(envelope.dumps(intent)),
        tuple(map(event_from_wire, events)),
        verdict,
    )


def replay(intent: Intent, history: History) -> list[tuple[Event | None, Decision]]:
    """Return each event with the decision of ``decide`` after it, from the first to the last."""
    operation = BY_NAME[intent.operation]
    steps: list[tuple[Event | None, Decision]] = []
    # Right after it was resumed, nothing has happened yet.
    is_resumed = bool(history) and isinstance(history[0], Resumed)
    begun = 1 if is_resumed else 0
    for length in range(begun, len(history) + 1):
        known = Known(operation, intent, history[:length])
        decision = decide(known)
        steps.append((known.last, decision))
        if isinstance(decision, Done):
            break
    return steps
