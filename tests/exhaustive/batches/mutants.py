"""
Wrong lines of batches, each with the scenes that must notice it.

    python -m tests.exhaustive.batches.mutants [PART OF A NAME …]
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

_fencing, _sqlite, _postgres = "journals.chunk_fencing", "journals.sqlite", "journals.postgres"
# A send is limited by its lease, and to the time that the journal says.
_LATE = Mutant("a send may begin at any time", ".writes.driver", "latest = started + send.attempt_timeout",
               "latest = started + 900.0", "database: frozen", 3)  # fmt: skip
MUTANTS = (
    # ownership and leases
    Mutant("the fence is not checked", _fencing, "o.id = g.chunk AND o.owner = g.token", "o.id = g.chunk",
           "database: frozen", 2),
    Mutant("a lease does not limit a send", "item", "        if self.lease is not None:\n            until,",
           "        if False:\n            until,", "database: frozen", 3, _LATE),
    Mutant("a lease outlives the silence", "shared_run", "_LEASE = 0.8", "_LEASE = 800.0", "database: frozen", 3,
           _LATE),
    Mutant("a chunk with open writes is closed", _fencing, "chunk = $1 AND done_at IS NULL)",
           "chunk = $1 AND false)", "database: both feed", 13),
    Mutant("a chunk is not looked at again", "shared_run", "while not await self._entries.close_chunk(",
           "if not await self._entries.close_chunk(", "database: both feed", 0),
    Mutant("one thing in two chunks", _postgres, "        if not touched:\n", "        if True:\n",
           "database: both feed", 11),
    # storing and sending
    Mutant("sent before it is stored", "item", "await self.entries.put(self._entry(State.SENDING, intent))",
           "self.entries.put(self._entry(State.SENDING, intent))", "file: killed: two renames", 3),
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
    # windows
    Mutant("the windows of unknown ones are not asked for", "run", "            await self._close_lines(page)\n",
           "            pass\n", "file: unknown", 11),
    Mutant("the windows of other workers are not asked for", "shared_run",
           "await self._close_lines(await self._entries.unknown_of(things))", "pass",
           "database: unknown", 11),
    Mutant("a window is taken as over", "run", "if known.free_at > resumed.at:", "if False:", "file: unknown", 11),
    # order
    Mutant("newer writes are not looked at", "run", "if max(last_done, in_flight.get(item.thing, 0)) > entry.seq:", "if False:",
           "file: retried: a refused", 12),
    Mutant("newer writes are not looked at by workers", "shared_run",
           "return await self._taken_up(entries, items, in_flight)", "return items", "database: retried: a worker", 12),
    Mutant("newer writes in flight are not looked at", "run",
           "            note_in_flight(in_flight, page, [self._item(entry, entries) for entry in page])\n",
           "            pass\n", "file: killed and retried", 12),
    Mutant("what was overtaken is sent", "engine", "if item.in_doubt or item.is_overtaken:", "if item.in_doubt:",
           "file: retried: a refused", 12),
    Mutant("nothing is noted of a thing", ".durable.last_writes", "    if thing is None or outcome.verdict in NO_EFFECT or",
           "    if True or outcome.verdict in NO_EFFECT or", "file: retried: a refused", 12),
    Mutant("an unknown write overtakes nothing", ".durable.last_writes", "outcome.verdict in NO_EFFECT or",
           "outcome.verdict in (*NO_EFFECT, 'unknown') or", "file: retried: a refused one, and a newer unknown", 12),
    Mutant("a chunk in the wrong order", _postgres, '"chunk = $1 AND done_at IS NULL ORDER BY seq"',
           '"chunk = $1 AND done_at IS NULL ORDER BY seq DESC"', "database: killed", 12),
    Mutant("a file in the wrong order", _sqlite, 'where = "state < 2 AND seq > ? ORDER BY seq LIMIT ?"',
           'where = "state < 2 AND seq > ? ORDER BY -seq LIMIT ?"', "file: retried: with another", 12),
    # retry and prune
    Mutant("an unknown one is reopened as never sent", _sqlite,
           "((_REOPEN, True), (_REOPEN_ANEW, False))", "((_REOPEN_ANEW, True), (_REOPEN_ANEW, False))", "file: retried: unknown", 1),
    Mutant("a retried one stays in its old chunk", _postgres, "chunk = g.chunk,", "",
           "database: retried", 13),
    Mutant("an open one is pruned", _sqlite, "WHERE state = 2 AND done_at < ? AND verdict <> 'unknown'",
           "WHERE (state < 2 OR done_at < ?) AND verdict IS NOT 'unknown'", "file: killed and pruned", 0),
    # nothing lost
    Mutant("what an earlier run left is forgotten", "run", "await self._feed_left(engine, ",
           "await asyncio.sleep(0, 0) and (engine, ", "file: killed: two renames", 13),
    # restored journals
    Mutant("an older copy is not recognised", ".durable.epoch", "    if missing <= 0:", "    if True:",
           "file: restored", 3),
    Mutant("the file beside a journal is not written", ".durable.epoch",
           "        self._standing = self._standing._replace(sends=count)\n        self._write()\n",
           "        self._standing = self._standing._replace(sends=count)\n", "file: restored", 3),
    Mutant("open writes of a copy are not in doubt", "restored", "if number <= self.through else intent",
           "if number < 0 else intent", "file: restored: retried", 3),
    Mutant("writes that a copy lacks are not in doubt", "restored",
           "        self.met += 1\n        return in_doubt(intent, self.earliest)", "        return intent", "file: restored", 3),
    Mutant("writes that a copy lacks are only in doubt until a kill", "run",
           "            await self._feed_all(engine)\n            restored, skipped",
           "            await self._batch.entries.close_restored()\n            await self._feed_all(engine)\n"
           "            restored, skipped", "file: restored", 3),
    Mutant("a restored journal has the newest writes", ".durable.intents", "newest = None if intent.newest else intent.newest",
           "newest = intent.newest", "file: restored", 8),
    # how far a file was read
    Mutant("a checkpoint is stored before what it covers", "checkpoint",
           "is not None and not parts[0].open and", "is not None and", "file: input", 13),
    Mutant("an input is whole before it is stored", "checkpoint",
           "return self.ended and not any(part.open for part in self._parts)", "return self.ended", "file: input", 13),
    Mutant("another file is taken for the same", "file_check",
           "if (reader.offset, reader.digest) == (checkpoint.offset, checkpoint.digest):", "if True:",
           "file: input", 13),
    # results
    Mutant("a result is taken when it is given", "run", "                self._last = result, self._batch.entries.deliveries\n",
           "                self._last = result, self._batch.entries.deliveries\n                self._take_last()\n",
           "file: left early", 13),
    Mutant("results that were not taken are not given again", _sqlite,
           "return await self.finished(None, since, limit)", "return []", "file: left early", 13),
    Mutant("which results were taken is not stored", _sqlite, '_set_fact(connection, "taken", position)', "pass",
           "file: killed", 14),
    Mutant("results of workers that are gone are not given", "journals.postgres_runs",
           'WHERE given_by = ANY ($1) ORDER BY run"', 'WHERE given_by = ALL ($1) AND false ORDER BY run"', "database: killed", 13),
    Mutant("which results workers gave is not stored", "journals.postgres_runs",
           "UPDATE runs r SET taken = greatest(taken, t.position),", "UPDATE runs r SET taken = taken,",
           "database: unknown", 14),
    Mutant("a run that was silent does not ask what others give", "shared_run",
           "while self._clock.now() > self._relies_until:", "while False:", "database: frozen", 14),
    Mutant("a run relies on its sign of life for too long", "journals.postgres_runs", "_RELIES = 0.8", "_RELIES = 800.0",
           "database: frozen", 14),
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
    """Judge all mutants, or those whose names contain one of *parts*; print what became of each."""
    logging.getLogger("invsvc_async").setLevel(logging.CRITICAL)
    missed = 0
    for mutant in MUTANTS:
        if parts and not any(part in mutant.name for part in parts):
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
