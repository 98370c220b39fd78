"""The templates for a CI, as far as they can be read: the systems, and that what their commands name exists."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
import yaml

from invsvc_async.cli.app import COMMANDS

ROOT = Path(__file__).parents[2]
NOXFILE = (ROOT / "noxfile.py").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))[
    "project"
]
SYSTEMS = ["ubuntu-latest", "macos-latest", "windows-latest"]

pytestmark = pytest.mark.one_python
templates = pytest.mark.parametrize("name", ["ci.yml", "ci_of_the_package.yml"])


def read(name):
    return yaml.safe_load((ROOT / "examples" / name).read_text(encoding="utf-8"))


def commands_of(workflow):
    return [
        line.strip()
        for job in workflow["jobs"].values()
        for step in job["steps"]
        for line in step.get("run", "").splitlines()
    ]


def sessions():
    """Return the sessions of the noxfile; those of several Pythons with each."""
    named = re.findall(
        r"^@nox\.session(.*)\n(?:@.*\n|    .*\n|\]\n|\)\n)*def (\w+)\(",
        NOXFILE,
        re.MULTILINE,
    )
    return {name: "PYTHONS)" in options for options, name in named}


@templates
def test_systems(name):
    """The tests run on each of the three, with the oldest and the newest Python."""
    tests = read(name)["jobs"]["tests"]
    matrix = tests["strategy"]["matrix"]

    assert tests["runs-on"] == "${{ matrix.os }}"
    assert (matrix["os"], matrix["python"]) == (SYSTEMS, ["3.11", "3.14"])
    assert all(
        f"Python :: {each}" in " ".join(PROJECT["classifiers"])
        for each in matrix["python"]
    )


@templates
def test_extras_and_commands(name):
    """What is installed is an extra of the package, and what is run is a command of it."""
    text = "\n".join(commands_of(read(name)))
    extras = {
        each
        for found in re.findall(r"(?:\.|WHEEL\})\[([\w,]+)\]", text)
        for each in found.split(",")
    }

    assert extras
    assert extras <= {*PROJECT["optional-dependencies"]}
    assert {*re.findall(r"\binvsvc (\w+)", text)} <= {*COMMANDS}


def test_sessions_of_the_package():
    """Each is one of the noxfile's."""
    known = sessions()
    asked = [
        each
        for found in re.findall(
            r"nox -s (.*)", "\n".join(commands_of(read("ci_of_the_package.yml")))
        )
        for each in re.split(r" (?![^{]*\}\})", found)
    ]

    assert "tests-${{ matrix.python }}" in asked
    assert known["tests"]
    assert {each.partition("-")[0] for each in asked} <= {*known}


def test_shell_of_windows():
    """The lines are for a POSIX shell, which Windows does not take by itself."""
    assert read("ci.yml")["jobs"]["tests"]["defaults"]["run"]["shell"] == "bash"


def test_nothing_is_claimed():
    """The template says that it has not run."""
    text = (ROOT / "examples/ci_of_the_package.yml").read_text(encoding="utf-8")

    assert "It has not run anywhere yet." in text
