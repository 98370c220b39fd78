"""
What a read of the service's state shows about a write.

There is one function for each way in which a read can show a write: by the time of the last change, by the
state before it, by a list, or by the absence of what was deleted.  Which one judges a write, and by which
fields, is in ``kinds``.  In a list, a create is recognised by its tag, or by candidates: things like it, from
the time of its send.  What follows from a finding (windows, deadlines, re-sends) is in ``decide``.
"""

from __future__ import annotations

import html
import re
from collections import Counter
from functools import partial
from math import inf
from typing import TYPE_CHECKING, TypeGuard

from invsvc_async.codec.exact_json import Wire, is_object
from invsvc_async.reconcile import foreign, made_of
from invsvc_async.reconcile.before_send import is_whole, shows_list
from invsvc_async.reconcile.compare import (
    MOST_COMPARED,
    MOST_ROUNDED,
    is_time,
    parts_of,
    rounded,
    same,
)
from invsvc_async.reconcile.differences import (
    OF_THE_WRITE,
    Field,
    differences,
    digest,
    is_part,
    told,
)
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
from invsvc_async.reconcile.turn import is_newest, is_overtaken

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from invsvc_async.reconcile.facts import Known
    from invsvc_async.reconcile.history import Cause, Event
    from invsvc_async.reconcile.kinds import ShownBy, WriteKind
    from invsvc_async.reconcile.settle_windows import Placed, SendTimes


# With `tag=True`, the tagged text ends with this.  The fixed form makes tags of other intents recognisable.
TAG = re.compile(r"\[iv-[a-z2-7]{16}\]")
# The statuses that a deployment answers to a read that it lacks.
_NOT_THERE = (404, 405, 501)


def is_unique(tag: str | None) -> bool:
    """Return whether *tag* has the fixed form, which is unique to a write; user-supplied text is not."""
    return tag is not None and TAG.fullmatch(tag) is not None


def _too_long_ago(known: Known) -> CannotTell:
    within = known.policy.absence_within
    return CannotTell(
        f"the write was sent more than {within:g} s ago, or at an unknown time: its absence proves nothing",
        cause="too long ago",
    )


def evidence_in(known: Known, event: Event | None) -> Reading | None:
    """Return *event* if it is a reading that is evidence."""
    if not isinstance(event, Reading):
        return None
    if is_evidence(known, event):
        return event
    return None


def is_evidence(known: Known, reading: Reading) -> bool:
    """
    Return whether *reading* succeeded, so that presence and absence in it count.

    It has a finding of the user's reader, or shows the thing, or the list, in its shape; or it shows that the
    thing is gone, where that says something about this kind of write.
    """
    if reading.finding is not None:
        return True
    if known.kind.shown_by is None or not reading.own_envelope:
        return False
    if reading.status == 404:
        return known.kind.gone_is_evidence
    if reading.status != 200:
        return False
    shape = list if known.kind.creates else dict
    return isinstance(reading.seen, shape)


def find(known: Known, reading: Reading) -> Finding | Partly:
    """Return what *reading* shows about the write.  It must be evidence."""
    found = known.found.get(id(reading))
    if found is None:
        found = known.found[id(reading)] = _find(known, reading)
    return found


def _find(known: Known, reading: Reading) -> Finding | Partly:
    if reading.finding is not None:
        return _by_own_reader(known, reading, reading.finding)
    assert known.kind.shown_by is not None
    return _FINDERS[known.kind.shown_by](known, reading)


def _by_own_reader(
    known: Known,
    reading: Reading,
    finding: Finding,
) -> Finding:
    """Return the *finding* of a user-supplied reader, unless it concludes more than it can know."""
    if not isinstance(finding, Absent):
        return finding
    if known.method != "POST" and not is_newest(known, reading):
        reason = "the write does not show, but a later write of this program may have undone it"
        return CannotTell(reason, cause="perhaps overtaken")
    return _absent_create(known, reading) if known.method == "POST" else finding


def _absent_create(known: Known, reading: Reading) -> Absent | CannotTell:
    """Return Absent, or CannotTell long after the send: the thing may have been created and deleted."""
    if decayed(known, reading):
        return _too_long_ago(known)
    return Absent()


def decayed(known: Known, reading: Reading) -> bool:
    """Return whether the first send is so long ago, or its time unknown, that absence proves nothing."""
    within = known.policy.absence_within
    first_sent = known.windows.first_sent
    if first_sent is not None:
        return reading.ended - first_sent > within
    first = known.windows.carried[0].earliest
    bounds = known.clock.bounds
    if first is None or bounds is None:
        return True
    return reading.ended + bounds.high - first > within


def no_such_read(known: Known, reading: Reading) -> bool:
    """
    Return whether the answer means that the deployment lacks the read.

    It may lack one that the specification does not list.
    """
    if reading.finding is not None:
        return False
    if not known.kind.may_lack_read:
        return False
    if reading.status not in _NOT_THERE:
        return False
    # A 404 of a gateway may be that of a wrong path.
    return reading.own_envelope or reading.status != 404


# --- An update of what shows the time of its last change


