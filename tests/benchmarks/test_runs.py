"""Several runs are combined, and the runs of two commits compared, with intervals computed from the runs."""

from __future__ import annotations

import os
import subprocess

import pytest

from benchmarks import __main__ as command, against, runs
from benchmarks.against import changes
from benchmarks.harness import Ratio, Row, interval

pytestmark = pytest.mark.one_python


def rows(*medians, what="a", sense="most"):
    """Return one row for each run, with the ratio that it found."""
    return [
        Row(
            what=what,
            against="b",
            limit=1.2,
            sense=sense,
            ratio=Ratio(median, median, median),
        )
        for median in medians
    ]


def test_interval_of_runs():
    """It is Student's interval of the logarithms: 1 ± 4.303 standard errors for three runs."""
    found = interval([1.0, 1.1, 1 / 1.1])
    assert found.median == 1.0
    assert found.high == pytest.approx(1.267, abs=0.001)
    assert found.low == pytest.approx(1 / found.high)


def test_interval_of_one_run():
    """One run says nothing about the next."""
    assert interval([1.1]) == Ratio(1.1, 0.0, float("inf"))


def test_runs_of_the_table():
    """A row of several runs has the median of their medians; a row that was not measured stays."""
    missing = Row(what="c", against="a peer", limit=1.0, note="not installed")
    first, second = runs.combined(
        [*rows(1.1), missing, *rows(1.3), missing, *rows(1.0), missing]
    )
    assert (first.ratio.median, first.runs, first.verdict) == (
        1.1,
        (1.1, 1.3, 1.0),
        "holds",
    )
    assert second == missing


@pytest.mark.parametrize(
    ("sense", "after", "verdict"),
    [
        ("most", (0.9, 0.91, 0.9), "better"),
        ("least", (0.9, 0.91, 0.9), "worse"),
        ("most", (1.1, 1.12, 1.11), "worse"),
        ("most", (0.9, 1.2, 1.0), "same"),
    ],
)
def test_change_beyond_noise(sense, after, verdict):
    """It is a change only if the interval of the runs' ratios excludes 1."""
    (found,) = changes(rows(1.0, 1.0, 1.0, sense=sense), rows(*after, sense=sense))
    assert found.verdict == verdict
    assert (found.before, found.after) == (1.0, sorted(after)[1])


def test_rows_of_one_side_only():
    """A row that a side lacks, or did not measure, is not compared."""
    missing = [Row(what="d", against="a peer", limit=1.0)]
    found = changes(
        [*rows(1.0), *missing], [*rows(1.0), *rows(1.0, what="new"), *missing]
    )
    assert [change.row.what for change in found] == ["a"]


def test_package_that_is_measured(monkeypatch, tmp_path):
    """Of the other commit only the package is used, compiled; the benchmarks, and what they need, are of this tree."""
    seen = []

    def measured_once(name, *, cwd, env):
        show = (
            "import os, benchmarks, invsvc_async as i; assert os.path.exists(i.__cached__);"
            "print(i.__file__, benchmarks.__file__)"
        )
        places = subprocess.run(  # noqa: S603 - our own command
            [runs.sys.executable, "-c", show],
            check=True, capture_output=True, text=True, cwd=cwd, env=env,
        ).stdout.split()  # fmt: skip
        seen.append([place.startswith(str(runs.ROOT)) for place in places])
        return rows(1.0 if seen[-1][0] else 2.0)

    packed(tmp_path, monkeypatch)
    monkeypatch.setattr(against, "measured_once", measured_once)
    (found,) = changes(*against.compare("HEAD", ["page"], runs=2))
    assert sorted(seen) == [[False, True], [False, True], [True, True], [True, True]]
    assert (found.before, found.after, found.verdict) == (2.0, 1.0, "better")


@pytest.mark.parametrize("fails_for_both", [False, True])
def test_file_that_an_older_package_cannot_run(tmp_path, monkeypatch, fails_for_both):
    """Only this tree is measured then; if that fails, it is an error."""

    def measured_once(name, *, env, **_):
        # which begins with the older package
        if fails_for_both or os.pathsep in env["PYTHONPATH"]:
            raise subprocess.CalledProcessError(1, name)
        return rows(1.0)

    packed(tmp_path, monkeypatch)
    monkeypatch.setattr(against, "measured_once", measured_once)
    if fails_for_both:
        with pytest.raises(subprocess.CalledProcessError):
            against.compare("HEAD", ["doubt"], runs=1)
    else:
        before, after = against.compare("HEAD", ["doubt"], runs=1)
        assert (before, len(after)) == ([], 1)


def packed(folder, monkeypatch):
    """Let ``git archive`` answer with a package of one empty module, for a tree that is no repository."""
    package = folder / "invsvc_async"
    package.mkdir()
    (package / "__init__.py").touch()
    run = subprocess.run

    def instead(arguments, **settings):
        if arguments[:2] == ["git", "archive"]:
            arguments = ["tar", "-c", "-C", str(folder), "invsvc_async"]
        return run(arguments, **settings)

    monkeypatch.setattr(against.subprocess, "run", instead)


@pytest.mark.parametrize(("after", "status"), [(1.0, 0), (1.5, 1)])
def test_command_that_compares(monkeypatch, capsys, tmp_path, after, status):
    """It prints both figures and the change, and fails if a row became worse. The page has both, too."""
    found = rows(1.0, 1.0), rows(after, after)
    monkeypatch.setattr(against, "compare", lambda *_, **__: found)
    monkeypatch.setattr(command, "_PLACE", tmp_path)
    monkeypatch.setattr(
        command.sys, "argv", ["benchmarks", "--against", "HEAD~1", "--page", "page"]
    )
    assert command.main() == status
    assert f"1.000 ->  {after:.3f}" in capsys.readouterr().out
    head, _, row, *_, about = (tmp_path / "bench.md").read_text().splitlines()
    assert "| Before | Ratio |" in head
    assert f"| 1.00 | {after:.2f} |" in row
    assert "before HEAD~1" in about


def test_run_that_fails():
    """A file that cannot be measured is an error with what it printed, not a missing row."""
    with pytest.raises(subprocess.CalledProcessError) as caught:
        runs.measured_once("no_such_file")
    assert "no_such_file" in caught.value.stderr
