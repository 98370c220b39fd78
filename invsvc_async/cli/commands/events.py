"""``invsvc events``: the events in a receiver's store, above all those that could not be handled."""

from __future__ import annotations

import os
import re
import sys
import time
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import attrs
from typer.core import TyperCommand

from invsvc_async.api.event_types import EVENT_TYPES
from invsvc_async.cli.arguments import complete_event
from invsvc_async.cli.event_views import (
    ON_TERMINAL,
    TITLES,
    as_date,
    backlog_in_words,
    body_in_words,
    content_of,
    counts_of,
    counts_table,
    events_table,
    facts_in_words,
    facts_of,
    number_in_words,
)
from invsvc_async.cli.options import (
    Calling,
    CommandGroup,
    Yes,
    argument,
    confirm,
    misuse,
    number,
    number_parser,
    option,
)
from invsvc_async.cli.output import (
    Exit,
    counted,
    emitted,
    fail,
    is_terminal,
    note,
    print_facts,
    say,
    say_wrapped,
    table,
    tell,
)
from invsvc_async.cli.progress import progress
from invsvc_async.resources.by_name import did_you_mean

if TYPE_CHECKING:
    from collections.abc import (
        AsyncGenerator,
        AsyncIterator,
        Awaitable,
        Callable,
        Sequence,
    )

    from invsvc_async.events import HandlerStore, StoredEvent
    from invsvc_async.events.stores import State

_PAGE: Final = 100  # events read at once: each body may have 1 MiB
_AGE: Final = re.compile(r"(\d+)([smhd])")
_LARGEST: Final = 2**63 - 1  # id
_id = number_parser(int, least=0, most=_LARGEST)
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def _seconds(age: str, option: str | None = None) -> float:
    with suppress(ValueError, OverflowError):  # too many digits
        if found := _AGE.fullmatch(age):
            return timedelta(**{_UNITS[found[2]]: int(found[1])}).total_seconds()
    raise misuse("use 30d, 2h, 30m or 10s", option)


def _moment(text: str) -> float:
    """Return a time as seconds since the epoch: an ISO 8601 one, in UTC by default, or an age."""
    try:
        if _AGE.fullmatch(text):
            return (datetime.now(UTC) - timedelta(seconds=_seconds(text))).timestamp()
        found = datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        raise misuse("use 2026-05-01, 2026-05-01T12:30, or 1d, 2h, 30m") from None
    if not found.tzinfo:
        found = found.replace(tzinfo=UTC)
    return found.timestamp()


_STORE = "The receiver's store, if it is not given as ADDRESS: a SQLite file, or postgresql://…"


class _StoreCommand(TyperCommand):
    """A command whose first argument may be the address of the store; after it come ids, which are digits."""

    # Any: typer has a context of its own
    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return what stands in the line of usage."""
        options, *rest = super().collect_usage_pieces(ctx)
        return [options, "[ADDRESS]", *rest]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Pass the address on as the value of ``--store``."""
        if any(each.split("=")[0] == "--store" for each in args):
            note(f"--store: is an older form of invsvc events {self.name} ADDRESS")
        at = self._first_argument(args)
        if at is not None and not args[at].isdecimal():
            args = [f"--store={args[at]}", *args[:at], *args[at + 1 :]]
        return super().parse_args(ctx, args)

    def _first_argument(self, args: list[str]) -> int | None:
        """Return where the first of *args* is that is neither an option nor the value of one."""
        takes_value = set[str]()
        for each in self.params:
            if getattr(each, "is_flag", True) is False:
                takes_value.update(each.opts)
        is_value = False
        for at, word in enumerate(args):
            if is_value:
                is_value = False
            elif word.startswith("-"):
                is_value = word in takes_value
            else:
                return at
        return None


