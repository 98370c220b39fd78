"""A port for a program that cannot be given a socket."""

from __future__ import annotations

import contextlib
import random
import socket


def free_port() -> int:
    """Return a port that nobody has, outside of those that the system gives to others meanwhile."""
    while True:
        port = random.randrange(20_000, 30_000)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
