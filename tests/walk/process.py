"""One process of a program, while it is played."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    import asyncio
    from typing import Any

    from tests.interleavings.execution import Member
    from tests.walk.program import Life
    from tests.walk.uses import Use


@attrs.define(eq=False)
class Process:
    """The process of a *life*."""

    life: Life
    begun: float
    member: Member = attrs.field(init=False)
    use: Use = attrs.field(init=False)
    main: asyncio.Task[Any] | None = None
    hit: float | None = None  # when its end came from outside
    ended: float | None = None  # when nothing of it runs any more
    transactions: int = 0
    claimed: frozenset[str] | None = None  # the keys in the journal when it was hit

    @property
    def name(self) -> str:
        """The name of its life."""
        return self.life.name
