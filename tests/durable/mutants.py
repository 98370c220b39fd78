"""
Wrong lines of the durable store, of outboxes and of keyed writes, each of which a test must notice.

    python -m tests.durable.mutants [stores | keys | resolve | others | told [PART OF A NAME …]]

Each runs on a copy of the package.  Those of stores run against the stories of one store, then against those
of outboxes.  For keys there is one or more for each guard: the claim, the fence, the waits, reading before a
second send, conflicts, namespaces, forgotten keys, replays, secrets, and a store that is away.  Those of
``resolve`` take back what refuses a person's finding, or what follows from it.  The others are lines of
batches, receivers, traces, commands and limits whose values only the test beside each shows.  Those of ``told`` are
about files that clients leave behind, hooks that hang, and words; each names its tests.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.mutation import ROOT, in_files, judge, mutants_in

if TYPE_CHECKING:
    from tests.support.mutation import Mutant

STORIES = [
    f"tests/durable/test_{name}.py"
    for name in ("stores", "leases", "counts", "model", "lost_replies", "flags")
]
OTHERS = [
    "tests/batch/test_awaited_order.py", "tests/batch/test_causes.py",
    "tests/batch/test_circuit_breaker.py", "tests/batch/test_deliveries.py", "tests/batch/test_last_writes.py",
    "tests/batch/test_lane_share.py", "tests/batch/test_restored.py",
    "tests/batch/test_restored_order.py", "tests/batch/test_restored_states.py", "tests/cli/test_events.py",
    "tests/cli/test_outbox.py", "tests/concurrency/test_quick_start.py",
    "tests/durable/test_away_at_start.py", "tests/durable/test_clocks.py", "tests/durable/test_labels.py",
    "tests/durable/test_removal.py", "tests/durable/test_sharing.py",
    "tests/events/receiving/test_body_room.py", "tests/events/receiving/test_refusal_by_head.py",
    "tests/events/receiving/test_result_while_away.py", "tests/events/stores/test_standing.py",
    "tests/faults/test_cancellation.py",
    "tests/outbox/test_away_at_start.py", "tests/outbox/test_bad_input.py", "tests/outbox/test_dispatch.py",
    "tests/outbox/test_due.py", "tests/outbox/test_restored.py",
    "tests/outbox/test_turns.py",
    "tests/outbox/test_unfit_among_others.py",
    "tests/test_tracing_values.py",
]  # fmt: skip
KEYS = (
    "key_claims",
    "keys",
    "queued_keys",
    "key_clocks",
    "key_tags",
    "key_teams",
    "named_namespaces",
    "keys_beside_others",
    "keys_seen_before",
    "settled_keys",
    "shared_journal",
    "many_unknown_keys",
    "windows_of_runs",
)
TESTS = {  # by the list of mutants: workers, and what they run
    "stores": (
        ("0", ["--hypothesis-profile=mutants", *STORIES]),
        ("4", ["tests/outbox"]),
    ),
    "keys": (("0", [f"tests/durable/test_{name}.py" for name in KEYS]),),
    "resolve": (
        (
            "0",
            [
                f"tests/{name}/test_resolve.py"
                for name in ("durable", "batch", "outbox")
            ],
        ),
    ),
    "others": (("0", OTHERS),),
    "told": (("0", []),),
}


_LONGEST = 1200  # s that the tests of one mutant may take


def noticed_by(
    mutant: Mutant, *, tree: Path, tests: tuple[tuple[str, list[str]], ...]
) -> str | None:
    """
    Return the test that fails with *mutant* in the copy *tree*; ``None`` if all pass, or one hangs.

    The last part of where it must be noticed chooses among *tests*, and those that are named before it.
    """
    *named, which = mutant.where or ("",)
    with in_files(mutant, tree):
        for workers, chosen in tests:
            command = [
                sys.executable, "-m", "pytest", "-q", "-rfE", "--maxfail=1", "-n", workers,
                "-p", "no:cacheprovider", "-k", which, *chosen, *named,
            ]  # fmt: skip
            environment = {**os.environ, "PYTHONPATH": str(tree)}
            try:
                run = subprocess.run(  # noqa: S603 - our own command
                    command,
                    cwd=tree,
                    env=environment,
                    capture_output=True,
                    text=True,
                    check=False,
                    timeout=_LONGEST,
                )
            except subprocess.TimeoutExpired:  # a test that hangs says nothing
                return None
            # Not a log's line, nor a file of tests that cannot be imported: the mutant must run.
            if failed := re.search(
                r"^(?:FAILED|ERROR) (tests/\S+::.+?)(?: - |$)", run.stdout, re.MULTILINE
            ):
                return failed[1]
            if run.returncode:
                raise RuntimeError(run.stdout[-2000:] + run.stderr[-2000:])
    return None


def main(kinds: list[str], parts: list[str]) -> int:
    """Run the lists *kinds*, or those with *parts* in their names; return 1 if one was not noticed."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder)
        for name in ("invsvc_async", "tests", "examples", "docs"):
            shutil.copytree(
                ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__")
            )
        shutil.copy(ROOT / "pyproject.toml", tree)
        return max(
            judge(
                mutants_in(Path(__file__).with_name(f"{kind}.patches")),
                parts,
                partial(noticed_by, tree=tree, tests=TESTS[kind]),
            )
            for kind in kinds
        )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:2] or [*TESTS], sys.argv[2:]))
