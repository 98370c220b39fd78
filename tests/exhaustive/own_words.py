"""
List small worlds whose service stores what it is sent in its own words, or in part, or shows it otherwise.
"""

from __future__ import annotations

from typing import Any

import attrs

from invsvc_async.settings import ReconcilePolicy
from tests.exhaustive import answers as a
from tests.exhaustive.models import (
    BOTH,
    ELSE,
    OLD,
    SAME,
    TAGS,
    THREE,
    WANTED,
    WORDED,
    Cut,
    Form,
    Hook,
    Journey,
    Left,
    Listing,
    Way,
)
from tests.exhaustive.world_setup import BEFORE, START, WIDE, Crash, SetUp

FEW = (a.OK, a.ERROR, a.RESET, a.HUNG)
DOUBTS = (a.ERROR, a.RESET)
EVERY_WAY: tuple[Way, ...] = ("whole", "words", "first", "second", "first in words")
IN_PART: tuple[Way, ...] = ("whole", "first", "first in words")
CUTS: tuple[Cut, ...] = ("to 0", "to seconds", "to the minute", "to the day")
LATER = (Crash("resume", 30.0), Crash("settle", 30.0))
OPEN = Crash(
    "resume", 30.0, journaled=False, gone=False, client="same"
)  # resumed by the client that left it open
KILLS = (Crash("settle"), Crash("resume", 20.0), Crash("resume", 20.0, gone=False))
ONCE = ReconcilePolicy(resend="never")
MANY = ReconcilePolicy(max_resends=3, deadline=300.0)
ACTS = {
    "journeys.update": ("equal", "other", "kin", "revert", "side"),
    "webhooks.update": ("equal", "other", "kin", "side"),
}
THINGS: dict[str, Any] = {
    "journeys.update": (BOTH, 0, BEFORE, 0),
    "webhooks.update": (BOTH, 0, 0),
}
THREE_FIELDS: dict[str, Any] = {
    "journeys.update": (THREE, 0, BEFORE, 0),
    "webhooks.update": (THREE, 0, 0),
}
ONE_FIELD: dict[str, Any] = {
    "journeys.update": (OLD, 0, BEFORE, 0),
    "webhooks.update": (OLD, 0, 0),
}


SAME_WORDS: dict[str, tuple[Way, int]] = {
    "other words": ("words", WANTED + WORDED),
    "cut": ("cut", WANTED + 2 * WORDED),
    "masked": ("masked", WANTED + 3 * WORDED),
}


def _models(**facts: Any) -> dict[str, Any]:
    return {"journeys.update": Journey(**facts), "webhooks.update": Hook(**facts)}


def _each(
    name: str, models: dict[str, Any], things: dict[str, Any], **facts: Any
) -> list[SetUp]:
    return [
        SetUp(
            name=f"{write}: {name}", **{"model": model, "thing": things[write], **facts}
        )
        for write, model in models.items()
    ]


def _with_acts(
    name: str,
    models: dict[str, Any],
    things: dict[str, Any],
    *,
    without: str = "",
    **facts: Any,
) -> list[SetUp]:
    return [
        setup
        for write in models
        for setup in _each(
            name,
            {write: models[write]},
            things,
            acts=tuple(act for act in ACTS[write] if act != without),
            acting=1,
            **facts,
        )
    ]


