"""Import hook for module names of version 0.1, which old pickles refer to."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["MOVED", "Finder", "register"]

MOVED = {
    "invsvc_async.outcome": "invsvc_async.reconcile.outcome",
    "invsvc_async.reconcile.evidence": "invsvc_async.reconcile.history",
    "invsvc_async.reconcile.ends": "invsvc_async.reconcile.enums",
    "invsvc_async.wire": "invsvc_async.codec.envelope",
    "invsvc_async.batch.results": "invsvc_async.batch.result",
    "invsvc_async.events.receipt": "invsvc_async.events.receiving.receipt",
    "invsvc_async.events.signed": "invsvc_async.events.payloads",
    "invsvc_async.session": "invsvc_async.transport.session",
}


class Finder:
    """Meta path finder that resolves an old module name to the module that has its classes now."""

    @staticmethod
    def find_spec(name: str, _path: object = None, _target: object = None) -> ModuleSpec | None:
        """Return a spec for an old module name; ``None`` for all other names."""
        return ModuleSpec(name, Finder()) if name in MOVED else None  # type: ignore[arg-type]  # has the methods of a loader

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return the module that replaced it (the same object, not a copy)."""
        self._module = import_module(MOVED[spec.name])
        self._spec = self._module.__spec__
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        """Restore the attributes that the import system overwrote."""
        module.__spec__ = self._spec


def register() -> None:
    """Make the module names in old pickles importable."""
    sys.meta_path.append(Finder)