def _by_time_of_change(known: Known, reading: Reading) -> Finding | Partly:
    """
    Judge an update by the fields that were sent, and by the time of the last change.

    A state that may hide the written one, or that cannot be compared, tells nothing.  The others are judged
    in this order:

    1. It matches the write: the question is whether it did so before.
    2. It is still the baseline: the write is absent.
    3. It was changed last before the send, and no part of the write shows: the write is absent.
    4. It matches the write in rounded numbers, and did not before: it is the write, in the service's form.
    5. Any other may show a part of the write, the write in the service's own words, or a foreign change.
    """
    kind = known.kind
    seen = reading.seen
    if kind.thing.hides is not None and kind.thing.hides(known.policy, seen):
        status = seen.get(kind.status_in)
        reason = f"the {kind.thing.name} is {status!r}: the read may show its published snapshot"
        return CannotTell(reason, cause="may be published")
    wanted = kind.thing.visible(known.intent.body)
    if not wanted:
        reason = f"only nulls were sent, for fields that are never null in a {kind.thing.name}"
        return CannotTell(reason, cause="not visible")
    if any(parts_of(value) > MOST_COMPARED for value in wanted.values()):
        reason = (
            f"the {kind.thing.name} is too large to be compared (more than {MOST_COMPARED} nodes and "
            "edges)"
        )
        return CannotTell(reason, cause="not visible")
    placed = known.windows.when(seen.get(kind.changed_at), reading)
    if _has_all(kind, seen, wanted):
        return _matching(known, reading, wanted, placed)
    if known.baseline is not None and _is_unchanged(known, seen, wanted):
        return _unchanged(known, reading, wanted, placed)
    if placed == "before" and not _shows_part(known, seen, wanted):
        return Absent()
    if _is_rounded(known, seen, wanted):
        return Holds(seen)
    fields = differences(kind, wanted, known.baseline, seen)
    changed_since = _was_changed_since(known, reading, fields, placed)
    return _differing(known, reading, fields, changed_since=changed_since)


def _matching(
    known: Known,
    reading: Reading,
    wanted: dict[str, Wire],
    placed: Placed,
) -> Applied[Wire] | Holds[Wire]:
    """
    Return Applied if the state, which matches the write, was made by it; else Holds.

    Where the state before matched as well, a later change may be that of another field, by somebody else, and
    the write may still be under way.
    """
    if _may_have_matched_before(known, wanted):
        return Holds(reading.seen)
    if placed == "after":
        return Applied(reading.seen)
    if _has_changed_since_baseline(known, reading, wanted, placed):
        return Applied(reading.seen)
    return Holds(reading.seen)


def _may_have_matched_before(known: Known, wanted: dict[str, Wire]) -> bool:
    """Return whether the state before the write, as far as it is known, had all values that are wanted."""
    kind = known.kind
    baseline = known.baseline
    if baseline is None:
        return False
    lacking = _large_field(kind, wanted, baseline)
    return _same_fields(kind, baseline, wanted, wanted.keys() - lacking.keys())


def _has_changed_since_baseline(
    known: Known,
    reading: Reading,
    wanted: dict[str, Wire],
    placed: Placed,
) -> bool:
    """
    Return whether the state, which matches the write, certainly came about after the baseline.

    ==========================================  =====================================================
    the time of change, where both show one     it came about after the baseline
    ==========================================  =====================================================
    earlier than that of the baseline           no: the read lags
    later, but before the send                  no: somebody else changed the thing
    later, in the band around the send          if by more than the slack, or if the read is current: a host
                                                whose clock is ahead may have dated a state that is older
    later, and not comparable with the send     if the read is current: one that lags may show a change
                                                from before the send
    equal, or one of them shows none            if the read is current, and the baseline had other values
    ==========================================  =====================================================
    """
    kind = known.kind
    baseline = known.baseline
    if baseline is None:
        return False
    before = baseline.get(kind.changed_at)
    after = reading.seen.get(kind.changed_at)
    if is_time(before) and is_time(after) and after != before:
        if after < before:
            return False  # a read that lags
        if placed == "before":
            return False  # a change by somebody else
        later_by = float(after) - float(before)  # ms
        is_surely_later = later_by > 1000 * known.policy.clock_slack
        if placed == "band" and is_surely_later:
            return True
        return _is_current(known, reading)
    if not _is_current(known, reading):
        return False
    return not _same_fields(kind, baseline, wanted, _names_in(wanted, baseline))


def _is_unchanged(
    known: Known,
    seen: dict[str, Wire],
    wanted: dict[str, Wire],
) -> bool:
    """
    Return whether *seen* is still the baseline, and what the baseline leaves out does not show the write.

    A state without a time of change may be a later one.
    """
    kind = known.kind
    baseline = known.baseline
    last = seen.get(kind.changed_at)
    if last is None:
        return False
    if not same(last, baseline.get(kind.changed_at)):
        return False
    if not _same_fields(kind, seen, baseline, _names_in(wanted, baseline)):
        return False
    lacking = _large_field(kind, wanted, baseline)
    fields = differences(kind, lacking, baseline, seen)
    return not any(_may_show_write(kind, field) for field in fields)


def _large_field(
    kind: WriteKind,
    wanted: dict[str, Wire],
    baseline: dict[str, Wire],
) -> dict[str, Wire]:
    """Return the field of those sent that *baseline* leaves out because it is large, if there is one."""
    name = kind.thing.large
    if name not in wanted or name in baseline:
        return {}
    return {name: wanted[name]}


