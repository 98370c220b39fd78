"""Settling, resuming and recovering writes that another process, or a cancellation, left open."""

from __future__ import annotations

import asyncio
import logging
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import msgspec

from invsvc_async.concurrency.cancellation import raise_if_cancelled
from invsvc_async.errors import ConfigurationError, InvalidRequestError, InvsvcError
from invsvc_async.reconcile.enums import Verdict
from invsvc_async.reconcile.intent import Intent
from invsvc_async.reconcile.safety import safer_of_both
from invsvc_async.writes.driver import run_of
from invsvc_async.writes.journal import keys_of
from invsvc_async.writes.new_intent import spec_of_intent, with_reader
from invsvc_async.writes.new_secret import hand_over
from invsvc_async.writes.starting import close_lines_of_leftovers
from invsvc_async.writes.write import Write

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence

    from invsvc_async.reconcile.outcome import AnyOutcome
    from invsvc_async.settings import AnyReader
    from invsvc_async.transport.client_core import ClientOptions
    from invsvc_async.writes.journal import Journal


log: logging.Logger = logging.getLogger("invsvc_async.writes")

AT_ONCE = 1000  # intents that are settled at the same time: most only wait for a window to end


async def settled(
    view: ClientOptions,
    intent: Intent,
    *,
    reader: AnyReader | None,
    same_mode: bool,
) -> AnyOutcome:
    """
    Settle *intent* by reads alone, unless the journal has the verdict under its key.

    If it has no verdict there, what is found becomes the one.
    """
    check_scope(view, intent, same_mode=same_mode)
    known = await _settled_under_its_key(view, intent, reader)
    if known is not None:
        return known
    driver = run_of(view, with_reader(intent, reader), reader)
    await driver.drive()
    driver.tell_heard()
    outcome = driver.outcome()
    if outcome.verdict is Verdict.NOT_APPLIED:
        # A run of the key may have sent the write meanwhile: then the verdict of that run counts.
        known = await _settled_under_its_key(view, intent, reader)
    return known or outcome


async def _settled_under_its_key(
    view: ClientOptions, intent: Intent, reader: AnyReader | None
) -> AnyOutcome | None:
    """Return what the journal has, or finds out, about the key of *intent*; ``None`` if it has none."""
    keys = keys_of(view.core.writes.journal)
    if keys is None or intent.nonce is None:
        return None
    # A ConfigurationError means that the key of this intent is not among those this client may use.
    with suppress(ConfigurationError):
        known: AnyOutcome | None = await keys.settled(intent, view, reader)
        return known
    return None


async def recovered(
    view: ClientOptions,
    journal: Journal,
    *,
    same_mode: bool,
) -> list[AnyOutcome]:
    """Settle the open intents of dead processes, and return their verdicts, delivered ones excepted."""
    recovery = Recovery(view, journal, same_mode=same_mode)
    found = await recovery.brought_up_to_date(await recovery.found(given=True))
    loop = asyncio.get_running_loop()
    for outcome in found:
        loop.call_soon(journal.heard, outcome.started_as.identity)
    return found


async def recover_on(
    view: ClientOptions,
    journal: Journal,
    *,
    every: float,
    same_mode: bool,
    on_outcome: Callable[[AnyOutcome], Awaitable[None] | None] | None,
) -> None:
    """Recover again and again, until cancelled. Verdicts that *on_outcome* does not take stay."""
    recovery = Recovery(view, journal, same_mode=same_mode)
    while True:
        try:
            for found in await recovery.found(given=on_outcome is not None):
                if on_outcome is not None:
                    [outcome] = await recovery.brought_up_to_date([found])
                    await hand_over(on_outcome, outcome)
                    journal.heard(outcome.started_as.identity)
        except InvsvcError as error:
            log.error("recovering: %s", error)
        except (
            Exception,
            asyncio.CancelledError,
        ):  # of what on_outcome awaits, unless this was cancelled
            raise_if_cancelled()
            log.exception("recovering: on_outcome failed; it gets this verdict again")
        raise_if_cancelled()
        await asyncio.sleep(every)


