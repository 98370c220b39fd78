"""Each wrong line of the lists has a test that is to notice it: what its list says selects some."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from _pytest.mark.expression import Expression

from tests.durable.mutants import TESTS
from tests.support.mutation import ROOT, mutants_in

pytestmark = pytest.mark.one_python


def collected(files):
    """Return the names of the tests in *files*, lower case, as ``-k`` compares them."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-n", "0"]
    run = subprocess.run(  # noqa: S603 - our own command
        [*command, "-p", "no:cacheprovider", *sorted(files)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [line.lower() for line in run.stdout.splitlines() if "::" in line]


def test_each_mutant_is_judged_by_a_test():
    """Otherwise a test that was renamed or moved would leave its mutant to nobody."""
    wanted = []
    for kind, runs in TESTS.items():
        of_list = {part for _, chosen in runs for part in chosen if part[0] != "-"}
        for mutant in mutants_in(Path(__file__).with_name(f"{kind}.patches")):
            *named, which = mutant.where or ("",)
            files = {name.partition("::")[0] for name in (*of_list, *named)}
            wanted.append((f"{kind}: {mutant.name}", files, which))
    names = collected({file for _, files, _ in wanted for file in files})

    def is_selected(files, which):
        ours = [name for name in names if name.startswith(tuple(files))]
        if not which:
            return bool(ours)
        expression = Expression.compile(which)

        def is_meant(name):
            return expression.evaluate(lambda word, **_: word.lower() in name)

        return any(map(is_meant, ours))

    lost = [name for name, files, which in wanted if not is_selected(files, which)]
    assert lost == []
