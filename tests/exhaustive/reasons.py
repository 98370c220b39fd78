"""
Compare the reason of a verdict with the truth: each basis and each cause says something that the world must bear out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from invsvc_async.reconcile.history import Attempt, Done, End, Reading, Verdict
from tests.exhaustive.broken import hold
from tests.exhaustive.models import WORDED, Hook, Journey, Listing, Team
from tests.exhaustive.world import EPSILON, NO_STEP, OTHER, stamp

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.exhaustive.world_setup import Node, Run, SetUp

REASON = 22
_REFUSALS = range(400, 500)


def judge_reason(setup: SetUp, node: Node, run: Run, done: Done) -> None:
    """Check what a verdict says of why it is so."""
    basis, cause = done.evidence.basis, done.evidence.cause
    hold(REASON, done.reason, "a verdict without a reason")
    is_open = done.verdict not in (Verdict.APPLIED, Verdict.REFUSED)
    hold(
        REASON, (cause is not None) is is_open, f"{done.verdict} with the cause {cause}"
    )
    hold(REASON, basis in _BASES, f"the basis {basis}")
    hold(
        REASON,
        _BASES[basis](setup, node, run, done),
        f"{done.verdict} on the basis {basis}, which is false",
    )
    if cause is not None:
        hold(REASON, cause in _CAUSES, f"the cause {cause}")
        hold(
            REASON,
            _CAUSES[cause](setup, node, run, done),
            f"{done.verdict} with the cause {cause}, which is false",
        )
    names_somebody = "somebody else changed" in done.reason
    hold(
        REASON,
        not names_somebody or _somebody_acted(setup, node, run),
        "somebody is named, but nobody acted",
    )


def _somebody_acted(setup: SetUp, node: Node, run: Run) -> bool:
    """Return whether anybody else has changed the thing: a stranger, or a later write of this program."""
    return bool(node.touched(setup, run.number)) or any(
        by > run.number for by, _ in node.world.effects
    )


def _attempts(run: Run) -> list[Attempt]:
    return [event for event in run.history if isinstance(event, Attempt)]


def _last_reading(run: Run) -> Reading | None:
    last = run.history[-1] if run.history else None
    return last if isinstance(last, Reading) else None


def _seen(run: Run) -> Any:
    reading = _last_reading(run)
    return None if reading is None else reading.seen


# --- bases


def _answered(_setup: SetUp, _node: Node, run: Run, done: Done) -> bool:
    if done.verdict is Verdict.APPLIED:
        return run.told
    if done.verdict is Verdict.NOT_APPLIED and run.doubt:
        return False
    stored = any(
        sent.end is not None and sent.end.refusal is not None
        for sent in run.intent.sent
    )
    return stored or any(attempt.status in _REFUSALS for attempt in _attempts(run))


def _never_sent(_setup: SetUp, node: Node, run: Run, _done: Done) -> bool:
    return not run.doubt and not node.effects(run.number)


def _absence(_setup: SetUp, _node: Node, run: Run, _done: Done) -> bool:
    return run.absent


def _absent(setup: SetUp, node: Node, run: Run, done: Done) -> bool:
    """Return whether it is absent, and what would send it again may do so: nothing newer was sent to the thing."""
    if not _absence(setup, node, run, done):
        return False
    return (
        run.mode != "resume"
        or isinstance(setup.model, Listing)
        or not _overtaken(setup, node, run, done)
    )


def _by_state(_setup: SetUp, _node: Node, run: Run, _done: Done) -> bool:
    """Return whether there was a read: the last event, or one before the client was closed."""
    reads = [isinstance(event, Reading) for event in run.history]
    return any(reads) if run.closed else reads[-1:] == [True]


def _equal(_setup: SetUp, _node: Node, run: Run, _done: Done) -> bool:
    return run.shown and not _is_by_reader(run)


def _by_own_reader(_setup: SetUp, _node: Node, run: Run, _done: Done) -> bool:
    return any(
        isinstance(event, Reading) and event.finding is not None
        for event in run.history
    )


def _is_by_reader(run: Run) -> bool:
    reading = _last_reading(run)
    return reading is not None and reading.finding is not None


def _gone(_setup: SetUp, _node: Node, run: Run, _done: Done) -> bool:
    reading = _last_reading(run)
    return reading is not None and reading.status == 404


def _by_baseline(_setup: SetUp, _node: Node, run: Run, done: Done) -> bool:
    """Return whether a state before the first send was known.  What else it needs is in `judge`."""
    return done.verdict is Verdict.SUPERSEDED and _is_baseline_known(run)


def _by_change(setup: SetUp, node: Node, run: Run, done: Done) -> bool:
    """Return whether the thing was changed after the first send began, by its time or by what reads showed."""
    if done.verdict is not Verdict.SUPERSEDED or not isinstance(setup.model, Journey):
        return False
    states = [
        event.seen
        for event in run.history
        if isinstance(event, Reading) and isinstance(event.seen, dict)
    ]
    was_seen = any(state != states[-1] for state in states)
    since = run.first
    return was_seen or (since is not None and node.world.thing[2] >= since)


def _none(_setup: SetUp, node: Node, run: Run, done: Done) -> bool:
    """Return whether nothing is known, or that earlier sends had no effect, but not how each of them ended."""
    had_none = bool(run.intent.sent) and not run.doubt and not node.effects(run.number)
    return done.verdict is Verdict.UNKNOWN or had_none


_BASES: dict[str, Callable[[SetUp, Node, Run, Done], bool]] = {
    "answered": _answered,
    "never sent": _never_sent,
    "absence": _absence,
    "match": _by_state,
    "tag": _by_state,
    "reader": _by_own_reader,
    "equal": _equal,
    "gone": _gone,
    "baseline": _by_baseline,
    "last_updated": _by_change,
    "none": _none,
}


# --- causes


def _never_left(_setup: SetUp, _node: Node, run: Run, _done: Done) -> bool:
    attempts = _attempts(run)
    return bool(attempts) and all(attempt.end is End.NOT_SENT for attempt in attempts)


def _not_sent_again(_setup: SetUp, _node: Node, run: Run, _done: Done) -> bool:
    ends = {attempt.end for attempt in _attempts(run)}
    return End.NOT_SENT in ends and (End.ANSWERED in ends or bool(run.intent.sent))


def _overtaken(_setup: SetUp, node: Node, run: Run, _done: Done) -> bool:
    """Return whether a newer write to the same thing has arrived, or may have."""
    return any(
        each.number > run.number and each.line == run.line and each.sends
        for each in node.runs
    )


def _perhaps_overtaken(_setup: SetUp, _node: Node, run: Run, _done: Done) -> bool:
    return run.mode != "live"


def _only_read(_setup: SetUp, _node: Node, run: Run, _done: Done) -> bool:
    return run.mode == "settle"


def _closed(_setup: SetUp, _node: Node, run: Run, _done: Done) -> bool:
    return run.closed


def _no_read(setup: SetUp, _node: Node, run: Run, _done: Done) -> bool:
    reading = _last_reading(run)
    lacks = reading is not None and reading.status in (404, 405, 501)
    off = isinstance(setup.model, Journey) and setup.policy.journey_reader is None
    return lacks or off or (isinstance(setup.model, Team) and setup.reader is None)


def _read_refused(_setup: SetUp, _node: Node, run: Run, _done: Done) -> bool:
    reading = _last_reading(run)
    if reading is None or reading.status is None:
        return False
    return reading.status in (401, 403) or any(
        attempt.status == reading.status for attempt in _attempts(run)
    )


def _out_of_time(setup: SetUp, _node: Node, run: Run, _done: Done) -> bool:
    return (
        run.since is not None and run.now >= run.since + setup.policy.deadline - EPSILON
    )


def _list_full(setup: SetUp, _node: Node, _run: Run, _done: Done) -> bool:
    return setup.crowd is not None


def _by_reader(setup: SetUp, _node: Node, _run: Run, _done: Done) -> bool:
    return setup.reader is not None


def _published(_setup: SetUp, _node: Node, run: Run, _done: Done) -> bool:
    seen = _seen(run)
    return isinstance(seen, dict) and seen["status"] != "draft"


def _not_visible(setup: SetUp, node: Node, run: Run, _done: Done) -> bool:
    if isinstance(setup.model, Listing):
        status = setup.model.form(run.number).status
        return status == "inactive" and all(
            hook["status"] != status for hook in _seen(run)
        )
    model = setup.model
    if isinstance(model, Journey) and model.hidden:
        return True
    return isinstance(model, Hook | Journey) and _is_in_words(
        model, node.world.thing[0], run
    )


def _is_in_words(model: Hook | Journey, held: Any, run: Run) -> bool:
    """Return whether a field holds what is written in the service's own words."""
    values = held if isinstance(held, tuple) else (held,)
    return any(
        each >= WORDED and each % WORDED == model.value_of(run.number)
        for each in values
    )


