"""
Judges the verdicts of a soak by what the service truly did, write by write.

Pure functions of the writes with the verdicts that were heard, and of the ledger, in which each effect bears
the key of the write that sent it. What the client saw is looked at in one place only: which read an APPLIED
without an effect of its own rests on.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from itertools import pairwise
from math import inf
from typing import TYPE_CHECKING, Any

import attrs

from invsvc_async import Verdict
from invsvc_async.conformance.reasons import Happened, Told, contradiction
from invsvc_async.conformance.states import States, effect_at
from invsvc_async.reconcile.history import Reading

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from invsvc_async.simulator import Entry
    from tests.soak.records import Heard, Sent, Sibling

__all__ = ["KINDS", "Fault", "Truth", "judge"]

TICK = 1e-3  # s: stamps of the ledger are less than that later than the loop's time
SHORTEST_WINDOW = 2.0  # s: of the default policy, after an error
PROOF = 10.0  # s: a read of 5 s, and the 5 s in which it allows a send
_FINAL = (Verdict.APPLIED, Verdict.NOT_APPLIED, Verdict.REFUSED)
KINDS = (
    "applied, without an effect",
    "applied, by another's effect",
    "applied, by a later effect",
    "not applied, with an effect",
    "superseded, by nobody else",
    "applied, in part",
    "false reason",
    "duplicate",
    "lost",
    "order",
    "contradiction",
    "unasked",
    "raised",
)


@attrs.frozen(eq=False)
class Fault:
    """A verdict that the ledger contradicts, or a promise that it shows broken."""

    kind: str  # of KINDS
    sibling: Sibling | None
    why: str
    at: float  # s, of the loop


class Truth(States):
    """
    What the ledger says, by write and by thing.

    *initial* are the states of the things that were there before the first write; *siblings* the writes, whose
    requests it attributes to runs; *lag* is how far behind, in seconds, a read may be; the service *echoes* if its
    answers show what was sent, whatever it stored.
    """

    def __init__(
        self,
        ledger: Iterable[Entry],
        initial: Mapping[str, Mapping[str, Any]],
        siblings: Iterable[Sibling] = (),
        *,
        lag: float = 0.0,
        echoes: bool = False,
    ) -> None:
        self.lag = lag
        self.echoes = echoes
        entries = self.entries = list(ledger)
        super().__init__(entries, initial)
        self.requests = {
            sent.name: sent for sibling in siblings for sent in sibling.sent
        }
        self.siblings = {sibling.key: sibling for sibling in siblings}
        self.effects: defaultdict[str, list[Entry]] = defaultdict(list)
        self.sends: defaultdict[str, list[Entry]] = defaultdict(list)
        self._effects_on: defaultdict[str | None, list[Entry]] = defaultdict(list)
        self._arrivals_on: defaultdict[str | None, list[Entry]] = defaultdict(list)
        for entry in entries:
            if entry.applied:
                self._effects_on[entry.target].append(entry)
            if entry.by == "client":
                self.sends[key_of(entry)].append(entry)
                self._arrivals_on[entry.path_id].append(entry)
                if entry.applied:
                    self.effects[key_of(entry)].append(entry)
        for effects in self._effects_on.values():
            effects.sort(key=effect_at)
        self._foreign_on = {
            thing: [each for each in effects if _is_foreign(each, self)]
            for thing, effects in self._effects_on.items()
        }
        for arrivals in self._arrivals_on.values():
            arrivals.sort(key=_received_at)

    def effects_on(
        self, thing: str, since: float = -inf, until: float = inf
    ) -> list[Entry]:
        """Return the effects of all writers on *thing* from *since* to *until*, in their order."""
        effects = self._effects_on.get(thing, [])
        return effects[
            bisect_left(effects, since, key=effect_at) : bisect_right(
                effects, until, key=effect_at
            )
        ]

    def foreign_effects_on(self, thing: str, until: float) -> list[Entry]:
        """Return the effects on *thing* of all but this program until *until*, in their order."""
        effects = self._foreign_on.get(thing, [])
        return effects[: bisect_right(effects, until, key=effect_at)]

    def last_effect_on(self, thing: str, until: float) -> Entry | None:
        """Return the last effect of all writers on *thing* until *until*."""
        effects = self._effects_on.get(thing, [])
        many = bisect_right(effects, until, key=effect_at)
        return effects[many - 1] if many else None

    def arrivals_on(self, thing: str, since: float, until: float) -> list[Entry]:
        """Return the requests to write *thing* that arrived from *since* to *until*, in their order."""
        arrivals = self._arrivals_on.get(thing, [])
        first = bisect_left(arrivals, since, key=_received_at)
        return arrivals[first : bisect_right(arrivals, until, key=_received_at)]


def _received_at(entry: Entry) -> float:
    return entry.received_at


def key_of(entry: Entry) -> str:
    """Return the key of the write that sent *entry*."""
    return (entry.sender or "").partition("@")[0]


def judge(siblings: Sequence[Sibling], truth: Truth) -> list[Fault]:
    """Return every fault, each write judged by its own effects; all late effects must have landed."""
    keys = {sibling.key for sibling in siblings}
    strangers = {
        key: effects for key, effects in truth.effects.items() if key not in keys
    }
    found = [
        Fault("unasked", None, "an effect that no write sent", 0.0)
        for _ in strangers.pop("", ())
    ]
    found += [Fault("unasked", None, f"an effect of {key}", 0.0) for key in strangers]
    for sibling in siblings:
        found += _faults_of(sibling, truth)
    return found + _disorder(siblings, truth)


def _faults_of(sibling: Sibling, truth: Truth) -> list[Fault]:
    own, found = truth.effects.get(sibling.key, []), []
    whole = [
        each for each in own if each.stored != "in part"
    ]  # an update that was stored in part may be repeated
    if len(whole) > 1:
        why = f"{len(whole)} effects"
        found += [
            Fault("duplicate", sibling, why, effect_at(each)) for each in whole[1:]
        ]
    at = sibling.runs[-1].began if sibling.runs else 0.0
    found += [
        Fault("raised", sibling, text.strip().splitlines()[-1], at)
        for text in sibling.raised
    ]
    if not sibling.heard and not sibling.raised and sibling.key in truth.sends:
        found.append(
            Fault("lost", sibling, "it arrived, and nobody heard a verdict of it", at)
        )
    told: set[str] = set()  # one false verdict may be heard again and again
    for heard in sibling.heard:
        kind, why = (
            _false(sibling, heard, own, truth)
            or _misled(sibling, heard, truth)
            or ("", "")
        )
        if kind and kind not in told:
            told.add(kind)
            found.append(
                Fault(
                    kind,
                    sibling,
                    f"{heard.run.kind} by {heard.run.client}: {why}",
                    heard.at,
                )
            )
    return found + _contradiction(sibling)


def _false(
    sibling: Sibling, heard: Heard, own: list[Entry], truth: Truth
) -> tuple[str, str] | None:
    match heard.verdict:
        case Verdict.APPLIED:
            return _false_applied(sibling, heard, own, truth)
        case Verdict.NOT_APPLIED | Verdict.REFUSED:
            later = {sent.name for sent in sibling.sent if _began_after(sent, heard)}
            effects = [each for each in own if each.sender not in later]
            if effects:
                at = effect_at(effects[0])
                return (
                    "not applied, with an effect",
                    f"{heard.verdict}, and its effect landed {_apart(at, heard.at)}",
                )
        case Verdict.SUPERSEDED:
            return _false_superseded(sibling, heard, truth)
    return None


def _began_after(sent: Sent, heard: Heard) -> bool:
    """Return whether a run that the application began once it had heard the verdict made the request."""
    return sent.run.began >= heard.at and sent.run is not heard.run


def _false_applied(
    sibling: Sibling, heard: Heard, own: list[Entry], truth: Truth
) -> tuple[str, str] | None:
    if sibling.operation == "webhooks.create":
        targets = {each.target for each in own if effect_at(each) <= heard.at + TICK}
        if heard.value_id is not None and heard.value_id not in targets:
            takers = [
                each
                for each in truth.effects_on(heard.value_id)
                if each.operation == "webhooks.create"
            ]
            whose = key_of(takers[0]) if takers else "nobody"
            return (
                "applied, by another's effect",
                f"it took {heard.value_id}, which {whose} created",
            )
        return (
            None
            if targets
            else ("applied, without an effect", "no create of it had an effect")
        )
    effects = [each for each in own if effect_at(each) <= heard.at + TICK]
    if any(each.stored != "in part" for each in effects):
        return None
    if _held(sibling, heard, truth):
        return None
    if effects:
        return (
            "applied, in part",
            f"only {', '.join(effects[0].fields or ())} of it was stored",
        )
    if own:
        return (
            "applied, by a later effect",
            f"its effect landed {_apart(effect_at(own[0]), heard.at)}",
        )
    return (
        "applied, without an effect",
        "it had no effect, and no read showed the thing as it was wanted",
    )


def _held(sibling: Sibling, heard: Heard, truth: Truth) -> bool:
    """
    Return whether the thing was as wanted during the read that the verdict rests on.

    A read that lags shows the state of a moment before it: that moment counts if the write had been sent.
    """
    if sibling.thing.startswith("/"):
        return False
    opened = (
        sibling.runs[0].began if sibling.first_opened is None else sibling.first_opened
    )
    return any(
        _is_as_wanted(sibling, state)
        for since, until in _looks(sibling, heard)
        for state in truth.between(
            sibling.thing, max(since - truth.lag, opened) - TICK, until + TICK
        )
    )


def _looks(sibling: Sibling, heard: Heard) -> list[tuple[float, float]]:
    """Return when the read was made; of a verdict without a history, the time since the write began."""
    outcome = heard.outcome
    if outcome is None or not outcome.history:
        return [(sibling.runs[0].began, heard.at)]
    read_at = outcome.evidence.read_at
    return [
        (each.started - heard.ahead, each.ended - heard.ahead)
        for each in outcome.history
        if isinstance(each, Reading) and each.started == read_at
    ]


def _is_as_wanted(sibling: Sibling, state: Mapping[str, Any] | None) -> bool:
    if state is None or sibling.wanted is None:
        return state is None and sibling.wanted is None
    return all(state.get(name) == value for name, value in sibling.wanted.items())


def _misled(sibling: Sibling, heard: Heard, truth: Truth) -> tuple[str, str] | None:
    """Return what is false in the reason that was given for a verdict."""
    if heard.outcome is None:
        return None
    told = Told.of(heard.outcome, at=heard.at, ahead=heard.ahead)
    why = contradiction(told, _happened(sibling, heard, truth))
    return (
        None
        if why is None
        else ("false reason", f"{heard.verdict}, {told.basis}, {told.cause}: {why}")
    )


def _happened(sibling: Sibling, heard: Heard, truth: Truth) -> Happened:
    """Return what the ledger shows about the write."""
    thing = sibling.thing
    began = sibling.runs[0].began
    since = began if sibling.first_opened is None else sibling.first_opened
    changes = truth.effects_on(thing, since - truth.lag - TICK, heard.at + TICK)
    beside = [each for each in changes if key_of(each) != sibling.key]
    arrivals = truth.arrivals_on(thing, began, heard.at + TICK)
    foreign = truth.foreign_effects_on(thing, heard.at + TICK)
    return Happened(
        sends=[
            each
            for each in truth.sends.get(sibling.key, ())
            if not _is_of_a_later_run(each, heard, truth)
        ],
        newer=[
            each.received_at for each in arrivals if _is_newer(each, sibling, truth)
        ],
        others=[effect_at(each) for each in foreign if key_of(each) != sibling.key],
        siblings=[effect_at(each) for each in beside if not _is_foreign(each, truth)],
        states=truth.between(thing, since - truth.lag - TICK, heard.at + TICK),
        wanted=sibling.wanted,
        since_seen=_since_seen(sibling, heard, truth, since),
        since=since - truth.lag,
        window=SHORTEST_WINDOW,
        echoes=truth.echoes,
    )


def _since_seen(
    sibling: Sibling, heard: Heard, truth: Truth, until: float
) -> list[float]:
    """
    Return when the thing was last changed before the first send, *until* then, if the program did not know it.

    It did not if another state than the ledger's is the one before the write in its intent.
    """
    assert heard.outcome is not None
    baseline = heard.outcome.intent.baseline
    wanted = sibling.wanted
    if not isinstance(baseline, dict) or wanted is None:
        return []
    states = truth.between(sibling.thing, until, until)
    is_known = any(_is_alike(state, baseline, wanted) for state in states)
    if is_known:
        return []
    last = truth.last_effect_on(sibling.thing, until)
    return [] if last is None else [effect_at(last)]


def _is_alike(
    state: Mapping[str, Any] | None, baseline: Mapping[str, Any], names: Iterable[str]
) -> bool:
    """Return whether a state of the ledger is the *baseline*, in the fields *names* that the intent keeps."""
    if state is None:
        return not baseline
    return all(state.get(name) == baseline[name] for name in names if name in baseline)


def _is_of_a_later_run(entry: Entry, heard: Heard, truth: Truth) -> bool:
    sent = truth.requests.get(entry.sender or "")
    return sent is not None and _began_after(sent, heard)


def _is_newer(entry: Entry, sibling: Sibling, truth: Truth) -> bool:
    """Return whether *entry* is a request of a write that was begun after *sibling*."""
    other = truth.siblings.get(key_of(entry))
    return (
        other is not None
        and other is not sibling
        and other.runs[0].began >= sibling.runs[0].began
    )


def _is_foreign(change: Entry, truth: Truth) -> bool:
    """Return whether a rival made *change*, or another client that resumed a write beside this program."""
    sent = truth.requests.get(change.sender or "")
    return change.by == "other" or (sent is not None and sent.run.beside)


def _false_superseded(
    sibling: Sibling, heard: Heard, truth: Truth
) -> tuple[str, str] | None:
    since = sibling.first_opened
    changes = truth.effects_on(
        sibling.thing, 0.0 if since is None else since - TICK, heard.at + TICK
    )
    if any(_is_foreign(each, truth) for each in changes):
        return None
    return (
        "superseded, by nobody else",
        f"of the {len(changes)} changes since its first send none is a rival's",
    )


def _contradiction(sibling: Sibling) -> list[Fault]:
    """
    Return the final verdicts that are the opposite of the one that the await gave, with no send between them.

    Those of two settlings may differ: what siblings did between their reads can make the state as wanted.
    """
    found = []
    for earlier, later in pairwise(
        each for each in sibling.heard if each.verdict in _FINAL
    ):
        opposite = (earlier.verdict is Verdict.APPLIED) != (
            later.verdict is Verdict.APPLIED
        )
        is_live = earlier.run.kind == "live"
        if (
            opposite
            and is_live
            and not any(sent.run is later.run for sent in sibling.sent)
        ):
            why = f"{earlier.verdict} by {earlier.run.kind}, then {later.verdict} by {later.run.kind}"
            found.append(Fault("contradiction", sibling, why, later.at))
    return found


def _disorder(siblings: Sequence[Sibling], truth: Truth) -> list[Fault]:
    """Return the effects that landed after those of a newer write of the same sequence."""
    chains: defaultdict[int, list[Sibling]] = defaultdict(list)
    for sibling in siblings:
        chains[sibling.chain[0]].append(sibling)
    found = []
    for chain in chains.values():
        chain.sort(key=lambda each: each.chain[1])
        for place, older in enumerate(chain):
            for newer in chain[place + 1 :]:
                found += _inverted(older, newer, truth)
    return found


def _inverted(older: Sibling, newer: Sibling, truth: Truth) -> list[Fault]:
    if newer.operation == "webhooks.create" or older.thing != newer.thing:
        return []
    news = [effect_at(each) for each in truth.effects.get(newer.key, [])]
    found = []
    for effect in truth.effects.get(older.key, []):
        at, sent = effect_at(effect), truth.requests.get(effect.sender or "")
        beside = sent is not None and sent.run.beside
        late = [each for each in news if each + (PROOF if beside else 0.0) < at]
        if late:
            why = f"its effect landed {at - late[0]:.3f} s after that of the newer write {newer.key}"
            found.append(Fault("order", older, why, at))
    return found


def _apart(at: float, verdict: float) -> str:
    return f"{abs(at - verdict):.3f} s {'after' if at > verdict else 'before'} it was heard"


def verdicts_of(siblings: Iterable[Sibling]) -> Counter[str]:
    """Count the last verdicts; a write of which none was heard is counted as such."""
    return Counter(
        str(each.heard[-1].verdict) if each.heard else "none" for each in siblings
    )
