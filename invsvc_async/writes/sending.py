"""
One send of a write.

The order of the steps is a part of the promise that no send is forgotten. An exception of a signal handler,
or a cancellation, may end the send between any two of them:

1. Prepare the request. What fails here has sent nothing, and is recorded as that.
2. Take the place among the writes to the thing: the open ones are perhaps overtaken.
3. Store the intent with this send in the journal, if there is one.
4. Mark the send. From here on, it counts as lost.
5. Send.
6. Add the end to the history, in a ``finally``. Then the mark is void.
7. Note for the other writes whether it has left.
8. Add what a read has shown meanwhile, if the answer is lost. See ``hanging``.
"""

from __future__ import annotations

import asyncio
import logging
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from invsvc_async.errors import InvsvcError
from invsvc_async.reconcile.history import End
from invsvc_async.writes.hanging import SendUnderWay
from invsvc_async.writes.late_modules import load_for
from invsvc_async.writes.look_beside import look_beside
from invsvc_async.writes.results import LastRead

if TYPE_CHECKING:
    from msgspec import Raw

    from invsvc_async.codec.exact_json import Wire
    from invsvc_async.reconcile.history import Reading, Send
    from invsvc_async.transport.transport import Exchange
    from invsvc_async.writes.run_journal import RunJournal
    from invsvc_async.writes.write_run import WriteRun


T = TypeVar("T")
# The values of `Exchange.end` with which perhaps no byte has left. None is that of an exchange without an
# end: the send was interrupted, before or after it began.
_PERHAPS_UNSENT = frozenset({None, End.NOT_SENT})

log: logging.Logger = logging.getLogger("invsvc_async.writes")


async def send_once(run: WriteRun[T], send: Send) -> None:
    """Send the write once, and add how that ended to the history."""
    core = run.core
    options = run.spec.options
    request = run.spec.request
    started = core.clock.now()
    deadline = asyncio.get_running_loop().time() + send.attempt_timeout
    # A read before the first send took a part of the call's time. Later sends have all of their own.
    if run.call_ends is not None and run.record.known().never_left:
        deadline = min(deadline, run.call_ends)
    try:
        load_for(request.operation)
        if core.credential.ready is None and request.operation.credentials:
            with core.under_way.ended_by_close():
                await options.fetch_token(request, deadline)
        exchange = options.exchange(request, deadline, not_after=send.not_after)
    except InvsvcError as error:
        run.record.add(run.answers.not_sent(error, started, core.clock.now()))
        return
    run.place.take()
    watched = _watched(run, send, exchange)
    try:
        if run.journal is not None:
            await _store_send(run, run.journal, send, started, exchange)
        run.record.mark(send, started)
        if watched is not None:
            core.writes.hanging.begin(watched)
        await options.send(request, exchange)
    finally:
        _record_end(run, exchange, send)
        if watched is not None:
            core.writes.hanging.end(watched)
    if watched is not None and watched.found is not None and exchange.end is End.LOST:
        _add_found(run, *watched.found)
    if exchange.status == 401:
        await _renew_token(run, exchange, send)


def _watched(
    run: WriteRun[T],
    send: Send,
    exchange: Exchange,
) -> SendUnderWay | None:
    """Return the send as it is watched for hanging; ``None`` if no read can show the write."""
    if run.spec.request.operation.reader is None:
        return None
    beside = partial(look_beside, run, send)
    return SendUnderWay(exchange, run.core.clock, beside, copy_context())


async def _store_send(
    run: WriteRun[T],
    journal: RunJournal,
    send: Send,
    started: float,
    exchange: Exchange,
) -> None:
    """Store the intent with *send*, which *started* (local s), and limit how late it may leave."""
    livemode = run.core.livemode
    with run.core.under_way.ended_by_close():
        until = await journal.sending(
            run.record.with_send(send, started, livemode=livemode)
        )
    # Not later than the journal says: the deadline does not count time asleep on every system.
    latest = started + send.attempt_timeout
    if until is not None:
        latest = min(latest, until)
    if send.not_after is not None:
        latest = min(latest, send.not_after)
    journal.move_here(run.record.intent)
    exchange.not_after = latest


def _add_found(
    run: WriteRun[T],
    reading: Reading,
    shown: Wire | Raw,
) -> None:
    """Add *reading*, which has shown the write while its request hung, and its JSON."""
    run.result.read = LastRead(reading.seen, shown)
    run.record.add(reading)


def _record_end(
    run: WriteRun[T],
    exchange: Exchange,
    send: Send,
) -> None:
    """
    Add how an attempt ended to the history.

    An attempt that was begun and has no end stays marked, and so counts as lost.
    """
    record = run.record
    if exchange.end is not None:
        attempt = run.answers.attempt(exchange, send, run.place.thing.line)
        record.add(attempt)
    elif not exchange.was_begun:
        record.unmark()
    # Most writes have left, and overtake none: then there is nothing to note.
    if run.place.overtakes or exchange.end in _PERHAPS_UNSENT:
        run.place.note_whether_sent()


async def _renew_token(
    run: WriteRun[T],
    exchange: Exchange,
    send: Send,
) -> None:
    """Get a fresh token after a 401, for one more send; not if the 401 answers a re-send."""
    known = run.record.known()
    if known.in_doubt:
        return
    if any(each.token_renewed for each in known.attempts):
        return
    try:
        with run.core.under_way.ended_by_close():
            is_renewed = await run.spec.options.renew_token(
                exchange, within=send.attempt_timeout
            )
    except InvsvcError as error:  # the 401 stands
        log.warning(
            "%s %s: no fresh token: %s",
            run.spec.operation.name,
            run.record.intent.key,
            error,
        )
        return
    if is_renewed:
        run.record.note_token_renewed()
