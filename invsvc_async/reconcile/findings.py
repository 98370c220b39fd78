"""
What a read of the service's state shows about a write.

There is one function for each way in which a read can show a write: by the time of the last change, by the
state before it, by a list, or by the absence of what was deleted.  Which one judges a write, and by which
fields, is in ``kinds``.  In a list, a create is recognised by its tag, or by candidates: things like it, from
the time of its send.  What follows from a finding (windows, deadlines, re-sends) is in ``decide``.
"""

from __future__ import annotations

import re
from math import inf
from typing import TYPE_CHECKING

from invsvc_async.codec.exact_json import Wire, is_object
from invsvc_async.reconcile import foreign, made_of
from invsvc_async.reconcile.compare import (
    MOST_COMPARED,
    MOST_ROUNDED,
    is_time,
    parts_of,
    rounded,
    same,
)
from invsvc_async.reconcile.differences import Field, differences, digest, is_part, told
from invsvc_async.reconcile.history import (
    Absent,
    Applied,
    CannotTell,
    Finding,
    Holds,
    Partly,
    Reading,
    Superseded,
)
from invsvc_async.reconcile.server_clock import cut_by

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from invsvc_async.reconcile.facts import Known, Sending
    from invsvc_async.reconcile.kinds import Kind, ShownBy


# With `tag=True`, the description ends with this.  The fixed form makes tags of other intents recognisable.
TAG = re.compile(r"\[iv-[a-z2-7]{16}\]")


def is_unique(tag: str | None) -> bool:
    """Return whether *tag* has the fixed form, which is unique to a write; user-supplied text is not."""
    return tag is not None and TAG.fullmatch(tag) is not None


_NOT_THERE = (404, 405, 501)


def _too_long_ago(known: Known) -> CannotTell:
    least = f"the write was sent more than {known.policy.absence_within:g} s ago"
    return CannotTell(
        f"{least}, or at an unknown time: its absence proves nothing",
        cause="too long ago",
    )


def is_evidence(known: Known, reading: Reading) -> bool:
    """Return whether *reading* succeeded.  A failed read is not evidence."""
    if reading.finding is not None:
        return True
    if known.kind.shown_by is None or not reading.own_envelope:
        return False
    if reading.status == 404:
        return known.kind.gone_is_evidence
    return reading.status == 200 and isinstance(
        reading.seen, list if known.kind.creates else dict
    )


def find(known: Known, reading: Reading) -> Finding | Partly:
    """Return what *reading* shows about the write.  It must be evidence."""
    found = known.found.get(id(reading))
    if found is None:
        found = known.found[id(reading)] = _find(known, reading)
    return found


def _find(known: Known, reading: Reading) -> Finding | Partly:
    if reading.finding is not None:
        if (
            isinstance(reading.finding, Absent)
            and known.method != "POST"
            and not known.is_newest(reading)
        ):
            reason = "the write does not show, but a later write of this program may have undone it"
            return CannotTell(reason, cause="perhaps overtaken")
        return _with_decay(known, reading, reading.finding)
    assert known.kind.shown_by is not None
    return _FINDERS[known.kind.shown_by](known, reading)


def _with_decay(known: Known, reading: Reading, finding: Finding) -> Finding:
    """Return *finding*, or CannotTell for an old absence: the resource may have been created and deleted."""
    if isinstance(finding, Absent) and known.kind.creates and known.decayed(reading):
        return _too_long_ago(known)
    return finding


def no_such_read(known: Known, reading: Reading) -> bool:
    """
    Return whether the answer means that the deployment lacks the read.

    It may lack one that the specification does not list.
    """
    if (
        not known.kind.may_lack_read
        or reading.finding is not None
        or reading.status not in _NOT_THERE
    ):
        return False
    return reading.own_envelope or reading.status != 404


# --- An update of what shows the time of its last change


