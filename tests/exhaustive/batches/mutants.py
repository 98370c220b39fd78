"""
Wrong lines of batches, each with the scenes that must notice it.

    python -m tests.exhaustive.batches.mutants [PART OF A NAME, OR OF A SCENE'S …]
"""

from __future__ import annotations

import logging
import sys
import time

from tests.exhaustive.batches.mutate import Mutant, broken
from tests.exhaustive.batches.play import play
from tests.exhaustive.batches.scenes import SCENES
from tests.interleavings.walk import walk

MOST = 400  # executions of a scene, at most

_postgres, _sqlite, _scripts = ".durable.postgres_store", ".durable.sqlite_store", ".durable.scripts"
_entries, _leases, _results = ".durable.entries", ".durable.leases", ".durable.results"
_claims, _keys, _run = ".durable.key_claims", ".durable.keys", ".durable.keyed_run"
# A send is limited by its lease, and to the time that the journal says.
_LATE = Mutant("a send may begin at any time", ".writes.driver", "latest = started + send.attempt_timeout",
               "latest = started + 900.0", "database: frozen", 3)  # fmt: skip
# A verdict that another process has is neither found nor taken.
_OTHERS = Mutant("the verdicts of others are found", _scripts, 'u.taker = $3 OR {dead("u.taker")}', "{{arg 1 float8}} > 0 OR $3 <> ''",
                 "database: ", 14)  # fmt: skip
_LONG_LEASE = Mutant("a process relies on its lease for too long", _leases, "LEASE: Final = 0.8", "LEASE: Final = 800.0",
                     "database: frozen", 3)  # fmt: skip
_ROBBED = Mutant("the owner of an entry may live", _claims, "if owner is not None and owner != mine.token and member_of(owner) in alive:",
                 "if False:", "keys: two runs", 1)  # fmt: skip
