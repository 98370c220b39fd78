"""Code of the tests in forked processes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, TypeVar

import pytest

from invsvc_async import InvsvcError

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


def forks(test: T) -> T:
    """Mark a test that forks its process."""
    threads = pytest.mark.filterwarnings(
        "ignore:This process.*is multi-threaded:DeprecationWarning"
    )
    return pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")(
        threads(test)
    )


def in_child(act: Callable[[], str]) -> str:
    """Return what *act* returns in a forked process, or the words of its error."""
    ends, begins = os.pipe()
    if (pid := os.fork()) == 0:
        try:
            os.write(begins, act().encode())
        except InvsvcError as error:
            os.write(begins, str(error).encode())
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    os.close(begins)
    with os.fdopen(ends) as reading:
        return reading.read()