def _no_baseline(_setup: SetUp, _node: Node, run: Run, _done: Done) -> bool:
    """Return whether the state before was neither passed nor read."""
    return not _is_baseline_known(run)


def _is_baseline_known(run: Run) -> bool:
    passed = (
        isinstance(run.intent.baseline, dict)
        and run.intent.baseline.get("status") != "published"
    )
    first = next(
        (at for at, event in enumerate(run.history) if isinstance(event, Attempt)), 0
    )
    read = any(
        isinstance(event, Reading) and event.status == 200
        for event in run.history[:first]
    )
    return bool(passed and run.intent.baseline) or read


def _candidates(setup: SetUp, node: Node, run: Run, done: Done) -> bool:
    """Return whether each is in the list, unexplained, and, by an honest time, was not made long before."""
    model, seen = setup.model, _seen(run)
    if (
        not isinstance(model, Listing)
        or not isinstance(seen, list)
        or not done.evidence.candidates
    ):
        return False
    first = run.first  # None, where only an intent of before the first send was kept
    for candidate in done.evidence.candidates:
        number = int(candidate["id"].removeprefix("wh_"))
        _, look, created, by = node.world.thing[number]
        if candidate not in seen or (
            by not in (OTHER, run.number) and _is_explained(node, run, number)
        ):
            return False
        honest = model.show(((number, look, created, by),))[0]["created_at"] == stamp(
            created
        )
        honest = honest and setup.bounds is not None and model.step == NO_STEP
        if honest and first is not None and created < first - _WIDEST:
            return False
    return True


