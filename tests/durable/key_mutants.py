"""
Wrong lines of keyed writes, each of which a test must notice.

    python -m tests.durable.key_mutants [PART OF A NAME …]

There is one or more for each guard: the claim, the fence, the waits, reading before a second send, conflicts,
namespaces, forgotten keys, replays, secrets, and a store that is away.
"""

from __future__ import annotations

import sys

from tests.durable.mutants import Mutant, main

TESTS = (("0", ["tests/durable/test_key_claims.py", "tests/durable/test_keys.py"]),)
_CLAIMS, _NAMES = "durable/key_claims.py", "durable/key_names.py"
_KEYS, _RUN = "durable/keys.py", "durable/keyed_run.py"
MUTANTS = (
    Mutant(
        "claim: the other's entry is taken (file)", _CLAIMS,
        "WHERE true ON CONFLICT (key) DO NOTHING RETURNING key, seq",
        "WHERE true ON CONFLICT (key) DO UPDATE SET lane = excluded.lane RETURNING key, seq",
        "applied_is_replayed",
    ),
    Mutant(
        "claim: the other's entry is taken (PG)", _CLAIMS,
        "AS numbered\n        CROSS JOIN whole\n    ON CONFLICT (key) DO NOTHING RETURNING",
        "AS numbered\n        CROSS JOIN whole\n    ON CONFLICT (key) DO UPDATE SET lane = excluded.lane RETURNING",
        "same_moment"
    ),
    Mutant(
        "claim: in a lost lane", _CLAIMS,
        "WHERE id = $3 AND owner = $4 {{share}}",
        "WHERE id = $3 {{share}}",
        "lost_its_lane",
    ),
    Mutant(
        "claim: sent although it is taken", _RUN,
        "self.keys.claims.claim(self, entry)) is not None:\n            raise KeyTakenError(found)\n        elif",
        "self.keys.claims.claim(self, entry)) is not None:\n            pass\n        elif",
        "applied_is_replayed or racers"
    ),
    Mutant(
        "claim: the store is away", _CLAIMS,
        "                            future.set_exception(error)",
        "                            future.set_result(1)",
        "away",
    ),
    Mutant(
        "send: the store is away", _RUN,
        "            await self.lane.put(entry)\n        elif",
        "            self.lane.put(entry)\n        elif",
        "between",
    ),
    Mutant(
        "take: from the living", _CLAIMS,
        "if owner is not None and owner != mine.token and member_of(owner) in alive:",
        "if False:",
        "living",
    ),
    Mutant(
        "take: in a lost lane", _CLAIMS,
        "    if not (yield _MINE, (mine.number, mine.token)):",
        "    if not (yield _MINE, (mine.number, mine.token)) and False:",
        "lost_its_lane",
    ),
    Mutant(
        "take: by two", _CLAIMS,
        "WHERE seq = $1 AND lane = $2 AND done_at IS NULL RETURNING seq",
        "WHERE seq = $1 AND {arg 2 bigint} IS NOT NULL AND done_at IS NULL RETURNING seq",
        "taken_once",
    ),
    Mutant(
        "take: a silent one counts as gone", _CLAIMS,
        "(before == ENDED or (bool(owners) and owner is None)) if moved",
        "True if moved",
        "silent_is_not_gone",
    ),
    Mutant(
        "wait: none", _KEYS,
        "if found.lives and found.owner != run.lane.token:\n                await self.claims.wait(found)\n                return None\n            gone",
        "if found.lives and found.owner != run.lane.token:\n                return None\n            gone",
        "thousand",
    ),
    Mutant(
        "wait: its verdict does not count", _KEYS,
        "if waited or verdict in _FINAL:",
        "if verdict in _FINAL:",
        "waiter_returns",
    ),
    Mutant(
        "wait: forgotten meanwhile, and sent", _KEYS,
        "if found is None and waited:",
        "if False:",
        "pruned_while",
    ),
    Mutant(
        "reopen: by two", _CLAIMS,
        "AND verdict = $2 AND done_at = $3 RETURNING",
        "AND {{arg 2 text}} <> '' AND {{arg 3 bigint}} > 0 RETURNING",
        "reopened_once",
    ),
    Mutant(
        "reopen: while it is done", _CLAIMS,
        "WHERE seq = $1 AND state = {State.DONE:d} AND verdict = $2 AND done_at = $3 RETURNING",
        "WHERE seq = $1 AND {{arg 2 text}} <> '' AND {{arg 3 bigint}} > 0 RETURNING",
        "reopened_once",
    ),
    Mutant(
        "reopen: an unknown one as unsent", _KEYS,
        "State.SENDING if verdict == Verdict.UNKNOWN else State.TO_DO",
        "State.TO_DO",
        "unknown",
    ),
    Mutant(
        "release: none", _RUN,
        "            self.keys.start(self._released(entry))",
        "            pass",
        "at_once",
    ),
    Mutant(
        "release: by a zombie", _CLAIMS,
        "    AND EXISTS (SELECT 1 FROM {{s}}lanes WHERE id = $2 AND owner = $3)\n",
        "    AND {{arg 3 text}} <> ''\n",
        "zombie",
    ),
    Mutant(
        "release: as unsent", _RUN,
        "State.SENDING if sent else State.TO_DO",
        "State.TO_DO",
        "cancelled",
    ),
    Mutant(
        "read before a second send", _KEYS,
        "if entry.state is State.TO_DO:\n            return await self._first(run, spec)\n        intent",
        "if True:\n            return await self._first(run, spec)\n        intent",
        "cancelled",
    ),
    Mutant(
        "zombie: its verdict is told", _RUN,
        "        except LostLaneError:\n            raise\n",
        "        except LostLaneError:\n            pass\n",
        "wakes_up",
    ),
    Mutant(
        "final: superseded is done again", _KEYS,
        "_FINAL = (Verdict.APPLIED, Verdict.SUPERSEDED)",
        "_FINAL = (Verdict.APPLIED,)",
        "superseded",
    ),
    Mutant(
        "final: applied is done again", _KEYS,
        "_FINAL = (Verdict.APPLIED, Verdict.SUPERSEDED)",
        "_FINAL = (Verdict.SUPERSEDED,)",
        "replayed",
    ),
    Mutant(
        "racers in one process: not shared", _KEYS,
        "if turn.rounds > rounds and turn.last is not None:",
        "if False:",
        "racers_in_one",
    ),
    Mutant(
        "order: an older write undoes a newer one", _KEYS,
        "        if run.overtaken:",
        "        if False:",
        "undo",
    ),
    Mutant(
        "order: none (before a read)", _KEYS,
        "        if not run.is_next:\n            await self._after_earlier(run, run.seq)\n",
        "",
        "order",
    ),
    Mutant(
        "order: none (before a send)", _RUN,
        "        elif not self.is_next:\n            raise KeyTakenError(None)\n",
        "",
        "order",
    ),
    Mutant(
        "order: an open one is no obstacle (file)", _CLAIMS,
        "WHERE e.thing = given.thing AND e.done_at IS NULL AND e.seq <> given.seq",
        "WHERE false",
        "order",
    ),
    Mutant(
        "order: an open one is no obstacle (PG)", _CLAIMS,
        "AND lane = $3 AND verdict = '{Verdict.APPLIED}'",
        "AND lane = $3",
        "order",
    ),
    Mutant(
        "order: a state of another process is no obstacle (PG)", _CLAIMS,
        "SELECT 1 FROM {{s}}entries WHERE seq = before AND lane = $3 AND verdict",
        "SELECT 1 FROM {{s}}entries WHERE seq = before AND verdict",
        "order",
    ),
    Mutant(
        "order: stored as sent before its turn", _CLAIMS,
        "CASE WHEN is_so AND (thing IS NULL OR is_next) THEN state ELSE {State.TO_DO:d} END",
        "state",
        "order",
    ),
    Mutant(
        "order: a write that was not sent counts as the last", _KEYS,
        "            driver.take_back()\n",
        "",
        "superseded",
    ),
    Mutant(
        "order: reopened as the newest, unseen", "durable/entries.py",
        "        yield _LOOK_AGAIN, (sorted(again),)\n",
        "        pass\n",
        "order",
    ),
    Mutant(
        "conflict: none", _NAMES,
        "    if differing:\n",
        "    if False:\n",
        "another_write",
    ),
    Mutant(
        "conflict: the operation does not count", _NAMES,
        'if not name.startswith(("body", "tag"))]',
        "if False]",
        "another_write",
    ),
    Mutant(
        "conflict: digits", _NAMES,
        "if isinstance(value, Decimal) and",
        "if False and",
        "numbers",
    ),
    Mutant(
        "conflict: only two digits", _NAMES,
        'rest.rstrip("0")',
        "rest[:2].rstrip('0')",
        "numbers",
    ),
    Mutant(
        "namespace: one for all", _NAMES,
        'return f"{self._known[team]} {key}"',
        'return f"x {key}"',
        "teams",
    ),
    Mutant(
        "namespace: any credential", _NAMES,
        'if await self._facts.get_or(f"keys {place}", mine) == mine:',
        'if await self._facts.get_or(f"keys {place}", mine):',
        "credential"
    ),
    Mutant(
        "namespace: none for a provider",
        _NAMES,
        "        if mine is None:\n",
        '        mine = mine or ""\n        if False:\n',
        "provider",
    ),
    Mutant(
        "restored: keys may be missing", _NAMES,
        "return self._mark is not None and self._mark.is_open",
        "return False",
        "copy",
    ),
    Mutant(
        "restored: not looked at", _KEYS,
        'of which nothing was sent."""\n        await self._doubts.check()\n',
        'of which nothing was sent."""\n',
        "copy",
    ),
    Mutant(
        "forget: what may have been sent", _CLAIMS,
        "        if state != State.SENDING:\n",
        "        if True:\n",
        "forgotten",
    ),
    Mutant(
        "prune: unknown ones", "durable/scripts.py",
        " AND e.verdict <> '{Verdict.UNKNOWN}'\n",
        "\n",
        "unknown",
    ),
    Mutant(
        "replay: it is not told", _KEYS,
        'changes: dict[str, Any] = {"replayed": True}',
        "changes: dict[str, Any] = {}",
        "racers_in_one",
    ),
    Mutant(
        "replay: from the store, not told", _KEYS,
        "attrs.evolve(outcome, replayed=True)",
        "attrs.evolve(outcome)",
        "replayed",
    ),
    Mutant(
        "secret: to each of this process", _KEYS,
        'if outcome.secret == "returned":',
        "if False:",
        "racers_in_one",
    ),
    Mutant(
        "secret: returned, says a dead process", _KEYS,
        "return latest is not None and not latest.untold",
        "return True",
        "killed",
    ),
    Mutant(
        "secret: nobody notes that it was returned", _RUN,
        "        if self.taker is not None:\n",
        "        if False:\n",
        "replayed",
    ),
    Mutant(
        "secret: not delivered", _RUN,
        "(hook := session.on_secret) is not None:",
        "(hook := None) is not None:",
        "delivered",
    ),
    Mutant(
        "secret: delivered, and the outcome says returned", _KEYS,
        'if run.outcome.secret == "delivered":',
        "if False:",
        "delivered",
    ),
    Mutant(
        "secret: whoever asks is not told that it was returned", _KEYS,
        "if run.taker is None:",
        "if True:",
        "replayed",
    ),
    Mutant(
        "recover: those with keys count as other ones", "durable/journal.py",
        "AND done_at IS NULL AND digest <> ''",
        "AND done_at IS NULL AND digest <> '' AND false",
        "recover",
    ),
    Mutant(
        "restored: sent though its key may be missing", _CLAIMS,
        "CASE WHEN is_so AND (thing",
        "CASE WHEN true AND (thing",
        "may_be_missing",
    ),
    Mutant(
        "restored: next though its key may be missing", _CLAIMS,
        "SELECT given.key, made.seq, is_so AND",
        "SELECT given.key, made.seq, true AND",
        "put_back_under",
    ),
    Mutant(
        "restored: not looked at again", _NAMES,
        "if self._read_at != self._store.marks:",
        "if self._read_at < 0:",
        "put_back_under",
    ),
    Mutant(
        "restored: not looked at after the claim", _KEYS,
        "                await self._doubts.check()\n",
        "",
        "put_back_under",
    ),
    Mutant(
        "restored: keys that it has are not looked for", _KEYS,
        "if has_all and new_start",
        "if new_start",
        "put_back_under",
    ),
    Mutant(
        "order: one that goes on is released", _RUN,
        "        if self.is_next:\n            self.let_go",
        "        if True:\n            self.let_go",
        "another_client_is_sent",
    ),
    Mutant(
        "order: a later one that was applied is not seen", _KEYS,
        "s.place > $4 OR EXISTS",
        "false OR EXISTS",
        "undo",
    ),
    Mutant(
        "order: a later one that is open is not seen", _KEYS,
        "WHERE thing = $1 AND done_at IS NULL AND place > $4",
        "WHERE false",
        "one_that_is_open",
    ),
)  # fmt: skip


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], MUTANTS, TESTS))
