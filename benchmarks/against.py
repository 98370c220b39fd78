"""
Measure this tree and another commit side by side, and list what changed beyond noise.

This tree's benchmarks measure both packages, so both are measured in the same way.  For each run, one process
measures each of them, in random order, with the package of one commit first on its path.
"""

from __future__ import annotations

import os
import random
import statistics
import subprocess
import sys
import tarfile
import tempfile
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from benchmarks.harness import Ratio, interval
from benchmarks.runs import ROOT, compile_package, measured_once, named

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from benchmarks.harness import Row

__all__ = ["Change", "changes", "compare", "first_on_path", "package_of"]


@attrs.frozen
class Change:
    """A row as measured for both commits; *ratio* is that of this tree to that of the other commit."""

    row: Row
    before: float
    after: float
    ratio: Ratio

    @property
    def verdict(self) -> str:
        """``better`` or ``worse`` if the 95 % interval excludes 1, else ``same``."""
        if self.ratio.low <= 1 <= self.ratio.high:
            return "same"
        return (
            "better" if (self.ratio.high < 1) == (self.row.sense == "most") else "worse"
        )


def compare(
    commit: str, files: Sequence[str], *, runs: int
) -> tuple[list[Row], list[Row]]:
    """
    Measure *files* for *commit* and for this tree, *runs* times each; return the rows of both.

    An old package may lack what a file measures: then only this tree has its rows.

    Raises:
        subprocess.CalledProcessError: *commit* does not exist, or this tree cannot be measured.
    """
    sides: dict[str, list[Row]] = {"before": [], "after": []}
    order = random.Random(runs)
    with package_of(commit) as folder:
        paths = {"before": [folder, ROOT], "after": [ROOT]}
        for place in (folder, ROOT):
            compile_package(place)
        for run in range(runs):
            for name in files:
                for side in order.sample(list(sides), 2):
                    print(
                        f"run {run + 1} of {runs}: {name}, {side}",
                        file=sys.stderr,
                        flush=True,
                    )
                    try:
                        sides[side] += measured_once(
                            name, cwd=folder, env=first_on_path(paths[side])
                        )
                    except subprocess.CalledProcessError:
                        if side == "after":
                            raise
                        print(
                            f"{name} cannot be measured for {commit}",
                            file=sys.stderr,
                            flush=True,
                        )
    return sides["before"], sides["after"]


def changes(before: Sequence[Row], after: Sequence[Row]) -> list[Change]:
    """Compare the rows of equal names: the first of one side with the first of the other, and so on."""
    earlier, later = named(before), named(after)
    both = [_change(earlier[name], later[name]) for name in later if name in earlier]
    return [change for change in both if change]


def _change(before: Sequence[Row], after: Sequence[Row]) -> Change | None:
    pairs = [
        (one.ratio.median, two.ratio.median)
        for one, two in zip(before, after, strict=True)
        if one.ratio and two.ratio
    ]
    if not pairs:
        return None
    ratio = interval([two / one for one, two in pairs])
    return Change(
        after[0], *(statistics.median(side) for side in zip(*pairs, strict=True)), ratio
    )


@contextmanager
def package_of(commit: str) -> Iterator[Path]:
    """Extract the package of *commit*, without its benchmarks and tests, to a temporary folder."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["git", "archive", "--format=tar", commit, "invsvc_async"]
        packed = subprocess.run(
            command, check=True, capture_output=True, cwd=ROOT
        ).stdout
        with tarfile.TarFile(fileobj=BytesIO(packed)) as archive:
            # Python 3.11 has filters only from 3.11.4 on.
            archive.extraction_filter = getattr(
                tarfile, "data_filter", lambda member, _path: member
            )
            archive.extractall(folder)  # noqa: S202 - what git has packed
        yield Path(folder)


def first_on_path(folders: Sequence[Path]) -> Mapping[str, str]:
    """Return an environment whose path begins with *folders*, and not with the working directory."""
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, folders)),
        "PYTHONSAFEPATH": "1",
    }
