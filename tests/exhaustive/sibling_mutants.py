"""
List wrong lines of the rules of siblings, each with the worlds that must notice it.
"""

from __future__ import annotations

from tests.exhaustive.mutate import Mutant

_SET_ASIDE = "known_as in reading.claimed_by_others or known_as in known.strangers"
_NOT_WRITTEN = 'written = placed == "after" or _is_written('
_FULL = "if reading.full or reading.raw_count >= 100:"


def _mutant(name: str, module: str, old: str, new: str, *where: str) -> Mutant:
    return Mutant(name, module, old, new, where)


# What the rules were before they knew of siblings.
OLD_RULES = (
    _mutant(
        "a journey that differs in the band is superseded",
        "findings",
        'if placed == "after" or any(',
        'if placed in ("after", "band") or any(',
        "beside another",
        "others act",
    ),
    _mutant(
        "a webhook that differs is superseded",
        "findings",
        "if any(_agrees(kind, before, baseline, sent) for before in seen_before):\n            return Superseded",
        "if baseline:\n            return Superseded",
        "webhooks.update: others act",
        "beside another",
    ),
    _mutant(
        "a webhook that is gone is superseded",
        "findings",
        "if known.is_newest(reading) and any(isinstance(before.seen, dict) for before in known.earlier(reading)):",
        "if True:",
        "webhooks.update: others act",
        "left",
    ),
    _mutant(
        "the baseline of the caller alone",
        "new_intent",
        "if known.last is not None and (passed is None or _is_fresher(known.last, passed)):",
        "if False:",
        "in sequence, stale",
    ),
    _mutant(
        "a gap without the widths",
        "facts",
        "max([self.policy.clock_band, *widths])",
        "self.policy.clock_band",
        "create, equal: left, wide",
        "create, equal: in sequence, wide",
    ),
    _mutant(
        "the upper bound excludes",
        "findings",
        "return in_time or _is_exact(known, hook)",
        "return in_time",
        "late",
    ),
    _mutant("times to come believed", "facts", "at > now + slack or ", "", "dated ahead"),
    _mutant(
        "later writes not thought of",
        "facts",
        "        if self.resumed is None:\n            return True\n        if self.resumed.newest",
        "        if True:\n            return True\n        if self.resumed.newest",
        ": left",
    ),
)

# What others have, what is forgotten, and what is carried from process to process.
CARRIED = (
    _mutant(
        "guesses taken as certain",
        "findings",
        _SET_ASIDE,
        f"known_as in reading.guessed or {_SET_ASIDE}",
        "create, equal: left, refused reads",
    ),
    _mutant(
        "claims of others ignored",
        "findings",
        _SET_ASIDE,
        "known_as in known.strangers",
        "create, equal: left, then answered",
    ),
    _mutant(
        "strangers ignored",
        "findings",
        _SET_ASIDE,
        "known_as in reading.claimed_by_others",
        "create, equal: settled once more",
    ),
    _mutant(
        "strangers that are not stored",
        "stored_intent",
        "strangers=tuple(sorted(strangers))",
        "strangers=()",
        "create, equal: settled once more",
    ),
    _mutant(
        "strangers of a read that are not stored",
        "stored_intent",
        "strangers=tuple(sorted(strangers))",
        "strangers=intent.strangers",
        "read first, killed",
    ),
    _mutant(
        "as many effects as there are equal webhooks",
        "findings",
        "if 1 <= len(exact) <= len(known.sends) and",
        "if exact and",
        "create, equal: reopened, clock known, settled once more",
    ),
    _mutant(
        "what was forgotten not thought of",
        "findings",
        "if forgotten is not None and not (",
        "if False and not (",
        "reopened, lists refused",
    ),
    _mutant(
        "a new client takes what it has not seen for new",
        "new_intent",
        "forgotten_until = NEVER_LISTED",
        "pass",
        "create, equal: reopened, clock known",
    ),
    _mutant(
        "a state kept after a write was left open",
        "register",
        "            thing.last = None\n\n    def learn_created",
        "            pass\n\n    def learn_created",
        "webhooks.update, three: left",
    ),
    _mutant(
        "a carried window without slack",
        "facts",
        "ended_by + window + self.policy.clock_slack",
        "ended_by + window",
        "killed, hosts that answer ahead",
    ),
    _mutant(
        "a carried window by the high bound",
        "facts",
        "window + self.policy.clock_slack - self.bounds.low)",
        "window + self.policy.clock_slack - self.bounds.high)",
        "killed, slow reads",
    ),
    _mutant(
        "bounds that exclude each other joined",
        "server_clock",
        "    if low - high > slack:\n        return None\n",
        "",
        "stepped ahead, wide",
    ),
    _mutant(
        "an age by the low bound",
        "facts",
        "return reading.ended + self.bounds.high - first",
        "return reading.ended + self.bounds.low - first",
        "killed, slow reads",
    ),
    _mutant(
        "a yes of an earlier process forgotten",
        "decide",
        'if any(send.kind == "applied" for send in known.carried):',
        "if False:",
        "webhooks.create: killed, clock ahead",
    ),
    _mutant(
        "a journey equal in the band taken as ours",
        "findings",
        _NOT_WRITTEN,
        'written = placed in ("after", "band") or _is_written(',
        "already so since just now",
    ),
    _mutant(
        "a journey equal to its baseline taken as written",
        "findings",
        "and not _shows(known.kind, baseline, _known_of(",
        "and True or not _shows(known.kind, baseline, _known_of(",
        "journeys.update: already so",
    ),
    _mutant(
        "a published journey's state used as a baseline",
        "facts",
        "if hides is not None and isinstance(before, dict) and hides(self.policy, before):",
        "if False:",
        "published, then taken back",
    ),
)

