"""
Wrong lines of the durable store and of outboxes, each of which a test must notice.

    python -m tests.durable.mutants [PART OF A NAME …]

Each runs on a copy of the package, first against the stories of one store, then against those of outboxes.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).parents[2]
STORIES = ["--hypothesis-profile=mutants"]
STORIES += [
    f"tests/durable/test_{name}.py" for name in ("stores", "leases", "counts", "model", "lost_replies")
]
TESTS = (("0", STORIES), ("4", ["tests/outbox"]))  # workers, and what they run


class Mutant(NamedTuple):
    """A line of a file of the package, and what stands there instead; *only* chooses tests, as pytest does."""

    name: str
    file: str
    right: str
    wrong: str
    only: str = ""


def mutants_in(text: str) -> list[Mutant]:
    """
    Return the mutants in *text*.

    Each has a line ``NAME | FILE | TESTS``, the last of which may be missing, and then the lines of a patch.
    """
    found: list[Mutant] = []
    for name, patch in re.findall(r"^(?![-+])(.+)\n((?:[-+].*\n)+)", text, re.MULTILINE):
        right, wrong = (
            "\n".join(re.findall(rf"^{re.escape(sign)} ?(.*)", patch, re.MULTILINE)) for sign in "-+"
        )
        name, file, *only = name.split(" | ")  # noqa: PLW2901 - its parts
        found.append(Mutant(name, file, right, wrong, *only))
    return found


MUTANTS = mutants_in(
    """