def _by_time_of_change(known: Known, reading: Reading) -> Finding | Partly:
    """Judge an update by the fields that were sent, and by ``last_updated``."""
    seen = reading.seen
    baseline = known.baseline
    kind = known.kind
    if kind.hides is not None and kind.hides(known.policy, seen):
        reason = f"the {kind.thing} is {seen.get('status')!r}: the read may show its published snapshot"
        return CannotTell(reason, cause="may be published")
    wanted = kind.visible(known.intent.body)
    if not wanted:
        reason = (
            f"only nulls were sent, for fields that are never null in a {kind.thing}"
        )
        return CannotTell(reason, cause="not visible")
    if any(parts_of(value) > MOST_COMPARED for value in wanted.values()):
        reason = f"the {kind.thing} is too large to be compared (more than {MOST_COMPARED} nodes and edges)"
        return CannotTell(reason, cause="not visible")
    placed = known.when(seen.get("last_updated"), reading)
    if _same(kind, seen, wanted, wanted):
        written = placed == "after" or _is_written(known, reading, wanted, placed)
        return Applied(seen) if written else Holds(seen)
    if baseline is not None and _is_unchanged(kind, seen, baseline, wanted):
        known_before = {name: wanted[name] for name in _known_of(wanted, baseline)}
        if cut_by(seen["last_updated"]) and not _leaves_trace(
            known, reading, known_before, baseline
        ):
            return _without_trace(known, reading, known_before)
        return Absent()
    if placed == "before" and not _shows_part(known, seen, wanted):
        return Absent()
    if _is_rounded(known, seen, wanted):
        return Holds(seen)
    fields = differences(kind, wanted, baseline, seen)
    earlier = [before.seen for before in known.earlier(reading)]
    changed_since = placed == "after" or any(
        _is_changed(kind, before, seen, wanted) for before in earlier
    )
    if changed_since and _may_be_dated_by_write(fields):
        changed_since = any(
            _is_foreign_since(kind, before, fields) for before in earlier
        )
    return _differing(known, reading, fields, changed_since=changed_since)


def _shows_part(known: Known, seen: dict[str, Wire], wanted: dict[str, Wire]) -> bool:
    """Return whether a part of the write may show: a service that stores a part may not date that."""
    kind = known.kind
    baseline = known.baseline
    if baseline is not None and same(
        seen.get("last_updated"), baseline.get("last_updated")
    ):
        return True  # whatever has changed since the baseline is not dated
    fields = differences(kind, wanted, baseline, seen)
    return any(
        field.was_changed
        and field.shows in ("as sent", "other words", "either")
        and not (
            field.was_known and kind.same_field(field.name, field.before, field.shown)
        )
        for field in fields
    )


def _may_be_dated_by_write(fields: Iterable[Field]) -> bool:
    """
    Return whether the last change may be that of a part of the write, beside foreign values from before it.
    """
    shown = {field.shows for field in fields if field.was_changed}
    return "foreign" in shown and not shown.isdisjoint(
        {"as sent", "other words", "either", "unclear"}
    )


def _is_foreign_since(kind: Kind, before: Wire, fields: Iterable[Field]) -> bool:
    """Return whether the state *before* did not have one of the values that are foreign now."""
    return isinstance(before, dict) and any(
        field.shows == "foreign"
        and not kind.same_field(field.name, before.get(field.name), field.shown)
        for field in fields
    )


def _is_rounded(known: Known, seen: dict[str, Wire], wanted: dict[str, Wire]) -> bool:
    """
    Return whether *seen* shows the write as a service keeps it whose numbers are doubles.

    The state before must have been another one, in such numbers, too.
    """
    kind = known.kind
    baseline = known.baseline
    if baseline is None or any(
        parts_of(value) > MOST_ROUNDED for value in wanted.values()
    ):
        return False
    known_before = _known_of(wanted, baseline)
    if not known_before or not _same(kind, rounded(seen), rounded(wanted), wanted):
        return False
    return not _same(kind, rounded(baseline), rounded(wanted), known_before)


