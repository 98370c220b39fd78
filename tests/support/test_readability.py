"""The check of functions that are hard to follow sees what it is for; ``nox -s lint`` runs it on the package."""

import ast
import textwrap

import pytest

from tests.support import readability
from tests.support.readability import TOP, check

pytestmark = pytest.mark.one_python

MANY = "x = a and b and c and d and e and f and g and h and i and j and k"


@pytest.fixture
def package(tmp_path):
    """Make a package of one folder with *text*, and plain functions beside it."""

    def make(text, folder="rooms"):
        file = tmp_path / folder / "module.py"
        file.parent.mkdir(exist_ok=True)
        file.write_text(textwrap.dedent(text))
        return tmp_path

    return make


@pytest.mark.parametrize(
    ("text", "word"),
    [
        (f"def f():\n    {MANY}\n", "branches"),
        ("def f():\n    a, b = 1, 2\n", "one statement"),
        ("def f(a):\n    return g(locals())\n", "locals()"),
    ],
    ids=["branches", "joined", "locals"],
)
def test_folder_that_is_held(package, text, word):
    """What is over a bound is told with its place; a folder that is not held may have it."""
    [wrong] = check(package(text), frozenset({"rooms"}), frozenset())

    assert word in wrong
    assert "module.py:" in wrong
    assert check(package(text), frozenset(), frozenset()) == []


def test_folder_that_could_be_held(package):
    """A folder that keeps all bounds must be added."""
    [wrong] = check(package("def f():\n    return 1\n"), frozenset(), frozenset())

    assert "Add it to HELD" in wrong


def test_modules_beside_the_folders(package):
    """They are counted together."""
    [wrong] = check(package("a, b = 1, 2\n", folder="."), frozenset({TOP}), frozenset())

    assert "one statement" in wrong


def test_exchange_of_values():
    """A statement in which a value depends on a target is no joined assignment."""
    for text, is_joined in (
        ("a, b = b, a", False),
        ("a, b = c, d", True),
        ("a, b = c", False),
    ):
        [node] = ast.parse(text).body
        assert readability.is_joined(node) is is_joined


def test_name_of_two_classes(package):
    """A new one is told, and so is a known one that is gone."""
    package("class Room: pass\n", folder="one")
    top = package("class Room: pass\n", folder="two")
    held = frozenset({"one", "two"})

    [new] = check(top, held, frozenset())
    [gone] = check(top, held, frozenset({"Room", "Hall"}))

    assert new.startswith("Room:")
    assert gone.startswith("Hall:")


def test_branches():
    """Functions inside have their own branches."""
    [outer] = ast.parse(
        f"def f():\n    if a: pass\n    def g():\n        {MANY}\n"
    ).body

    assert readability.branches_of(outer) == 2
    assert readability.branches_of(outer.body[1]) == 11
