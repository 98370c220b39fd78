"""How a run of a write starts: anew, or where another run left it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import attrs

from invsvc_async.api.operations import BY_NAME
from invsvc_async.reconcile.decide import sent_at_once
from invsvc_async.reconcile.facts import Known
from invsvc_async.reconcile.history import Resumed
from invsvc_async.writes.new_intent import before, line_of, request_of, with_before

if TYPE_CHECKING:
    from collections.abc import Callable

    from invsvc_async.reconcile.history import History, Send
    from invsvc_async.reconcile.intent import Intent
    from invsvc_async.transport.journal import Journal
    from invsvc_async.transport.session import ClientState
    from invsvc_async.writes.spec import WriteSpec

__all__ = ["Start", "close_lines_of_leftovers", "new_start", "taken_up"]


class Start(NamedTuple):
    """How a run starts, once it has the lock of its line."""

    intent: Intent | Callable[[], Intent]  # or what makes it: few writes need it
    history: History = ()
    first: Send | None = None  # what ``decide`` would say at the start, if that is known


def new_start(spec: WriteSpec, line: str | None, intent: Intent | Callable[..., Intent]) -> Start:
    """Start the first run of a write, with what its client knows at this moment."""
    known = before(spec, line)
    first = sent_at_once(
        spec.kind,
        spec.options.timeouts if callable(intent) else intent.timeouts,
        has_baseline=spec.baseline is not None or known.last is not None,
        knows_clock=known.bounds is not None,
        never_listed=known.never_listed,
    )
    if callable(intent):
        return Start(partial(intent, known), (), first)
    return Start(with_before(intent, known, spec.baseline), (), first)


def taken_up(
    session: ClientState,
    intent: Intent,
    *,
    journaled: bool = False,
    gone_since: float | None = None,
    reads_only: bool = False,
) -> Start:
    """
    Start where another run left *intent*.

    *journaled*: it comes from a journal that stored every send. *gone_since*: the local time since which
    its sender is known to be dead. *reads_only*: it must not be sent.
    """
    writes = session.writes
    newest, overtaken = intent.newest if journaled else None, intent.newest is False
    latest, ended = writes.left_open.get(intent.identity), writes.ended.get(intent.identity)
    if latest is not None and len(latest.sent) >= len(intent.sent):  # this client left it open itself
        intent, newest = attrs.evolve(latest, policy=intent.policy, reader=intent.reader), latest.newest
    elif ended is not None and len(ended.intent.sent) >= len(intent.sent):  # or has its outcome
        intent = attrs.evolve(ended.intent, policy=intent.policy, reader=intent.reader)
    line = line_of(request_of(intent), intent.scope.team, intent.tag)
    # A journal does not know what this client has written otherwise since it had the verdict.
    asks = newest is None or (latest is None and ended is not None)
    users = writes.lines.last_users(line) if line is not None and asks else ()
    if users:
        newest = users[-1] == intent.identity  # otherwise a write of this client came after it
    if overtaken or intent.newest is False:
        newest = False
    resumed = Resumed(
        at=session.clock.now(),
        journaled=journaled,
        sender_gone=gone_since is not None,
        since=gone_since,
        newest=newest,
        reads_only=reads_only,
    )
    return Start(intent, (resumed,))


async def close_lines_of_leftovers(session: ClientState, journal: Journal) -> None:
    """Close the lines of the open intents in *journal* for as long as their writes may still land."""
    left_open, lines = session.writes.left_open, session.writes.lines
    async with left_open.looking:
        if left_open.leftovers is not None:
            return
        # All of them first: a cancelled or failed look must not count as one.
        for intent in [intent async for intent in journal.open_intents()]:
            line = line_of(request_of(intent), intent.scope.team, intent.tag)
            left_open.add_leftover(intent, line)
            if line is not None:
                resumed = Resumed(at=session.clock.now(), journaled=True, sender_gone=True)
                known = Known(BY_NAME[intent.operation], intent, (resumed,))
                lines.close(line, intent.identity, known.free_at, session.clock)
        if left_open.leftovers is None:
            left_open.leftovers = {}
