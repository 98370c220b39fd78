"""
Writes taken up where another process, or a cancellation, left them: settled, resumed or recovered.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from invsvc_async._errors import InvalidRequestError
from invsvc_async.writes.driver import Driver
from invsvc_async.writes.new_intent import spec_of_intent
from invsvc_async.writes.start import close_lines_of_leftovers, taken_up
from invsvc_async.writes.write import Write

if TYPE_CHECKING:
    from invsvc_async.reconcile.intent import Intent
    from invsvc_async.reconcile.outcome import Outcome
    from invsvc_async.settings import AnyReader
    from invsvc_async.transport.journal import Journal
    from invsvc_async.transport.session import ClientOptions

__all__ = ["recovered", "resumed", "settled"]

log: logging.Logger = logging.getLogger("invsvc_async.writes")

AT_ONCE = 1000  # intents of a journal that are settled at the same time: most only wait out a window


async def settled(
    view: ClientOptions, intent: Intent, *, reader: AnyReader | None, same_mode: bool
) -> Outcome[Any]:  # Any: the intent's operation says what the value is
    """Find out by reads alone what became of *intent*."""
    check_scope(view, intent, same_mode=same_mode)
    driver = _run_of(view, intent, reader=reader)
    outcome = await driver.run()
    if driver.journal is not None:
        asyncio.get_running_loop().call_soon(driver.journal.heard, intent.identity)
    return outcome


async def recovered(
    view: ClientOptions, journal: Journal, *, same_mode: bool
) -> list[Outcome[Any]]:  # Any: as in settled
    """
    Settle what the journal holds of a process before this one, and return its verdicts that nobody has heard.

    That process is dead, because the journal is ours now.
    """
    told = [outcome async for outcome in journal.unheard()]
    opened = view.session.clock.now()  # by now, the journal is ours
    await close_lines_of_leftovers(view.session, journal)
    places = asyncio.Semaphore(AT_ONCE)

    async def one(intent: Intent) -> Outcome[Any]:
        driver = _run_of(view, intent, gone_since=opened)
        driver.journal = None  # what stands there stays until all can be told: a kill before loses no verdict
        async with places:
            return await driver.run()

    tasks = []
    try:
        async with asyncio.TaskGroup() as group:
            async for intent in journal.open_intents():
                try:
                    check_scope(view, intent, same_mode=same_mode)
                except InvalidRequestError as error:
                    log.error("left in the journal: %s", error)  # noqa: TRY400 - its words say it all
                else:
                    tasks.append(group.create_task(one(intent)))
    except ExceptionGroup as several:  # the first ended the others, whose intents stay in the journal
        first = several.exceptions[0]
        raise first from first.__cause__
    outcomes = [task.result() for task in tasks]
    await asyncio.gather(*map(journal.settled, outcomes))
    loop, found = asyncio.get_running_loop(), [*told, *outcomes]
    for outcome in found:
        loop.call_soon(journal.heard, outcome.started_as.identity)
    return found


def _run_of(
    view: ClientOptions, intent: Intent, *, reader: AnyReader | None = None, gone_since: float | None = None
) -> Driver[Any]:  # Any: as in settled
    begin = partial(
        taken_up,
        view.session,
        journaled=gone_since is not None,
        gone_since=gone_since,
        reads_only=True,
    )
    return Driver(spec_of_intent(view, intent, reader), intent, begin=begin, takes_up=True)


def resumed(view: ClientOptions, intent: Intent, *, reader: AnyReader | None, same_mode: bool) -> Write[Any]:
    """Make the write that settles *intent* first, and sends it again only on proof of absence."""
    check_scope(view, intent, same_mode=same_mode)
    spec = spec_of_intent(view, intent, reader)
    return Write(msgspec.structs.replace(spec, resumes=intent))


def check_scope(view: ClientOptions, intent: Intent, *, same_mode: bool, in_doubt: bool = True) -> None:
    """
    Refuse an intent that would be looked for in the wrong place: what is not there would seem not to have
    happened.  One that is not *in_doubt* is not looked for.

    Raises:
        InvalidRequestError: It belongs to another base URL or team, or may belong to another data mode or
            credential.

    """
    session, scope = view.session, intent.scope
    if scope.base_url != session.base_url:
        raise _refusal(intent, f"it was for {scope.base_url}, and this client is for {session.base_url}")
    if view.team is not None and scope.team != view.team:
        raise _refusal(intent, f"it was for team {scope.team!r}, and this client acts on team {view.team!r}")
    if same_mode or intent.identity in session.writes.left_open.unsettled:
        return
    if scope.livemode is not None and session.livemode is not None and scope.livemode != session.livemode:
        modes = {True: "live", False: "test"}
        raise _refusal(
            intent,
            f"it was {modes[scope.livemode]} data, and this client is for {modes[session.livemode]} data",
        )
    if in_doubt and not _same_place(view, intent):
        raise _refusal(
            intent,
            "nothing shows that this client has its team and data mode; if it has, say same_mode=True "
            "(invsvc: --same-mode)",
        )


def _same_place(view: ClientOptions, intent: Intent) -> bool:
    """
    Tell whether the credential is the same one, or answers have shown the same mode of a team that is named.
    """
    session, scope = view.session, intent.scope
    mine = session.credential.fingerprint(intent.key)
    if mine is not None and mine == scope.credential:
        # A person's mode is a preference that may have changed since.
        return session.writes.is_of_one_mode
    shown = scope.livemode is not None and scope.livemode == session.livemode
    return shown and (scope.team is not None or scope.credential is None)


def _refusal(intent: Intent, why: str) -> InvalidRequestError:
    return InvalidRequestError(f"intent {intent.key}: {why}", operation=intent.operation)