NEWER = (
    *OLD_RULES,
    *CARRIED,
    _mutant(
        "a baseline that is not stored",
        "stored_intent",
        "        baseline=known.before,\n",
        "        baseline=None,\n",
        "taken up at once",
    ),
    _mutant(
        "newest that is not stored",
        "stored_intent",
        "newest=newest if known.history or send is not None else intent.newest",
        "newest=None",
        "taken up at once",
    ),
    _mutant(
        "a journey equal, whatever the baseline",
        "findings",
        _NOT_WRITTEN,
        "written = True or _is_written(",
        "already so",
        "journeys.update, then the same",
    ),
    _mutant(
        "a list taken for full by its count alone",
        "findings",
        _FULL,
        "if reading.raw_count >= 100:",
        "goes on",
    ),
    _mutant("a list taken for full by its flag alone", "findings", _FULL, "if reading.full:", "by its count"),
    _mutant(
        "an echo not looked at",
        "decide",
        "if known.refusal is not None:",
        "if False:",
        "echoes",
    ),
    _mutant(
        "a refused read not looked at",
        "decide",
        "    if last.status in (401, 403):\n        return _positive",
        "    if False:\n        return _positive",
        "refused reads",
    ),
    _mutant(
        "strictly after the window",
        "decide",
        "after = last.started >= known.over\n",
        "after = last.started > known.over\n",
        "just enough time",
    ),
    _mutant(
        "sent again though overtaken",
        "facts",
        "return self.resumed.newest is False\n",
        "return False\n",
        ": resumed",
    ),
    _mutant("settling sends", "decide", "elif resumed.reads_only:", "elif False:", "killed"),
    _mutant(
        "a step after the client was closed",
        "decide",
        "isinstance(history[-1], Closed) and",
        "False and",
        "closed",
    ),
    _mutant(
        "gone before and after not believed",
        "findings",
        "    if known.was_gone:\n",
        "    if False:\n",
        "already gone",
    ),
    _mutant(
        "one read before the first send",
        "decide",
        "if len(tries) > len(BASELINE_PAUSES) or",
        "if tries or",
        "baseline read first, calm",
    ),
    _mutant(
        "an early read that lags believed",
        "facts",
        "return min(seen + self.policy.reads_lag, self.over)",
        "return min(seen, self.over)",
        "webhooks.update: reads that lag",
    ),
    _mutant(
        "a webhook that is not shown yet taken for deleted",
        "findings",
        "return Applied(gone) if _is_current(known, reading) else Holds(gone)",
        "return Applied(gone)",
        "webhooks.delete: reads that lag",
    ),
    _mutant(
        "a journey without a time, by a read that lags",
        "findings",
        "return _is_current(known, reading) and not _shows(",
        "return not _shows(",
        "no time: in sequence, reads that lag",
        "not dated",
    ),
    _mutant(
        "a baseline that was seen at the send, as if long before",
        "facts",
        "seen = min(seen, at + self.policy.clock_slack - self.bounds.low)",
        "seen = float('-inf')",
        "webhooks.update: reads that lag",
    ),
    _mutant(
        "a baseline read just now, as if long before",
        "facts",
        "None if self.bounds is None else event.ended + self.bounds.high",
        "0.0",
        "webhooks.update: reads that lag, read first",
    ),
    _mutant(
        "a state that was learnt just now, as if long before",
        "new_intent",
        "seen = known.last.ended + known.bounds.high",
        "seen = 0.0",
        "webhooks.update, then back: in sequence, reads that lag",
    ),
    _mutant(
        "a stored baseline without its time",
        "stored_intent",
        "baseline_at=known.before_at",
        "baseline_at=0.0",
        "webhooks.update: reads that lag",
    ),
    _mutant(
        "a stranger blamed for a read that lags",
        "facts",
        "if isinstance(event, Reading) and event.started >= since:",
        "if isinstance(event, Reading) and event.started >= self.sends[0].began:",
        "webhooks.update: reads that show a third state, read first",
        "in sequence, reads that lag by 5 s",
    ),
    _mutant(
        "a short window for a create",
        "facts",
        'if kind == "short" and self.method != "POST":',
        'if kind == "short":',
        "500s that commit 3 s later",
    ),
    _mutant(
        "states of ours not learnt",
        "register",
        "        thing.last = LastState(",
        "        LastState(",
        "in sequence",
    ),
)
