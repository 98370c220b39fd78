"""``invsvc events``: the events in a receiver's store, above all those that could not be handled."""

from __future__ import annotations

import re
import time
from base64 import b64encode
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import attrs
import typer

from invsvc_async.api.event_types import EVENT_TYPES
from invsvc_async.cli.arguments import complete_event, did_you_mean
from invsvc_async.cli.option_groups import expanded
from invsvc_async.cli.options import Json, Yes, confirm, number
from invsvc_async.cli.output import (
    DONE,
    FAILED,
    age,
    console,
    counted,
    emit_json,
    fail,
    note,
    print_facts,
    table,
    visible,
)
from invsvc_async.concurrency.event_loop import until_done

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence

    from invsvc_async.events import HandlerStore, Store, StoredEvent
    from invsvc_async.events.stores import State, StateStats

__all__ = ["app"]

_PAGE: Final = 100  # events read at once: each body may have 1 MiB
_AGE: Final = re.compile(r"(\d+)([smhd])")
_LARGEST: Final = 2**63 - 1  # id
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}

_TABLE: Final = "invsvc_delivery"
BodiesAge = Annotated[
    str | None, typer.Option(metavar="AGE", help="Kept bodies: older than this. As --older-than.")
]
DeadAge = Annotated[
    str | None, typer.Option(metavar="AGE", help="Dead letters: older than this. None by default.")
]


@attrs.frozen
class At:
    """The options of each command: where the store is, and how its content is printed."""

    store: Annotated[
        str,
        typer.Option(
            envvar="INVSVC_EVENT_STORE", show_envvar=True, metavar="FILE",
            help="The receiver's store: a SQLite file, or postgresql://…",
        ),
    ]  # fmt: skip
    table: Annotated[str, typer.Option(help="The table in PostgreSQL.", metavar="NAME")] = _TABLE
    json_: Json = False


@attrs.frozen
class Filter:
    """The options of commands that select events by what is known of them."""

    type_: Annotated[
        str | None,
        typer.Option(
            "--type", help="Only events of this type.", metavar="TYPE", autocompletion=complete_event
        ),
    ] = None
    handler: Annotated[
        str | None, typer.Option(help="Only what is for the handler with this name.", metavar="NAME")
    ] = None
    since: Annotated[
        str | None,
        typer.Option(help="Received at this time (UTC) or later; 1d means a day ago.", metavar="TIME"),
    ] = None
    until: Annotated[str | None, typer.Option(help="Received before this time.", metavar="TIME")] = None

    def selection(self, state: State | None) -> Selection:
        """Return the events in *state* that these options select."""
        if self.type_ and self.type_ not in EVENT_TYPES and (words := did_you_mean(self.type_, EVENT_TYPES)):
            note(f"--type: {self.type_!r} is not in the specification. {words}")
        return Selection(
            state=state,
            type=self.type_,
            handler=self.handler,
            since=0.0 if self.since is None else _moment(self.since, "--since"),
            until=float("inf") if self.until is None else _moment(self.until, "--until"),
        )


@attrs.frozen
class Choice(Filter):
    """The options of commands that change events, which are named, or all that the filter selects."""

    ids: Annotated[
        list[int] | None, typer.Argument(max=_LARGEST, help="Ids, as `list` shows them.", metavar="[ID]...")
    ] = None
    all_: Annotated[bool, typer.Option("--all", help="All that the other options select.")] = False

    def selection(self, state: State | None) -> Selection:
        """Return the events in *state* that these options select."""
        if bool(self.ids) == self.all_:
            raise typer.BadParameter("use either ids or --all")
        return attrs.evolve(super().selection(state), ids=self.ids or ())


app: typer.Typer = typer.Typer(
    add_completion=False, rich_markup_mode="markdown", no_args_is_help=True,
    help="Show, handle again or drop the events in a receiver's store, which may be in use meanwhile.",
)  # fmt: skip


