"""
What a scene is: clients, runs, and what may happen to them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

    from tests.interleavings.execution import Stage


@attrs.frozen(kw_only=True)
class Scene:
    """
    Runs of one program, or of several, on one thing.

    ``fates`` are by writer what may become of its first send (all are walked); whatever else differs from
    the default counts towards ``bound``.
    """

    name: str
    play: Callable[[Stage], Coroutine[Any, Any, None]]
    fates: dict[str, tuple[str, ...]] = attrs.field(factory=dict)
    reads: tuple[str, ...] = ("ok",)
    cancels: frozenset[str] = frozenset()  # writers whose live run may be cancelled
    bound: int = 1
    alone: bool = False  # there is one write: whoever takes it up waits for nobody
    rivals: bool = False  # two clients make equal webhooks at the same time, which no client can tell apart
    # two clients send the same intent: what cannot be held then is not held
    misuse: bool = False
