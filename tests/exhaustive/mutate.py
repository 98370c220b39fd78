"""
Load the modules that ship with one line of them changed, in memory only.
"""

from __future__ import annotations

import importlib.util
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from tests.exhaustive.steps import Subject

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

PACKAGE = "invsvc_async.reconcile"
CHAIN = (
    "server_clock",
    "compare",
    "kinds",
    "findings",
    "facts",
    "decide",
    "stored_intent",
)  # each imports from those before it
REGISTER, AROUND = "invsvc_async.writes.register", "invsvc_async.writes.new_intent"


@attrs.frozen
class Mutant:
    """One line that is wrong.  ``where``: part of the names of the set-ups that must notice."""

    name: str
    module: str
    old: str
    new: str
    where: tuple[str, ...]


def broken(mutant: Mutant) -> Subject:
    """Load the modules with *mutant* in place of what ships."""
    with _set_aside():
        modules = {name: _load(f"{PACKAGE}.{name}", mutant) for name in CHAIN}
        register, around = _load(REGISTER, mutant), _load(AROUND, mutant)
    return Subject(
        modules["decide"].decide,
        modules["facts"].Known,
        modules["stored_intent"].stored,
        register.WriteRegister,
        around.before,
        around.with_before,
    )


@contextmanager
def _set_aside() -> Iterator[None]:
    """Restore the modules that ship afterwards."""
    names = [*(f"{PACKAGE}.{name}" for name in CHAIN), REGISTER, AROUND]
    shipped = {name: sys.modules.pop(name) for name in names if name in sys.modules}
    try:
        yield
    finally:
        for name in names:
            sys.modules.pop(name, None)
        sys.modules.update(shipped)
        for name, module in shipped.items():
            package, _, last = name.rpartition(".")
            setattr(sys.modules[package], last, module)


def _load(name: str, mutant: Mutant) -> ModuleType:
    spec = importlib.util.find_spec(name)
    assert spec is not None
    assert spec.origin is not None
    source = Path(spec.origin).read_text(encoding="utf-8")
    if name.rpartition(".")[2] == mutant.module:
        if source.count(mutant.old) != 1:
            raise LookupError(f"{mutant.name}: its text stands {source.count(mutant.old)} times in {name}.py")
        source = source.replace(mutant.old, mutant.new)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    exec(compile(source, spec.origin, "exec"), module.__dict__)  # noqa: S102 - our own source, one line changed
    return module
