"""
Judge one look at the service's state: does it show this write?  Pure; never windows, deadlines or re-sends.

One function an operation, by the name in the table's ``finder``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, TypeGuard

from invsvc_async.reconcile.evidence import Absent, Applied, CannotTell, Holds, Superseded, Wire
from invsvc_async.reconcile.known import is_time
from invsvc_async.reconcile.same import HOOK_FIELDS, normal_url, same, same_graph, same_hook, same_hook_field

if TYPE_CHECKING:
    from collections.abc import Callable

    from invsvc_async.reconcile.evidence import Finding, Reading
    from invsvc_async.reconcile.known import Known

__all__ = ["FINDERS", "find", "is_evidence"]

# `tag=True` ends the description with this; the fixed form lets another intent's tag be recognised.
TAG = re.compile(r"\[iv-[a-z2-7]{16}\]")


def is_unique(tag: str | None) -> bool:
    """Tell a tag of the fixed form, which no other write bears, from a text of the caller's own, or none."""
    return tag is not None and TAG.fullmatch(tag) is not None


# A Journey never shows these as null: a null that was sent for them has no trace to look for.
_NEVER_NULL = ("graph", "triggerType", "replacesDefaults")

_NOT_THERE = (404, 405, 501)

_TOO_LONG_AGO = "the write was sent more than {:g} s ago, or nobody knows when: its absence proves nothing"


def is_evidence(known: Known, reading: Reading) -> bool:
    """Tell whether *reading* succeeded: a failed read is no evidence of anything."""
    if reading.finding is not None:
        return True
    if known.operation.finder is None or not reading.own_envelope:
        return False
    if reading.status == 404:
        return known.operation.finder in ("updated_webhook", "deleted_webhook")
    wanted: type = list if known.operation.finder == "created_webhook" else dict
    return reading.status == 200 and isinstance(reading.seen, wanted)


def find(known: Known, reading: Reading) -> Finding:
    """Tell what *reading*, which is evidence, shows of the write."""
    if reading.finding is not None:
        return _with_decay(known, reading, reading.finding)
    assert known.operation.finder is not None
    return FINDERS[known.operation.finder](known, reading)


def _with_decay(known: Known, reading: Reading, finding: Finding) -> Finding:
    """Let absence prove nothing after too long: the thing may have come and gone."""
    if isinstance(finding, Absent) and known.operation.finder == "created_webhook" and known.decayed(reading):
        return CannotTell(_TOO_LONG_AGO.format(known.policy.absence_within))
    return finding


def no_such_read(known: Known, reading: Reading) -> bool:
    """
    Tell whether the answer means that the deployment has no read of journeys, which the specification does
    not list.
    """
    if known.operation.finder != "journey" or reading.finding is not None or reading.status not in _NOT_THERE:
        return False
    return reading.own_envelope or reading.status != 404


# --- The update of a journey


def _journey(known: Known, reading: Reading) -> Finding:
    seen, baseline = reading.seen, known.baseline
    if seen.get("status") != "draft" and not known.policy.journey_reads_show_drafts:
        return CannotTell(f"the journey is {seen.get('status')!r}: the read may show its published snapshot")
    wanted = {
        name: value
        for name, value in known.intent.body.items()
        if value is not None or name not in _NEVER_NULL
    }
    if not wanted:
        return CannotTell("only nulls were sent, for fields that a journey never shows as null")
    placed = known.when(seen.get("last_updated"))
    if _shows(seen, wanted):
        changed = baseline is not None and not _shows(baseline, wanted)
        return Applied(seen) if changed or placed == "after" else Holds(seen)
    if placed == "before" or _same_time(seen, baseline):
        return Absent()
    if placed in ("after", "band"):
        return Superseded("the journey was changed after the write was sent, and differs from it")
    return CannotTell("the journey differs, and its last_updated cannot be placed against the send")


def _shows(journey: dict[str, Wire], wanted: dict[str, Wire]) -> bool:
    return all(
        (same_graph if name == "graph" else same)(value, journey.get(name)) for name, value in wanted.items()
    )


def _same_time(seen: dict[str, Wire], baseline: Wire) -> bool:
    """Null equals no time, not even null."""
    last = seen.get("last_updated")
    return baseline is not None and last is not None and same(last, baseline.get("last_updated"))


# --- The create of a webhook