def _unchanged(
    known: Known,
    reading: Reading,
    wanted: dict[str, Wire],
    placed: Placed,
) -> Absent | CannotTell:
    """
    Return Absent, because the state is still the baseline, if the write would have changed it.

    It would have changed the time, if that is certainly from before the send.  Otherwise two changes may show
    the same time: those of one millisecond, or of one minute where times are cut to the minute.  The write is
    absent then if it would show in the values.  Those of fields that the baseline lacks may be somebody
    else's, later than the write, unless it was all in one millisecond.  And where a later change may have the
    same time, the values may have been brought back, as those of a thing without such a time.
    """
    if placed == "before":
        return Absent()
    seen = reading.seen
    if not _leaves_trace(known, reading, wanted, seen):
        return _without_trace(known, reading, wanted)
    if known.windows.is_exact(seen[known.kind.changed_at], reading):
        return Absent()
    known_before = {name: wanted[name] for name in _names_in(wanted, known.baseline)}
    undone = _perhaps_brought_back(known, reading, known_before)
    if undone is not None:
        return undone
    if _leaves_trace(known, reading, known_before, seen):
        return Absent()
    fields = told(differences(known.kind, wanted, known.baseline, seen))
    thing = known.kind.thing.name
    reason = f"the {thing} shows the time of change of before the write, which a later change may have too"
    return CannotTell(f"{reason} ({fields})", cause="not visible")


def _perhaps_brought_back(
    known: Known,
    reading: Reading,
    wanted: dict[str, Wire],
) -> CannotTell | None:
    """Return CannotTell if the baseline, which *reading* shows, may have been brought back since."""
    thing = known.kind.thing.name
    if not is_newest(known, reading):
        reason = (
            f"the {thing} is as before the write, but a later write of this program may have changed it "
            "back"
        )
        return CannotTell(reason, cause="perhaps overtaken")
    earlier = _earlier_states(known, reading)
    if not all(_is_as_baseline(known, before, wanted) for before in earlier):
        return _seen_otherwise(known)
    if decayed(known, reading):
        return _too_long_ago(known)
    return None


def _seen_otherwise(known: Known) -> CannotTell:
    """Return CannotTell: the thing is as before the write, but an earlier read showed it otherwise."""
    reason = (
        f"the {known.kind.thing.name} is as before the write, but an earlier read showed another state; "
        "whether the write was applied first is unknown"
    )
    return CannotTell(reason, cause="perhaps undone")


def _shows_part(
    known: Known,
    seen: dict[str, Wire],
    wanted: dict[str, Wire],
) -> bool:
    """
    Return whether a part of the write may show, although the last change is dated before the send.

    A service that stores an update in part may leave the time of the last change as it was.
    """
    kind = known.kind
    baseline = known.baseline
    if baseline is not None and same(
        seen.get(kind.changed_at), baseline.get(kind.changed_at)
    ):
        return True  # the time is that of the baseline, so whatever has changed since is not dated
    fields = differences(kind, wanted, baseline, seen)
    return any(_may_show_write(kind, field) for field in fields)


def _may_show_write(kind: WriteKind, field: Field) -> bool:
    """Return whether *field* may show the write, and shows another value than before."""
    if not field.was_changed:
        return False
    if field.shows not in OF_THE_WRITE:
        return False
    if not field.was_known:
        return True
    return not kind.thing.same_field(field.name, field.before, field.shown)


def _was_changed_since(
    known: Known,
    reading: Reading,
    fields: tuple[Field, ...],
    placed: Placed,
) -> bool:
    """
    Return whether the thing was certainly changed after the write could have arrived, by whomever.

    The time of the change says so, or an earlier read that showed another state.

    The time may be that of a part of the write.  It is then no proof for the values of somebody else beside
    that part, which may have been there before.  Say that ``name`` shows the write, and ``notes`` a foreign
    value: that ``notes`` was changed since is certain only if an earlier read showed other ``notes``.
    """
    kind = known.kind
    seen = reading.seen
    names = [field.name for field in fields]
    earlier = _earlier_states(known, reading)
    is_changed_since = placed == "after" or any(
        _shows_change(kind, before, seen, names) for before in earlier
    )
    if not is_changed_since:
        return False
    may_be_changed_by_write = _may_have_time_of_write(fields)
    if may_be_changed_by_write:
        return any(_is_foreign_since(kind, before, fields) for before in earlier)
    return True


def _earlier_states(known: Known, reading: Reading) -> list[dict[str, Wire]]:
    """Return the states of the thing that earlier reads showed, since the first send could show in them."""
    states = [before.seen for before in _readings_before(known, reading)]
    return [state for state in states if isinstance(state, dict)]


def _readings_before(known: Known, reading: Reading) -> Iterator[Reading]:
    """Yield the readings before *reading* that show no state older than the first send."""
    since = known.windows.sends[0].began + known.policy.reads_lag
    for event in known.history:
        if event is reading:
            return
        if isinstance(event, Reading) and event.started >= since:
            yield event


def _shows_change(
    kind: WriteKind,
    before: dict[str, Wire],
    seen: dict[str, Wire],
    names: Iterable[str],
) -> bool:
    """Return whether two reads show different states of one version: not a draft and what is published."""
    if before.get(kind.status_in) != seen.get(kind.status_in):
        return False
    if not same(before.get(kind.changed_at), seen.get(kind.changed_at)):
        return True
    return not _same_fields(kind, before, seen, names)


def _may_have_time_of_write(fields: Iterable[Field]) -> bool:
    """
    Return whether a part of the write may have the time of the last change, beside foreign values.

    That part may have been so before: a service may date a change that changes nothing.
    """
    shown = {field.shows for field in fields}
    if "foreign" not in shown:
        return False
    return not shown.isdisjoint({*OF_THE_WRITE, "unclear"})


