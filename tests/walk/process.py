"""One process of a program, while it is played."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Literal

import attrs

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterator
    from typing import Any

    from tests.interleavings.execution import Member
    from tests.walk.program import Cut, Life
    from tests.walk.uses import Use


@attrs.frozen(eq=False)
class Due:
    """What happens just before a step, or before a commit, by its number in its process."""

    of: Literal["step", "commit"]
    number: int
    act: Callable[[], None]


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
    _cuts: defaultdict[str, list[Cut]] = attrs.field(init=False)
    claimed: frozenset[str] | None = None  # the keys in the journal when it was hit
    commits: int = 0  # to its journal
    # what happens just before which step, or commit
    due: list[Due] = attrs.field(factory=list)

    def __attrs_post_init__(self) -> None:
        self._cuts = defaultdict(list)
        for cut in self.life.cuts:
            self._cuts[cut.key].append(cut)

    def happen(self, of: Literal["step", "commit"], number: int) -> None:
        """Do what is due before a step, or a commit."""
        for due in [each for each in self.due if each.of == of]:
            if number >= due.number:
                self.due.remove(due)
                due.act()

    def cuts(self, key: str) -> Iterator[Cut | None]:
        """Yield the cuts of the awaits of *key* that are left, then ``None``, once for each await."""
        while self._cuts[key]:
            yield self._cuts[key].pop(0)
        yield None

    @property
    def name(self) -> str:
        """The name of its life."""
        return self.life.name
