"""CONTRIBUTING names files that exist, every folder of the package, and the layers that are checked."""

from __future__ import annotations

import re
import tomllib

import pytest

from tests.docs.pages import ROOT

pytestmark = pytest.mark.untraced

PAGE = (ROOT / "CONTRIBUTING.md").read_text()
PACKAGE = ROOT / "invsvc_async"
NAMED = set(re.findall(r"`((?:\w+/)+(?:\w+\.py)?|tests/[\w/]+\.py)`", PAGE))
NAMED |= set(re.findall(r"\b(\w+/[\w/]+\.py)\b", PAGE))


@pytest.mark.parametrize("name", sorted(NAMED))
def test_path_that_is_named(name) -> None:
    """It is a path of the project, or of the package."""
    assert (ROOT / name).exists() or (PACKAGE / name).exists()


def test_tree_of_the_package() -> None:
    """Every folder has its line, and each line is a folder or a module."""
    tree = re.search(r"^invsvc_async/\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)[1]
    named = set(re.findall(r"^ {4}(\S+)", tree, re.MULTILINE))
    folders = {
        f"{each.name}/"
        for each in PACKAGE.iterdir()
        if (each / "__init__.py").is_file()
    }

    assert folders <= named
    assert [name for name in named if not (PACKAGE / name).exists()] == []


def test_layers() -> None:
    """They are those of the import contract."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"][
        "importlinter"
    ]["contracts"]
    [layers] = [each["layers"] for each in contracts if each["type"] == "layers"]

    assert "\n".join(["```text", *layers, "```"]) in PAGE


def test_folders_of_tests() -> None:
    """Those that mirror no folder of the package are explained."""
    folders = {
        each.name
        for each in (ROOT / "tests").iterdir()
        if each.is_dir() and each.name[0] != "_"
    }
    crossing = {name for name in folders if not (PACKAGE / name).is_dir()}

    assert [name for name in crossing if f"`tests/{name}/`" not in PAGE] == []


@pytest.mark.parametrize("command", ["invsvc demo", "bin/nox"])
def test_command_of_the_readme(command) -> None:
    """It stands in one line of a block of code: the CI runs that line."""
    blocks = re.findall(
        r"^```sh\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL
    )
    assert [line for block in blocks for line in block.splitlines() if command in line]