def _differing(
    known: Known, reading: Reading, fields: tuple[Field, ...], *, changed_since: bool
) -> Superseded | CannotTell | Partly:
    """
    Return the finding about an update whose thing shows neither all values sent nor all values before.

    *changed_since*: the thing was certainly changed after the write could have arrived, by whomever.
    """
    thing = known.kind.thing
    differing = [field for field in fields if field.shows != "as sent"]
    is_known = changed_since or any(field.was_known for field in differing)
    if is_known and any(field.shows == "foreign" for field in differing):
        return _foreign(known, reading, fields, changed_since=changed_since)
    if not known.is_newest(reading):
        reason = f"the {thing} does not match the write; a later write of this program may have changed it"
        return CannotTell(f"{reason} ({told(fields)})", cause="perhaps overtaken")
    if not is_known:
        reason = f"the {thing} does not match the write, and its state before the write is not known"
        return CannotTell(f"{reason} ({told(fields)})", cause="no baseline")
    if is_part(fields):
        return Partly(
            f"the {thing} shows a part of the write ({told(fields)})",
            shown=digest([field.name for field in fields], reading.seen),
        )
    if _is_all_as_before(differing):
        since = "was" if changed_since else "may have been"
        reason = f"the {thing} {since} changed after the write was sent, but shows what was there before"
        return CannotTell(f"{reason} ({told(fields)})", cause="perhaps undone")
    reason = f"the {thing} shows other words than the write, which the service may have made of it"
    if any(field.shows == "unclear" for field in differing):
        reason = f"the {thing} shows neither the write nor the state before it"
        reason = f"{reason}; the service may store it in its own words, or another write may have changed it"
    return CannotTell(f"{reason} ({told(fields)})", cause="other words")


def _is_all_as_before(fields: list[Field]) -> bool:
    """Return whether all *fields* show the state before, and at least one certainly not the write."""
    shown = {field.shows for field in fields}
    return "as before" in shown and shown <= {"as before", "either"}


def _foreign(
    known: Known, reading: Reading, fields: tuple[Field, ...], *, changed_since: bool
) -> Superseded | CannotTell:
    """Return what an update means whose thing shows a value that is certainly another writer's."""
    thing = known.kind.thing
    unknown = f"whether the write was applied first is unknown ({told(fields)})"
    if not known.is_newest(reading):
        reason = f"somebody else or a later write of this program changed the {thing}; {unknown}"
        return CannotTell(reason, cause="changed since")
    if changed_since:
        return Superseded(f"somebody else changed the {thing} after the write was sent")
    reason = f"another write changed the {thing} since its state before this one was seen; {unknown}"
    return CannotTell(reason, cause="changed since")


def _same(
    kind: Kind, one: dict[str, Wire], other: dict[str, Wire], names: Iterable[str]
) -> bool:
    return all(kind.same_field(name, one.get(name), other.get(name)) for name in names)


def _is_written(
    known: Known, reading: Reading, wanted: dict[str, Wire], placed: str
) -> bool:
    """Return whether the state, which matches the write, was changed since the baseline."""
    baseline = known.baseline
    if baseline is None:
        return False
    before = baseline.get("last_updated")
    after = reading.seen.get("last_updated")
    if is_time(before) and is_time(after) and after != before:
        # a read that lags, or a change by somebody else
        if after < before or placed == "before":
            return False
        return placed == "band" or _is_current(known, reading)
    names = _known_of(wanted, baseline)
    return _is_current(known, reading) and not _same(
        known.kind, baseline, wanted, names
    )


def _known_of(wanted: dict[str, Wire], baseline: dict[str, Wire]) -> list[str]:
    """Return the names of the fields that *baseline* has.  A stored state may lack a large graph."""
    return [name for name in wanted if name in baseline]


def _is_unchanged(
    kind: Kind,
    seen: dict[str, Wire],
    baseline: dict[str, Wire],
    wanted: dict[str, Wire],
) -> bool:
    """Return whether *seen* is still the state *baseline*.  A null ``last_updated`` equals no other."""
    last = seen.get("last_updated")
    names = _known_of(wanted, baseline)
    return (
        last is not None
        and same(last, baseline.get("last_updated"))
        and _same(kind, seen, baseline, names)
    )


def _is_changed(
    kind: Kind, before: Wire, seen: dict[str, Wire], wanted: dict[str, Wire]
) -> bool:
    """Return whether two reads show different states."""
    if not isinstance(before, dict) or before.get("status") != seen.get("status"):
        return False
    changed = not same(before.get("last_updated"), seen.get("last_updated"))
    return changed or not _same(kind, before, seen, wanted)


# --- A create