def _updates() -> list[SetUp]:
    words = _models(ways=("words",))
    both, part = _models(both=True, ways=EVERY_WAY), _models(both=True, ways=IN_PART)
    always = _models(both=True, ways=("first",))
    unread: dict[str, Any] = {"baseline": False, "misses": (a.UNREAD,), "fails": 1}
    return [
        *_each("own words", words, ONE_FIELD, first=FEW, again=(a.OK, a.RESET), afterwards=LATER),
        *_each("own words, killed", words, ONE_FIELD, first=(a.OK, *DOUBTS), crashes=KILLS),
        *_with_acts("own words, others act", words, ONE_FIELD, first=DOUBTS),
        *_with_acts("own words, others act, none", words, ONE_FIELD, first=DOUBTS, bounds=None),
        *_each("in part", both, THINGS, first=FEW, again=(a.OK, a.RESET), afterwards=LATER),
        *_each("in part, always", always, THINGS, first=FEW, again=(a.OK, *DOUBTS), afterwards=LATER),
        *_each("in part, always, allowed to be sent often", always, THINGS, first=(a.ERROR,), again=(a.ERROR,), policy=MANY, afterwards=LATER[:1]),
        *_each("in part, again refused", part, THINGS, first=DOUBTS, again=(a.INVALID, a.CONFLICT, a.FORBIDDEN, a.UNSENT), afterwards=LATER),
        *_each("in part, refused by a gateway", part, THINGS, first=(a.FORBIDDEN,), afterwards=LATER),
        *_each("in part, wide", both, THINGS, first=(a.RESET,), bounds=WIDE, stamped=False, afterwards=LATER[:1]),
        *_each("in part, clocks unknown", both, THINGS, first=(a.RESET,), bounds=None, afterwards=LATER[:1]),
        *_each("in part, no baseline", part, THINGS, first=DOUBTS, **unread, afterwards=LATER[:1]),
        *_each("in part, killed", part, THINGS, first=(a.RESET,), again=(a.OK, a.RESET), crashes=KILLS, afterwards=LATER[:1]),
        *_each("in part, failing reads", part, THINGS, first=(a.RESET,), misses=(a.UNREAD, a.DENIED), fails=1, afterwards=LATER[:1]),
        *_each("in part, never again", part, THINGS, first=DOUBTS, policy=ONCE, afterwards=LATER),
        *_with_acts("in part, of three", _models(three=True, ways=("whole", "second")), THREE_FIELDS, without="revert", first=(a.RESET,), again=(a.OK,), afterwards=LATER[:1]),
        *_with_acts("in part, others act", part, THINGS, without="revert", first=(a.RESET,), again=(a.OK,), afterwards=LATER[:1]),
    ]  # fmt: skip


def _since_before() -> list[SetUp]:
    """List worlds whose things are, before the write, already in the service's own words for what is sent."""
    setups: list[SetUp] = []
    for name, (way, value) in SAME_WORDS.items():
        one: dict[str, Any] = {
            "journeys.update": (value, 0, BEFORE, 0),
            "webhooks.update": (value, 0, 0),
        }
        both: dict[str, Any] = {
            "journeys.update": ((value, OLD), 0, BEFORE, 0),
            "webhooks.update": ((value, OLD), 0, 0),
        }
        words = f"own words since before, {name}"
        setups += _each(
            words,
            _models(ways=(way,)),
            one,
            first=FEW,
            again=(a.OK, a.RESET),
            afterwards=LATER,
        )
        setups += _each(
            f"{words}, killed", _models(ways=(way,)), one, first=DOUBTS, crashes=KILLS
        )
        setups += _with_acts(
            f"{words}, others act", _models(ways=(way,)), one, first=DOUBTS
        )
        two = _models(both=True, ways=(way, "second"))
        setups += _each(
            f"{words}, of one of two",
            two,
            both,
            first=FEW,
            again=(a.OK, a.RESET),
            afterwards=LATER,
        )
        setups += _with_acts(
            f"{words}, of one of two, others act", two, both, first=DOUBTS
        )
    return setups


def _times_cut() -> list[SetUp]:
    """List worlds whose journeys show no time that a change would move for certain."""
    setups: list[SetUp] = []
    for cut in CUTS:
        words = {"journeys.update": Journey(ways=("words",), cut=cut)}
        whole = {"journeys.update": Journey(cut=cut)}
        same: dict[str, Any] = {"journeys.update": (WANTED + WORDED, 0, START - 2.0, 0)}
        named = f"times cut {cut}"
        setups += _each(
            f"own words since before, {named}",
            words,
            same,
            first=FEW,
            again=(a.OK, a.RESET),
        )
        setups += _each(
            named, whole, ONE_FIELD, first=FEW, again=(a.OK, a.RESET), afterwards=LATER
        )
        # A state that somebody brings back leaves no trace, as of a webhook.
        acts = ACTS["webhooks.update"]
        setups += _each(
            f"{named}, others act", whole, ONE_FIELD, first=DOUBTS, acts=acts, acting=1
        )
    return setups


