"""
How many functions of a folder are hard to follow: ``python -m tests.support.readability``.

A folder that keeps all bounds is in ``HELD``, and has to keep them from then on: folders are added, and never
removed. Figures are signs: divide a function where an idea ends, and not elsewhere.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

PACKAGE = Path(__file__).parents[2] / "invsvc_async"
TOP = "."  # stands for the modules beside the folders
HELD = frozenset({
    TOP,
    "agents",
    "api",
    "audit",
    "batch",
    "cli",
    "codec",
    "concurrency",
    "conformance",
    "doctor",
    "drift",
    "durable",
    "engines",
    "events",
    "export",
    "models",
    "outbox",
    "reads",
    "reconcile",
    "resources",
    "simulator",
    "storage",
    "testing",
    "transport",
    "writes",
})  # fmt: skip
TWICE = frozenset({  # names of two classes: none is added
    "Entry", "Health", "PostgresStore", "SqliteStore",
})  # fmt: skip

MOST_BRANCHES = 10
MANY_BRANCHES = 2.5  # % of functions that may have more
# assignments like `a, b = x, y` in 1,000 lines; exchanges of values are none
JOINED = 1.0

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_BRANCHES = (
    ast.If,
    ast.IfExp,
    ast.For,
    ast.AsyncFor,
    ast.While,
    ast.ExceptHandler,
    ast.match_case,
)


class Counts(NamedTuple):
    """What is counted in a folder."""

    functions: int
    branched: list[str]  # functions with too many branches
    lines: int
    joined: list[str]
    from_locals: list[str]


def branches_of(function: ast.AST) -> int:
    """Count as McCabe, and also each `and`, `or`, conditional expression and comprehension."""
    count = 1
    for node in _own_nodes(function):
        if isinstance(node, _BRANCHES):
            count += 1
        elif isinstance(node, ast.BoolOp):
            count += len(node.values) - 1
        elif isinstance(node, ast.comprehension):
            count += 1 + len(node.ifs)
    return count


def _own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of *function*, without those of functions and classes inside."""
    for child in ast.iter_child_nodes(function):
        if not isinstance(child, (*_FUNCTIONS, ast.ClassDef)):
            yield child
            yield from _own_nodes(child)


def is_joined(node: ast.AST) -> bool:
    """Return whether *node* assigns several values that do not depend on each other in one statement."""
    if not isinstance(node, ast.Assign):
        return False
    target = node.targets[0]
    if not isinstance(target, ast.Tuple) or not isinstance(node.value, ast.Tuple):
        return False
    changed = {ast.unparse(each) for each in target.elts}
    used = {
        ast.unparse(each) for each in ast.walk(node.value) if isinstance(each, ast.expr)
    }
    return changed.isdisjoint(used)


def is_from_locals(node: ast.AST) -> bool:
    """Return whether *node* calls ``locals()``."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "locals"
    )


def count_in(files: Iterable[Path]) -> Counts:
    """Count in all *files* of a folder."""
    counts = Counts(functions=0, branched=[], lines=0, joined=[], from_locals=[])
    for file in files:
        text = file.read_text(encoding="utf-8")
        functions = 0
        for node in ast.walk(ast.parse(text)):
            place = f"{file}:{getattr(node, 'lineno', 0)}"
            if isinstance(node, _FUNCTIONS):
                functions += 1
                branches = branches_of(node)
                if branches > MOST_BRANCHES:
                    counts.branched.append(f"{place} {node.name}: {branches} branches")
            elif is_joined(node):
                counts.joined.append(place)
            elif is_from_locals(node):
                counts.from_locals.append(place)
        counts = counts._replace(
            functions=counts.functions + functions,
            lines=counts.lines + text.count("\n"),
        )
    return counts


def problems_of(counts: Counts) -> list[str]:
    """Return what is over its bound, with the places."""
    problems: list[str] = []
    if 100 * len(counts.branched) > MANY_BRANCHES * counts.functions:
        found = (
            f"{len(counts.branched)} of {counts.functions} functions have many branches"
        )
        problems.append(_listed(found, counts.branched))
    if 1000 * len(counts.joined) > JOINED * counts.lines:
        problems.append(
            _listed("several assignments stand in one statement", counts.joined)
        )
    if counts.from_locals:
        problems.append(_listed("arguments come from locals()", counts.from_locals))
    return problems


def _listed(what: str, places: list[str]) -> str:
    return "\n    ".join([what, *places])


def classes_defined_twice(files: Iterable[Path]) -> dict[str, list[str]]:
    """Return the places of each class of a module that has the name of another one."""
    places: defaultdict[str, list[str]] = defaultdict(list)
    for file in files:
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                places[node.name].append(f"{file}:{node.lineno}")
    return {name: found for name, found in places.items() if len(found) > 1}


def _files_by_folder(package: Path) -> dict[str, list[Path]]:
    found: defaultdict[str, list[Path]] = defaultdict(list)
    for file in sorted(package.rglob("*.py")):
        parts = file.relative_to(package).parts
        found[parts[0] if len(parts) > 1 else TOP].append(file)
    return found


def check(package: Path, held: frozenset[str], twice: frozenset[str]) -> list[str]:
    """
    Return what is wrong in *package*.

    The folders *held* keep all bounds, and no other folder does. The names *twice*, and no others, are those
    of two classes.
    """
    wrong: list[str] = []
    for name, files in _files_by_folder(package).items():
        problems = problems_of(count_in(files))
        if name in held:
            wrong += [f"{name}: {each}" for each in problems]
        elif not problems:
            wrong.append(
                f"{name}: keeps all bounds now. Add it to HELD in {Path(__file__).name}."
            )
    known = classes_defined_twice(sorted(package.rglob("*.py")))
    wrong += [
        _listed(f"{name}: names several classes", known[name])
        for name in sorted(known.keys() - twice)
    ]
    wrong += [
        f"{name}: names one class now. Remove it from TWICE."
        for name in sorted(twice - known.keys())
    ]
    return wrong


def main() -> int:
    """Print what is wrong in the package, and return the exit code."""
    wrong = check(PACKAGE, HELD, TWICE)
    for each in wrong:
        print(each)  # noqa: T201 - what it is for
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