class Recovery:
    """
    Finds out what became of the writes that dead processes left in *journal*.

    Meanwhile the program may itself go on with one of them, by ``client.resume`` of its intent. So an outcome
    that has been found is brought up to date before the program gets it.
    """

    def __init__(
        self,
        view: ClientOptions,
        journal: Journal,
        *,
        same_mode: bool,
    ) -> None:
        self._view = view
        self._core = view.core
        self._journal = journal
        self._same_mode = same_mode
        # A journal that processes share takes over from those that are dead, of which some may only be
        # stopped. One that a single process owns has what the process before it left: that one is dead.
        self._is_shared: bool = getattr(journal, "is_shared", False)
        self._opened = 0.0  # local s: since then, this process has the journal
        # What this process knew of ends before it took over: what it has taken over is newer.
        self._ended_before: Mapping[str, AnyOutcome] = {}
        self._places = asyncio.Semaphore(AT_ONCE)

    async def found(self, *, given: bool) -> list[AnyOutcome]:
        """Settle what dead processes left open; return the outcomes, and with *given* also older verdicts."""
        journal = self._journal
        self._ended_before = dict(self._core.writes.ended)
        if self._is_shared:
            await journal.take_over(same_mode=self._same_mode)  # type: ignore[attr-defined]
            self._core.writes.open_writes.leftovers = None  # look again
        undelivered: list[AnyOutcome] = []
        if given:
            undelivered = [outcome async for outcome in journal.unheard()]
        self._opened = self._core.clock.now()
        await close_lines_of_leftovers(self._core, journal)
        with _first_of_several():
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(self._settle(intent))
                    async for intent in journal.open_intents()
                    if self._is_in_scope(intent)
                ]
        keys = keys_of(journal)
        if keys is None:
            keyed = []
        else:
            keyed = await keys.settle_left(self._view, same_mode=self._same_mode)
        return [*undelivered, *(task.result() for task in tasks), *keyed]

    async def brought_up_to_date(self, found: Sequence[AnyOutcome]) -> list[AnyOutcome]:
        """Return the outcomes as they are now. Runs of the same writes that are under way are waited for."""
        outcomes = list(found)
        while under_way := self._places_under_way(outcomes):
            with _first_of_several():
                async with asyncio.TaskGroup() as group:
                    tasks = {
                        place: group.create_task(self._settle(outcomes[place].intent))
                        for place in under_way
                    }
            for place, task in tasks.items():
                outcomes[place] = task.result()
        return [self._ended_since(each) or each for each in outcomes]

    def _ended_since(self, found: AnyOutcome) -> AnyOutcome | None:
        """Return the outcome of a run of the write *found* that has ended since it was taken over, if any."""
        identity = found.started_as.identity
        ended = self._core.writes.ended.get(identity)
        return None if ended is self._ended_before.get(identity) else ended

    def _places_under_way(self, outcomes: Sequence[AnyOutcome]) -> list[int]:
        """Return the places of the outcomes of writes that run again."""
        running = self._core.under_way.identities()
        return [
            place
            for place, each in enumerate(outcomes)
            if each.started_as.identity in running
        ]

    def _is_in_scope(self, intent: Intent) -> bool:
        """Return whether the client can settle *intent*; if not, log why."""
        try:
            check_scope(self._view, intent, same_mode=self._same_mode)
        except InvalidRequestError as error:
            log.error("left in the journal: %s", error)
            return False
        return True

    def _gone_since(self, intent: Intent) -> float | None:
        """Return when the process that sent *intent* was known to be gone (local s), if it was."""
        if not self._is_shared:
            return self._opened
        if self._journal.sender_is_gone(intent.identity):  # type: ignore[attr-defined]
            return self._opened
        return None

    async def _settle(self, intent: Intent) -> AnyOutcome:
        """Settle *intent* by reads, once no other run of it is under way."""
        driver = run_of(
            self._view,
            intent,
            journaled=True,
            gone_since=self._gone_since(intent),
        )
        driver.tell_verdict_only()  # if it is cancelled, its entry stays as it is
        async with self._places:
            await driver.drive()
        outcome = driver.outcome()
        if driver.ended_elsewhere:  # so this run did not store it
            await self._journal.settled(outcome)
        return outcome


