"""A worker of a shared batch, as others see it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from datetime import datetime

__all__ = ["Worker"]


@attrs.frozen(kw_only=True)
class Worker:
    """
    A worker of a shared batch, as it last described itself.

    ``done`` is the number of writes that it has finished, ``rate`` how many per second, and ``lanes`` how
    many parts of the batch it has now. ``silent`` is the number of seconds since its last sign of life,
    ``seen``. One that is not ``alive`` has ``ended``, or was killed, or has lost the database.
    """

    host: str
    pid: int
    done: int
    rate: float
    lanes: int
    begun: datetime
    seen: datetime
    silent: float
    alive: bool
    ended: bool
