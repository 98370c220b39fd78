"""What processes and persons of a program are told of its writes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from invsvc_async.reconcile.history import Verdict

if TYPE_CHECKING:
    from invsvc_async.conformance.reasons import Told

_FINAL = (Verdict.APPLIED, Verdict.SUPERSEDED)


@attrs.frozen
class Heard:
    """
    What a process was told of a write: when, since when it had been asked, and with which reason.

    ``being_sent`` is, of one that is overtaken, what the journal had as being sent when it was told.
    ``had_owner`` is, of what a person has found, whether a process had the write when the person looked.
    ``sender`` is, of what was settled, the process that may have been sending the write when that was begun.
    """

    writer: str
    client: str
    begun: float
    told: Told
    being_sent: frozenset[str] = frozenset()
    had_owner: bool = False
    sender: str = ""

    @property
    def at(self) -> float:
        """When it was told."""
        return self.told.at

    @property
    def verdict(self) -> Verdict:
        """What became of the write."""
        return self.told.verdict

    @property
    def is_overtaken(self) -> bool:
        """Whether a newer write is the reason."""
        return self.told.overtaken or self.told.cause in (
            "overtaken",
            "perhaps overtaken",
        )

    @property
    def is_settled(self) -> bool:
        """Whether another run would change nothing."""
        return self.verdict in _FINAL or self.is_overtaken
