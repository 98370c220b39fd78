"""The names at the top of the package: what type checkers are shown is what a program gets."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import invsvc_async


def shown():
    """Return the name and module of each import that only type checkers see; a folder's module is its own."""
    tree = ast.parse(Path(invsvc_async.__file__).read_text())
    block = next(each for each in tree.body if isinstance(each, ast.If))
    return {
        alias.name: each.module
        for each in block.body
        if isinstance(each, ast.ImportFrom)
        for alias in each.names
    }


def test_names_shown_to_type_checkers_are_those_that_are_exported():
    """There is one list, in two forms."""
    assert {*shown(), "__version__"} == set(invsvc_async.__all__)


@pytest.mark.parametrize(("name", "module"), shown().items())
def test_name_is_what_type_checkers_take_it_for(name, module):
    """It is the same thing as in the module that they are shown."""
    is_module = module == "invsvc_async"
    meant = import_module(f"{module}.{name}") if is_module else getattr(import_module(module), name)

    assert getattr(invsvc_async, name) is meant


def test_name_that_is_not_exported():
    """It is an AttributeError, and nothing is loaded for it."""
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        invsvc_async.Nothing  # noqa: B018


def test_errors_load_no_client():
    """To ask for a light name does not load aiohttp."""
    code = "import sys; from invsvc_async import InvsvcError, Timeouts; sys.exit('aiohttp' in sys.modules)"
    ended = subprocess.run([sys.executable, "-c", code], check=False, cwd=Path.cwd())  # noqa: S603

    assert ended.returncode == 0