def _in_one_millisecond() -> list[SetUp]:
    """List worlds whose journey was changed, to what the service makes of the write, just as that is sent."""
    at = 0.0037  # s: at a whole second, a time may be cut
    words = {"journeys.update": Journey(ways=("words",), ours=at)}
    same: dict[str, Any] = {"journeys.update": (WANTED + WORDED, 0, START + at, 0)}
    return _each(
        "own words since before, in the same millisecond",
        words,
        same,
        first=FEW,
        again=(a.OK, a.RESET),
    )


def _brought_back() -> list[SetUp]:
    """List worlds whose next write brings back the state before, while times of change are cut."""
    back = (WANTED, OLD)
    changed: dict[str, Any] = {"journeys.update": (OLD, 0, START - 2.0, 0)}
    setups: list[SetUp] = []
    for cut in CUTS:
        setups += _each(
            f"then back, times cut {cut}",
            {"journeys.update": Journey(values=back, cut=cut)},
            changed,
            runs=2,
            first=(a.OK, a.RESET),
            afterwards=(OPEN,),
        )
    return setups


def _parts_so_before() -> list[SetUp]:
    """List worlds whose service may store only that part of a write which was so before, and dates it."""
    part = {"journeys.update": Journey(both=True, ways=("whole", "second"))}
    half: dict[str, Any] = {"journeys.update": ((OLD, WANTED), 0, BEFORE, 0)}
    return _each(
        "in part, the other part so before, others act",
        part,
        half,
        first=DOUBTS,
        acts=("other", "side"),
        acting=1,
    )


def _undated_parts() -> list[SetUp]:
    """List worlds whose service stores a part, and does not date that."""
    part = {"journeys.update": Journey(both=True, ways=IN_PART, parts_dated=False)}
    unread: dict[str, Any] = {"baseline": False, "misses": (a.UNREAD,), "fails": 1}
    return [
        *_each(
            "in part, not dated",
            part,
            THINGS,
            first=FEW,
            again=(a.OK, a.RESET),
            afterwards=LATER,
        ),
        *_each("in part, not dated, no baseline", part, THINGS, first=DOUBTS, **unread),
        *_with_acts(
            "in part, not dated, others act",
            part,
            THINGS,
            without="revert",
            first=(a.RESET,),
            again=(a.OK,),
        ),
    ]


def _graphs_left_out() -> list[SetUp]:
    """List worlds whose service may store only a graph, undated, of which the stored state has at most a digest."""
    whole: tuple[Way, ...] = ("whole",)
    part: tuple[Way, ...] = ("whole", "second")
    left_out: tuple[Left, ...] = ("graph", "graph, with its digest")
    already: dict[str, Any] = {"journeys.update": ((WANTED, WANTED), 0, BEFORE, 0)}
    setups: list[SetUp] = []
    for left in left_out:
        undated = Journey(both=True, ways=part, parts_dated=False, left_out=left)
        setups += _each(
            f"in part, not dated, stored without its {left}",
            {"journeys.update": undated},
            THINGS,
            first=FEW,
            again=(a.OK, a.RESET),
            afterwards=LATER,
        )
        setups += _each(
            f"already so, others act, stored without its {left}",
            {"journeys.update": Journey(both=True, ways=whole, left_out=left)},
            already,
            first=FEW,
            acts=("side", "other"),
            acting=1,
        )
    return setups