def _is_foreign_since(
    kind: WriteKind,
    before: dict[str, Wire],
    fields: Iterable[Field],
) -> bool:
    """Return whether the state *before* did not have one of the values that are foreign now."""
    foreign_now = [field for field in fields if field.shows == "foreign"]
    return any(
        not kind.thing.same_field(field.name, before.get(field.name), field.shown)
        for field in foreign_now
    )


def _is_rounded(
    known: Known,
    seen: dict[str, Wire],
    wanted: dict[str, Wire],
) -> bool:
    """
    Return whether *seen* shows the write, and did not before, if numbers are compared as doubles.

    A service that keeps numbers as doubles shows a number of many digits with other digits.
    """
    kind = known.kind
    baseline = known.baseline
    if baseline is None:
        return False
    if any(parts_of(value) > MOST_ROUNDED for value in wanted.values()):
        return False
    known_before = _names_in(wanted, baseline)
    if not known_before:
        return False
    as_stored = rounded(wanted)
    if not _has_all(kind, rounded(seen), as_stored):
        return False
    return not _same_fields(kind, rounded(baseline), as_stored, known_before)


def _differing(
    known: Known,
    reading: Reading,
    fields: tuple[Field, ...],
    *,
    changed_since: bool,
) -> Superseded | CannotTell | Partly:
    """
    Return the finding about an update whose thing does not show all values sent.

    *changed_since*: the thing was certainly changed after the write could have arrived, by whomever.

    What the fields show is explained in ``differences``.  The cases, of which the first counts:

    1. A value is certainly somebody else's (``_foreign``).
    2. A later write of this program may have changed the thing.
    3. Neither the value before of any field that differs is known, nor that the thing was changed since
       (``not is_known``): any value may have been there.
    4. The write is stored in part.
    5. All fields are as before: the write was undone, or never applied.
    6. A field has a value that may be the write's, in the service's own words.
    """
    thing = known.kind.thing.name
    differing = [field for field in fields if field.shows != "as sent"]
    shown = {field.shows for field in differing}
    is_known = changed_since or any(field.was_known for field in differing)
    if is_known and "foreign" in shown:
        return _foreign(known, reading, fields, changed_since=changed_since)
    if not is_newest(known, reading):
        reason = f"the {thing} does not match the write; a later write of this program may have changed it"
        return _cannot_tell(reason, fields, "perhaps overtaken")
    if not is_known:
        not_there = "it was not there before the write"
        not_known = "its state before the write is not known"
        before = not_there if known.was_gone else not_known
        reason = f"the {thing} does not match the write, and {before}"
        return _cannot_tell(reason, fields, "no baseline")
    if is_part(fields):
        return Partly(
            f"the {thing} shows a part of the write ({told(fields)})",
            shown=digest([field.name for field in fields], reading.seen),
        )
    if "as before" in shown and shown <= {"as before", "either"}:
        since = "was" if changed_since else "may have been"
        reason = f"the {thing} {since} changed after the write was sent, but shows what was there before"
        return _cannot_tell(reason, fields, "perhaps undone")
    if "unclear" in shown:
        reason = (
            f"the {thing} shows neither the write nor the state before it; the service may store it in its "
            "own words, or another write may have changed it"
        )
        return _cannot_tell(reason, fields, "other words")
    reason = f"the {thing} shows other words than the write, which the service may have made of it"
    return _cannot_tell(reason, fields, "other words")


def _cannot_tell(
    reason: str,
    fields: Iterable[Field],
    cause: Cause,
) -> CannotTell:
    """Return CannotTell, for a *reason* that is told with the fields that differ."""
    return CannotTell(f"{reason} ({told(fields)})", cause=cause)


def _foreign(
    known: Known,
    reading: Reading,
    fields: tuple[Field, ...],
    *,
    changed_since: bool,
) -> Superseded | CannotTell:
    """Return what an update means whose thing shows a value that is certainly another writer's."""
    thing = known.kind.thing.name
    unknown = f"whether the write was applied first is unknown ({told(fields)})"
    if not (changed_since or is_overtaken(known)):
        # perhaps an earlier write of this program, which was in doubt then
        reason = f"another write changed the {thing} since its state before this one was seen; {unknown}"
        return CannotTell(reason, cause="changed since")
    if not is_newest(known, reading):
        reason = f"somebody else or a later write of this program changed the {thing}; {unknown}"
        return CannotTell(reason, cause="changed since")
    return Superseded(f"somebody else changed the {thing} after the write was sent")


def _has_all(
    kind: WriteKind,
    state: dict[str, Wire],
    wanted: dict[str, Wire],
) -> bool:
    """Return whether *state* has all values that are *wanted*."""
    return _same_fields(kind, state, wanted, wanted)


def _same_fields(
    kind: WriteKind,
    one: dict[str, Wire],
    other: dict[str, Wire],
    names: Iterable[str],
) -> bool:
    """Return whether two states are equal in all fields *names*."""
    return all(
        kind.thing.same_field(name, one.get(name), other.get(name)) for name in names
    )


def _names_in(wanted: dict[str, Wire], baseline: dict[str, Wire]) -> list[str]:
    """Return the names of the fields sent that *baseline* has.  A stored state may lack a large graph."""
    return [name for name in wanted if name in baseline]


