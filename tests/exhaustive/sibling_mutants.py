"""
List wrong lines of the rules of siblings, each with the worlds that must notice it.
"""

from __future__ import annotations

from tests.exhaustive.mutate import Mutant

_SET_ASIDE = "known_as in reading.claimed_by_others or known_as in known.strangers"
_NOT_WRITTEN = 'if written or placed == "after" else'
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
        "if not known.intent.may_lag and any(_agrees(before,",
        "if baseline or any(_agrees(before,",
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
        "return _is_in_time(known, known.sends, hook) or _is_exact(known, hook)",
        "return _is_in_time(known, known.sends, hook)",
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
        "strangers=_strangers(known, send)",
        "strangers=()",
        "create, equal: settled once more",
    ),
    _mutant(
        "strangers of a read that are not stored",
        "stored_intent",
        "strangers=_strangers(known, send)",
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
        "own_writes",
        "        last = self._states.pop(thing, None)\n",
        "        last = None\n",
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
        "self.policy.clock_slack - self.bounds.low)",
        "self.policy.clock_slack - self.bounds.high)",
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
        'if written or placed in ("after", "band") else',
        "already so since just now",
    ),
    _mutant(
        "a journey equal to its baseline taken as written",
        "findings",
        "return not _shows(baseline, _known_of(",
        "return True or not _shows(baseline, _known_of(",
        "journeys.update: already so",
    ),
    _mutant(
        "a published journey's state used as a baseline",
        "facts",
        "return None if published else state",
        "return state",
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
        "newest=_newest(known) if known.history or send is not None else intent.newest",
        "newest=None",
        "taken up at once",
    ),
    _mutant(
        "a journey equal, whatever the baseline",
        "findings",
        _NOT_WRITTEN,
        "if True else",
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
        'if echo is not None and kind_of(echo) == "echo":',
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
        "findings",
        "return known.intent.may_lag and reading.started < known.over",
        "return False",
        "webhooks.update, then back: in sequence, reads that lag",
    ),
    _mutant(
        "a stranger blamed for a read that lags",
        "findings",
        "if not known.intent.may_lag and any(",
        "if any(",
        "then another: left, reads that lag",
    ),
    _mutant(
        "a state wanted again not thought of",
        "findings",
        "_agrees(state, body, sent) or baseline is None",
        "baseline is None",
        "webhooks.update, then back: in sequence, reads that lag",
    ),
    _mutant(
        "a baseline that lags not thought of",
        "findings",
        " or baseline is None or _agrees(state, baseline, known)",
        "",
        "then another: left, reads that lag",
    ),
    _mutant(
        "states of ours not learnt",
        "own_writes",
        "        self._states[thing] = LastState(",
        "        LastState(",
        "in sequence",
    ),
)
