"""
Wrong lines of the package, in lists, each of which a test or a walk must notice.

A list is a text.  A mutant in it has a line ``NAME | FILE | WHERE | …``, and then the lines of a patch, which
may be in several parts.  A line ``@ FILE`` before a part names another file.
"""

from __future__ import annotations

import importlib
import sys
import time
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import propcache

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

ROOT = Path(__file__).parents[2]
PACKAGE = "invsvc_async"
_NONE = object()  # a class has it no more


class Mutant(NamedTuple):
    """Texts of files, and what stands there instead; *where* it must be noticed is as its list has it."""

    name: str
    where: tuple[str, ...]
    changes: list[tuple[str, str, str]]  # file, right, wrong

    def applied(self, file: str, text: str) -> str:
        """
        Return *text*, of *file*, with this mutant.

        Raises:
            LookupError: What is right does not stand there exactly once.
        """
        for place, right, wrong in self.changes:
            if place == file:
                if (times := text.count(right)) != 1:
                    raise LookupError(
                        f"{self.name}: its text stands {times} times in {file}"
                    )
                text = text.replace(right, wrong)
        return text


def mutants_in(path: Path) -> list[Mutant]:
    """Return the mutants in the list at *path*."""
    mutants: list[Mutant] = []
    file, lines = "", {"-": [""], "+": [""]}
    for line in (*path.read_text(encoding="utf-8").splitlines(), ""):
        # the last part, if any, is whole
        if line[:1] not in lines or (line[0] == "-" and lines["+"]):
            if lines["-"] != [""]:
                mutants[-1].changes.append(
                    (file, "\n".join(lines["-"]), "\n".join(lines["+"]))
                )
            lines = {"-": [], "+": []} if line[:1] == "-" else {"-": [""], "+": [""]}
        if line[:1] in lines:
            lines[line[0]].append(line[1:].removeprefix(" "))
        elif line.startswith("@ "):
            file = line[2:]
        elif line and not line.startswith("#"):
            name, file, *where = line.split(" | ")
            mutants.append(Mutant(name, tuple(where), []))
    return mutants


@contextmanager
def in_files(mutant: Mutant, tree: Path) -> Iterator[None]:
    """Change the files of a copy of the package in *tree*."""
    files = {file: tree / PACKAGE / file for file, _, _ in mutant.changes}
    right = {file: path.read_text(encoding="utf-8") for file, path in files.items()}
    try:
        for file, path in files.items():
            path.write_text(mutant.applied(file, right[file]), encoding="utf-8")
        yield
    finally:
        for file, path in files.items():
            path.write_text(right[file], encoding="utf-8")


@contextmanager
def in_process(mutant: Mutant) -> Iterator[None]:
    """
    Change the running process: the code of functions, and constants of modules.

    Others have imported the functions by name, so these stay, and get the other code.
    """
    with ExitStack() as stack:
        for file in dict.fromkeys(file for file, _, _ in mutant.changes):
            module = importlib.import_module(
                f"{PACKAGE}.{file.removesuffix('.py').replace('/', '.')}"
            )
            place = str(module.__file__)
            changed = ModuleType(module.__name__)
            source = mutant.applied(file, Path(place).read_text(encoding="utf-8"))
            exec(compile(source, place, "exec"), changed.__dict__)  # noqa: S102 - our own source, a line changed
            for owner, name, new in _differences(module, changed):
                if new is _NONE:
                    stack.callback(setattr, owner, name, vars(owner)[name])
                    delattr(owner, name)
                else:
                    stack.callback(setattr, owner, name, getattr(owner, name))
                    setattr(owner, name, new)
        yield


def _differences(
    module: ModuleType, changed: ModuleType
) -> Iterator[tuple[Any, str, Any]]:
    """Yield what to set: an object, the name of its attribute, and the new value, or ``_NONE``."""
    for name, old in vars(module).items():
        new = vars(changed).get(name)
        if isinstance(old, (str, int, float, tuple, dict)) and not name.startswith(
            "__"
        ):
            if old != new:
                yield module, name, new
                if not name.startswith("_"):  # others may have imported it
                    for path, other in [*sys.modules.items()]:
                        if path.startswith(PACKAGE) and vars(other).get(name) is old:
                            yield other, name, new
        elif isinstance(old, type) and old.__module__ == module.__name__:
            yield from _of_class(old, vars(new))
        elif getattr(old, "__module__", None) == module.__name__:
            yield from _code(old, new)


def _of_class(old: type, new: Mapping[str, Any]) -> Iterator[tuple[Any, str, Any]]:
    for each, method in [*vars(old).items()]:
        if each in new:
            yield from _code(method, new[each])
        else:
            yield old, each, _NONE  # that of a base class counts


def _code(old: Any, new: Any) -> Iterator[tuple[Any, str, Any]]:
    for kind, inner in (
        (property, "fget"),
        ((cached_property, propcache.cached_property), "func"),
        ((staticmethod, classmethod), "__func__"),
    ):
        if isinstance(old, kind):
            old, new = getattr(old, inner), getattr(new, inner)
    if isinstance(old, FunctionType) and old.__code__ != new.__code__:
        yield old, "__code__", new.__code__


def judge(
    mutants: Iterable[Mutant],
    parts: Sequence[str],
    noticed_by: Callable[[Mutant], str | None],
) -> int:
    """
    Print what noticed each mutant, or each with one of *parts* in its name or place.

    Return 1 if one was not noticed.
    """
    survived = 0
    for mutant in mutants:
        if parts and not any(
            part in text for part in parts for text in (mutant.name, *mutant.where)
        ):
            continue
        begun = time.monotonic()
        noticed = noticed_by(mutant)
        survived += noticed is None
        took = f"[{time.monotonic() - begun:.1f} s]"
        sys.stdout.write(
            f"{took} {mutant.name}: {'SURVIVED' if noticed is None else noticed}\n"
        )
        sys.stdout.flush()
    return int(survived > 0)