# --- A create
#
# What the list shows is asked in this order, and the first answer counts:
#
# 1. Items have the unique tag of this write: they are its effects, whatever else they show; the oldest first.
#    Of another URL, they are only candidates if it is not known what was sent (`_may_be_of_another_text`).
# 2. An item is a candidate (`_may_be_ours`): it may be new, nothing explains it (`_is_explained`: another
#    write's, known before, or of another URL without the tag that the service keeps), and it may be equal,
#    or is in time.
# 3. Of the candidates, those that are recognised (`_is_recognised`: as requested, or with our tag) and made
#    in time (`_is_made_in_time`) are the effects, if each was surely made after the first send
#    (`_surely_after`), and there are no more of them than sends.
# 4. Other candidates leave it open.  So do items with another write's tag, if a second item has that tag, too
#    (`_perhaps_retagged`).
# 5. Without a candidate, the create is absent, unless the list may lack it.


def _by_list(known: Known, reading: Reading) -> Finding:
    """Judge a create by its tag, or by what is equal in the list and was made at the time of the send."""
    items = _each_once(known, reading.seen)
    tagged = _tagged_as_ours(known, reading, items)
    if tagged and is_unique(known.intent.tag):
        if _may_be_of_another_text(known, tagged):
            return _candidates_are(known, tagged)
        first, *others = _oldest_first(known, tagged)
        return Applied(first, duplicates=tuple(others))
    candidates = [item for item in items if _may_be_ours(known, reading, item)]
    matched = _matched(known, reading, candidates)
    if matched is not None:
        return matched
    candidates = candidates or _perhaps_retagged(known, reading, items)
    if candidates:
        return _candidates_are(known, candidates)
    return _not_listed(known, reading, items)


def _candidates_are(known: Known, items: Sequence[Wire]) -> CannotTell:
    reason = (
        f"{len(items)} {known.kind.thing.name}(s) could be this write's or another's"
    )
    return CannotTell(reason, candidates=tuple(items), cause="candidates")


def _may_be_of_another_text(known: Known, tagged: list[dict[str, Wire]]) -> bool:
    """
    Return whether another text of the write may have made the *tagged* items, since none has our URL.

    A restored journal may lack what was sent under the key of a row, and the row may have been edited since.
    """
    sent = known.intent.sent
    is_text_known = known.has_own_sends or not all(each.is_lost for each in sent)
    if is_text_known or not sent:
        return False
    return not any(_may_have_our_url(known, item) for item in tagged)


def _tagged_as_ours(
    known: Known,
    reading: Reading,
    items: list[Wire],
) -> list[dict[str, Wire]]:
    """
    Return the *items* with our tag; beside one that is surely no copy, no possible copies.

    Somebody may have made another webhook with the description of ours, tag included.  Then an answer gave
    its id to another write, or it has another URL, or a tag of its own.  None of that proves a copy: somebody
    may have edited ours, and a write that a restored journal does anew has the tag that it had before.
    """
    tagged = [item for item in filter(is_object, items) if _bears_our_tag(known, item)]
    no_copies = [
        item
        for item in tagged
        if item.get("id") not in reading.claimed_by_others
        and _may_have_our_url(known, item)
        and not _bears_tag_of_another(known, item)
    ]
    return no_copies or tagged


def _oldest_first(known: Known, items: list[dict[str, Wire]]) -> list[dict[str, Wire]]:
    """Return *items* as they were made, since a copy is younger; as they are, if one does not show when."""
    if not all(is_time(_made_at(known, item)) for item in items):
        return items
    return sorted(items, key=partial(_made_at, known))


def _perhaps_retagged(
    known: Known,
    reading: Reading,
    items: list[Wire],
) -> list[Wire]:
    """
    Return the *items* of our URL that were made in time, and that have the tag of another write.

    Only those whose tag another item has as well: ours may have been given the description of that one.
    """
    of_others = [
        item
        for item in filter(is_object, items)
        if _bears_tag_of_another(known, item)
        and not _is_known_by_id(known, reading, item.get("id"))
        and _may_have_our_url(known, item)
        and known.windows.when(_made_at(known, item), reading) != "before"
        and _is_in_time(known, known.windows.sends, _made_at(known, item))
    ]
    if not of_others:  # nearly always
        return []
    many = Counter(
        tag
        for item in filter(is_object, items)
        for tag in {*TAG.findall(_tagged_text(known, item))}
    )
    return [
        item
        for item in of_others
        if any(many[tag] > 1 for tag in TAG.findall(_tagged_text(known, item)))
    ]


def _not_listed(
    known: Known,
    reading: Reading,
    items: list[Wire],
) -> Finding:
    """Return the finding about a create if none of the listed *items* can be its effect."""
    if not is_whole(reading, known.kind):
        reason = (
            f"the answer does not show the whole list: delete {known.kind.thing.name}s that nobody needs, "
            "then settle it again"
        )
        return CannotTell(reason, cause="list full")
    if _may_be_hidden(known, items):
        wanted = _wanted(known)[str(known.kind.hidden_by)]
        reason = f"the list shows no {known.kind.thing.name} that is {wanted}, so it may leave those out"
        return CannotTell(reason, cause="not visible")
    return _absent_create(known, reading)


def _each_once(known: Known, items: list[Wire]) -> list[Wire]:
    """Return the *items* of a list, each once: an id that is shown twice is one thing."""
    by_id: dict[str, Wire] = {}
    without_id: list[Wire] = []
    for item in items:
        item_id = item.get("id") if is_object(item) else None
        if not isinstance(item_id, str):
            without_id.append(item)
        elif item_id not in by_id or _bears_our_tag(known, item):
            by_id[item_id] = item
    return [*by_id.values(), *without_id]


