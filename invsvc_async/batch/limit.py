"""What keeps a run from sending more now, in words for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from invsvc_async.batch.engine import Engine


_LIMITED = "the service limits the rate (HTTP 429)"


def settling_in(engine: Engine) -> int:
    """Return how many items under way in *engine* are being settled."""
    return max(len(engine.open_work.tasks) - engine.slots.in_use, 0)


def pause_in(engine: Engine) -> tuple[str | None, float | None]:
    """Return why nothing can be sent now, and the seconds until the service is tried again, if known."""
    why, seconds = engine.breaker.pause
    if why is None and (limited_for := engine.slots.limited_for) > 0:
        return _LIMITED, limited_for
    return why, seconds


def limit_in(engine: Engine) -> str | None:
    """
    Return the limit that keeps more writes from being under way now, in a few words.

    What stands before a colon names the limit: by it, a run adds up for how long each held.
    """
    why, _ = pause_in(engine)
    if why is not None or engine.run_end.is_halted:
        return why
    if not engine.breaker.allows(engine.slots.in_use):
        return "recovery: one write at a time, until one is answered"
    if engine.items.ready:
        return _why_ready_waits(engine)
    return _why_none_is_ready(engine)


def _why_ready_waits(engine: Engine) -> str | None:
    """Return why items that are ready do not begin."""
    if engine.items.ready.first() is not None:
        return engine.slots.limit
    return f"per_team: {engine.sending.per_team} of each team are under way"


def _why_none_is_ready(engine: Engine) -> str | None:
    """Return why no item is ready; ``None`` if there is nothing to do."""
    items = engine.items
    settling = settling_in(engine)
    if engine.room.is_at_limit:
        waiting = len(items.finished)
        return f"results: {settling:,} writes are settled, and {waiting:,} wait to be taken"
    if in_line := items.waiting_in_line:
        return f"order: {in_line:,} wait for earlier writes to the same resources"
    if not (engine.feeding.is_complete or engine.feeding.input_ended):
        return "input: it has no more writes yet"
    if in_use := engine.slots.in_use:
        return f"answers: {in_use:,} outstanding"
    if settling:
        return "lost answers: nothing else is left"
    return None