@attrs.frozen(kw_only=True)
class Selection:
    """The events with *ids*, or those in a state, of a type, for a handler, and received in a period."""

    ids: Sequence[int] = ()
    state: State | None
    type: str | None = None
    handler: str | None = None
    since: float = 0.0
    until: float = float("inf")

    async def of(self, store: Store, after: int = 0) -> AsyncIterator[StoredEvent]:
        """Return the events, page by page."""
        for one in self.ids:
            page = await store.events(after=one - 1, limit=1)
            if page and page[0].id == one:
                yield page[0]
            else:
                fail(f"{one}: there is no such event in the store. Use an id that `list` shows")
        while not self.ids and (page := await store.events(state=self.state, after=after, limit=_PAGE)):
            after = page[-1].id
            for event in page:
                if self._has(event):
                    yield event

    def _has(self, event: StoredEvent) -> bool:
        chosen = self.type in {None, event.type} and self.handler in {None, event.handler}
        return chosen and self.since <= event.received_at < self.until


@app.command("list")
@expanded
def list_(
    at: At,
    *,
    state: Annotated[
        Literal["dead", "open", "handled", "all"],
        typer.Option(help="Dead letters, events that wait, handled ones, or all."),
    ] = "dead",
    chosen: Filter,
    after: Annotated[int, number(int, "Continue after this id.", least=0, most=_LARGEST, metavar="ID")] = 0,
    limit: Annotated[int, number(int, "Maximum number of events.", least=1)] = 100,
) -> None:
    """
    List events, oldest first: `invsvc events list --store events.db`.

    With --json it prints one object per line, not an array.
    """
    until_done(_list(at, chosen.selection(None if state == "all" else state), after, limit))


async def _list(at: At, wanted: Selection, after: int, limit: int) -> None:
    found: list[StoredEvent] = []
    async with _opened(at) as store:
        async for event in wanted.of(store, after):
            if len(found) == limit:
                note(f"there are more: continue with --after {found[-1].id}")
                break
            found.append(event)
    if at.json_:
        for event in found:
            emit_json(_facts(event))
        return
    titles = ("id", "state", "type", "key", "attempts", "handler", "age", "reason")
    rows = [_facts(event) | {"age": age(time.time() - event.received_at)} for event in found]
    table(titles, [[str(row[title] or "") for title in titles] for row in rows], right=(0, 4, 6))


@app.command()
@expanded
def show(
    id_: Annotated[int, typer.Argument(max=_LARGEST, metavar="ID", help="As `list` shows it.")], at: At
) -> None:
    """
    Show one event: `invsvc events show 17 --store events.db`.

    Its body is shown too, which may contain personal data.
    """
    raise typer.Exit(until_done(_show(at, id_)))


async def _show(at: At, one: int) -> int:
    async with _opened(at) as store:
        found = [event async for event in Selection(ids=[one], state=None).of(store)]
    if not found:
        return FAILED
    (event,) = found
    facts = _facts(event)
    if at.json_:
        emit_json(facts | _body(event))
        return DONE
    print_facts(
        console(), [(name, visible(str(value))) for name, value in facts.items() if value is not None]
    )
    body = "(deleted)" if event.body is None else event.body.decode(errors="backslashreplace")
    console().print(f"\n{body}", markup=False, soft_wrap=True)
    return DONE


@app.command()
@expanded
def revive(chosen: Choice, at: At) -> None:
    """
    Hand dead letters to the receiver again: `invsvc events revive --all --store events.db`.

    They have new attempts then; mend their cause before.
    Exits with 1 if an event is not a dead letter.
    """
    raise typer.Exit(until_done(_change(at, chosen.selection("dead"), "revived")))


