"""
What nox runs of the tests, by their markers.

It looks for some markers in the text of the test files, so that workers import no others.
"""

from __future__ import annotations

import importlib.util
import re
from itertools import chain, combinations
from pathlib import Path

import attrs
import pytest

pytestmark = [
    pytest.mark.one_python,
    # each test loads the noxfile anew
    pytest.mark.filterwarnings("ignore:The session .* has already been:FutureWarning"),
]

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent
SELECTING = re.compile(r"mark\.(untraced|every_python)\b")
MARKERS = ("every_python", "one_python", "slow", "types", "untraced", "whole")
COMBINED = [
    {*chosen}
    for chosen in chain.from_iterable(
        combinations(MARKERS, count) for count in range(len(MARKERS) + 1)
    )
]


def test_files_that_select():
    """No helper or conftest sets a marker by which nox selects files: it would not find the tests."""
    helpers = [
        file for file in TESTS.rglob("*.py") if not file.name.startswith("test_")
    ]

    assert helpers
    assert [
        file for file in helpers if SELECTING.search(file.read_text(encoding="utf-8"))
    ] == []


@attrs.define
class Session:
    """A session of nox that notes how it would start pytest, in place of doing so."""

    python: str
    cache_dir: Path
    posargs: tuple[str, ...] = ()
    env: dict[str, str] = attrs.field(factory=dict)
    choices: list[tuple[str, set[str]]] = attrs.field(factory=list)

    def install(self, *_: object) -> None: ...

    def log(self, *_: object) -> None: ...

    def run(self, *words: str, **_: object) -> None:
        """Note the expression of markers, and the files, of a run of pytest."""
        if words[2] != "pytest":
            return
        chosen = words[words.index("-m", 2) + 1] if "-m" in words[2:] else "True"
        *_, last = words
        named = Path(last[1:]).read_text().split("\n") if last[0] == "@" else [last]
        self.choices.append((chosen, {*named}))


@pytest.fixture
def nox_file(monkeypatch, request):
    """Return the project's noxfile, with or without ``CI``."""
    monkeypatch.setenv("CI", request.param)
    # what it changes itself is put back with these
    monkeypatch.setenv("PYENV_VERSION", "any")
    for name in (
        "PYTHONDONTWRITEBYTECODE", "UV_COMPILE_BYTECODE", "UV_SYSTEM_CERTS", "UV_DEFAULT_INDEX"
    ):  # fmt: skip
        monkeypatch.setenv(name, "")
    spec = importlib.util.spec_from_file_location("its_noxfile", ROOT / "noxfile.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    # reaches: nothing was measured
    monkeypatch.setattr(module, "_check_branches", lambda *_: None)
    return module


def choices(module, name, python, folder):
    """Return how session *name* starts pytest on *python*: each expression of markers with its files."""
    session = Session(python, folder)
    getattr(module, name).func(session)
    return session.choices


def selects(expression, markers):
    """Return whether an expression of pytest selects a test that has *markers*."""
    return eval(expression, {each: each in markers for each in MARKERS})  # noqa: S307 - our own words


@pytest.mark.parametrize("nox_file", ["1"], indirect=True)
def test_slow_tests_in_ci(nox_file, tmp_path):
    """There, nox's own Python runs slow tests like others, also for the types, and also by their files."""
    whole = {
        str(file.relative_to(ROOT))
        for file in TESTS.rglob("test_*.py")
        if re.search(r"^pytestmark\b[^\]]*\bmark\.slow\b", file.read_text(), re.MULTILINE)
    }  # fmt: skip
    assert whole
    runs = [
        *choices(nox_file, "tests", nox_file.OWN, tmp_path),
        *choices(nox_file, "types", nox_file.OWN, tmp_path),
    ]
    for expression, _ in runs:
        assert [
            markers
            for markers in COMBINED
            if selects(expression, markers) != selects(expression, markers - {"slow"})
        ] == []
    _, files = choices(nox_file, "tests", nox_file.OWN, tmp_path)[0]
    assert whole <= files


@pytest.mark.parametrize("nox_file", ["1"], indirect=True)
def test_other_pythons_in_ci(nox_file, tmp_path):
    """The oldest and the newest run slow tests of what aiohttp and asyncio do; those between run none."""
    first, *between, last = nox_file.PYTHONS
    for python in {first, last} - {nox_file.OWN}:
        [(expression, _)] = choices(nox_file, "tests", python, tmp_path)
        assert [
            markers
            for markers in COMBINED
            if selects(expression, markers)
            != (
                markers.isdisjoint({"untraced", "one_python", "types"})
                and ("slow" not in markers or "every_python" in markers)
            )
        ] == []
    for python in {*between} - {nox_file.OWN}:
        [(expression, _)] = choices(nox_file, "tests", python, tmp_path)
        assert [
            markers
            for markers in COMBINED
            if selects(expression, markers)
            != ("every_python" in markers and "slow" not in markers)
        ] == []


@pytest.mark.parametrize("nox_file", ["1"], indirect=True)
def test_tests_that_run_nowhere(nox_file, tmp_path):
    """Whatever its markers are, CI runs a test, and imports its file; only `whole` has sessions of its own."""
    runs = [
        *choices(nox_file, "tests", nox_file.OWN, tmp_path),
        *choices(nox_file, "types", nox_file.OWN, tmp_path),
    ]
    assert [
        markers
        for markers in COMBINED
        if "whole" not in markers
        and not any(selects(expression, markers) for expression, _ in runs)
    ] == []
    files = set.union(*(files for _, files in runs))
    assert [
        str(file.relative_to(ROOT))
        for file in TESTS.rglob("test_*.py")
        if not {str(file.relative_to(ROOT)), str(file.parent.relative_to(ROOT))} & files
    ] == []


@pytest.mark.parametrize("nox_file", [""], indirect=True)
def test_quick_run(nox_file, tmp_path):
    """Without CI, nox leaves out what is marked as slow, long or of types, and nothing else."""
    expression, files = choices(nox_file, "tests", nox_file.OWN, tmp_path)[0]
    left_out = {"slow", "types", "untraced"}
    assert [
        markers
        for markers in COMBINED
        if selects(expression, markers) != markers.isdisjoint(left_out)
    ] == []
    unmarked = {
        str(file.relative_to(ROOT))
        for file in TESTS.rglob("test_*.py")
        if not re.search(r"mark\.(slow|types|untraced)\b", file.read_text())
    }
    assert unmarked <= files
