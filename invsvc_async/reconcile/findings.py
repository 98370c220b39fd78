"""
What a read of the service's state shows about a write.

There is one function for each ``finder`` in the table of operations.  Windows, deadlines and re-sends are
in ``decide``.
"""

from __future__ import annotations

import re
from math import inf
from typing import TYPE_CHECKING, Any, TypeGuard

from invsvc_async.reconcile.compare import (
    HOOK_FIELDS,
    is_time,
    reworded,
    rounded,
    same,
    same_graph,
    same_hook,
    same_hook_field,
    url_key,
)
from invsvc_async.reconcile.history import Absent, Applied, CannotTell, Holds, Superseded

if TYPE_CHECKING:
    from collections.abc import Callable

    from invsvc_async.codec.exact_json import Wire
    from invsvc_async.reconcile.facts import Known, Sending
    from invsvc_async.reconcile.history import Finding, Reading

__all__ = ["FINDERS", "find", "is_evidence"]

# With `tag=True`, the description ends with this.  The fixed form makes tags of other intents recognisable.
TAG = re.compile(r"\[iv-[a-z2-7]{16}\]")


def is_unique(tag: str | None) -> bool:
    """Return whether *tag* has the fixed form, which is unique to a write; user-supplied text is not."""
    return tag is not None and TAG.fullmatch(tag) is not None


# These are never null in a Journey, so a null that was sent for them cannot be found.
_NEVER_NULL = ("graph", "triggerType", "replacesDefaults")

_NOT_THERE = (404, 405, 501)

_TOO_LONG_AGO = "the write was sent more than {:g} s ago, or at an unknown time: its absence proves nothing"


def is_evidence(known: Known, reading: Reading) -> bool:
    """Return whether *reading* succeeded.  A failed read is not evidence."""
    if reading.finding is not None:
        return True
    if known.operation.finder is None or not reading.own_envelope:
        return False
    if reading.status == 404:
        return known.operation.finder in ("updated_webhook", "deleted_webhook")
    wanted: type = list if known.operation.finder == "created_webhook" else dict
    return reading.status == 200 and isinstance(reading.seen, wanted)


def find(known: Known, reading: Reading) -> Finding:
    """Return what *reading* shows about the write.  It must be evidence."""
    if reading.finding is not None:
        if isinstance(reading.finding, Absent) and known.method != "POST" and not known.is_newest(reading):
            reason = "the write does not show, but a later write of this program may have undone it"
            return CannotTell(reason, cause="changed since")
        return _with_decay(known, reading, reading.finding)
    assert known.operation.finder is not None
    finding = FINDERS[known.operation.finder](known, reading)
    blames = isinstance(finding, Superseded) or getattr(finding, "cause", None) == "changed since"
    return _in_other_words(known, reading.seen) or finding if blames and reading.seen else finding


def _in_other_words(known: Known, seen: dict[str, Wire]) -> CannotTell | None:
    """Return CannotTell if *seen* may be what was sent, in words that the service itself has changed."""
    hook, differing = known.operation.finder == "updated_webhook", list[str]()
    for name, sent in known.intent.body.items():
        shown = seen.get(name)
        if (name not in HOOK_FIELDS) if hook else (sent is None and name in _NEVER_NULL):
            continue
        if same(sent, shown) or (hook and name != "description" and same_hook_field(name, sent, shown)):
            continue
        if not reworded(*(url_key(str(each)) if name == "url" else each for each in (sent, shown))):
            return None
        differing.append(name)
    reason = f"the state is as sent, but for {' and '.join(differing)}: trimmed, cut or spelled otherwise"
    return CannotTell(f"{reason}, by the service or by somebody else", cause="changed since")


def _with_decay(known: Known, reading: Reading, finding: Finding) -> Finding:
    """Return *finding*, or CannotTell for an old absence: the resource may have been created and deleted."""
    if isinstance(finding, Absent) and known.operation.finder == "created_webhook" and known.decayed(reading):
        return CannotTell(_TOO_LONG_AGO.format(known.policy.absence_within), cause="too long ago")
    return finding