@attrs.frozen
class EventStoreOptions:
    """The options of each command: where the store is, and how its content is printed."""

    store: Annotated[str, option(_STORE, "FILE", envvar="INVSVC_EVENT_STORE")]
    table: Annotated[str, option("The table in PostgreSQL.", "NAME")] = (
        "invsvc_delivery"
    )

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[HandlerStore]:
        """Return the store, which must exist: a misspelt path is not to become a new file."""
        from invsvc_async.events.stores import open_store
        from invsvc_async.storage.address import is_postgres

        # Refuses addresses of other forms, whose password the error below would show.
        store = open_store(
            self.store,
            table=self.table,
            connections=2,
            create=False,
        )
        if not is_postgres(self.store) and not os.path.exists(self.store):  # noqa: ASYNC240, PTH110 - nothing else runs
            raise misuse(f"{self.store}: there is no such file", "--store")
        try:
            yield store
        finally:
            await store.close()


Type = Annotated[
    str | None,
    option("Only events of this type.", "TYPE", autocompletion=complete_event),
]
_SINCE = "Received at this time (UTC) or later; 1d means a day ago."


@attrs.frozen
class Filter:
    """The options of commands that select events by type, handler and time of arrival."""

    type_: Type = None
    handler: Annotated[
        str | None, option("Only what is for the handler with this name.", "NAME")
    ] = None
    since: Annotated[float | None, option(_SINCE, "TIME", parser=_moment)] = None
    until: Annotated[
        float | None, option("Received before this time.", "TIME", parser=_moment)
    ] = None

    async def of(
        self,
        store: HandlerStore,
        state: State | None,
        *,
        after: int = 0,
    ) -> AsyncIterator[StoredEvent]:
        """Return the events in *state* that these options select, page by page."""
        if self.type_ and self.type_ not in EVENT_TYPES:
            suggestion = did_you_mean(self.type_, EVENT_TYPES)
            if suggestion:
                note(
                    f"--type: {self.type_!r} is not in the specification. {suggestion}"
                )
        while page := await store.events(
            state=state,
            after=after,
            limit=_PAGE,
        ):
            after = page[-1].id
            for event in page:
                if self._selects(event):
                    yield event

    def _selects(self, event: StoredEvent) -> bool:
        if self.type_ not in {None, event.type}:
            return False
        if self.handler not in {None, event.handler}:
            return False
        since = self.since or 0.0
        until = float("inf") if self.until is None else self.until
        return since <= event.received_at < until


@attrs.frozen
class Choice(Filter):
    """The options of commands that change events: named events, or all events that the filter selects."""

    ids: Annotated[
        list[int] | None,
        argument("Ids, as `list` shows them.", "ID", parser=_id),
    ] = None
    all_: Annotated[bool, option("All that the other options select.")] = False

    def __attrs_post_init__(self) -> None:
        if bool(self.ids) == self.all_:
            raise misuse("use either ids or --all")


events: CommandGroup = CommandGroup(of_commands=_StoreCommand)
_BODIES = "Kept bodies: older than this. As --older-than."
_DEAD = "Dead letters: older than this. None by default."
_LISTED = "Dead letters, events that wait, handled ones, or all."
_CREATED_SINCE = "Invoices created at this time (UTC) or later; 2h means two hours ago."
_CREATED_UNTIL = "Invoices created until this time; by default, until 5 minutes ago."
_DROPPED = "With --all: dead letters, events that wait, or kept bodies of handled ones."


@events.add
async def list_(
    at: EventStoreOptions,
    *,
    state: Annotated[
        Literal["dead", "open", "handled", "all"], option(_LISTED)
    ] = "dead",
    chosen: Filter,
    after: Annotated[
        int,
        number(
            int,
            "Continue after this id.",
            least=0,
            most=_LARGEST,
            metavar="ID",
        ),
    ] = 0,
    limit: Annotated[int, number(int, "Maximum number of events.", least=1)] = 100,
) -> None:
    """
    List events, oldest first: `invsvc events list events.db`.

    With --json it prints one object per line, not an array.
    """
    found: list[StoredEvent] = []
    wanted = None if state == "all" else state
    async with at.opened() as store:
        async for event in chosen.of(store, wanted, after=after):
            if len(found) == limit:
                note(f"there are more: continue with --after {found[-1].id}")
                break
            found.append(event)
    if emitted(*map(facts_of, found)):
        return
    shown = ON_TERMINAL if is_terminal(sys.stdout) else TITLES
    titles, rows, right = events_table(found, shown)
    table(titles, rows, right=right)


