"""
Wrong lines of what sends tables, each of which a test must notice.

    python -m tests.engines.mutants [rows | tasks [PART OF A NAME …]]

Each runs on a copy of the package: those of ``rows`` against the tests of rows, and those of ``tasks`` against
the tests that they name, which are skipped, and so notice nothing, where their engine is not installed.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from functools import partial
from pathlib import Path

from tests.durable.mutants import noticed_by
from tests.support.mutation import ROOT, judge, mutants_in

TESTS = {
    "rows": (
        (
            "0",
            [
                "tests/engines/test_rows.py",
                "tests/engines/test_places.py",
                "tests/engines/test_presence.py",
                "tests/engines/test_untaken_results.py",
            ],
        ),
    ),
    "tasks": (("0", []),),
}


def main(kind: str, parts: list[str]) -> int:
    """Run the list *kind*, or those with *parts* in their names; return 1 if one was not noticed."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder)
        for name in ("invsvc_async", "tests", "examples", "docs"):
            shutil.copytree(
                ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__")
            )
        shutil.copy(ROOT / "pyproject.toml", tree)
        mutants = mutants_in(Path(__file__).with_name(f"{kind}.patches"))
        return judge(mutants, parts, partial(noticed_by, tree=tree, tests=TESTS[kind]))


if __name__ == "__main__":
    sys.exit(main(*(sys.argv[1:2] or ["rows"]), sys.argv[2:]))
