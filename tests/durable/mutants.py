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


_PUT, _FILE = "durable/postgres_store.py", "durable/sqlite_store.py"
_SCRIPTS, _LEASES = "durable/scripts.py", "durable/leases.py"
_DISPATCH = "batch/dispatcher.py"
_SQLITE, _POSTGRES = "outbox/sqlite.py", "outbox/postgres.py"
MUTANTS = (
    Mutant("fence of a put", _PUT, " AND owned.owner = given.token %s", " %s"),
    Mutant(
        "done stays done (PG)",
        _PUT,
        "AND (e.done_at IS NULL OR e.done_at = given.done_at AND e.verdict = given.verdict)",
        "",
    ),
    Mutant("done stays done (SQLite)", _FILE, " AND e.done_at IS NULL {{changed}}", " {{changed}}"),
    Mutant("lost is told (SQLite)", _FILE, "if states.get(entry.seq) != entry.state}", "if False}"),
    Mutant(
        "verdict untold (PG)",
        _PUT,
        "SELECT seq, taker FROM stored WHERE done_at IS NOT NULL",
        "SELECT seq, taker FROM stored WHERE false",
    ),
    Mutant(
        "living consumer robbed", _SCRIPTS, "owner in (None, taker) or member_of(owner) not in alive", "True"
    ),
    Mutant("any consumer's verdict", _SCRIPTS, 'u.taker = $3 OR {dead("u.taker")}', "true"),
    Mutant(
        "keep without taker",
        _SCRIPTS,
        "WHERE seq {any 1 bigint} AND taker = $2 {share}",
        "WHERE seq {any 1 bigint} AND $2 = $2 {share}",
    ),
    Mutant(
        "acknowledge without taker",
        "durable/results.py",
        '"DELETE FROM {s}unheard WHERE seq {any 1 bigint} AND taker = $2"',
        '"DELETE FROM {s}unheard WHERE seq {any 1 bigint} AND {arg 2 text} IS NOT NULL"',
    ),
    Mutant(
        "reopen applied",
        _SCRIPTS,
        "AND e.verdict <> 'applied' AND e.intent IS NOT NULL",
        "AND e.intent IS NOT NULL",
    ),
    Mutant(
        "reopen emptied",
        _SCRIPTS,
        " AND e.intent IS NOT NULL ORDER BY e.seq {{update}}",
        " ORDER BY e.seq {{update}}",
    ),
    Mutant(
        "reopened stays unheard",
        _SCRIPTS,
        "    yield _HEARD, ([seq for seq, *_ in rows],)\n    yield from count",
        "    yield from count",
    ),
    Mutant(
        "unknown forgets sends",
        _SCRIPTS,
        "intent if verdict == Verdict.UNKNOWN else without_sends(intent)",
        "without_sends(intent)",
    ),
    Mutant("drop sent", _SCRIPTS, " or may_be_sent(entry):", ":"),
    Mutant(
        "drop of copy",
        _SCRIPTS,
        "entry.seq <= last_of(restored[0][0] if restored else None) or may_be_sent(entry)",
        "may_be_sent(entry)",
    ),
    Mutant(
        "prune unheard",
        _SCRIPTS,
        "{{arg 2 smallint}} = 1 OR NOT EXISTS",
        "{{arg 2 smallint}} < 2 OR NOT EXISTS",
    ),
    Mutant("prune unknown", _SCRIPTS, " AND e.verdict <> '{Verdict.UNKNOWN}'\n", "\n"),
    Mutant(
        "prune without looking again",
        _SCRIPTS,
        "WHERE {_OLD} AND e.seq {{any 3 bigint}} RETURNING",
        "WHERE ({_OLD} OR true) AND e.seq {{any 3 bigint}} RETURNING",
    ),
    Mutant("lease longer than silence", _LEASES, "LEASE: Final = 0.8", "LEASE: Final = 800.0"),
    Mutant("living owner robbed", _LEASES, "if owner is None or member_of(owner) not in alive}", "}"),
    Mutant("taken lane is free", _LEASES, "taken = {lane: owner is None for", "taken = {lane: True for"),
    Mutant(
        "unanswered lane is free",
        _LEASES,
        "            taken[lane] = False\n",
        "            taken[lane] = True\n",
    ),
    Mutant(
        "longer silence",
        _LEASES,
        "CASE WHEN silence > {arg 1 float8} THEN silence ELSE {arg 1 float8} END",
        "{arg 1 float8}",
    ),
    Mutant("lanes regained", _DISPATCH, "lane.doubtful or number in lost)", "lane.doubtful)"),
    Mutant("passed over", _DISPATCH, "            self._places[lane.number] = 0\n", "            pass\n"),
    Mutant(
        "read again is min",
        _DISPATCH,
        "last[lane] if since is None else min(since, last[lane])",
        "last[lane] if since is None else since",
    ),
    Mutant(
        "newest",
        _DISPATCH,
        "if item.thing is not None and item.place < newest.get(item.thing, 0):",
        "if False:",
    ),
    Mutant(
        "sender gone",
        _DISPATCH,
        "sender_gone=lane.was_free",
        "sender_gone=True",
    ),
    Mutant(
        "other write under its key",
        _SQLITE,
        "lambda row: others.get(row.key, State.DONE) == State.DONE, new",
        "lambda row: True, new",
    ),
    Mutant("row first", _SQLITE, "            await self._forget([key])\n", ""),
    Mutant("rows of the copy", _SQLITE, "            await self.store.run(mark_restored)\n", ""),
    Mutant(
        "another file beside",
        _SQLITE,
        "                await self._belongs_together()\n",
        "                pass\n",
    ),
    Mutant("the dead are not forgotten", _FILE, 'connection.execute("DELETE FROM members")', "pass"),
    Mutant(
        "note of what was enqueued", _PUT, "await self.rows(_NOTE_LAST, await self.ask(self._note))", "pass"
    ),
    Mutant("lock of a thing", _POSTGRES, "lock=_NO_LOCK if new.thing is None else _LOCK", "lock=_NO_LOCK"),
    Mutant("place", "outbox/outbox.py", "        await self._store.store.check_place()\n", ""),
    Mutant(
        "counts of what is reopened",
        _SCRIPTS,
        "        counts[State.DONE, verdict, flags] -= 1\n",
        "        pass\n",
    ),
    Mutant("counts of what is changed (SQLite)", "durable/tables.py", "OLD=-1, NEW=1", "NEW=1"),
    Mutant("number of another entry", _PUT, "e.seq = given.seq AND e.key = given.key", "e.seq = given.seq"),
    Mutant("counts of what was reopened meanwhile", _PUT, '"AND b.state = e.state"', '""'),
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