@app.command()
@expanded
def drop(
    chosen: Choice,
    at: At,
    *,
    state: Annotated[
        Literal["dead", "open", "handled"],
        typer.Option(help="With --all: dead letters, events that wait, or kept bodies of handled ones."),
    ] = "dead",
    yes: Yes = False,
) -> None:
    """
    Delete events that nobody is to handle: `invsvc events drop 17 --store events.db`.

    Their keys stay, so that late duplicates are not handled either.
    Asks before on a terminal.  Exits with 1 if an event is being handled, or has no body because the service
    will send it again.
    """
    wanted = chosen.selection(state)
    if not yes:
        what = f"all selected events that are {state}" if chosen.all_ else counted(len(wanted.ids), "event")
        confirm(f"events drop: delete {what}?")
    raise typer.Exit(until_done(_change(at, wanted, "dropped")))


@app.command()
@expanded
def replay(chosen: Choice, at: At) -> None:
    """
    Hand handled events to the receiver again: `invsvc events replay --all --since 1d --store events.db`.

    Their bodies must have been kept: `InboxPolicy(keep_bodies=…)`.  The same handlers are called again, or
    with --handler only that one, unless it has had them, also for events that others have not handled.  Exits
    with 1 if the body of an event that was given by its id was not kept.
    """
    handler = chosen.handler
    if handler is not None and not handler.strip():  # an unset variable of the shell is not "all handlers"
        raise typer.BadParameter("give the handler's name", param_hint="--handler")
    wanted = attrs.evolve(chosen.selection(None if handler else "handled"), handler=None)
    raise typer.Exit(until_done(_change(at, wanted, "replayed", handler=handler)))


async def _change(at: At, wanted: Selection, done: str, *, handler: str | None = None) -> int:
    changed = failed = bodiless = 0
    async with _opened(at) as store:
        act: Callable[[StoredEvent], Awaitable[bool]] = store.drop if done == "dropped" else store.revive
        if handler:
            act = partial(store.give, handler=handler)
        async for event in wanted.of(store):
            if handler and not event.type:
                continue  # a body that is no event
            if not handler and done != "dropped" and event.state != wanted.state:
                fail(f"{event.id}: it is {event.state}, and cannot be {done}")
                failed += 1
            elif await act(event):
                changed += 1
            elif event.id in wanted.ids:
                fail(f"{event.id}: it cannot be {done}. Look at it with `show`")
                failed += 1
            else:
                bodiless += done == "replayed" and event.body is None
    if bodiless:
        note(f"{counted(bodiless, 'event')} passed over: no body was kept (InboxPolicy(keep_bodies=…))")
    missing = len(wanted.ids) - changed - failed
    if at.json_:
        emit_json({done: changed, "failed": failed + max(missing, 0)})
    else:
        console().print(f"{changed:,} event{'s' if changed != 1 else ''} {done}")
        if changed and handler:
            note(f"only a receiver that has a handler named {handler!r} handles them")
    return FAILED if failed or missing > 0 else DONE


@app.command()
@expanded
def stats(at: At) -> None:
    """Count the events in each state, and what is due now: `invsvc events stats --store events.db`."""
    until_done(_stats(at))


async def _stats(at: At) -> None:
    from invsvc_async.events.stores import COUNTED

    async with _opened(at) as store:
        found, backlog = await store.stats(), await store.backlog()
    if at.json_:
        states: dict[str, Any] = {state: _counted(one) for state, one in found.items()}
        emit_json(states | {"backlog": attrs.asdict(backlog)})
        return
    rows = [
        [state, _number(one), "" if one.oldest is None else _time(one.oldest)] for state, one in found.items()
    ]
    table(("state", "events", "oldest"), rows, right=(1,))
    many = " or more" if backlog.due >= COUNTED else ""
    late = f", for up to {backlog.late:,.0f} s" if backlog.due else ""
    console().print(f"{backlog.due:,}{many} due now{late}")


def _counted(stats: StateStats) -> dict[str, Any]:  # Any: JSON values
    oldest = None if stats.oldest is None else _time(stats.oldest)
    return {"count": stats.count, "has_more": stats.has_more, "oldest": oldest}