MUTANTS = (
    # ownership and leases
    Mutant("the fence is not checked", _postgres, "AND owned.owner = given.token %s", "%s", "database: frozen: for a moment",
           1, _LONG_LEASE),
    Mutant("a lease does not limit a send", "item", "exchange.not_after = until if proven is None else min(until, proven)",
           "exchange.not_after = proven", "database: frozen", 3, _LATE),
    Mutant("a lease outlives the silence", _leases, "LEASE: Final = 0.8", "LEASE: Final = 800.0", "database: frozen", 3,
           _LATE),
    Mutant("a lane that was taken over counts as free", _leases, "taken = {lane: owner is None for", "taken = {lane: True for",
           "database: frozen: for a moment", 3),
    Mutant("a lane is released while something of it is under way", "dispatcher",
           "if lane.leaving and lane.number not in under_way]", "if lane.leaving]", "database: helped", 3),
    Mutant("what was passed over is not read again", "dispatcher", "            self._places[lane.number] = 0\n",
           "            pass\n", "file: retried: while another", 13),
    Mutant("one thing in two lanes", _entries, "name = (thing or key)", "name = key", "database: fed slowly", 11),
    # storing and sending
    Mutant("sent before it is stored", "item", "await self.lane.put(self._entry(State.SENDING,",
           "self.lane.put(self._entry(State.SENDING,", "file: killed: two renames", 3),
    Mutant("what was in flight is sent anew", "item",
           'return any(each.end is None or each.end.kind != "not applied" for each in self.intent.sent)',
           "return False", "file: killed: two renames", 1),
    Mutant("sent anew by another worker", "item",
           'return any(each.end is None or each.end.kind != "not applied" for each in self.intent.sent)',
           "return False", "database: killed", 3),
    Mutant("a result is given before it is stored", "engine", "        error = storing.exception()\n",
           "        error = None\n", "database: frozen", 14),
    Mutant("put back as unsent, though it was", "item", "in_doubt = outcome.verdict is Verdict.UNKNOWN",
           "in_doubt = False", "file: outage", 3),
    Mutant("a write that is known is added again", _scripts, "ON CONFLICT (key) DO NOTHING RETURNING seq",
           "ON CONFLICT (key) DO UPDATE SET state = 0, intent = excluded.intent, common = excluded.common, verdict = NULL,"
           " done_at = NULL RETURNING entries.seq", "database: both feed the same", 3),
    Mutant("the common parts of intents are stored later", _scripts, "for number in {e.common for e in entries if e.common}],)",
           "for number in ()],)", "file: killed: two renames", 0),
    # windows
    Mutant("the windows of unknown ones are not asked for", "earlier",
           "await self._close_lines(await unknown_of(self._store, fresh))", "pass", "file: unknown", 11),
    Mutant("the windows of other workers are not asked for", "earlier",
           "await self._close_lines(await unknown_of(self._store, fresh))", "pass", "database: unknown", 11),
    Mutant("a window is taken as over", "earlier", "if known.free_at > resumed.at:", "if False:", "file: unknown", 11),
    # order
    Mutant("newer writes are not looked at", "earlier", "if max(last_done, in_flight.get(item.thing, 0)) > entry.place:",
           "if False:", "file: retried: a refused", 12),
    Mutant("newer writes are not looked at by workers", "dispatcher", "await self.earlier.mark(items, is_part=is_part)",
           "pass", "database: retried: a worker", 12),
    Mutant("newer writes in flight are not looked at", "earlier", "if item.in_doubt and not was_seen_undone(item.intent):", "if False:",
           "file: killed and retried", 12),
    Mutant("what was overtaken is sent", "engine", "if item.in_doubt or item.is_overtaken:", "if item.in_doubt:",
           "file: retried: a refused", 12),
    Mutant("nothing is noted of a thing", ".durable.last_writes", "    if thing is None or outcome.verdict in NO_EFFECT or",
           "    if True or outcome.verdict in NO_EFFECT or", "file: retried: a refused", 12),
    Mutant("an unknown write overtakes nothing", ".durable.last_writes", "outcome.verdict in NO_EFFECT or",
           "outcome.verdict in (*NO_EFFECT, 'unknown') or", "file: retried: a refused one, and a newer unknown", 12),
    Mutant("a lane in the wrong order", _postgres, "AND e.done_at IS NULL ORDER BY e.place",
           "AND e.done_at IS NULL ORDER BY e.place DESC", "database: killed", 12),
    Mutant("a file in the wrong order", _sqlite, "AND e.done_at IS NULL ORDER BY e.place LIMIT $2",
           "AND e.done_at IS NULL ORDER BY -e.place LIMIT $2", "file: retried: with another", 12),
    # retry and prune
    Mutant("an unknown one is reopened as never sent", _scripts,
           "kept = intent if verdict == Verdict.UNKNOWN else without_sends(intent)", "kept = without_sends(intent)",
           "file: retried: unknown", 1),
    Mutant("a forced one keeps its place", _scripts, "place = coalesce(given.place, e.place)", "place = e.place",
           "database: retried: with force", 12),
    Mutant("an open one is pruned", _scripts,
           "e.state = {State.DONE:d} AND e.done_at < $1 AND e.verdict <> '{Verdict.UNKNOWN}'",
           "(e.state < {State.DONE:d} OR e.done_at < $1) AND coalesce(e.verdict, '') <> '{Verdict.UNKNOWN}'",
           "file: killed and pruned", 0),
    # nothing lost
    Mutant("what is reopened is not counted", _scripts, "    yield from count(part, counts)\n    again", "    again",
           "database: retried", 15),
    Mutant("what is stored is not counted", _postgres, "UNION ALL SELECT state_before, verdict_before, flags_before, -1 FROM stored",
           "", "database: unknown", 15),
    Mutant("what an earlier run left is forgotten", _sqlite, "return [entry for entry in found if entry.seq not in known][:each]",
           "return []", "file: killed: two renames", 13),
    # restored journals
    Mutant("an older copy is not recognised", ".durable.restored", "    if missing <= 0:", "    if True:",
           "file: restored", 3),
    Mutant("the file beside a journal is not written", ".durable.restored",
           "        self._standing = self._standing._replace(sends=count)\n        self._write()\n",
           "        self._standing = self._standing._replace(sends=count)\n", "file: restored", 3),
    Mutant("open writes of a copy are not in doubt", "restored", "if number <= self.through else intent",
           "if number < 0 else intent", "file: restored: retried", 3),
    Mutant("writes that a copy lacks are not in doubt", "restored",
           "        self.met += 1\n        return in_doubt(intent, self.earliest)", "        return intent", "file: restored", 3),
    Mutant("writes that a copy lacks are only in doubt until a kill", "run",
           "            await self._feed_all(engine)\n            restored, skipped",
           "            await self._batch.entries.store.run(close_restored)\n            await self._feed_all(engine)\n"
           "            restored, skipped", "file: restored: two creates", 3),
    Mutant("a restored journal has the newest writes", ".durable.intents", "newest = None if intent.newest else intent.newest",
           "newest = intent.newest", "file: restored: fed slowly", 8),
    # how far a file was read
    Mutant("a checkpoint is stored before what it covers", "run", "                    await self._room(engine)\n",
           "                    await entries.add([], name, reached)\n                    await self._room(engine)\n",
           "file: input", 13),
    Mutant("an input is whole before it is stored", "run", "                    await self._room(engine)\n",
           "                    await entries.end_input(name)\n                    await self._room(engine)\n",
           "file: input", 13),
    Mutant("another file is taken for the same", "file_check",
           "if (reader.offset, reader.digest.hexdigest()) == (checkpoint.offset, checkpoint.digest):", "if True:",
           "file: input from a file: another", 13),
    # results
    Mutant("a result is taken when it is given", "run", "                self._last = entry\n",
           "                self._results.acknowledge(entry)\n",
           "file: left early", 13),
    Mutant("results that were not taken are not given again", _scripts, "WHERE u.taker IS NULL OR u.taker = $3 OR",
           "WHERE $3 = '' AND", "file: left early", 13),
    Mutant("which results were taken is not stored", _results, "{any 1 bigint} AND taker = $2", "{any 1 bigint} AND $2 = ''",
           "file: killed", 14),
    Mutant("results of workers that are gone are not given", _scripts, 'OR u.taker = $3 OR {dead("u.taker")}', "OR u.taker = $3 OR {{arg 1 float8}} < 0",
           "database: killed", 13),
    Mutant("which results workers gave is not stored", _results, "{any 1 bigint} AND taker = $2", "{any 1 bigint} AND $2 = ''",
           "database: unknown", 14),
    Mutant("the results of living workers are taken", _scripts,
           "if owner in (None, taker) or member_of(owner) not in alive]", "]", "database: read slowly", 14, _OTHERS),
    Mutant("a run that was silent does not ask what others give", _results,
           "if since == leases.taker and leases.clock.now() <= leases.until:", "if True:",
           "database: frozen", 14),
    Mutant("a run relies on its sign of life for too long", _results, "leases.clock.now() <= leases.until:",
           "leases.clock.now() <= leases.until + 800.0:", "database: frozen", 14),
    Mutant("nobody asks whether its results are still its own", _scripts, "{any 1 bigint} AND taker = $2 {share}",
           "{any 1 bigint} AND $2 = $2 {share}", "database: read slowly", 14),
    # keys
    Mutant("a key that is taken is sent", _run, "            raise KeyTakenError(found)\n        elif not", "            pass\n        elif not",
           "keys: two runs, at once", 3),
    Mutant("a key is taken from the living", _keys, "if found.lives and found.owner != run.lane.token:\n                await",
           "if False:\n                await", "keys: two runs", 1, _ROBBED),
    Mutant("an applied one is done again", _keys, "_FINAL = (Verdict.APPLIED, Verdict.SUPERSEDED)", "_FINAL = ()",
           "keys: killed", 15),
    Mutant("what was taken over is sent unread", _keys, "if entry.state is State.TO_DO:\n            return await",
           "if True:\n            return await", "keys: killed", 3),
    Mutant("what was cancelled is not released", _run, "            self.keys.start(self._released(entry))", "            pass",
           "keys: cancelled", 13),
    Mutant("what was cancelled is released as unsent", _run, "State.SENDING if sent else State.TO_DO", "State.TO_DO",
           "keys: cancelled", 3),
    Mutant("two keys of one thing at once (after a read)", _keys, "        if not run.is_next:\n            await self._after_earlier(run, run.seq)\n",
           "", "keys: in turn", 11),
    Mutant("two keys of one thing at once", _run, "        elif not self.is_next:\n            raise KeyTakenError(None)\n", "",
           "keys: in turn, at once", 11),
)  # fmt: skip


def caught(mutant: Mutant, most: int = MOST) -> str | None:
    """Return the name of a scene that notices *mutant*, or ``None``."""
    scenes = [scene for scene in SCENES if scene.name.startswith(mutant.where)]
    if not scenes:
        raise LookupError(f"{mutant.name}: there is no scene {mutant.where!r}")
    with broken(mutant):
        for scene in scenes:
            if walk(scene, bound=1, most=most, first=mutant.rule, play=play).broken:
                return scene.name
    return None


def main(parts: list[str]) -> int:
    """Judge all mutants, or those with one of *parts* in their names or scenes; print what became of each."""
    logging.getLogger("invsvc_async").setLevel(logging.CRITICAL)
    missed = 0
    for mutant in MUTANTS:
        if parts and not any(part in mutant.name or part in mutant.where for part in parts):
            continue
        begun = time.monotonic()
        name = caught(mutant)
        missed += name is None
        said = "MISSED" if name is None else f"caught by {name!r}, rule {mutant.rule}"
        sys.stdout.write(f"[{time.monotonic() - begun:.1f} s] {mutant.name}: {said}\n")
        sys.stdout.flush()
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