def no_such_read(known: Known, reading: Reading) -> bool:
    """
    Return whether the answer means that the deployment cannot read journeys.

    The specification does not list that read.
    """
    if known.operation.finder != "journey" or reading.finding is not None or reading.status not in _NOT_THERE:
        return False
    return reading.own_envelope or reading.status != 404


# --- The update of a journey


def _journey(known: Known, reading: Reading) -> Finding:
    seen, baseline = reading.seen, known.baseline
    if seen.get("status") != "draft" and not known.policy.journey_reads_show_drafts:
        reason = f"the journey is {seen.get('status')!r}: the read may show its published snapshot"
        return CannotTell(reason, cause="may be published")
    wanted = {
        name: value
        for name, value in known.intent.body.items()
        if value is not None or name not in _NEVER_NULL
    }
    if not wanted:
        return CannotTell(
            "only nulls were sent, for fields that are never null in a journey", cause="not visible"
        )
    placed = known.when(seen.get("last_updated"), reading)
    if _shows(seen, wanted):
        written = placed == "after" or _is_written(known, reading, wanted, placed)
        return Applied(seen) if written else Holds(seen)
    if placed == "before" or (baseline is not None and _is_unchanged(seen, baseline, wanted)):
        return Absent()
    if _shows(rounded(seen), rounded(wanted)):
        known_before = baseline is not None and _known_of(rounded(wanted), baseline)
        if known_before and not _shows(rounded(baseline), known_before):
            return Holds(seen)
    if not known.is_newest(reading):
        return CannotTell(
            "somebody else or a later write of this program changed the journey; whether this write was "
            "applied first is unknown",
            cause="changed since",
        )
    if placed == "after" or any(_is_changed(before.seen, seen, wanted) for before in known.earlier(reading)):
        return Superseded("somebody else changed the journey after the write was sent")
    return CannotTell(
        "somebody else changed the journey at about the time of the write; whether the write was applied "
        "first is unknown",
        cause="changed since",
    )


def _shows(journey: dict[str, Wire], wanted: dict[str, Wire]) -> bool:
    return all(
        (same_graph if name == "graph" else same)(value, journey.get(name)) for name, value in wanted.items()
    )


def _is_written(known: Known, reading: Reading, wanted: dict[str, Wire], placed: str) -> bool:
    """Return whether the journey, which matches the write, was changed since the baseline."""
    baseline = known.baseline
    if baseline is None:
        return False
    before, after = baseline.get("last_updated"), reading.seen.get("last_updated")
    if is_time(before) and is_time(after) and after != before:
        if after < before or placed == "before":  # a read that lags, or a change by somebody else
            return False
        return placed == "band" or _is_current(known, reading)
    return _is_current(known, reading) and not _shows(baseline, _known_of(wanted, baseline))


def _known_of(wanted: dict[str, Wire], baseline: dict[str, Wire]) -> dict[str, Wire]:
    """Return the fields that *baseline* has.  A stored state may lack a large graph."""
    return {name: value for name, value in wanted.items() if name in baseline}


def _is_unchanged(seen: dict[str, Wire], baseline: dict[str, Wire], wanted: dict[str, Wire]) -> bool:
    """Return whether *seen* is still the state *baseline*.  A null ``last_updated`` equals no other."""
    last = seen.get("last_updated")
    fields = {name: baseline[name] for name in _known_of(wanted, baseline)}
    return last is not None and same(last, baseline.get("last_updated")) and _shows(seen, fields)


def _is_changed(before: Wire, seen: dict[str, Wire], wanted: dict[str, Wire]) -> bool:
    """Return whether two reads show different states of the draft."""
    if not isinstance(before, dict) or before.get("status") != seen.get("status"):
        return False
    fields = {name: seen.get(name) for name in wanted}
    return not same(before.get("last_updated"), seen.get("last_updated")) or not _shows(before, fields)