def _by_list(known: Known, reading: Reading) -> Finding:
    """Judge a create by its tag, or by what is equal in the list and was made at the time of the send."""
    items = _each_once(known, reading.seen)
    tagged = [item for item in items if is_object(item) and _bears_our_tag(known, item)]
    if tagged and is_unique(known.intent.tag):
        return Applied(tagged[0], duplicates=tuple(tagged[1:]))
    candidates = [item for item in items if _may_be_ours(known, reading, item)]
    matched = _matched(known, reading, candidates)
    if matched is not None:
        return matched
    if candidates:
        return CannotTell(
            f"{len(candidates)} {known.kind.thing}(s) could be this write's or another's",
            candidates=tuple(candidates),
            cause="candidates",
        )
    return _not_listed(known, reading, items)


def _not_listed(known: Known, reading: Reading, items: list[Wire]) -> Finding:
    """Return the finding about a create if none of the listed *items* can be its effect."""
    if reading.full or reading.raw_count >= 100:
        reason = "the list is full and has no cursor, so it may be incomplete"
        return CannotTell(reason, cause="list full")
    if _may_be_hidden(known, items):
        wanted = _wanted(known)[str(known.kind.hidden_by)]
        reason = f"the list shows no {known.kind.thing} that is {wanted}, so it may leave those out"
        return CannotTell(reason, cause="not visible")
    return _with_decay(known, reading, Absent())


def _each_once(known: Known, items: list[Wire]) -> list[Wire]:
    """Return the *items* of a list, each once: an id that is shown twice is one thing."""
    kept: dict[str, Wire] = {}
    others: list[Wire] = []
    for item in items:
        known_as = item.get("id") if is_object(item) else None
        if not isinstance(known_as, str):
            others.append(item)
        elif known_as not in kept or _bears_our_tag(known, item):
            kept[known_as] = item
    return [*kept.values(), *others]


def _matched(
    known: Known, reading: Reading, candidates: list[Wire]
) -> Applied[Wire] | None:
    """Return Applied if the *candidates* that equal the create are as many as it may have made."""
    equal = [item for item in candidates if is_object(item) and _is_exact(known, item)]
    exact = _made_in_time(known, reading, equal)
    if not 1 <= len(exact) <= len(known.sends):
        return None
    if not all(_surely_after(known, reading, item) for item in exact):
        return None
    first, *others = sorted(exact, key=lambda item: item[known.kind.dated_by])
    all_told = len(exact) == len(equal) or len(exact) == len(known.sends)
    return Applied(first, duplicates=tuple(others) if all_told else None)


def _made_in_time(
    known: Known, reading: Reading, equal: list[dict[str, Wire]]
) -> list[dict[str, Wire]]:
    """Return the *equal* items that were made by the end of the windows, and are not another write's."""
    # Not the sends that a restored journal assumes: at an unknown time, a thing of anybody would fit.
    timed = [send for send in known.sends if send.latest is not None]
    return [
        item
        for item in equal
        if _is_in_time(known, timed, item) and item.get("id") not in reading.guessed
    ]


def _may_be_hidden(known: Known, items: list[Wire]) -> bool:
    """Return whether the list may leave out the created thing, because no item has the same status."""
    hidden_by = known.kind.hidden_by
    if hidden_by is None:
        return False
    wanted = _wanted(known).get(hidden_by)
    if wanted == known.kind.defaults[hidden_by]:
        return False
    return not any(is_object(item) and item.get(hidden_by) == wanted for item in items)


def _wanted(known: Known) -> dict[str, Wire]:
    sent = {
        name: value for name, value in known.intent.body.items() if value is not None
    }
    return {**known.kind.defaults, **sent}


def _is_exact(known: Known, item: dict[str, Wire]) -> bool:
    """Return whether *item* is as requested.  With our tag and URL, other fields may have been edited."""
    own = _bears_our_tag(known, item) and _is_alike(known, item)
    return own or known.kind.same(_wanted(known), item)


def _is_alike(known: Known, item: dict[str, Wire]) -> bool:
    """Return whether *item* has our URL, or shows none."""
    return known.kind.alike(item) in (None, known.kind.alike(known.intent.body))


def _description(known: Known, item: dict[str, Wire]) -> str:
    """Return the text of *item* at whose end a tag stands."""
    text = item.get(known.kind.tagged_in)
    return text if isinstance(text, str) else ""


