"""How the driver of an item begins: anew, or where an earlier run left the write."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, cast

import attrs

from invsvc_async.batch.item import ItemOptions
from invsvc_async.reconcile.intent import revised
from invsvc_async.writes.driver import AnyDriver, Driver, new_run
from invsvc_async.writes.new_intent import spec_of_intent
from invsvc_async.writes.recovery import check_scope
from invsvc_async.writes.starting import Start, new_start, taken_up

if TYPE_CHECKING:
    from invsvc_async.batch.item import Item
    from invsvc_async.batch.sending import Sending
    from invsvc_async.reconcile.history import Resumed
    from invsvc_async.reconcile.intent import Intent
    from invsvc_async.settings import ReconcilePolicy
    from invsvc_async.transport.client_core import ClientCore
    from invsvc_async.writes.spec import WriteSpec


def driver_of(item: Item, sending: Sending) -> AnyDriver:
    """
    Return the driver of *item*, which begins in one of four ways.

    - an item that is as in the input, as a new run;
    - one that may have been sent, or is not the newest of its thing: where the earlier run left it. It is
      settled first, and not sent if it is not the newest;
    - one that was put back: anew, unless the client has sent a newer write to its thing meanwhile;
    - any other stored one: as a new run of the stored intent.
    """
    if item.spec is not None:
        return new_run(item.spec, item.intent)
    anywhere = sending.options.without_team()
    check_scope(
        anywhere, item.intent, same_mode=sending.same_mode, in_doubt=item.in_doubt
    )
    intent = item.intent
    policy = sending.policy_to_go_on(intent.policy)
    spec = spec_of_intent(ItemOptions.of(item, anywhere), intent, item.reader, policy)
    begin = None
    if item.in_doubt or intent.newest is False:
        since = sending.core.clock.now() if item.lane.has_ended else None
        begin = partial(
            _taken_up,
            sending.core,
            since,
            policy,
            # That all later sends are in the journal, too, is not said of a copy.
            journaled=not item.is_perhaps_overtaken,
        )
    elif item.times_put_back and item.entry.thing is not None:
        begin = partial(_begun_again, spec, item.entry.thing, item.intent)
    if not item.in_doubt:  # nothing of it is judged by the stored settings
        intent = revised(intent, policy=policy)
    return Driver(spec, intent, begin=begin, takes_up=item.in_doubt)


def _has_written_beside(
    core: ClientCore,
    thing: str | None,
    intent: Intent,
) -> bool:
    """
    Return whether this client has sent a newer write to *thing* than *intent*, with an effect perhaps.

    What entries call a thing is the name of a line in ``writes``.
    """
    return thing is not None and core.writes.is_last(thing, intent.identity) is False


def _begun_again(
    spec: WriteSpec,
    thing: str,
    put_back: Intent,
    intent: Intent,
) -> Start:
    """
    Start a write that was *put_back*, unless the client has meanwhile sent a newer write to its thing.

    *intent* is the same without the sends that had no effect.
    """
    core = spec.options.core
    if _has_written_beside(core, thing, intent):
        return taken_up(core, attrs.evolve(put_back, newest=False), journaled=True)
    return new_start(spec, thing, intent)


def _taken_up(
    core: ClientCore,
    gone_since: float | None,
    policy: ReconcilePolicy,
    intent: Intent,
    *,
    journaled: bool,
) -> Start:
    """
    Start where an earlier run left *intent*, under *policy*.

    *journaled*: the journal knows all writes to its thing that were sent later.

    ``newest`` is what the journal knows of it: false if a later write to the thing was sent, ``None`` if it
    cannot tell, because it was restored from a copy. Only the journal knows what other processes have sent;
    what this client has sent beside the journal, ``taken_up`` asks.
    """
    latest = core.writes.opened(intent.identity)
    if latest is not None and intent.newest is False:
        core.writes.revise(attrs.evolve(latest, newest=False))
    start = taken_up(
        core, intent, policy=policy, journaled=journaled, gone_since=gone_since
    )
    resumed = cast("Resumed", start.history[0])
    if intent.newest is not None:
        return start
    return Start(start.intent, (attrs.evolve(resumed, newest=None),))