def _number(stats: StateStats) -> str:
    return f"{stats.count:,}{'+' if stats.has_more else ''}"


@app.command()
@expanded
def prune(
    at: At,
    *,
    older_than: Annotated[str, typer.Option(metavar="AGE", help="Handled longer ago than this.")] = "30d",
    bodies: BodiesAge = None,
    dead: DeadAge = None,
) -> None:
    """
    Delete handled events that are old: `invsvc events prune --older-than 7d --store events.db`.

    A running receiver does that each hour.  The command also shows what is left, and why.
    An event that is deleted would be handled again if it came again.
    """
    ages = {"older_than": older_than, "bodies": bodies, "dead": dead}
    given = {name: age for name, age in ages.items() if age is not None}
    until_done(_prune(at, given))


async def _prune(at: At, ages: dict[str, str]) -> None:
    seconds = {name: _age(age, f"--{name.replace('_', '-')}").total_seconds() for name, age in ages.items()}
    async with _opened(at) as store:
        pruned = await store.prune(**seconds)
        left = await store.stats()
    if at.json_:
        emit_json({"pruned": pruned, "kept": {state: _counted(one) for state, one in left.items()}})
        return
    console().print(f"{pruned:,} event{'s' if pruned != 1 else ''} pruned")
    dead = f"younger than {ages['dead']}" if "dead" in ages else "until dropped: --dead was not given"
    reasons = {"open": "not handled yet", "handled": f"less than {ages['older_than']} ago", "dead": dead}
    table(("kept", "events", "why"), [[s, _number(one), reasons[s]] for s, one in left.items()], right=(1,))


@asynccontextmanager
async def _opened(at: At) -> AsyncGenerator[HandlerStore]:
    store = _store_at(at.store, at.table)
    try:
        yield store
    finally:
        await store.close()


def _store_at(address: str, table_: str) -> HandlerStore:
    """Return the store, which must exist: a misspelt path is not to become a new file."""
    from invsvc_async.events.stores import open_store
    from invsvc_async.storage.address import is_postgres

    if is_postgres(address):
        from invsvc_async.events import PostgresStore

        return PostgresStore(address, table=table_, connections=2)
    store = open_store(address)  # refuses addresses of other forms, whose password an error would show
    if not Path(address).exists():
        raise typer.BadParameter(f"{address}: there is no such file", param_hint="--store")
    return store


def _moment(text: str, option: str) -> float:
    """Return a time as seconds since the epoch: an ISO 8601 one, in UTC by default, or an age."""
    try:
        if _AGE.fullmatch(text):
            return (datetime.now(UTC) - _age(text, option)).timestamp()
        found = datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        raise typer.BadParameter(
            "use 2026-05-01, 2026-05-01T12:30, or 1d, 2h, 30m", param_hint=option
        ) from None
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


def _age(text: str, option: str) -> timedelta:
    age = _AGE.fullmatch(text)
    try:
        if age is not None:
            return timedelta(**{_UNITS[age[2]]: int(age[1])})
    except (ValueError, OverflowError):  # too many digits
        pass
    raise typer.BadParameter("use 30d, 2h, 30m or 10s", param_hint=option)


def _facts(event: StoredEvent) -> dict[str, Any]:  # Any: JSON values
    from invsvc_async.events.stores import event_key

    return {
        "id": event.id, "state": event.state, "type": event.type, "key": event_key(event.key, event.handler),
        "attempts": event.attempts, "handler": event.handler, "received": _time(event.received_at),
        "reason": event.reason,
    }  # fmt: skip


def _body(event: StoredEvent) -> dict[str, str | None]:
    try:
        return {"body": None if event.body is None else event.body.decode()}
    except UnicodeDecodeError:
        return {"body_base64": b64encode(event.body or b"").decode()}


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