def _matched(
    known: Known,
    reading: Reading,
    candidates: list[Wire],
) -> Applied[Wire] | None:
    """Return Applied if the *candidates* that are recognised are as many as the create may have made."""
    recognised = [*filter(partial(_is_recognised, known), candidates)]
    in_time = [item for item in recognised if _is_made_in_time(known, reading, item)]
    if not 1 <= len(in_time) <= len(known.windows.sends):
        return None
    if not all(_surely_after(known, reading, item) for item in in_time):
        return None
    first, *others = sorted(in_time, key=lambda item: item[known.kind.dated_by])
    # One made later, or guessed to be another's, may be a further effect, unless each send has one.  If it
    # may be, the duplicates are None: it is not known whether there are any.  () says that there are none.
    has_none_left = len(in_time) == len(recognised)
    has_one_for_each_send = len(in_time) == len(known.windows.sends)
    if has_none_left or has_one_for_each_send:
        return Applied(first, duplicates=tuple(others))
    return Applied(first, duplicates=None)


def _is_made_in_time(
    known: Known,
    reading: Reading,
    item: dict[str, Wire],
) -> bool:
    """Return whether *item* was made by the end of the windows, and is not guessed to be another write's."""
    # Not the sends that a restored journal assumes: at an unknown time, a thing of anybody would fit.
    timed = [send for send in known.windows.sends if send.latest is not None]
    if item.get("id") in reading.guessed:
        return False
    return _is_in_time(known, timed, _made_at_latest(known, reading, item))


def _may_be_hidden(known: Known, items: list[Wire]) -> bool:
    """Return whether the list may leave out the created thing, because no item has the same status."""
    hidden_by = known.kind.hidden_by
    if hidden_by is None:
        return False
    wanted = _wanted(known).get(hidden_by)
    if wanted == known.kind.thing.defaults[hidden_by]:
        return False
    return not any(is_object(item) and item.get(hidden_by) == wanted for item in items)


def _wanted(known: Known) -> dict[str, Wire]:
    """Return the fields of the thing to be created, with the service's defaults for those left out."""
    sent = {
        name: value for name, value in known.intent.body.items() if value is not None
    }
    return {**known.kind.thing.defaults, **sent}


def _is_recognised(known: Known, item: Wire) -> TypeGuard[dict[str, Wire]]:
    """Return whether *item* is as requested; or tagged as ours, though other fields may have been edited."""
    if not is_object(item):
        return False
    if _bears_our_tag(known, item) and _is_found_alike(known, item):
        return True
    return known.kind.thing.same(_wanted(known), item)


def _is_found_alike(known: Known, item: dict[str, Wire]) -> bool:
    """Return whether *item* has the URL of this create (the field by which creates are found), or none."""
    found_by = known.kind.alike(item)
    if found_by is None:
        return True
    return found_by == known.kind.alike(known.intent.body)


def _may_have_our_url(known: Known, item: dict[str, Wire]) -> bool:
    """Return whether *item* has the URL of this create, in its words or the service's, or none."""
    if _is_found_alike(known, item):
        return True
    kind = known.kind
    found_by = str(kind.found_by)
    sent = known.intent.body.get(found_by)
    return kind.thing.is_made_of(found_by, sent, item.get(found_by))


def _tagged_text(known: Known, item: dict[str, Wire]) -> str:
    """Return the text of *item* at whose end a tag stands; empty if there is none."""
    text = item.get(known.kind.tagged_in)
    if isinstance(text, str):
        return text
    return ""


def _bears_our_tag(known: Known, item: Wire) -> bool:
    tag = known.intent.tag
    if tag is None or not is_object(item):
        return False
    text = _tagged_text(known, item)
    is_at_end = text == tag or text.endswith(f" {tag}")
    return is_at_end or tag in TAG.findall(text)


def _may_be_ours(
    known: Known,
    reading: Reading,
    item: Wire,
) -> bool:
    """
    Return whether *item* is a candidate: it may be new, and nothing explains it.

    The first case that applies counts:

    1. It is no object, so it may be anything: a candidate.
    2. It is explained, or was made before the send: none.
    3. It has the URL of this create or no URL, or has the tag of this create: a candidate if it was made by
       the end of the windows.
    4. It is guessed to be of another write, which is under way or in doubt: none.  It is found as that one.
    5. It was made by the end of the windows: a candidate if it may be at the place of the create.

    Its other fields say nothing then, because the service may have stored the create in its own words.

    In 3 and 5, an item that was made later is a candidate only if it may be equal.  It may be a late effect;
    or that of a later send, which an older copy of the intent does not know.
    """
    if not is_object(item):
        return True
    if _is_explained(known, reading, item):
        return False
    if known.windows.when(_made_at(known, item), reading) == "before":
        return False
    in_time = _is_in_time(known, known.windows.sends, _made_at(known, item))
    if _is_found_alike(known, item) or _bears_our_tag(known, item):
        return in_time or _may_be_equal(known, item)
    if item.get("id") in reading.guessed:
        return False
    if in_time:
        return _may_be_at_our_place(known, item)
    return _may_be_equal(known, item)


def _may_be_equal(known: Known, item: dict[str, Wire]) -> bool:
    """Return whether *item* is as requested, in the words of the request or in those of the service."""
    if _is_recognised(known, item):
        return True
    wanted = _wanted(known)
    return all(
        _may_be_made_of(known.kind, name, wanted.get(name), item.get(name))
        for name in known.kind.thing.fields or wanted
    )


