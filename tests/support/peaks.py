"""
Report, at the end of a run, the most that any call to a hostile server took; a plugin, beside the bounds.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name each bound, and how near to it the worst came."""
    tests = sys.modules["tests.transport.test_hostile_server"]
    cpu, memory = (max(each) for each in zip(*tests.TAKEN, strict=True))
    for what, most in (
        ("calls", len(tests.TAKEN)),
        ("cap of an answer, MB", tests.CAP / 1e6),
        ("memory of a call, MB", memory / 1e6),
        ("bound of that, MB", tests.MEMORY / 1e6),
        ("CPU of a call beside the time it is given, s", cpu),
        ("bound of that, s", tests.CPU),
    ):
        terminalreporter.write_line(f"worst {what}: {most:.3g}")