def _created_webhook(known: Known, reading: Reading) -> Finding:
    tagged = [hook for hook in reading.seen if _is_hook(hook) and _bears_our_tag(known, hook)]
    if tagged and is_unique(known.intent.tag):
        return Applied(tagged[0], duplicates=tuple(tagged[1:]))
    candidates = [hook for hook in reading.seen if _may_be_ours(known, reading, hook)]
    exact = [hook for hook in candidates if _is_hook(hook) and _is_exact(known, hook)]
    if 1 <= len(exact) <= len(known.sends) and all(_surely_after(known, hook) for hook in exact):
        first, *others = sorted(exact, key=lambda hook: hook["created_at"])
        return Applied(first, duplicates=tuple(others))
    if candidates:
        return CannotTell(f"{len(candidates)} webhook(s) could be ours", candidates=tuple(candidates))
    if reading.full or reading.raw_count >= 100:
        return CannotTell("the list is full and has no cursor, so it may be cut off")
    return _with_decay(known, reading, Absent())


def _is_hook(item: Wire) -> TypeGuard[dict[str, Any]]:  # Any: wire data
    return isinstance(item, dict)


def _wanted_hook(known: Known) -> dict[str, Wire]:
    return {
        "status": "active",
        **{name: value for name, value in known.intent.body.items() if value is not None},
    }


def _is_exact(known: Known, hook: dict[str, Wire]) -> bool:
    """Tell whether it is as it was asked for; what bears the caller's own text may have been edited."""
    own = _bears_our_tag(known, hook) and _has_our_url(known, hook)
    return own or same_hook(_wanted_hook(known), hook)


def _has_our_url(known: Known, hook: dict[str, Wire]) -> bool:
    url = hook.get("url")
    return not isinstance(url, str) or normal_url(url) == normal_url(known.intent.body["url"])


def _description(hook: dict[str, Wire]) -> str:
    text = hook.get("description")
    return text if isinstance(text, str) else ""


def _bears_our_tag(known: Known, hook: dict[str, Wire]) -> bool:
    tag, text = known.intent.tag, _description(hook)
    return tag is not None and (text == tag or text.endswith(f" {tag}") or tag in TAG.findall(text))


def _bears_another_tag(known: Known, hook: dict[str, Wire]) -> bool:
    """Recognise a tag by its fixed form; one that the caller wrote into the body is not another's."""
    own = TAG.findall(str(known.intent.body.get("description") or ""))
    return any(tag != known.intent.tag and tag not in own for tag in TAG.findall(_description(hook)))


def _may_be_ours(known: Known, reading: Reading, hook: Wire) -> bool:
    """Let an item be a candidate unless something about it that can be read excludes it."""
    if not _is_hook(hook):
        return True
    known_as = hook.get("id")
    if isinstance(known_as, str) and (known_as in reading.claimed_by_others or known_as in known.strangers):
        return False
    if _bears_another_tag(known, hook):
        return False
    if not _has_our_url(known, hook) and not _bears_our_tag(known, hook):
        return False
    return _created_within(known, hook.get("created_at"))


def _created_within(known: Known, created_at: Wire) -> bool:
    """Tell whether *created_at* may lie between the first send and the end of the last window."""
    if known.when(created_at) == "before":
        return False
    ends = [send.ended_by for send in known.sends]
    if not is_time(created_at) or None in ends:
        return True
    latest = max(end + send.window for send in known.sends if (end := send.ended_by) is not None)
    return float(created_at) / 1000 <= latest + known.policy.clock_slack


def _surely_after(known: Known, hook: dict[str, Wire]) -> bool:
    return known.when(hook.get("created_at")) in ("after", "band")


# --- The update of a webhook


def _updated_webhook(known: Known, reading: Reading) -> Finding:
    baseline, body = known.baseline, known.intent.body
    if reading.status == 404:
        return (
            Superseded("the webhook is gone") if baseline else CannotTell("the webhook is gone, or never was")
        )
    sent = [name for name in HOOK_FIELDS if name in body]
    if not sent:
        return CannotTell("no field was sent that a webhook shows")
    if _agrees(reading.seen, body, sent):
        differed = baseline is not None and not _agrees(baseline, body, sent)
        return Applied(reading.seen) if differed else Holds(reading.seen)
    if baseline is None:
        return CannotTell("the webhook differs, and its state from before the write is not known")
    if not _agrees(reading.seen, baseline, sent):
        return Superseded("the webhook shows neither its state from before the write nor the one written")
    if known.decayed(reading):
        return CannotTell(_TOO_LONG_AGO.format(known.policy.absence_within))
    return Absent()


def _agrees(one: dict[str, Wire], other: dict[str, Wire], names: list[str]) -> bool:
    return all(same_hook_field(name, one.get(name), other.get(name)) for name in names)


# --- The delete of a webhook


def _deleted_webhook(known: Known, reading: Reading) -> Finding:
    if reading.status == 404:
        return Applied({"id": known.intent.path.get("id")})
    return Absent()


FINDERS: dict[str, Callable[[Known, Reading], Finding]] = {
    "journey": _journey,
    "created_webhook": _created_webhook,
    "updated_webhook": _updated_webhook,
    "deleted_webhook": _deleted_webhook,
}