def _may_be_made_of(
    kind: WriteKind,
    name: str,
    sent: Wire,
    shown: Wire,
) -> bool:
    """Return whether a service may show *sent* as *shown*.  It may leave out whatever is not the place."""
    if shown is None and name != kind.found_by:
        return True
    if kind.thing.same_field(name, sent, shown):
        return True
    return kind.thing.is_made_of(name, sent, shown)


def _may_be_at_our_place(known: Known, item: dict[str, Wire]) -> bool:
    """
    Return whether *item* may be where the create is, in other words: at its place, or with all else equal.

    A place, such as the host of a URL, is what a service leaves unchanged.  At the same place, no other field
    says whose the item is: a service may store several in other words, and somebody may have edited one.
    """
    kind = known.kind
    # It may not show its place, for example if the service leaves the field out.
    if kind.place_of(item) in (None, kind.place_of(known.intent.body)):
        return True
    found_by = str(kind.found_by)
    return kind.thing.same({**_wanted(known), found_by: item[found_by]}, item)


def _is_explained(
    known: Known,
    reading: Reading,
    item: dict[str, Wire],
) -> bool:
    """
    Return whether *item* is certainly not an effect of this write: another's, or known before.

    Where the service keeps tags, so is what has another URL and lacks our tag.  At our URL, the lack of a tag
    says nothing, because anybody may have edited the description.
    """
    if _is_known_by_id(known, reading, item.get("id")):
        return True
    if _bears_tag_of_another(known, item):
        return True  # but see `_perhaps_retagged`
    if _may_have_our_url(known, item):
        return False
    return _lacks_our_tag(known, item) and _keeps_tags(known, reading)


def _is_known_by_id(
    known: Known,
    reading: Reading,
    known_as: Wire,
) -> bool:
    """Return whether an answer gave the id to another write, or a list showed it before the send."""
    if not isinstance(known_as, str):
        return False
    return known_as in reading.claimed_by_others or known_as in known.strangers.ids


def _bears_tag_of_another(known: Known, item: dict[str, Wire]) -> bool:
    # Tags in the requested text are not those of another write.
    own = {known.intent.tag, *TAG.findall(_tagged_text(known, known.intent.body))}
    return any(tag not in own for tag in TAG.findall(_tagged_text(known, item)))


def _lacks_our_tag(known: Known, item: dict[str, Wire]) -> bool:
    """
    Return whether *item* shows no trace of the tag of this write, nor of the text sent before it.

    A service may keep one tag and mask, cut or fold another, as it does with texts.
    """
    if _bears_our_tag(known, item):
        return False
    sent = _tagged_text(known, known.intent.body)
    shown = _tagged_text(known, item)
    if not shown:
        return True
    return foreign.text(sent, shown) and not made_of.text(sent, shown)


def _keeps_tags(known: Known, reading: Reading) -> bool:
    """
    Return whether this write has a unique tag, and the service provably keeps such a tag and lists it.

    That is so if a list showed one, in a text at least as long: a shorter one would not have been cut.  What
    was sent counts as it is longest, in bytes and escaped: the service may count so.  A text with a "<" may
    lose all that follows, if the service removes markup.
    """
    if not is_unique(known.intent.tag):
        return False
    sent = _tagged_text(known, known.intent.body)
    if "<" in sent:
        return False
    longest = len(html.escape(sent).encode(errors="replace"))
    shown = (
        html.unescape(_tagged_text(known, item)) for item in _all_listed(known, reading)
    )
    return any(len(text) >= longest and TAG.search(text) for text in shown)


def _all_listed(known: Known, reading: Reading) -> Iterator[dict[str, Wire]]:
    """Yield the items of all lists in the history, and of *reading*."""
    for event in (*known.history, reading):
        if shows_list(event, known.kind):
            yield from filter(is_object, event.seen)


def _made_at(known: Known, item: dict[str, Wire]) -> Wire:
    """Return when *item* was made, in server ms, if it shows that."""
    return item.get(known.kind.dated_by)


def _made_at_latest(
    known: Known,
    reading: Reading,
    item: dict[str, Wire],
) -> Wire:
    """
    Return when *item* was made at the latest, in server ms, if it shows a time.

    A time that is cut to its minute, for example, is up to a minute too early; but *reading* came after it.
    """
    made_at = _made_at(known, item)
    if not is_time(made_at):
        return made_at
    at_latest = float(made_at) + 1000 * cut_by(made_at)
    now = known.clock.answered_by(reading)
    if now is None:
        return at_latest
    return max(float(made_at), min(at_latest, 1000 * now))


def _is_in_time(
    known: Known,
    sends: list[SendTimes],
    made_at: Wire,
) -> bool:
    """
    Return whether what was created at *made_at* was so by the end of the last window of *sends*.

    A thing that was created later is not attributed to this write.  But if it is equal, it may be a late
    effect, so it disproves absence.
    """
    ends = [send.ended_by + send.window for send in sends if send.ended_by is not None]
    has_unknown_end = len(ends) < len(sends)
    if has_unknown_end:
        return True
    if not is_time(made_at):
        return True
    latest = max(ends, default=-inf)
    return float(made_at) / 1000 <= latest + known.policy.clock_slack


