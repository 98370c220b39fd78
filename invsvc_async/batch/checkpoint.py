"""
How far the input of a batch was taken in, so that the next run need not read a file from its start.

A checkpoint is stored with the writes before it.
"""

from __future__ import annotations

import msgspec

__all__ = ["Checkpoint", "decoded"]


class Checkpoint(msgspec.Struct, frozen=True, omit_defaults=True):
    """
    A position in a file of writes, each of which has a key.

    ``offset``, ``lines``, ``writes`` and ``bad`` (skipped lines) count what is before it, and ``digest``
    identifies it. ``team`` is that of the client.
    """

    offset: int
    digest: str
    lines: int
    writes: int
    bad: int = 0
    team: str | None = None


def decoded(text: str | None) -> Checkpoint | None:
    """Return the checkpoint in *text*, or ``None`` if there is none."""
    try:
        return None if text is None else msgspec.json.decode(text, type=Checkpoint)
    except msgspec.MsgspecError:
        return None