fence of a put | durable/postgres_store.py
-  AND owned.owner = given.token %s
+  %s
done stays done (PG) | durable/postgres_store.py
- AND (e.done_at IS NULL OR e.done_at = given.done_at AND e.verdict = given.verdict)
+
done stays done (SQLite) | durable/sqlite_store.py
-  AND e.done_at IS NULL {{changed}}
+  {{changed}}
lost is told (SQLite) | durable/sqlite_store.py
- if states.get(entry.seq) != entry.state}
+ if False}
verdict untold (PG) | durable/postgres_store.py
- SELECT seq, taker FROM stored WHERE done_at IS NOT NULL
+ SELECT seq, taker FROM stored WHERE false
living consumer robbed | durable/scripts.py
- owner in (None, taker) or member_of(owner) not in alive
+ True
any consumer's verdict | durable/scripts.py
- u.taker = $3 OR {dead("u.taker")}
+ true
keep without taker | durable/scripts.py
- WHERE seq {any 1 bigint} AND taker = $2 {share}
+ WHERE seq {any 1 bigint} AND $2 = $2 {share}
acknowledge without taker | durable/results.py
- "DELETE FROM {s}unheard WHERE seq {any 1 bigint} AND taker = $2"
+ "DELETE FROM {s}unheard WHERE seq {any 1 bigint} AND {arg 2 text} IS NOT NULL"
reopen applied | durable/scripts.py
- AND e.verdict <> 'applied' AND e.intent IS NOT NULL
+ AND e.intent IS NOT NULL
reopen emptied | durable/scripts.py
-  AND e.intent IS NOT NULL ORDER BY e.seq {{update}}
+  ORDER BY e.seq {{update}}
reopened stays unheard | durable/scripts.py
-     yield _HEARD, ([seq for seq, *_ in rows],)
-     yield from count
+     yield from count
unknown forgets sends | durable/scripts.py
- intent if verdict == Verdict.UNKNOWN else without_sends(intent)
+ without_sends(intent)
drop sent | durable/scripts.py
-  or may_be_sent(entry):
+ :
drop of copy | durable/scripts.py
- entry.seq <= last_of(restored[0][0] if restored else None) or may_be_sent(entry)
+ may_be_sent(entry)
prune unheard | durable/scripts.py
- {{arg 2 smallint}} = 1 OR NOT EXISTS
+ {{arg 2 smallint}} < 2 OR NOT EXISTS
prune unknown | durable/scripts.py
-  AND e.verdict <> '{Verdict.UNKNOWN}'
+
prune without looking again | durable/scripts.py
- WHERE {_OLD} AND e.seq {{any 3 bigint}} RETURNING
+ WHERE ({_OLD} OR true) AND e.seq {{any 3 bigint}} RETURNING
lease longer than silence | durable/leases.py
- LEASE: Final = 0.8
+ LEASE: Final = 800.0
living owner robbed | durable/leases.py
- if owner is None or member_of(owner) not in alive}
+ }
taken lane is free | durable/leases.py
- taken = {lane: owner is None for
+ taken = {lane: True for
unanswered lane is free | durable/leases.py
-             taken[lane] = False
+             taken[lane] = True
longer silence | durable/leases.py
- CASE WHEN silence > {arg 1 float8} THEN silence ELSE {arg 1 float8} END
+ {arg 1 float8}
lanes regained | batch/dispatcher.py
-  and self._in_lane[lane.number] == self._busy[lane]
+
passed over | batch/dispatcher.py
-                 self._places[lane.number] = 0
+                 pass
read again is min | batch/dispatcher.py
- last[lane] if since is None else min(since, last[lane])
+ last[lane] if since is None else since
newest | batch/dispatcher.py
- if item.thing is not None and entry.place < self._newest.get(item.thing, 0):
+ if False:
sender gone | batch/dispatcher.py
- item.lane, item.sender_gone = lane, lane.was_free
+ item.lane, item.sender_gone = lane, True
other write under its key | outbox/sqlite.py
- lambda row: others.get(row.key, State.DONE) == State.DONE, new
+ lambda row: True, new
row first | outbox/sqlite.py
-             await self._forget([key])
+
rows of the copy | outbox/sqlite.py
-             await self.store.run(mark_restored)
+
another file beside | outbox/sqlite.py
-                 await self._belongs_together()
+                 pass
the dead are not forgotten | durable/sqlite_store.py
- connection.execute("DELETE FROM members")
+ pass
note of what was enqueued | durable/postgres_store.py
- await self.rows(_NOTE_LAST, await self.ask(self._note))
+ pass
lock of a thing | outbox/postgres.py
- lock=_NO_LOCK if new.thing is None else _LOCK
+ lock=_NO_LOCK
place | outbox/outbox.py
-         await self._store.store.check_place()
+
counts of what is reopened | durable/scripts.py
-         counts[State.DONE, verdict, flags] -= 1
+         pass
counts of what is changed (SQLite) | durable/tables.py
- OLD=-1, NEW=1
+ NEW=1
number of another entry | durable/postgres_store.py
- e.seq = given.seq AND e.key = given.key
+ e.seq = given.seq
counts of what was reopened meanwhile | durable/postgres_store.py
- "AND b.state = e.state"
+ ""
"""
)


def noticed_by(mutant: Mutant, tree: Path, given: Sequence[tuple[str, list[str]]]) -> str | None:
    """Return the test that fails with *mutant* in the copy *tree*; ``None`` if all pass."""
    file = tree / "invsvc_async" / mutant.file
    text = file.read_text(encoding="utf-8")
    if mutant.right not in text:
        raise LookupError(f"{mutant.name}: its text is not in {mutant.file}")
    file.write_text(text.replace(mutant.right, mutant.wrong), encoding="utf-8")
    try:
        for workers, tests in given:
            command = [
                sys.executable, "-m", "pytest", "-q", "-rfE", "--maxfail=1", "-n", workers,
                "-p", "no:cacheprovider", "-k", mutant.only, *tests,
            ]  # fmt: skip
            environment = {**os.environ, "PYTHONPATH": str(tree)}
            run = subprocess.run(  # noqa: S603 - our own command
                command, cwd=tree, env=environment, capture_output=True, text=True, check=False, timeout=600
            )
            # Not a log's line, nor a file of tests that cannot be imported: the mutant must run.
            if failed := re.search(r"^(?:FAILED|ERROR) (tests/\S+::.+?)(?: - |$)", run.stdout, re.MULTILINE):
                return failed[1]
            if run.returncode:
                raise RuntimeError(run.stdout[-2000:] + run.stderr[-2000:])
    finally:
        file.write_text(text, encoding="utf-8")
    return None


def main(
    parts: list[str], mutants: Sequence[Mutant] = MUTANTS, tests: Sequence[tuple[str, list[str]]] = TESTS
) -> int:
    """Run those whose names contain one of *parts*, or all; return 1 if one was not noticed."""
    survived = 0
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder)
        for name in ("invsvc_async", "tests", "examples", "docs"):
            shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", tree)
        for mutant in mutants:
            if not parts or any(part in mutant.name for part in parts):
                test = noticed_by(mutant, tree, tests)
                survived += test is None
                sys.stdout.write(f"{mutant.name}: {'SURVIVED' if test is None else test}\n")
                sys.stdout.flush()
    return int(survived > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