def _bears_our_tag(known: Known, item: dict[str, Wire]) -> bool:
    tag = known.intent.tag
    text = _description(known, item)
    return tag is not None and (
        text == tag or text.endswith(f" {tag}") or tag in TAG.findall(text)
    )


def _may_be_ours(known: Known, reading: Reading, item: Wire) -> bool:
    """
    Return whether *item* is a candidate: it may be new, and nothing explains it.

    Its other fields say nothing, because the service may have stored the create in its own words.  One that
    was made later than this write can have had an effect is a candidate only if it is equal.
    """
    if not is_object(item):
        return True
    if _is_known_from_elsewhere(known, reading, item):
        return False
    if known.when(_made_at(known, item), reading) == "before":
        return False
    in_time = _is_in_time(known, known.sends, item)
    if _is_alike(known, item) or _bears_our_tag(known, item):
        return in_time or _is_exact(known, item)
    # of the URL of another write that is under way or in doubt
    if item.get("id") in reading.guessed:
        return False
    return in_time and _may_be_at_our_place(known, item)


def _may_be_at_our_place(known: Known, item: dict[str, Wire]) -> bool:
    """
    Return whether *item* may have our URL in other words: of the same host, or with all else equal.

    Of the same host, no other field says whose it is: a service may store several in other words, and
    somebody may have edited one.
    """
    kind = known.kind
    url = str(kind.found_by)
    if kind.place_of(item) in (None, kind.place_of(known.intent.body)):
        return True
    return kind.same({**_wanted(known), url: item[url]}, item)


def _is_known_from_elsewhere(
    known: Known, reading: Reading, item: dict[str, Wire]
) -> bool:
    """Return whether *item* is certainly not an effect of this write: another's, or known before."""
    known_as = item.get("id")
    if isinstance(known_as, str) and (
        known_as in reading.claimed_by_others or known_as in known.strangers
    ):
        return True
    # Tags in the requested description are not those of another write.
    own = TAG.findall(_description(known, known.intent.body))
    if any(
        tag != known.intent.tag and tag not in own
        for tag in TAG.findall(_description(known, item))
    ):
        return True
    return _lacks_our_tag(known, item) and _keeps_tags(known, reading)


def _lacks_our_tag(known: Known, item: dict[str, Wire]) -> bool:
    """
    Return whether *item* shows no trace of the tag of this write, nor of the text sent before it.

    A service may keep one tag and mask, cut or fold another, as it does with texts.
    """
    sent = _description(known, known.intent.body)
    shown = _description(known, item)
    if _bears_our_tag(known, item):
        return False
    return not shown or (foreign.text(sent, shown) and not made_of.text(sent, shown))


def _keeps_tags(known: Known, reading: Reading) -> bool:
    """
    Return whether this write has a unique tag, and the service provably keeps such a tag and lists it.

    That is so if a list showed one, in a description at least as long: a shorter one would not have been cut.
    A description with a "<" may lose all that follows, if the service removes markup.
    """
    if not is_unique(known.intent.tag):
        return False
    sent = _description(known, known.intent.body)
    if "<" in sent:
        return False
    lists = [
        event
        for event in known.history
        if isinstance(event, Reading) and known.shows_list(event)
    ]
    items = (
        item for each in (*lists, reading) for item in each.seen if is_object(item)
    )
    shown = (_description(known, item) for item in items)
    return any(len(text) >= len(sent) and TAG.search(text) for text in shown)


def _made_at(known: Known, item: dict[str, Wire]) -> Wire:
    """Return when *item* was made, in server ms, if it shows that."""
    return item.get(known.kind.dated_by)


def _is_in_time(known: Known, sends: list[Sending], item: dict[str, Wire]) -> bool:
    """
    Return whether *item* may have been created by the end of the last window of *sends*.

    A webhook that was created later is not attributed to this write.  But if it is equal, it may be a late
    effect, so it disproves absence.
    """
    made_at = _made_at(known, item)
    ends = [send.ended_by + send.window for send in sends if send.ended_by is not None]
    if not is_time(made_at) or len(ends) < len(sends):
        return True
    latest = max(ends, default=-inf)
    return float(made_at) / 1000 <= latest + known.policy.clock_slack