def _is_explained(node: Node, run: Run, number: int) -> bool:
    """Return whether an answer gave the webhook to another run of this client."""
    return any(
        claim[0] == f"wh_{number}" and claim[2] and claim[3] == run.client
        for claim in node.claims
    )


_WIDEST = 12.0  # s by which the clocks may seem to be apart


def _too_long_ago(setup: SetUp, _node: Node, run: Run, _done: Done) -> bool:
    unknown = (
        any(sent.earliest is None for sent in run.intent.sent) or not run.intent.sent
    )
    late = (
        run.first is not None
        and run.now + _WIDEST >= run.first + setup.policy.absence_within
    )
    return late or (
        run.mode != "live" and (unknown or not setup.stamped or setup.bounds is None)
    )


def _changed_since(setup: SetUp, node: Node, run: Run, _done: Done) -> bool:
    """
    Return whether the thing was changed by another write since the state that was taken for the one before.

    That state may be an old one: a read lagged, or the caller had it.  Then it may be from before a change
    long ago, or before an earlier write of this program.
    """
    may_be_old = setup.stale > 0.0 or setup.passed
    has_earlier_write = any(by < run.number for by, _ in node.world.effects)
    was_past = any(
        _is_shown(run, setup.model.show(thing)) for _, thing in setup.earlier
    )
    return (
        _somebody_acted(setup, node, run)
        or was_past
        or (may_be_old and has_earlier_write)
    )


def _is_shown(run: Run, state: dict[str, Any] | None) -> bool:
    """Return whether *state*, if the thing was there, is what *run* has taken for the state before its first send."""
    if state is None:
        return False
    first = next(
        (at for at, event in enumerate(run.history) if isinstance(event, Attempt)), 0
    )
    reads = [event.seen for event in run.history[:first] if isinstance(event, Reading)]
    return any(
        isinstance(before, dict)
        and bool(before)
        and all(state.get(name) == value for name, value in before.items())
        for before in (*reads, run.intent.baseline)
    )


def _was_removed(_setup: SetUp, _node: Node, run: Run, _done: Done) -> bool:
    reading = _last_reading(run)
    return reading is not None and reading.status == 404


def _perhaps_undone(setup: SetUp, node: Node, run: Run, done: Done) -> bool:
    """Return whether the thing was changed, if the reason says so."""
    changed = node.touched(setup, run.number) or node.world.effects
    return isinstance(setup.model, Hook | Journey) and (
        "was changed" not in done.reason or bool(changed)
    )


def _in_part(setup: SetUp, node: Node, run: Run, done: Done) -> bool:
    """Return whether it was stored in part or in other words, and what is said of sending it again is so."""
    policy = setup.policy
    left = run.intent.sent[-1].end if run.intent.sent else None
    was_refused = left is not None and left.refusal is not None
    attempts = _attempts(run)
    if attempts:
        was_refused = attempts[-1].status in _REFUSALS
    may_be_sent = policy.resend == "proven" and policy.max_resends > 0
    if "sends it again" in done.reason and (was_refused or not may_be_sent):
        return False
    if "that was tried" in done.reason and not run.resends:
        return False
    return _stored_otherwise(setup, node, run, done)


def _stored_otherwise(setup: SetUp, node: Node, run: Run, _done: Done) -> bool:
    """Return whether the write took effect, in whatever words, or somebody else wrote."""
    return bool(node.world.effects) or bool(node.touched(setup, run.number))


_CAUSES: dict[str, Callable[[SetUp, Node, Run, Done], bool]] = {
    "absent": _absent,
    "never left": _never_left,
    "not sent again": _not_sent_again,
    "overtaken": _overtaken,
    "perhaps overtaken": _perhaps_overtaken,
    "only read": _only_read,
    "client closed": _closed,
    "no read": _no_read,
    "read refused": _read_refused,
    "out of time": _out_of_time,
    "list full": _list_full,
    "reader": _by_reader,
    "may be published": _published,
    "not visible": _not_visible,
    "no baseline": _no_baseline,
    "candidates": _candidates,
    "too long ago": _too_long_ago,
    "gone": _was_removed,
    "changed since": _changed_since,
    "perhaps undone": _perhaps_undone,
    "other words": _stored_otherwise,
    "in part": _in_part,
}
