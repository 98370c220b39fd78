"""Which store a receiver uses."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from invsvc_async.errors import ConfigurationError
from invsvc_async.events.stores import open_store

if TYPE_CHECKING:
    from pathlib import Path

    from invsvc_async.events.stores import Store

__all__ = ["choose_store"]

_NEEDED: Final = (
    "open",
    "close",
    "put",
    "bury",
    "claim",
    "take",
    "handled",
    "release",
    "prune",
)  # of a store


def choose_store(dedupe: Store | str | Path | None, store: Store | str | Path | None, mode: str) -> Store:
    """Return the store that the arguments of ``Receiver`` mean; raises ``ConfigurationError``."""
    if dedupe is not None and store is not None:
        raise ConfigurationError("store: dedupe means the same. Pass only one of them.")
    chosen = store if store is not None else dedupe
    if isinstance(chosen, (str, os.PathLike)):
        return open_store(os.fspath(chosen))
    if chosen is not None:
        if isinstance(chosen, type) or not all(callable(getattr(chosen, name, None)) for name in _NEEDED):
            raise ConfigurationError(
                f"store: {type(chosen).__name__} is not a Store. Pass a Store, a path, or an address as text."
            )
        return chosen
    if mode == "inbox":
        raise ConfigurationError("store: the inbox needs a durable one. Pass store='events.db', for example.")
    from invsvc_async.events.stores.memory import MemoryStore

    return MemoryStore()
