"""The read beside a send that hangs. When it is made, and why, is in ``hanging``."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from invsvc_async.errors import InvsvcError
from invsvc_async.reconcile.decide import (
    matches_under_way,
    may_show_from,
    reader_beside,
    shows_under_way,
)
from invsvc_async.reconcile.facts import Known
from invsvc_async.reconcile.history import Attempt, End
from invsvc_async.writes.settling import look_while_it_hangs

if TYPE_CHECKING:
    from invsvc_async.reconcile.history import Reading, Send
    from invsvc_async.transport.transport import Exchange
    from invsvc_async.writes.hanging import SendUnderWay
    from invsvc_async.writes.write_run import WriteRun


_FOR_ANSWER = 3  # times as long a request goes on after a read, where its answer would tell or bring more

log: logging.Logger = logging.getLogger("invsvc_async.writes")


async def look_beside(
    run: WriteRun[Any],  # Any: the operation says what its value is
    send: Send,
    sending: SendUnderWay,
    after: float,
) -> None:
    """
    Read the state; if it shows the write, give up its request, which has hung for *after* s.

    What only matches is no proof, so the read is forgotten.  But the request is given up as well, later: what
    its answer would tell is not worth the wait for its timeout.
    """
    core = run.core
    clock = core.clock
    exchange = sending.exchange
    known = _if_lost(run, send, exchange)
    name = reader_beside(known)
    if name is None:
        return
    await clock.sleep(max(0.0, may_show_from(known) - clock.now()))
    try:
        reading, shown = await look_while_it_hangs(run, known, name)
    except InvsvcError as error:  # the client was closed
        log.debug("%s: no read beside it: %s", run.spec.operation.name, error)
        return
    known = _if_lost(run, send, exchange, reading)
    is_shown = shows_under_way(known, reading)
    if is_shown:
        sending.found = reading, shown
    elif not matches_under_way(known, reading):
        return
    if run.spec.kind.has_secret or not is_shown:
        until = exchange.started + _FOR_ANSWER * after
        await clock.sleep(max(0.0, until - clock.now()))
    core.transport.give_up(exchange)


def _if_lost(
    run: WriteRun[Any],
    send: Send,
    exchange: Exchange,
    *readings: Reading,
) -> Known:
    """Return what would be known if *exchange* were given up now, with *readings* made beside it."""
    record = run.record
    lost = Attempt(
        started=exchange.started,
        ended=run.core.clock.now(),
        end=End.LOST,
        timeout=send.attempt_timeout,
    )
    history = (*record.history, lost, *readings)
    return Known(record.operation, record.intent, history)