# --- The create of a webhook


def _created_webhook(known: Known, reading: Reading) -> Finding:
    tagged = [hook for hook in reading.seen if _is_hook(hook) and _bears_our_tag(known, hook)]
    if tagged and is_unique(known.intent.tag):
        return Applied(tagged[0], duplicates=tuple(tagged[1:]))
    candidates = [hook for hook in reading.seen if _may_be_ours(known, reading, hook)]
    equal = [hook for hook in candidates if _is_hook(hook) and _is_exact(known, hook)]
    # Not the sends that a restored journal assumes: at an unknown time, a webhook of anybody would fit.
    timed = [send for send in known.sends if send.latest is not None]
    exact = [
        hook for hook in equal if _is_in_time(known, timed, hook) and hook.get("id") not in reading.guessed
    ]
    if 1 <= len(exact) <= len(known.sends) and all(_surely_after(known, reading, hook) for hook in exact):
        first, *others = sorted(exact, key=lambda hook: hook["created_at"])
        all_told = len(exact) == len(equal) or len(exact) == len(known.sends)
        return Applied(first, duplicates=tuple(others) if all_told else None)
    if candidates:
        return CannotTell(
            f"{len(candidates)} webhook(s) could be this write's or another's",
            candidates=tuple(candidates),
            cause="candidates",
        )
    if reading.full or reading.raw_count >= 100:
        reason = "the list is full and has no cursor, so it may be incomplete"
        return CannotTell(reason, cause="list full")
    return _with_decay(known, reading, Absent())


def _is_hook(item: Wire) -> TypeGuard[dict[str, Any]]:  # Any: wire data
    return isinstance(item, dict)


def _wanted_hook(known: Known) -> dict[str, Wire]:
    return {
        "status": "active",
        **{name: value for name, value in known.intent.body.items() if value is not None},
    }


def _is_exact(known: Known, hook: dict[str, Wire]) -> bool:
    """Return whether *hook* is as requested.  With the tag and the URL, other fields may have been edited."""
    own = _bears_our_tag(known, hook) and _has_our_url(known, hook)
    return own or same_hook(_wanted_hook(known), hook)


def _has_our_url(known: Known, hook: dict[str, Wire]) -> bool:
    url = hook.get("url")
    return not isinstance(url, str) or url_key(url) == url_key(known.intent.body["url"])


def _description(hook: dict[str, Wire]) -> str:
    text = hook.get("description")
    return text if isinstance(text, str) else ""


def _bears_our_tag(known: Known, hook: dict[str, Wire]) -> bool:
    tag, text = known.intent.tag, _description(hook)
    return tag is not None and (text == tag or text.endswith(f" {tag}") or tag in TAG.findall(text))


def _bears_another_tag(known: Known, hook: dict[str, Wire]) -> bool:
    """Return whether *hook* has the tag of another write.  Tags in the requested description do not count."""
    own = TAG.findall(str(known.intent.body.get("description") or ""))
    return any(tag != known.intent.tag and tag not in own for tag in TAG.findall(_description(hook)))


def _may_be_ours(known: Known, reading: Reading, hook: Wire) -> bool:
    """Return whether *hook* is a candidate.  It is one unless a readable field excludes it."""
    if not _is_hook(hook):
        return True
    known_as = hook.get("id")
    if isinstance(known_as, str) and (known_as in reading.claimed_by_others or known_as in known.strangers):
        return False
    if _bears_another_tag(known, hook):
        return False
    if known.when(hook.get("created_at"), reading) == "before":
        return False
    in_time = _is_in_time(known, known.sends, hook)
    if _has_our_url(known, hook) or _bears_our_tag(known, hook):
        return in_time or _is_exact(known, hook)
    # The service may store our URL in other words, unless another write explains the webhook.
    but_for_url = same_hook({**_wanted_hook(known), "url": hook["url"]}, hook)
    return in_time and but_for_url and known_as not in reading.guessed