def _siblings() -> list[SetUp]:
    """List worlds of two writes to one thing, of which each may be stored in part or in other words."""
    setups: list[SetUp] = []
    for name, values in {"another": (WANTED, ELSE), "back": (WANTED, OLD)}.items():
        for ways in (("words",), IN_PART):
            models = _models(both=ways is IN_PART, ways=ways, values=values)
            things = THINGS if ways is IN_PART else ONE_FIELD
            words = "own words" if ways is not IN_PART else "in part"
            facts: dict[str, Any] = {"runs": 2, "first": (a.OK, a.RESET)}
            named = {f"{write}, then {name}": model for write, model in models.items()}
            placed = {f"{write}, then {name}": things[write] for write in models}
            setups += _each(f"{words}, in sequence", named, placed, **facts)
            echoing = {
                write: attrs.evolve(model, echoes=True)
                for write, model in named.items()
            }
            setups += _each(
                f"{words}, in sequence, an answer that echoes", echoing, placed, **facts
            )
            setups += _each(
                f"{words}, resumed",
                named,
                placed,
                **facts,
                afterwards=(OPEN,),
            )
    return setups  # fmt: skip


URL = "https://me.example/in?token=1"
OTHERWISE = {
    "URL and description": Form(
        "mine ", url=URL, stored="https://me.example/in?token=***", worded="mine"
    ),
    "URL and status": Form(stored="https://me.example/else", forced="inactive"),
    "all but the URL": Form("mine ", worded="MINE", forced="inactive"),
}
TAGGED_OTHERWISE = {
    "tag cut": Form("mine", TAGS[0], worded="mine [iv-aaaa"),
    "tag and URL": Form(
        "mine",
        TAGS[0],
        url=URL,
        stored="https://me.example/in?token=***",
        worded="mine",
    ),
}
# What another process holds that has got the intent before the second send.
COPIED = Crash("settle", 60.0, journaled=False, gone=False, kept="copy", client="other")
THEIRS: dict[str, Any] = {"acts": ("near", "host"), "acting": 1}
COPIES: dict[str, Any] = {"acts": ("copy",), "acting": 1}


def _create(name: str, model: Listing, *, thing: Any = (), **facts: Any) -> SetUp:
    tagged = model.tagged or any(form.tag for form in model.forms)
    return SetUp(
        name=f"webhooks.create{', tagged' if tagged else ''}: {name}",
        model=model,
        thing=thing,
        **facts,
    )


