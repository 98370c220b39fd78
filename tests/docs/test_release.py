"""What the metadata says of a release is so."""

from __future__ import annotations

import re
import tomllib
from datetime import date

import pytest

from invsvc_async import __version__
from tests.docs.pages import ROOT

pytestmark = pytest.mark.untraced

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
CHANGELOG = (ROOT / "CHANGELOG.md").read_text()
NOX = (ROOT / "noxfile.py").read_text()


def test_newest_version_of_the_changelog() -> None:
    """It is the package's, and has a date, which is that of the files in the wheel."""
    version, day = re.search(r"^## \[(.+)\] - (.+)$", CHANGELOG, re.MULTILINE).groups()

    assert version == __version__
    assert date.fromisoformat(day) >= date(2026, 11, 24)


def test_versions_of_python() -> None:
    """Those of the classifiers are those that the tests run on."""
    found = re.findall(
        r"Python :: (3\.\d+)", "\n".join(PROJECT["project"]["classifiers"])
    )
    (tested,) = re.findall(r"^PYTHONS = sorted\(\s*\{(.+), OWN\}", NOX, re.MULTILINE)

    assert found == re.findall(r'"(3\.\d+)"', tested)
    assert PROJECT["project"]["requires-python"] == f">={found[0]}"


def test_addresses() -> None:
    """An address of the project is in its metadata only."""
    files = [
        ROOT / name
        for name in (
            "README.md",
            "CONTRIBUTING.md",
            "SECURITY.md",
            "CHANGELOG.md",
            "docs/conf.py",
        )
    ]

    assert set(PROJECT["project"]["urls"]) <= {
        "Changelog",
        "Documentation",
        "Issues",
        "Source",
    }
    for url in PROJECT["project"]["urls"].values():
        assert [file.name for file in files if url in file.read_text()] == []


def test_groups_of_dependencies() -> None:
    """Users are offered no extra that is for those who work on the package; each group is installed by nox."""
    extras = set(PROJECT["project"]["optional-dependencies"])

    assert extras == {
        "cli",
        "mcp",
        "otel",
        "parquet",
        "postgres",
        "receipts",
        "uvloop",
    }
    assert not extras & set(PROJECT["dependency-groups"])
    assert [
        name for name in PROJECT["dependency-groups"] if f'"{name}"' not in NOX
    ] == []
