"""Reads of the state that a write is about, as the run of the write makes them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

import attrs

from invsvc_async.reconcile.facts import start_of
from invsvc_async.reconcile.findings import no_such_read
from invsvc_async.reconcile.history import ErrorFacts, Reading
from invsvc_async.writes.results import LastRead
from invsvc_async.writes.state_reads import StateReader

if TYPE_CHECKING:
    from msgspec import Raw

    from invsvc_async.codec.exact_json import Wire
    from invsvc_async.reconcile.facts import Known
    from invsvc_async.writes.write_run import WriteRun


T = TypeVar("T")


async def look_while_it_hangs(
    run: WriteRun[T],
    known: Known,
    name: str,
) -> tuple[Reading, Wire | Raw]:
    """Read the state while the request of *run* hangs, which *known* has as lost. Return its JSON, too."""
    looks = _reader_of(run, known)
    reading = await looks.look(name, lane="settle")
    return _with_steadiness(run, known, reading), looks.shown


async def look(run: WriteRun[T], name: str) -> Reading:
    """
    Read the state with the reader called *name*. Its JSON is kept in the result.

    A read that settles has places of its own ("settle"). A read that only gets the value of an answered write
    is a part of the call; one before the first send has half of the call's time.
    """
    known = run.record.known()
    looks = _reader_of(run, known)
    if known.in_doubt:
        reading = await looks.look(name, lane="settle")
    elif known.attempts:
        reading = await looks.look(name, lane="call")
    else:
        reading = await _look_before(run, looks, name)
    run.result.read = LastRead(reading.seen, looks.shown)
    if _lacks_read(known, reading):
        run.core.warn_once(
            "journey_reader",
            f"{name}: the answer was HTTP {reading.status}. If the journey exists, this "
            "deployment lacks the read, and updates in doubt stay UNKNOWN. Set "
            "ReconcilePolicy(journey_reader=…) to a read that it has, or to None.",
        )
    return _with_steadiness(run, known, reading)


def _reader_of(run: WriteRun[T], known: Known) -> StateReader:
    """Return the reader of states for *run*; only in doubt, the makers of the items of a list matter."""
    return StateReader(
        run.spec.options,
        known.intent,
        run.current_intent,
        own=run.spec.reader,
        journal=run.journal if known.in_doubt else None,
    )


def _with_steadiness(
    run: WriteRun[T],
    known: Known,
    reading: Reading,
) -> Reading:
    """Return *reading* with whether the service's clock was set since the write began, as answers show."""
    first_event = (*run.record.history, reading)[0]
    since = start_of(first_event)
    if run.core.server_clock.is_steady(since, known.policy.clock_slack):
        return reading
    return attrs.evolve(reading, steady=False)


async def _look_before(
    run: WriteRun[T],
    looks: StateReader,
    name: str,
) -> Reading:
    """Read before the first send, which has the other half of the call's time."""
    clock = run.core.clock
    begun = clock.now()
    loop = asyncio.get_running_loop()
    call = run.record.intent.timeouts.call
    if run.call_ends is None:
        run.call_ends = loop.time() + call
    try:
        async with asyncio.timeout_at(run.call_ends - call / 2):
            return await looks.look(name, lane="call")
    except TimeoutError:
        error = ErrorFacts(
            kind="TimeoutError",
            message=f"{name}: no answer in half of the call's time",
        )
        return Reading(
            started=begun,
            ended=clock.now(),
            error=error,
        )


def _lacks_read(known: Known, reading: Reading) -> bool:
    """Return whether the deployment may lack the read, which the specification does not list."""
    if reading.status == 200:
        return False
    is_missing_thing = known.kind.may_lack_read and reading.status == 404
    if is_missing_thing:
        return True
    return no_such_read(known, reading)
