"""Functions of users that are called without ``await``."""

from __future__ import annotations

import inspect


def is_plain_function(given: object) -> bool:
    """Return whether *given* can be called without ``await``: the result of an async one is always true."""
    if not callable(given) or inspect.iscoroutinefunction(given):
        return False
    return isinstance(given, type) or not inspect.iscoroutinefunction(given.__call__)