@contextmanager
def _first_of_several() -> Generator[None]:
    """Raise the first of several exceptions: it cancelled the others, whose intents stay in the journal."""
    try:
        yield
    except ExceptionGroup as several:
        first = several.exceptions[0]
        raise first from first.__cause__


def resumed(
    view: ClientOptions,
    intent: Intent,
    *,
    reader: AnyReader | None,
    same_mode: bool,
) -> Write[Any]:
    """Make the write that settles *intent* first, and sends it again only on proof of absence."""
    check_scope(view, intent, same_mode=same_mode)
    intent = with_reader(intent, reader)
    policy = safer_of_both(intent.policy, view.reconcile)
    spec = spec_of_intent(view, intent, reader, policy)
    return Write(msgspec.structs.replace(spec, resumes=intent))


def check_scope(
    view: ClientOptions,
    intent: Intent,
    *,
    same_mode: bool,
    in_doubt: bool = True,
) -> None:
    """
    Check that *intent* belongs to this client's base URL, team and data mode.

    Elsewhere, a write that was applied would seem absent. *in_doubt* is whether it has to be looked for.

    Raises:
        InvalidRequestError: It belongs to another base URL or team, or may belong to another data mode; or it
            is not an Intent.
    """
    if not isinstance(intent, Intent):
        raise InvalidRequestError(
            f"intent: must be an Intent, not a {type(intent).__name__}",
            hint="Make one of its text with Intent.from_json.",
        )
    core = view.core
    scope = intent.scope
    if scope.base_url != core.base_url:
        raise _refusal(
            intent, f"belongs to {scope.base_url}, but this client uses {core.base_url}"
        )
    if view.team is not None and scope.team != view.team:
        raise _refusal(
            intent,
            f"belongs to team {scope.team!r}, but this client acts on team {view.team!r}",
        )
    if not core.writes.knows(intent.identity):
        _check_mode(view, intent, same_mode=same_mode, in_doubt=in_doubt)


def _check_mode(
    view: ClientOptions,
    intent: Intent,
    *,
    same_mode: bool,
    in_doubt: bool,
) -> None:
    """Raise ``InvalidRequestError`` if *intent* may be of another team or data mode than this client."""
    core = view.core
    scope = intent.scope
    if (
        scope.livemode is not None
        and core.livemode is not None
        and scope.livemode != core.livemode
    ):
        modes = {True: "live", False: "test"}
        raise _refusal(
            intent,
            f"belongs to {modes[scope.livemode]} data, but this client uses {modes[core.livemode]} data",
        )
    if not in_doubt or same_mode:
        return
    if not _same_scope(view, intent):
        raise _refusal(
            intent,
            "nothing shows that it belongs to the team and data mode of this client. If it does, pass "
            "same_mode=True (invsvc: --same-mode)",
            hint="Nothing was sent.",
        )


def _same_scope(view: ClientOptions, intent: Intent) -> bool:
    """
    Return whether the credential is the same, or answers showed the same mode of a named team.

    A ``TokenProvider`` has no fingerprint: another one may be of another team.
    """
    core = view.core
    scope = intent.scope
    mine = core.credential.fingerprint(intent.key)
    if mine is not None and mine == scope.credential:
        # A person's mode is a preference that may have changed since.
        return core.writes.is_of_one_mode
    if scope.livemode is None or scope.team is None:
        return False
    return scope.livemode == core.livemode


def _refusal(
    intent: Intent,
    why: str,
    *,
    hint: str | None = None,
) -> InvalidRequestError:
    return InvalidRequestError(
        f"intent {intent.key}: {why}", operation=intent.operation, hint=hint
    )
