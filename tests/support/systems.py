"""
Which tests cannot run on macOS or Windows, as far as their text tells.

Nobody has run the tests there.  What is skipped by this has a reason, and what is missed by it fails.
"""

from __future__ import annotations

import re
import sys
from typing import Final

# Text of a file that cannot even be imported.
_NO_IMPORT: Final = {
    "win32": re.compile(
        r"^(?:import|from) (?:fcntl|resource|pty|termios|tty|pwd|grp)\b|^@.*\bSIG(?:HUP|KILL|STOP|USR\d)\b",
        re.MULTILINE,
    )
}
# Text of a test, and what it needs.
_POSIX: Final = {
    r"\bSIG(?:HUP|KILL|STOP|CONT|USR\d|QUIT)\b|send_signal\(|os\.killpg": "signals between processes",
    r"\bos\.(?:fork|mkfifo|umask|geteuid|getuid|setsid)\b|in_child\(|start_new_session": "processes or users of POSIX",
    r"0o[0-7]{3}\b|st_mode|\.chmod\(": "modes of files",
    r"""["'](?:/bin/|/usr/|/tmp/|/dev/)|symlink_to\(|os\.symlink""": "files or links of POSIX",
    r"uvloop": "uvloop",
}
_LINUX: Final = {r"""["']/(?:proc/|dev/(?:shm|full))""": "files that only Linux has"}
_NEEDS: Final = {"win32": _POSIX | _LINUX, "darwin": _LINUX}


def cannot_import(text: str, system: str = sys.platform) -> bool:
    """Return whether a file of tests with this *text* cannot be imported on *system*."""
    pattern = _NO_IMPORT.get(system)
    return pattern is not None and pattern.search(text) is not None


def why_not(text: str, system: str = sys.platform) -> str | None:
    """Return why a test with this *text* cannot run on *system*, if it cannot."""
    for pattern, needed in _NEEDS.get(system, {}).items():
        if re.search(pattern, text):
            return f"it needs {needed}, which {system} does not have"
    return None
