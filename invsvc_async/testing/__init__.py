"""Testing kit for users of this package."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from invsvc_async.testing.aioresponses_adapter import aioresponses
    from invsvc_async.testing.clock import VirtualClock
    from invsvc_async.testing.service import quick_client, serving

__all__ = ["VirtualClock", "aioresponses", "quick_client", "serving"]

_SOURCES = {
    "VirtualClock": "clock",
    "aioresponses": "aioresponses_adapter",
    "quick_client": "service",
    "serving": "service",
}


def __getattr__(name: str) -> object:
    if name not in _SOURCES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_SOURCES[name]}"), name)
