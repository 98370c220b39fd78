"""The pauses before another try after a failure: of the database, of the service, or of a callback."""

from __future__ import annotations

# s, one after the other
_PAUSES = (1.0, 2.0, 5.0, 10.0, 30.0)


def pause_after(failures: int) -> float:
    """Return how many seconds to wait after so many *failures* in a row."""
    return _PAUSES[min(failures, len(_PAUSES)) - 1]


def longest_pause() -> float:
    """Return the longest of the pauses, in seconds: what worked for longer than that counts as mended."""
    return _PAUSES[-1]