def _surely_after(
    known: Known,
    reading: Reading,
    item: dict[str, Wire],
) -> bool:
    """
    Return whether *item* was created after the first send began, and was not known before.

    What equals the create and is dated in the band around the start of the send counts as its effect.  That
    assumes that nobody else makes the same at the same time.  It is assumed because most effects are dated
    there: else an untagged create would be UNKNOWN nearly whenever its answer is lost.
    """
    made_at = _made_at(known, item)
    if _may_be_forgotten(known, made_at):
        return False
    return known.windows.when(made_at, reading) in ("after", "band")


def _may_be_forgotten(known: Known, made_at: Wire) -> bool:
    """Return whether a thing made then may have been there before the write, in no list that is known."""
    forgotten_until = known.strangers.forgotten_until
    if forgotten_until is None:
        return False
    if not is_time(made_at):
        return True
    # The time may be rounded up.
    return float(made_at) - 500 * cut_by(made_at) <= forgotten_until


# --- An update of what shows no such time


def _by_baseline(known: Known, reading: Reading) -> Finding | Partly:
    """
    Judge an update by the state before it.

    No time tells when the thing was changed.  So a state that matches is the write's only if the baseline
    did not match, and a state as before shows absence only if no read showed another one in between.
    """
    if reading.status == 404:
        return _gone(known, reading)
    kind = known.kind
    seen = reading.seen
    baseline = known.baseline
    wanted = kind.thing.visible(known.intent.body)
    if not wanted:
        reason = f"none of the fields sent is visible in a {kind.thing.name}"
        return CannotTell(reason, cause="not visible")
    if _has_all(kind, seen, wanted):
        return _matching_by_baseline(known, reading, wanted)
    earlier = _earlier_states(known, reading)
    as_before = _is_as_baseline(known, seen, wanted)
    if not as_before or not is_newest(known, reading):
        fields = differences(kind, wanted, baseline, seen)
        was_as_before = any(
            _is_as_baseline(known, before, wanted) for before in earlier
        )
        # An earlier read, after the send, still showed the baseline; this one does not.
        has_changed_between = was_as_before and not as_before
        return _differing(known, reading, fields, changed_since=has_changed_between)
    if not all(_is_as_baseline(known, before, wanted) for before in earlier):
        return _seen_otherwise(known)
    if not _leaves_trace(known, reading, wanted, baseline):
        return _without_trace(known, reading, wanted)
    if decayed(known, reading):
        return _too_long_ago(known)
    return Absent()


def _is_as_baseline(
    known: Known,
    state: dict[str, Wire],
    wanted: dict[str, Wire],
) -> bool:
    """Return whether the baseline is known, and *state* equals it in all fields that were sent."""
    if known.baseline is None:
        return False
    return _same_fields(known.kind, state, known.baseline, wanted)


def _matching_by_baseline(
    known: Known,
    reading: Reading,
    wanted: dict[str, Wire],
) -> Applied[Wire] | Holds[Wire]:
    """Return Applied if the state matches the write now, and certainly did not before; else Holds."""
    if known.baseline is None or _may_have_matched_before(known, wanted):
        return Holds(reading.seen)
    if _is_current(known, reading):
        return Applied(reading.seen)
    return Holds(reading.seen)


def _leaves_trace(
    known: Known,
    reading: Reading,
    sent: dict[str, Wire],
    baseline: dict[str, Wire],
) -> bool:
    """
    Return whether the write would have changed the state *baseline*, whatever the service makes of it.

    It would not after an equal write: the state is then what the service makes of these values.
    """
    kind = known.kind
    return any(
        _would_change(
            kind, name, value, baseline.get(name), reading.longest_texts.get(name, 0)
        )
        for name, value in sent.items()
    )


def _would_change(
    kind: WriteKind,
    name: str,
    sent: Wire,
    before: Wire,
    kept: int,
) -> bool:
    """Return whether *sent* would not show as *before*, where *kept* characters of a text are kept."""
    if kind.thing.same_field(name, sent, before):
        return False
    if not kind.thing.is_made_of(name, sent, before):
        return True
    return made_of.would_show(sent, before, kept)


def _without_trace(
    known: Known,
    reading: Reading,
    sent: dict[str, Wire],
) -> CannotTell:
    fields = told(differences(known.kind, sent, known.baseline, reading.seen))
    reason = f"the {known.kind.thing.name} is as before the write, in words that the service may have for it"
    return CannotTell(
        f"{reason}, so the write leaves no trace ({fields})", cause="not visible"
    )


def _gone(known: Known, reading: Reading) -> Finding:
    thing = known.kind.thing.name
    if known.was_gone:
        return Absent()
    if is_newest(known, reading) and _earlier_states(known, reading):
        return Superseded(f"the {thing} was deleted after the write was sent")
    reason = f"the {thing} is gone; whether the write was applied first is unknown"
    return CannotTell(reason, cause="gone")


def _is_current(known: Known, reading: Reading) -> bool:
    """Return whether *reading*, which shows the write, shows no state from before it.  Reads may lag."""
    return reading.started >= known.current_from


# --- A delete


def _by_absence(known: Known, reading: Reading) -> Finding:
    """Judge a delete by whether the thing is still there."""
    if reading.status != 404:
        return Absent()
    gone = {"id": known.intent.path.get("id")}
    return Applied(gone) if _is_current(known, reading) else Holds(gone)


_FINDERS: dict[ShownBy, Callable[[Known, Reading], Finding | Partly]] = {
    "time of change": _by_time_of_change,
    "baseline": _by_baseline,
    "list": _by_list,
    "absence": _by_absence,
}