def _creates() -> list[SetUp]:
    setups: list[SetUp] = []
    few: dict[str, Any] = {"first": FEW, "again": (a.OK, a.RESET)}
    read_first: dict[str, Any] = {"bounds": None, "first": DOUBTS}
    for name, form in {**OTHERWISE, **TAGGED_OTHERWISE}.items():
        model = Listing(forms=(form,))
        setups += [
            _create(f"own words, {name}", model, **few),
            _create(
                f"own words, {name}, killed", model, first=(a.RESET,), crashes=KILLS
            ),
            _create(f"own words, {name}, others act", model, first=DOUBTS, **THEIRS),
            _create(f"own words, {name}, read first", model, **read_first, **THEIRS),
            _create(
                f"own words, {name}, edited",
                model,
                first=DOUBTS,
                acts=("edit",),
                acting=1,
            ),
        ]
    for name, form in {
        "": Form("mine"),
        ", own words": OTHERWISE["URL and description"],
    }.items():
        model = Listing(forms=(form,))
        resent: dict[str, Any] = {"first": (a.RESET,), "again": (a.OK, a.RESET)}
        setups += [
            _create(f"late{name}", model, first=(a.RESET,), late=1.0, lenient=True),
            _create(f"an older copy{name}", model, **resent, afterwards=(COPIED,)),
        ]
    for tagged in (False, True):
        twice, hides = (
            Listing(tagged=tagged, twice=True),
            Listing(tagged=tagged, hides=True),
        )
        tag = TAGS[0] if tagged else None
        inactive = Listing(hides=True, forms=(Form("mine", tag, status="inactive"),))
        shown = Listing(forms=(Form("mine", tag, status="inactive"),))
        setups += [
            _create("a list that shows an id twice", twice, **few, calm=True),
            _create(
                "a list that shows an id twice, others act",
                twice,
                first=DOUBTS,
                **THEIRS,
            ),
            _create("a list that hides inactive ones", hides, **few, calm=True),
            _create("a list that hides it", inactive, **few),
            _create("a list that may hide it", shown, **few),
            _create(
                "a list that hides it, killed",
                inactive,
                first=(a.RESET,),
                crashes=KILLS,
            ),
        ]
        for cut in CUTS:
            cuts = Listing(tagged=tagged, cut=cut)
            setups += [
                _create(f"times cut {cut}", cuts, **few),
                _create(f"times cut {cut}, others act", cuts, first=DOUBTS, **THEIRS),
                _create(f"times cut {cut}, read first", cuts, **read_first, **THEIRS),
                _create(
                    f"times cut {cut}, an equal one soon after",
                    cuts,
                    first=(a.RESET,),
                    again=(a.RESET,),
                    acts=("soon after",),
                    acting=1,
                    crashes=(Crash("settle", 60.0, client="next"),),
                ),
                _create(
                    f"times cut {cut}, killed", cuts, first=(a.RESET,), crashes=KILLS
                ),
            ]
        setups.append(
            _create("another of the host", Listing(tagged=tagged), **few, **THEIRS)
        )
    elsewhere = "https://me.example/else"  # so that nothing but the tag could tell
    longer = Form(
        "mine, and many more words",
        TAGS[1],
        stored=elsewhere,
        worded="mine, and many more words [iv-b",
    )
    two = Listing(forms=(Form("mine", TAGS[0]), longer))
    left_out = Listing(forms=(Form("mine", TAGS[0]), longer._replace(worded="")))
    masked = Form("mine", TAGS[0], stored=elsewhere, worded="mine [iv-a****]")
    one_masked = Listing(forms=(masked, Form("mine", TAGS[1])))
    without = Listing(
        forms=(
            Form(None, TAGS[0], stored=elsewhere, worded="[iv-a****]"),
            Form("mine", TAGS[1]),
        )
    )
    beside: dict[str, Any] = {"runs": 2, "in_turn": False, "first": (a.OK, a.RESET)}
    return [
        *setups,
        _create("a longer text left out", left_out, **beside),
        _create("one tag masked, another kept", one_masked, **beside),
        _create("one tag masked, with no text, another kept", without, **beside),
        _create(
            "one tag masked, another kept, others act", one_masked, **beside, **THEIRS
        ),
        _create(
            "a tag cut off a longer text",
            two,
            runs=2,
            in_turn=False,
            first=(a.OK, a.RESET),
        ),
    ]


def _beside_a_tag() -> list[SetUp]:
    """List worlds with a tagged webhook of an older create, by which the client sees that tags are kept."""
    setups: list[SetUp] = []
    older = Form("mine", TAGS[1], url="https://me.example/older")
    before: dict[str, Any] = {"thing": ((0, SAME, START - 60.0, 1),)}
    edits: dict[str, Any] = {**before, "acts": ("edit", "edit all"), "acting": 1}
    worded = TAGGED_OTHERWISE["tag and URL"]._replace(worded=None)
    for words, form in {
        "": Form("mine", TAGS[0]),
        ", URL in own words": worded,
    }.items():
        model = Listing(forms=(form, older))
        name = f"beside a tag{words}"
        setups += [
            _create(name, model, **before, first=FEW, again=(a.OK, a.RESET), calm=True),
            _create(f"{name}, others act", model, **{**before, **THEIRS}, first=DOUBTS),
            _create(f"{name}, copied", model, **{**before, **COPIES}, first=FEW),
            _create(f"{name}, edited", model, **edits, first=FEW),
            _create(f"{name}, edited, wide", model, **edits, first=DOUBTS, bounds=WIDE),
            _create(
                f"{name}, edited, read first", model, **edits, first=DOUBTS, bounds=None
            ),
            _create(
                f"{name}, edited, killed",
                model,
                **edits,
                first=(a.RESET,),
                crashes=KILLS,
            ),
        ]
    return setups


OWN_WORDS = [
    *_updates(),
    *_since_before(),
    *_times_cut(),
    *_in_one_millisecond(),
    *_brought_back(),
    *_parts_so_before(),
    *_undated_parts(),
    *_graphs_left_out(),
    *_siblings(),
    *_creates(),
    *_beside_a_tag(),
]