def _is_in_time(known: Known, sends: list[Sending], hook: dict[str, Wire]) -> bool:
    """
    Return whether *hook* may have been created by the end of the last window of *sends*.

    A webhook that was created later is not attributed to this write.  But if it is equal, it may be a late
    effect, so it disproves absence.
    """
    created_at, ends = hook.get("created_at"), [send.ended_by for send in sends]
    if not is_time(created_at) or None in ends:
        return True
    latest = max((end + send.window for send in sends if (end := send.ended_by) is not None), default=-inf)
    return float(created_at) / 1000 <= latest + known.policy.clock_slack


def _surely_after(known: Known, reading: Reading, hook: dict[str, Wire]) -> bool:
    """Return whether *hook* was certainly created after the first send began, and was not known before."""
    created_at, forgotten = hook.get("created_at"), known.forgotten_until
    if forgotten is not None and not (is_time(created_at) and created_at > forgotten):
        return False
    return known.when(created_at, reading) in ("after", "band")


# --- The update of a webhook


def _updated_webhook(known: Known, reading: Reading) -> Finding:
    baseline, body = known.baseline, known.intent.body
    if reading.status == 404:
        return _gone(known, reading)
    sent = [name for name in HOOK_FIELDS if name in body]
    if not sent:
        return CannotTell("none of the fields sent is visible in a webhook", cause="not visible")
    if _agrees(reading.seen, body, sent):
        differed = baseline is not None and not _agrees(baseline, body, sent)
        return Applied(reading.seen) if differed and _is_current(known, reading) else Holds(reading.seen)
    if not known.is_newest(reading):
        return CannotTell(
            "the webhook does not match the write; a later write of this program may have changed it",
            cause="changed since",
        )
    if baseline is None:
        reason = "the webhook does not match the write, and its state before the write is not known"
        return CannotTell(reason, cause="no baseline")
    seen_before = [before.seen for before in known.earlier(reading) if isinstance(before.seen, dict)]
    if not _agrees(reading.seen, baseline, sent):
        if any(_agrees(before, baseline, sent) for before in seen_before):
            return Superseded("somebody else changed the webhook after the write was sent")
        return CannotTell(
            "the webhook matches neither the write nor its state before the write: somebody else changed it; "
            "whether the write was applied first is unknown",
            cause="changed since",
        )
    if any(not _agrees(before, baseline, sent) for before in seen_before):
        return CannotTell(
            "the webhook is as before the write, but an earlier read showed another state; whether the write "
            "was applied first is unknown",
            cause="changed since",
        )
    if known.decayed(reading):
        return CannotTell(_TOO_LONG_AGO.format(known.policy.absence_within), cause="too long ago")
    return Absent()


def _gone(known: Known, reading: Reading) -> Finding:
    if known.was_gone:
        return Absent()
    if known.is_newest(reading) and any(isinstance(before.seen, dict) for before in known.earlier(reading)):
        return Superseded("the webhook was deleted after the write was sent")
    return CannotTell("the webhook is gone; whether the write was applied first is unknown", cause="gone")


def _is_current(known: Known, reading: Reading) -> bool:
    """Return whether *reading*, which shows the write, shows no state from before it.  Reads may lag."""
    return reading.started >= known.current_from


def _agrees(one: dict[str, Wire], other: dict[str, Wire], names: list[str]) -> bool:
    return all(same_hook_field(name, one.get(name), other.get(name)) for name in names)


# --- The delete of a webhook


def _deleted_webhook(known: Known, reading: Reading) -> Finding:
    if reading.status == 404:
        gone = {"id": known.intent.path.get("id")}
        return Applied(gone) if _is_current(known, reading) else Holds(gone)
    return Absent()


FINDERS: dict[str, Callable[[Known, Reading], Finding]] = {
    "journey": _journey,
    "created_webhook": _created_webhook,
    "updated_webhook": _updated_webhook,
    "deleted_webhook": _deleted_webhook,
}