def _surely_after(known: Known, reading: Reading, item: dict[str, Wire]) -> bool:
    """Return whether *item* was certainly created after the first send began, and was not known before."""
    made_at = _made_at(known, item)
    forgotten = known.forgotten_until
    if forgotten is not None and not (is_time(made_at) and made_at > forgotten):
        return False
    return known.when(made_at, reading) in ("after", "band")


# --- An update of what shows no such time


def _by_baseline(known: Known, reading: Reading) -> Finding | Partly:
    """Judge an update by the state before it."""
    baseline = known.baseline
    kind = known.kind
    if reading.status == 404:
        return _gone(known, reading)
    body = known.intent.body
    thing = kind.thing
    sent = kind.visible(body)
    if not sent:
        return CannotTell(
            f"none of the fields sent is visible in a {thing}", cause="not visible"
        )
    if _same(kind, reading.seen, body, sent):
        differed = baseline is not None and not _same(kind, baseline, body, sent)
        return (
            Applied(reading.seen)
            if differed and _is_current(known, reading)
            else Holds(reading.seen)
        )
    seen_before = [
        before.seen
        for before in known.earlier(reading)
        if isinstance(before.seen, dict)
    ]
    as_before = baseline is not None and _same(kind, reading.seen, baseline, sent)
    if baseline is None or not as_before or not known.is_newest(reading):
        was_as_before = baseline is not None and any(
            _same(kind, before, baseline, sent) for before in seen_before
        )
        fields = differences(kind, sent, baseline, reading.seen)
        return _differing(
            known, reading, fields, changed_since=was_as_before and not as_before
        )
    if any(not _same(kind, before, baseline, sent) for before in seen_before):
        reason = (
            f"the {thing} is as before the write, but an earlier read showed another state; whether the "
            "write was applied first is unknown"
        )
        return CannotTell(reason, cause="perhaps undone")
    if not _leaves_trace(known, reading, sent, baseline):
        return _without_trace(known, reading, sent)
    if known.decayed(reading):
        return _too_long_ago(known)
    return Absent()


def _leaves_trace(
    known: Known, reading: Reading, sent: dict[str, Wire], baseline: dict[str, Wire]
) -> bool:
    """
    Return whether the write would have changed the state *baseline*, whatever the service makes of it.

    A state that an equal write has left is already what the service makes of what is sent.
    """
    kind = known.kind
    return any(
        not kind.same_field(name, value, baseline.get(name))
        and (
            not kind.is_made_of(name, value, baseline.get(name))
            or made_of.would_show(
                value, baseline.get(name), reading.longest_texts.get(name, 0)
            )
        )
        for name, value in sent.items()
    )


def _without_trace(known: Known, reading: Reading, sent: dict[str, Wire]) -> CannotTell:
    fields = told(differences(known.kind, sent, known.baseline, reading.seen))
    reason = f"the {known.kind.thing} is as before the write, in words that the service may have for it"
    return CannotTell(
        f"{reason}, so the write leaves no trace ({fields})", cause="not visible"
    )


def _gone(known: Known, reading: Reading) -> Finding:
    if known.was_gone:
        return Absent()
    if known.is_newest(reading) and any(
        isinstance(before.seen, dict) for before in known.earlier(reading)
    ):
        return Superseded(
            f"the {known.kind.thing} was deleted after the write was sent"
        )
    reason = f"the {known.kind.thing} is gone; whether the write was applied first is unknown"
    return CannotTell(reason, cause="gone")


def _is_current(known: Known, reading: Reading) -> bool:
    """Return whether *reading*, which shows the write, shows no state from before it.  Reads may lag."""
    return reading.started >= known.current_from


# --- A delete


def _by_absence(known: Known, reading: Reading) -> Finding:
    """Judge a delete by whether the thing is still there."""
    if reading.status == 404:
        gone = {"id": known.intent.path.get("id")}
        return Applied(gone) if _is_current(known, reading) else Holds(gone)
    return Absent()


_FINDERS: dict[ShownBy, Callable[[Known, Reading], Finding | Partly]] = {
    "time of change": _by_time_of_change,
    "baseline": _by_baseline,
    "list": _by_list,
    "absence": _by_absence,
}
