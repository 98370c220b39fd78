"""Change one line of the package in the running process, for as long as a walk takes; nothing on disk."""

from __future__ import annotations

import importlib
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

import attrs

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE = "invsvc_async.batch"


@attrs.frozen
class Mutant:
    """
    One line that is wrong.

    A scene whose name begins with *where* must break the rule of that number, and does not without it. *also*
    is a second line, of the guard that would hide the first one.
    """

    name: str
    module: str
    old: str
    new: str
    where: str
    rule: int
    also: Mutant | None = None


@contextmanager
def broken(mutant: Mutant) -> Iterator[None]:
    """
    Replace functions and texts of the modules that ship by those of the changed module.

    Others have imported the functions by name, so these stay, and get the other code.
    """
    module = importlib.import_module(f".{mutant.module}", PACKAGE)
    source = Path(str(module.__file__)).read_text(encoding="utf-8")
    also = mutant.also
    together = [mutant, *([also] if also is not None and also.module == mutant.module else [])]
    for each in together:
        if source.count(each.old) != 1:
            raise LookupError(f"{each.name}: its text stands {source.count(each.old)} times in {each.module}")
        source = source.replace(each.old, each.new)
    changed = ModuleType(module.__name__)
    code = compile(source, str(module.__file__), "exec")
    exec(code, changed.__dict__)  # noqa: S102 - our own source, one line changed
    undo: list[tuple[Any, str, Any]] = []
    try:
        for owner, name, new in _differences(module, changed):
            undo.append((owner, name, getattr(owner, name)))
            setattr(owner, name, new)
        with nullcontext() if also in (None, together[-1]) else broken(also):
            yield
    finally:
        for owner, name, old in reversed(undo):
            setattr(owner, name, old)


def _differences(module: ModuleType, changed: ModuleType) -> Iterator[tuple[Any, str, Any]]:
    """Yield what to set: an object, the name of its attribute, and the new value."""
    for name, old in vars(module).items():
        new = vars(changed).get(name)
        if isinstance(old, (str, int, float, tuple, dict)) and not name.startswith("__"):
            if old != new:
                yield module, name, new
        elif isinstance(old, type) and old.__module__ == module.__name__:
            for each, method in vars(old).items():
                yield from _code(method, vars(new).get(each))
        elif getattr(old, "__module__", None) == module.__name__:
            yield from _code(old, new)


def _code(old: Any, new: Any) -> Iterator[tuple[Any, str, Any]]:
    if isinstance(old, property):
        old, new = old.fget, new.fget
    if isinstance(old, (staticmethod, classmethod)):
        old, new = old.__func__, new.__func__
    if isinstance(old, FunctionType) and old.__code__ != new.__code__:
        yield old, "__code__", new.__code__
