"""
The drivers of a run of a key: how each is made, and driven.

A driver is driven once.  If its turn was lost before the send, the run makes another one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import attrs
from msgspec.structs import replace

from invsvc_async.durable.entry import LostEntryError
from invsvc_async.durable.intents import as_new
from invsvc_async.durable.keyed_run import KeyedRun, KeyTakenError, NotNext
from invsvc_async.reconcile.enums import Verdict
from invsvc_async.writes.driver import AnyDriver, Driver, new_run, run_of
from invsvc_async.writes.new_intent import intent_of as new_intent

if TYPE_CHECKING:
    from invsvc_async.durable.store.claims import Seen
    from invsvc_async.models.webhooks import Webhook
    from invsvc_async.reconcile.intent import Intent
    from invsvc_async.reconcile.outcome import Outcome
    from invsvc_async.writes.spec import WriteSpec


def first_driver(run: KeyedRun, spec: WriteSpec) -> AnyDriver:
    """Return a driver of a write of which nothing was sent, or nothing that had an effect."""
    bound = replace(spec, options=run.bound())
    if spec.resumes is not None:
        intent = attrs.evolve(as_new(spec.resumes, run.sent_before), policy=spec.policy)
        # The state before the first run is no baseline of this one: somebody may have written since.
        bound = replace(bound, baseline=None)
        return Driver(bound, intent)  # not `new_run`: its body has a tag already
    if run.sent_before:
        return new_run(bound, attrs.evolve(new_intent(bound), sent=run.sent_before))
    return new_run(bound)


def intent_anew(run: KeyedRun, spec: WriteSpec) -> Intent:
    """Return the intent with which the entry of *run* waits for the send of *spec*."""
    return attrs.evolve(new_intent(spec), sent=run.sent_before)


def overtaken_driver(run: KeyedRun, spec: WriteSpec) -> AnyDriver:
    """Return a driver that sends nothing, because a newer write to its thing was sent."""
    intent = attrs.evolve(new_intent(spec), sent=run.sent_before, newest=False)
    return run_of(
        run.bound(),
        intent,
        reader=spec.reader,
        journaled=True,
        reads_only=False,
    )


async def drive(run: KeyedRun, driver: Driver[Any]) -> Driver[Any] | Seen | NotNext:
    """Drive the write to its outcome, unless it must not be sent now; then return why not."""
    if run.called is not None:
        driver.result.begin(run.called, run.waited)
    try:
        await driver.drive()
    except KeyTakenError as error:
        return error.why
    except LostEntryError:  # whoever has it settles it
        run.options.core.writes.forget(driver.intent.identity)
        raise
    if run.outcome is None:  # it is that of another run in this client
        await run.settled(driver.outcome())
    returns_no_secret = run.secret_by is None
    if run.outcome is not None and returns_no_secret:
        driver.tell_verdict_only()  # nobody asks whether the awaiter has the verdict
    return driver


def replay(spec: WriteSpec, outcome: Outcome[Any]) -> Driver[Any]:
    """
    Return a driver that has the outcome of another run, and call ``on_replay``.

    With a verdict, the intent is no longer open in this client.
    """
    changes: dict[str, Any] = {"replayed": True}
    if outcome.secret == "returned":
        value = attrs.evolve(cast("Webhook", outcome.value), secret=None)
        changes |= {"value": value, "secret": "not stored"}
    driver = new_run(spec)
    core = spec.options.core
    driver.tell_verdict_only()
    outcome = attrs.evolve(outcome, **changes)
    if outcome.verdict is not Verdict.UNKNOWN:
        core.writes.forget(outcome.started_as.identity)
    driver.keep(outcome)
    core.tell(core.on_replay, outcome)
    return driver