@events.add
async def show(
    id_: Annotated[int, argument("As `list` shows it.", "ID", parser=_id)],
    at: EventStoreOptions,
) -> int:
    """
    Show one event: `invsvc events show events.db 17`.

    Its body is shown too, which may contain personal data.
    """
    async with at.opened() as store:
        event = await anext(_named(store, [id_]), None)
    if event is None:
        return Exit.FAILED
    if not emitted(facts_of(event) | content_of(event)):
        print_facts(dict(facts_in_words(event)))
        say("\n" + body_in_words(event))
    return Exit.DONE


@events.add
async def revive(chosen: Choice, at: EventStoreOptions) -> int:
    """
    Hand dead letters to the receiver again: `invsvc events revive events.db --all`.

    They have new attempts then; mend their cause before.  Exits with 1 if an event is not a dead letter.
    """
    return await _change(at, chosen, "dead", "revived")


@events.add
async def drop(
    chosen: Choice,
    at: EventStoreOptions,
    *,
    state: Annotated[Literal["dead", "open", "handled"], option(_DROPPED)] = "dead",
    yes: Yes = False,
) -> int:
    """
    Delete events that nobody is to handle: `invsvc events drop events.db 17`.

    Their keys stay, so that late duplicates are not handled either.  Asks before on a terminal.  Exits with 1
    if an event is being handled, or has no body because the service will send it again.
    """
    if not yes:
        if chosen.ids:
            what = counted(len(chosen.ids), "event")
        else:
            what = f"all selected events that are {state}"
        confirm(f"events drop: delete {what}?")
    if chosen.ids:
        return await _change(at, chosen, None, "dropped")
    return await _change(at, chosen, state, "dropped")


@events.add
async def replay(chosen: Choice, at: EventStoreOptions) -> int:
    """
    Hand handled events to the receiver again: `invsvc events replay events.db --all --since 1d`.

    Their bodies must have been kept: `InboxPolicy(keep_bodies=…)`.  The same handlers are called again, or
    with --handler only that one, unless it has had them, also for events that others have not handled.  Exits
    with 1 if the body of an event that was given by its id was not kept.
    """
    handler = chosen.handler
    # an unset variable of the shell is not "all handlers"
    if handler is not None and not handler.strip():
        raise misuse("give the handler's name", "--handler")
    # the name is that of the handler that gets them
    every = attrs.evolve(chosen, handler=None)
    if handler:
        return await _change(at, every, None, "replayed", to=handler)
    return await _change(at, every, "handled", "replayed")


@events.add
async def catch_up(
    at: EventStoreOptions,
    calling: Calling,
    *,
    since: Annotated[float, option(_CREATED_SINCE, "TIME", parser=_moment)],
    until: Annotated[
        float | None, option(_CREATED_UNTIL, "TIME", parser=_moment)
    ] = None,
) -> int:
    """
    Make up for lost deliveries: `invsvc events catch-up events.db --since 2h`.

    For each invoice in the lists of which the store has seen no invoice.created, and for each canceled one no
    invoice.canceled, an event is stored, which the receiver then handles.  Nothing can stand for other
    events.  It can be interrupted and called again.  The receiver must have mode="inbox".  Exits with 1 if an
    invoice has no usable uuid.
    """
    from invsvc_async.events.receiving.catching_up import CatchUp
    from invsvc_async.events.receiving.handlers import delivery_of

    async with at.opened() as store, calling.client() as client:
        with progress("pages") as advance:
            found = await CatchUp(
                store,
                client,
                lambda event: (delivery_of(event),),
                wanted=EVENT_TYPES,
                since=round(since * 1000),
                until=None if until is None else round(until * 1000),
                now=time.time(),
                advance=advance,
            ).run()
    facts = attrs.asdict(found)
    for name in ("since", "until", "knows_from"):
        if facts[name] is not None:
            facts[name] = as_date(facts[name].timestamp())
    if not emitted(facts):
        say_wrapped(found.explain())
    if found.passed_over:
        return Exit.FAILED
    return Exit.DONE


