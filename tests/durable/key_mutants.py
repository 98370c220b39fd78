"""
Wrong lines of keyed writes, each of which a test must notice.

    python -m tests.durable.key_mutants [PART OF A NAME …]

There is one or more for each guard: the claim, the fence, the waits, reading before a second send, conflicts,
namespaces, forgotten keys, replays, secrets, and a store that is away.
"""

from __future__ import annotations

import sys

from tests.durable.mutants import main, mutants_in

TESTS = (("0", ["tests/durable/test_key_claims.py", "tests/durable/test_keys.py"]),)
MUTANTS = mutants_in(
    """
claim: the other's entry is taken (file) | durable/key_claims.py | applied_is_replayed
- WHERE true ON CONFLICT (key) DO NOTHING RETURNING key, seq
+ WHERE true ON CONFLICT (key) DO UPDATE SET lane = excluded.lane RETURNING key, seq
claim: the other's entry is taken (PG) | durable/key_claims.py | same_moment
- AS numbered
-         CROSS JOIN whole
-     ON CONFLICT (key) DO NOTHING RETURNING
+ AS numbered
+         CROSS JOIN whole
+     ON CONFLICT (key) DO UPDATE SET lane = excluded.lane RETURNING
claim: in a lost lane | durable/key_claims.py | lost_its_lane
- WHERE id = $3 AND owner = $4 {{share}}
+ WHERE id = $3 {{share}}
claim: sent although it is taken | durable/key_claims.py | applied_is_replayed or racers
- self.claims.claim(self, entry)) is not None:
-             raise KeyTakenError(found)
-         elif
+ self.claims.claim(self, entry)) is not None:
+             pass
+         elif
claim: the store is away | durable/key_claims.py | away
-                             future.set_exception(error)
+                             future.set_result(1)
send: the store is away | durable/key_claims.py | between
-             await self.lane.put(entry)
-         elif
+             self.lane.put(entry)
+         elif
take: from the living | durable/key_claims.py | living
- if owner is not None and owner != mine.token and member_of(owner) in alive:
+ if False:
take: in a lost lane | durable/key_claims.py | lost_its_lane
-     if not (yield _MINE, (mine.number, mine.token)):
+     if not (yield _MINE, (mine.number, mine.token)) and False:
take: by two | durable/key_claims.py | taken_once
- WHERE seq = $1 AND lane = $2 AND done_at IS NULL RETURNING seq
+ WHERE seq = $1 AND {arg 2 bigint} IS NOT NULL AND done_at IS NULL RETURNING seq
take: a silent one counts as gone | durable/key_claims.py | silent_is_not_gone
- (before == ENDED or (bool(owners) and owner is None)) if moved
+ True if moved
wait: none | durable/keys.py | thousand
- if found.lives and found.owner != run.lane.token:
-                 await self.claims.wait(found)
-                 return None
-             gone
+ if found.lives and found.owner != run.lane.token:
+                 return None
+             gone
wait: its verdict does not count | durable/keys.py | waiter_returns
- if waited or verdict in _FINAL:
+ if verdict in _FINAL:
wait: forgotten meanwhile, and sent | durable/keys.py | pruned_while
- if found is None and waited:
+ if False:
reopen: by two | durable/key_claims.py | reopened_once
- AND verdict = $2 AND done_at = $3 RETURNING
+ AND {{arg 2 text}} <> '' AND {{arg 3 bigint}} > 0 RETURNING
reopen: while it is done | durable/key_claims.py | reopened_once
- WHERE seq = $1 AND state = {State.DONE:d} AND verdict = $2 AND done_at = $3 RETURNING
+ WHERE seq = $1 AND {{arg 2 text}} <> '' AND {{arg 3 bigint}} > 0 RETURNING
reopen: an unknown one as unsent | durable/keys.py | unknown
- State.SENDING if verdict == Verdict.UNKNOWN else State.TO_DO
+ State.TO_DO
release: none | durable/key_claims.py | at_once
-             self.claims.start(self._released(entry))
+             pass
release: by a zombie | durable/key_claims.py | zombie
-     AND EXISTS (SELECT 1 FROM {{s}}lanes WHERE id = $2 AND owner = $3)
+     AND {{arg 3 text}} <> ''
release: as unsent | durable/key_claims.py | cancelled
- State.SENDING if sent else State.TO_DO
+ State.TO_DO
read before a second send | durable/keys.py | cancelled
- if entry.state is State.TO_DO:
-             return await self._first(run, spec)
-         intent
+ if True:
+             return await self._first(run, spec)
+         intent
zombie: its verdict is told | durable/key_claims.py | wakes_up
-         except LostLaneError:
-             raise
+         except LostLaneError:
+             pass
final: superseded is done again | durable/keys.py | superseded
- _FINAL = (Verdict.APPLIED, Verdict.SUPERSEDED)
+ _FINAL = (Verdict.APPLIED,)
final: applied is done again | durable/keys.py | replayed
- _FINAL = (Verdict.APPLIED, Verdict.SUPERSEDED)
+ _FINAL = (Verdict.SUPERSEDED,)
racers in one process: not shared | durable/keys.py | racers_in_one
- if turn.rounds > rounds and turn.last is not None:
+ if False:
order: an older write undoes a newer one | durable/keys.py | undo
-         if run.overtaken:
+         if False:
order: none (before a read) | durable/keys.py | order
-         if not run.is_next:
-             await self._after_earlier(run, run.seq)
+
order: none (before a send) | durable/key_claims.py | order
-         elif not self.is_next:
-             raise KeyTakenError(None)
+
order: an open one is no obstacle (file) | durable/key_claims.py | order
- WHERE e.thing = given.thing AND e.done_at IS NULL AND e.seq <> given.seq
+ WHERE false
order: an open one is no obstacle (PG) | durable/key_claims.py | order
- AND lane = $3 AND verdict = '{Verdict.APPLIED}'
+ AND lane = $3
order: a state of another process is no obstacle (PG) | durable/key_claims.py | order
- SELECT 1 FROM {{s}}entries WHERE seq = before AND lane = $3 AND verdict
+ SELECT 1 FROM {{s}}entries WHERE seq = before AND verdict
order: stored as sent before its turn | durable/key_claims.py | order
- CASE WHEN is_so AND (thing IS NULL OR is_next) THEN state
+ CASE WHEN is_so THEN state
order: a write that was not sent counts as the last | durable/keys.py | superseded
-             driver.take_back()
+
order: reopened as the newest, unseen | durable/entries.py | order
-         yield _LOOK_AGAIN, (sorted(again),)
+         pass
conflict: none | durable/key_names.py | another_write
-     if differing:
+     if False:
conflict: the operation does not count | durable/key_names.py | another_write
- if not name.startswith(("body", "tag"))]
+ if False]
conflict: digits | durable/key_names.py | numbers
- if isinstance(value, Decimal) and
+ if False and
conflict: only two digits | durable/key_names.py | numbers
- rest.rstrip("0")
+ rest[:2].rstrip('0')
namespace: one for all | durable/key_names.py | teams
- return f"{self._known[team]} {key}"
+ return f"x {key}"
namespace: any credential | durable/key_names.py | credential
- if await self._facts.get_or(f"keys {place}", mine) == mine:
+ if await self._facts.get_or(f"keys {place}", mine):
namespace: none for a provider | durable/key_names.py | provider
-         if mine is None:
+         mine = mine or ""
+         if False:
restored: keys may be missing | durable/key_names.py | copy
- return self._mark is not None and self._mark.is_open
+ return False
restored: not looked at | durable/keys.py | copy
-         await self._doubts.check()
-         if run.overtaken:
+         if run.overtaken:
forget: what may have been sent | durable/key_claims.py | forgotten
-         if state != State.SENDING:
+         if True:
prune: unknown ones | durable/scripts.py | unknown
-  AND e.verdict <> '{Verdict.UNKNOWN}'
+
replay: it is not told | durable/keys.py | racers_in_one
- changes: dict[str, Any] = {"replayed": True}
+ changes: dict[str, Any] = {}
replay: from the store, not told | durable/keys.py | replayed
- attrs.evolve(outcome, replayed=True)
+ attrs.evolve(outcome)
secret: to each of this process | durable/keys.py | racers_in_one
- if outcome.secret == "returned":
+ if False:
secret: returned, says a dead process | durable/keys.py | killed
- return latest is not None and not latest.untold
+ return True
secret: nobody notes that it was returned | durable/key_claims.py | replayed
-         if self.taker is not None:
+         if False:
secret: not delivered | durable/key_claims.py | delivered
- (hook := session.on_secret) is not None:
+ (hook := None) is not None:
secret: delivered, and the outcome says returned | durable/keys.py | delivered
- if run.outcome.secret == "delivered":
+ if False:
secret: whoever asks is not told that it was returned | durable/keys.py | replayed
- if run.taker is None:
+ if True:
recover: those with keys count as other ones | durable/journal.py | recover
- AND done_at IS NULL AND digest <> ''
+ AND done_at IS NULL AND digest <> '' AND false
restored: sent though its key may be missing | durable/key_claims.py | may_be_missing
- CASE WHEN is_so AND (thing
+ CASE WHEN true AND (thing
restored: next though its key may be missing | durable/key_claims.py | put_back_under
- SELECT given.key, made.seq, is_so AND
+ SELECT given.key, made.seq, true AND
restored: not looked at again | durable/key_names.py | put_back_under
- if self._read_at != self._store.marks:
+ if self._read_at < 0:
restored: not looked at after the claim | durable/keys.py | put_back_under
-                 await self._doubts.check()
+
restored: keys that it has are not looked for | durable/keys.py | put_back_under
- if has_all and new_start
+ if new_start
order: one that goes on is released | durable/key_claims.py | another_client_is_sent
-         if self.is_next:
-             self.let_go
+         if True:
+             self.let_go
order: a later one that was applied is not seen | durable/keys.py | undo
- s.place > $4 OR EXISTS
+ false OR EXISTS
order: a later one that is open is not seen | durable/keys.py | one_that_is_open
- WHERE thing = $1 AND done_at IS NULL AND place > $4
+ WHERE false
"""
)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], MUTANTS, TESTS))
