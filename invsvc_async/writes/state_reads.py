"""Reads of the state that a write is about, by the operation's own read or a user-supplied reader."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Literal

import attrs

from invsvc_async.api.operations import BY_NAME
from invsvc_async.codec.envelope import Envelope, is_cut
from invsvc_async.codec.exact_json import is_object
from invsvc_async.concurrency.cancellation import raise_if_cancelled
from invsvc_async.errors import InvsvcError, JournalError, ServiceError
from invsvc_async.reconcile.compare import names_another
from invsvc_async.reconcile.history import FINDINGS, CannotTell, ErrorFacts, Reading
from invsvc_async.reconcile.kinds import WriteKind, kind_of_write
from invsvc_async.settings import JOURNEY_READER, READ_TIME, AnyReader, CallOptions
from invsvc_async.transport.client_core import ClientOptions, Request, stamp_of
from invsvc_async.writes.answers import facts_of
from invsvc_async.writes.line_names import line_of_alike, line_of_thing
from invsvc_async.writes.values import of_another

if TYPE_CHECKING:
    from collections.abc import Callable

    from msgspec import Raw

    from invsvc_async.codec.exact_json import Wire, WireObject
    from invsvc_async.concurrency.limiter import Lane
    from invsvc_async.reconcile.history import Finding
    from invsvc_async.reconcile.intent import Intent
    from invsvc_async.transport.transport import Exchange
    from invsvc_async.writes.run_journal import RunJournal


log: logging.Logger = logging.getLogger("invsvc_async.writes")

LIST_SIZE = 100  # items in one list, at most
_FRESH = CallOptions(
    headers={"Cache-Control": "no-cache"}
)  # a cache would show the state of before


class StateReader:
    """
    Reads of the state of the thing of *intent*.

    *now* returns the latest revision of the intent, for the user-supplied reader *own*. ``shown`` is the JSON
    of the thing that was read last.  *journal* tells which writes made what a list shows, of other processes,
    too; without it, this client's memory does.
    """

    def __init__(
        self,
        view: ClientOptions,
        intent: Intent,
        now: Callable[[], Intent],
        *,
        own: AnyReader | None,
        journal: RunJournal | None = None,
    ) -> None:
        self._view = view.for_call(_FRESH)
        self._core = view.core
        self._writes = view.core.writes
        self._clock = view.core.clock
        self._intent = intent
        self._now = now
        self._own = own
        self._journal = journal
        self.shown: Wire | Raw = None

    async def look(self, name: str, *, lane: Lane) -> Reading:
        """Read with the reader called *name*. A failed read returns a Reading too."""
        if name in (self._intent.reader, JOURNEY_READER):
            return await self._ask(self._reader(name))
        operation = BY_NAME[name]
        team = self._intent.scope.team
        if operation.many:
            request = Request(
                operation=operation,
                query={"limit": str(LIST_SIZE)},
                team=team,
            )
            fetch = partial(self._fetch, request, lane=lane)
            listing = await self._writes.listings.share((name, team, lane), fetch)
            return await self._with_claims(listing)
        return await self._fetch(
            Request(
                operation=operation,
                path=self._intent.path,
                team=team,
            ),
            lane=lane,
        )

    async def _fetch(self, request: Request, *, lane: Lane) -> Reading:
        """Read the state. A read that fails, or is answered by an error, is a reading too."""
        begun = self._clock.now()
        try:
            exchange = await self._exchange(request, lane=lane)
        except InvsvcError as error:  # no token
            ended = self._clock.now()
            return Reading(
                started=begun,
                ended=ended,
                error=facts_of(error),
            )
        try:
            envelope = self._view.parse_answer(request, exchange)
            return self._seen(request, exchange, envelope)
        except ServiceError as error:
            return self._refused(request, exchange, error)
        except InvsvcError as error:
            return Reading(
                started=exchange.started,
                ended=exchange.ended,
                error=facts_of(error),
            )

    async def _exchange(self, request: Request, *, lane: Lane) -> Exchange:
        """Send *request*, once more if the token was stale."""
        view = self._view
        loop = asyncio.get_running_loop()
        deadline = loop.time() + READ_TIME
        exchange = await view.attempt(request, deadline=deadline, lane=lane)
        if exchange.status != 401:
            return exchange
        if not await view.renew_token(exchange, within=READ_TIME):
            return exchange
        deadline = loop.time() + READ_TIME
        return await view.attempt(request, deadline=deadline, lane=lane)

    def _refused(
        self,
        request: Request,
        exchange: Exchange,
        error: ServiceError,
    ) -> Reading:
        """Return the reading of an answer that is an *error*. A 410 of the service says what a 404 says."""
        status = error.status
        if status == 410 and error.own_envelope:
            status = 404
        if status == 404 and error.own_envelope and self._kind.gone_is_evidence:
            self._learn(request, exchange, {}, stamp_of(error))
        return Reading(
            started=exchange.started,
            ended=exchange.ended,
            status=status,
            own_envelope=error.own_envelope,
            stamp=stamp_of(error),
            error=facts_of(error),
        )

    def _learn(
        self,
        request: Request,
        exchange: Exchange,
        state: Wire | Raw,
        stamp: int | None,
    ) -> None:
        """Keep the state that was read for the writes that follow."""
        line = line_of_thing(request.operation, *request.path.values())
        started = exchange.started
        ended = exchange.ended
        weight = len(exchange.answer)
        self._writes.shown.learn_state(
            request.team, line, state, started, ended, stamp=stamp, weight=weight
        )

    def _seen(
        self,
        request: Request,
        exchange: Exchange,
        envelope: Envelope,
    ) -> Reading:
        """
        Return the reading of an answer.

        Raises:
            UnreadableResponseError: The answer is about another thing.
        """
        shown = self._writes.shown
        seen = envelope.data
        many = 0
        if isinstance(seen, dict):
            self._note_thing(request, exchange, envelope, seen)
            shown.learn_lengths(self._kind, (seen,))
        elif isinstance(seen, list):
            many = len(seen)
            shown.learn_list(request.operation.name, request.team, seen)
            shown.learn_lengths(self._kind, seen)
        else:
            shown.learn_lengths(self._kind, (seen,))
        return Reading(
            started=exchange.started,
            ended=exchange.ended,
            status=exchange.status,
            own_envelope=True,
            seen=seen,
            raw_count=many,
            full=many >= LIST_SIZE or is_cut(envelope, many),
            stamp=envelope.stamp,
            longest_texts=shown.longest_texts(self._kind),
        )

    def _note_thing(
        self,
        request: Request,
        exchange: Exchange,
        envelope: Envelope,
        seen: WireObject,
    ) -> None:
        """
        Keep what an answer shows of one thing.

        Raises:
            UnreadableResponseError: It is another thing than that of *request*.
        """
        thing_id = seen.get("id")
        if thing_id != request.path.get("id") and names_another(thing_id, request.path):
            raise of_another(envelope, thing_id)
        mode = seen.get("livemode")
        if mode is not self._core.livemode:
            self._core.saw(mode)
        self.shown = envelope.raw
        if request.path:
            self._learn(request, exchange, envelope.raw, envelope.stamp)

    async def _with_claims(self, reading: Reading) -> Reading:
        """
        Return *reading* with the items of other intents, which may share the list.

        If the journal cannot be asked for them, the read has failed: one could be taken for this write's.
        """
        try:
            await self._take_claims_on(reading)
        except JournalError as error:
            log.warning("%s: %s", self._intent.operation, error)
            return Reading(
                started=reading.started,
                ended=self._clock.now(),
                error=facts_of(error),
            )
        return self._with_known_claims(reading)

    async def _take_claims_on(self, reading: Reading) -> None:
        """Learn from the journal which writes made the items of *reading*, unless the client knows."""
        if self._journal is None:
            return
        known = self._writes.claims
        listed = [each for each in _ids_in(reading) if each not in known]
        if listed:
            await self._journal.take_claims_on(listed)

    def _with_known_claims(self, reading: Reading) -> Reading:
        """Return *reading* with the items of other writes, as far as the client knows their makers."""
        own_line = line_of_alike(self._kind, self._intent.body)
        certain = set[str]()
        guessed = set[str]()
        for item in reading.seen or ():
            item_id = item.get("id") if isinstance(item, dict) else None
            if not isinstance(item_id, str):
                continue
            match self._owner(item, item_id, own_line):
                case "another":
                    certain.add(item_id)
                case "perhaps another":
                    guessed.add(item_id)
                case "not known":
                    pass
        if not (certain or guessed):
            return reading
        return attrs.evolve(
            reading, claimed_by_others=frozenset(certain), guessed=frozenset(guessed)
        )

    def _owner(
        self,
        item: WireObject,
        item_id: str,
        own_line: str | None,
    ) -> Literal["another", "perhaps another", "not known"]:
        """Return whether another write has made *item*; *own_line* is the line of this write."""
        own = self._intent.identity
        owner, is_certain = self._writes.claims.get(item_id, (own, False))
        if owner != own:
            if is_certain:
                return "another"
            return "perhaps another"
        if self._may_be_made_now(item, own_line):
            return "perhaps another"
        return "not known"

    def _may_be_made_now(self, item: Wire, own_line: str | None) -> bool:
        """Return whether *item* may have been made by another write, which is under way in its own line."""
        line = line_of_alike(self._kind, item)
        if line is None or line == own_line:
            return False
        return self._writes.lines.is_busy(line)

    @property
    def _kind(self) -> WriteKind:
        return kind_of_write(BY_NAME[self._intent.operation])

    def _reader(self, name: str) -> AnyReader:
        """Return the user-supplied reader called *name*. An intent contains only its name."""
        if name == self._intent.reader:
            return self._own or _no_reader
        of_policies = (
            self._intent.policy.journey_reader,
            self._view.reconcile.journey_reader,
        )
        for reader in (self._own, *of_policies):
            if callable(reader):
                return reader
        return _no_reader

    async def _ask(self, reader: AnyReader) -> Reading:
        """Read with a user-supplied reader. If it raises, or returns no finding, the read has failed."""
        begun = self._clock.now()
        try:
            async with asyncio.timeout(READ_TIME):
                found = await reader(self._core.client_of(self._view), self._now())
            if isinstance(found, FINDINGS):
                return self._found(found, begun)
            if self._kind.may_lack_read:
                return self._reading_of(found, begun)
            why = f"the reader returned a {type(found).__name__}, not a finding"
        except asyncio.CancelledError:
            raise_if_cancelled()
            why = "the reader was cancelled from inside"
        except Exception as error:  # noqa: BLE001 - user code; a failed read is not evidence
            why = f"the reader failed with {type(error).__name__}: {error}"
        log.warning("%s %s: %s", self._intent.operation, self._intent.key, why)
        return Reading(
            started=begun,
            ended=self._clock.now(),
            error=ErrorFacts(kind="reader", message=why),
        )

    def _found(self, found: Finding, begun: float) -> Reading:
        """Return the reading of what a reader *found*, with what is known of the service's clock now."""
        now = self._clock.now()
        slack = self._intent.policy.clock_slack
        bounds = self._core.server_clock.bounds(now, slack)
        return Reading(
            started=begun,
            ended=now,
            finding=found,
            bounds=bounds,
        )

    def _reading_of(self, found: object, begun: float) -> Reading:
        """Return the reading by a reader that is only another way to read the thing itself."""
        from invsvc_async.codec import unstructure

        seen = found if isinstance(found, dict) else unstructure(found)
        return Reading(
            started=begun,
            ended=self._clock.now(),
            status=200,
            own_envelope=True,
            seen=seen,
        )


def _ids_in(reading: Reading) -> list[str]:
    """Return the ids of the items that *reading* lists, if it shows a list."""
    if not isinstance(reading.seen, list):
        return []
    items = filter(is_object, reading.seen)
    return [each["id"] for each in items if isinstance(each.get("id"), str)]


async def _no_reader(client: object, intent: Intent) -> CannotTell:  # noqa: ARG001 - the signature of readers
    return CannotTell(
        f"the intent names a user-supplied reader ({intent.reader or JOURNEY_READER}); pass it as reader="
    )
