"""
List wrong lines of the rules, each with the worlds that must notice it.
"""

from __future__ import annotations

from tests.exhaustive.mutate import Mutant
from tests.exhaustive.sibling_mutants import NEWER


def _decide(name: str, old: str, new: str, *where: str) -> Mutant:
    return Mutant(name, "decide", old, new, where)


def _find(name: str, old: str, new: str, *where: str) -> Mutant:
    return Mutant(name, "findings", old, new, where)


def _known(name: str, old: str, new: str, *where: str) -> Mutant:
    return Mutant(name, "facts", old, new, where)


MUTANTS = (
    # windows
    _decide(
        "a window by a read's end", "last.started >= known.over\n", "last.ended >= known.over\n", "slow reads"
    ),
    _decide(
        "superseded before the window",
        "    if not after:\n",
        '    if not after and type(finding).__name__ != "Superseded":\n',
        "others act",
    ),
    _decide(
        "already so before the window",
        "    if not after:\n",
        "    if not after and not isinstance(finding, Holds):\n",
        "already so",
    ),
    _decide(
        "absent before the window",
        "    if not after:\n",
        "    if not after and not isinstance(finding, Absent):\n",
        "again",
    ),
    _known(
        "a gateway's 500 taken as short",
        "status == 500 and attempt.own_envelope",
        "status == 500",
        "no second send",
    ),
    _known(
        "an own 503 taken as short",
        "status == 500 and attempt.own_envelope",
        "status >= 500 and attempt.own_envelope",
        "no second send",
    ),
    _known(
        "a loss taken as short",
        "self.policy.settle_after_loss if kind",
        "self.policy.settle_after_error if kind",
        "no second send",
    ),
    _known(
        "settle without a window",
        "over_by_wait = since + running + window",
        "over_by_wait = since",
        "killed",
    ),
    _known(
        "the server's window without a window",
        "ended_by + window + self.policy.clock_slack",
        "ended_by",
        "killed",
    ),
    _known(
        "a sender that may live taken as dead",
        "0.0 if sent.end or resumed.sender_gone else sent.attempt_timeout",
        "0.0",
        "killed",
    ),
    _decide(
        "cannot tell before the window",
        "    if not after:\n",
        "    if not after and not isinstance(finding, CannotTell):\n",
        "others act",
    ),
    # proofs
    _decide(
        "sent again without a proof",
        "def _settle(known: Known) -> Decision:\n    last = known.history[-1]\n",
        "def _settle(known: Known) -> Decision:\n    last = known.history[-1]\n    if isinstance(last, Attempt) and len(known.attempts) == 1:\n        return _send(known)\n",
        "again",
    ),
    _decide(
        "sent again on an old proof",
        "not_after=reading.ended + PROOF_LASTS",
        "not_after=reading.ended + 60.0",
        "again",
    ),
    _decide(
        "never left, so sent again at once",
        '    if kind == "not applied" and last.end is End.ANSWERED:\n',
        '    if last.end is End.NOT_SENT:\n        return _send(known)\n    if kind == "not applied" and last.end is End.ANSWERED:\n',
        "late to send",
    ),
    _decide(
        "sent once more than allowed",
        "resends >= policy.max_resends",
        "resends > policy.max_resends",
        "again",
    ),
    _known(
        "resumed, and sent twice",
        "resends, in_doubt = 0, bool(self.carried)",
        "resends, in_doubt = 0, False",
        "killed",
    ),
    _decide(
        "sent again where it does not fit", "- policy.settle_after_loss - 2 * READ_TIME", "", "slow to fail"
    ),
    _decide(
        "sent again for too short",
        "if timeout < min(SHORTEST_RESEND, configured):",
        "if timeout < 0.5:",
        "slow to fail",
    ),
    # reads
    _decide(
        "a failed read taken as absence",
        "return _positive(known) if after else None",
        "return (_positive(known) or _absent(known, last)) if after else None",
        "failing reads",
    ),
    _find("an answer of a gateway taken as evidence", " or not reading.own_envelope", "", "failing reads"),
    _find(
        "a full list taken as whole",
        "if reading.full or reading.raw_count >= 100:",
        "if False:",
        "a full list",
    ),
    # answers
    _known(
        "an echo believed",
        'return "echo" if status in (404, 409, 410) else "not applied"',
        'return "not applied"',
        "again",
    ),
    _known("a 410 not taken for an echo", "(404, 409, 410)", "(404, 409)", "echoes"),
    _known(
        "a gateway's refusal believed",
        " and (attempt.own_envelope or attempt.of_authentication)",
        "",
        "refused by a gateway",
    ),
    _known("the authentication layer's refusal doubted", " or attempt.of_authentication", "", "calm"),
    _known("a 202 taken for done", " and status != 202", "", "accepted"),
    _decide(
        "a gateway's refusal sent again",
        "    if known.refusal is not None:\n",
        "    if False:\n",
        "refused by a gateway, again",
    ),
    _known(
        "a stored refusal sent again",
        "return None if last is None else last.refusal",
        "return None",
        "refused by a gateway, killed",
    ),
    _known(
        "an unreadable success believed",
        '"applied" if attempt.readable and status != 202 else "long"',
        '"applied" if status != 202 else "long"',
        "no second send",
    ),
    _known("a 408 taken as a refusal", " and status != 408", "", "no second send"),
    # creates
    _find(
        "an unsure time taken as before",
        'if known.when(hook.get("created_at"), reading) == "before":',
        'if known.when(hook.get("created_at"), reading) in ("before", "unsure"):',
        "killed, no times",
    ),
    _find("near matches ignored", "    if candidates:\n", "    if exact:\n", "webhooks.create: others act"),
    _find(
        "no upper bound on created_at",
        "return float(created_at) / 1000 <= latest + known.policy.clock_slack",
        "return True",
        "an equal one later",
    ),
    _find(
        "a tight upper bound on created_at",
        "<= latest + known.policy.clock_slack",
        "<= latest - 1.0",
        "webhooks.create: again",
    ),
    _find(
        "a URL in other words taken for another one",
        "return in_time and but_for_url",
        "return False",
        "stored in other words",
    ),
    _find(
        "a URL of our own taken for ours in other words",
        " and known_as not in reading.guessed",
        "",
        "two of two URLs",
    ),
    _find(
        "an unsure match taken as ours",
        " and all(_surely_after(known, reading, hook) for hook in exact)",
        "",
        "just before, wide",
    ),
    _find("tags of others ignored", "if _bears_another_tag(known, hook):", "if False:", "at once"),
    _find(
        "our tag ignored",
        "    return tag is not None and (text",
        "    return False and (text",
        "tagged: stored in other words",
    ),
    _find(
        "a mark of one's own taken for proof",
        "    if tagged and is_unique(known.intent.tag):\n",
        "    if tagged:\n",
        "marks of others",
        "one mark, in turn",
    ),
    _decide("duplicates known at once", "len(known.sends) > 1", "len(known.sends) > 9", "create: again"),
    _known(
        "no slack for the service's hosts",
        "slack = self.policy.clock_slack\n        low",
        "slack = 0.0\n        low",
        "hosts behind",
    ),
    # journeys
    _find(
        "an unsure change taken as before",
        'if placed == "before" or',
        'if placed in ("before", "unsure") or',
        "not dated",
    ),
    _find(
        "or equals the baseline",
        'if placed == "before" or (baseline is not None and _is_unchanged(kind, seen, baseline, wanted)):',
        'if placed == "before" or (baseline and _shows(kind, baseline, {name: seen.get(name) for name in wanted})):',
        "others act",
    ),
    _find("no time equals no time", "last is not None and ", "", "not dated"),
    _find(
        "a published snapshot believed",
        "if kind.hides is not None and kind.hides(known.policy, seen):",
        "if False:",
        "published",
    ),
    _find(
        "words taken for another's, journeys",
        "_in_other_words(known, reading.seen) or finding if blames",
        "finding if blames",
        "journeys.update: in other words",
    ),
    # changes of webhooks
    _find(
        "words taken for another's, webhooks",
        "_in_other_words(known, reading.seen) or finding if blames",
        "finding if blames",
        "webhooks.update: in other words",
    ),
    _find(
        "a reader's absence of a change believed",
        'known.method != "POST" and not known.is_newest(reading)',
        "False",
        "sheets.save_mapping, then another",
    ),
    _find(
        "any difference taken as absence",
        "if not _agrees(kind, reading.seen, baseline, sent):",
        "if False:",
        "webhooks.update: others act",
    ),
    _find(
        "an old absence believed",
        "    if known.decayed(reading):\n",
        "    if False:\n",
        "webhooks.update: killed",
    ),
    _known(
        "an old absence believed, while awaited",
        "reading.ended - self.attempts[0].started > self.policy.absence_within",
        "False",
        "soon too old",
    ),
    # what is carried over
    _known(
        "a bare intent taken as unsent",
        "if self.intent.sent or self.resumed.journaled:",
        "if True:",
        "killed",
    ),
    _known(
        "bounds of the process before believed",
        "if self.intent.bounds is not None and self.resumed is None:",
        "if self.intent.bounds is not None:",
        "killed, clock ahead",
    ),
    Mutant(
        "a send is not stored before it begins",
        "stored_intent",
        "    if send is not None:\n",
        "    if False:\n",
        ("killed",),
    ),
    Mutant(
        "an end is stored too early",
        "stored_intent",
        "latest=attempt.ended + bounds.high if",
        "latest=attempt.ended + bounds.low if",
        ("killed, wide",),
    ),
    # what is tried where nothing is in doubt
    _decide(
        "never left, and given up",
        "if tries > NOT_SENT_TRIES:\n        reason",
        "if tries > 1:\n        reason",
        "late to send",
    ),
    _decide(
        "a fresh token not used", "last.status == 401 and last.token_renewed", "last.status == 402", "calm"
    ),
    _decide("limited, and given up", "_after_pause(known, pause, deadline) or ", "", "limited"),
    _decide(
        "no next step", "or _judged(known, last) or _next_read(known)", "or _judged(known, last)", "again"
    ),
    *NEWER,
)
