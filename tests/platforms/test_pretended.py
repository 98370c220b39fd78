"""The package as it finds itself on macOS and Windows, which Linux imitates (``tests/support/other_systems.py``)."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.support.other_systems import ROOT, environment

pytestmark = [
    pytest.mark.one_python,
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux imitates others"),
]
SYSTEMS = ("win32", "darwin")


def printed_on(system, program, *arguments):
    """Return the JSON that *program* prints, in a process whose package is on *system*."""
    ran = subprocess.run(  # noqa: S603 - our own
        [sys.executable, "-c", program, *map(str, arguments)],
        capture_output=True, text=True, check=False, env=environment(system), cwd=ROOT,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return json.loads(ran.stdout)


@pytest.mark.parametrize("system", SYSTEMS)
def test_what_holds_everywhere(system):
    """It holds there, too: locks, writes whose answers are lost, files, and what commands print."""
    # rewriting assertions would find the package's modules first
    tests = (
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        "tests/platforms/test_everywhere.py",
    )
    ran = subprocess.run(  # noqa: S603 - our own
        [sys.executable, *tests],
        capture_output=True, text=True, check=False, env=environment(system), cwd=ROOT,
    )  # fmt: skip

    assert ran.returncode == 0, ran.stdout + ran.stderr