async def _change(
    at: EventStoreOptions,
    chosen: Choice,
    state: State | None,
    done: str,
    *,
    to: str | None = None,
) -> int:
    """Change the chosen events; *to* is the handler to which they are given."""
    changed = failed = bodiless = 0
    async with at.opened() as store:
        act = _action(store, done, to)
        selected = _named(store, chosen.ids) if chosen.ids else chosen.of(store, state)
        async for event in selected:
            if to and not event.type:
                continue  # a body that is no event
            if state not in {None, event.state}:
                fail(f"{event.id}: it is {event.state}, and cannot be {done}")
                failed += 1
            elif await act(event):
                changed += 1
            elif chosen.ids:
                fail(f"{event.id}: it cannot be {done}. Look at it with `show`")
                failed += 1
            elif event.body is None:
                bodiless += 1
    if done != "replayed":
        bodiless = 0
    if bodiless:
        note(
            f"{counted(bodiless, 'event')} passed over: no body was kept (InboxPolicy(keep_bodies=…))"
        )
    not_there = len(chosen.ids or ()) - changed
    return _tell_changes(changed, max(failed, not_there), done, to)


def _action(
    store: HandlerStore,
    done: str,
    to: str | None,
) -> Callable[[StoredEvent], Awaitable[bool]]:
    """Return what is done to each event: it is given to the handler *to*, dropped, or handled again."""
    if to:
        return partial(store.give, handler=to)
    if done == "dropped":
        return store.drop
    return store.revive


def _tell_changes(
    changed: int,
    failed: int,
    done: str,
    to: str | None,
) -> int:
    """Print how many events were changed, and return the exit code."""
    is_json = tell(
        {done: changed, "failed": failed}, f"{counted(changed, 'event')} {done}"
    )
    if changed and to and not is_json:
        note(f"only a receiver that has a handler named {to!r} handles them")
    if failed:
        return Exit.FAILED
    return Exit.DONE


async def _named(store: HandlerStore, ids: Sequence[int]) -> AsyncIterator[StoredEvent]:
    for one in ids:
        page = await store.events(after=one - 1, limit=1)
        if page and page[0].id == one:
            yield page[0]
        else:
            fail(
                f"{one}: there is no such event in the store. Use an id that `list` shows"
            )


@events.add
async def stats(at: EventStoreOptions) -> None:
    """Count the events in each state, and what is due now: `invsvc events stats events.db`."""
    async with at.opened() as store:
        found = await store.stats()
        backlog = await store.backlog()
    if emitted(counts_of(found) | {"backlog": attrs.asdict(backlog)}):
        return
    titles, rows, right = counts_table(found)
    table(titles, rows, right=right)
    say(backlog_in_words(backlog))


@events.add
async def prune(
    at: EventStoreOptions,
    *,
    older_than: Annotated[str, option("Handled longer ago than this.", "AGE")] = "30d",
    bodies: Annotated[str | None, option(_BODIES, "AGE")] = None,
    dead: Annotated[str | None, option(_DEAD, "AGE")] = None,
) -> None:
    """
    Delete handled events that are old: `invsvc events prune events.db --older-than 7d`.

    A running receiver does that each hour.  The command also shows what is left, and why.
    An event that is deleted would be handled again if it came again.
    """
    ages = {"older_than": _seconds(older_than, "--older-than")}
    if bodies is not None:
        ages["bodies"] = _seconds(bodies, "--bodies")
    if dead is not None:
        ages["dead"] = _seconds(dead, "--dead")
    async with at.opened() as store:
        pruned = await store.prune(**ages)
        left = await store.stats()
    if tell(
        {"pruned": pruned, "kept": counts_of(left)},
        f"{counted(pruned, 'event')} pruned",
    ):
        return
    if dead is None:
        kept = "until dropped: --dead was not given"
    else:
        kept = f"younger than {dead}"
    reasons = {
        "open": "not handled yet",
        "handled": f"less than {older_than} ago",
        "dead": kept,
    }
    table(
        ("kept", "events", "why"),
        [[s, number_in_words(one), reasons[s]] for s, one in left.items()],
        right=(1,),
    )
