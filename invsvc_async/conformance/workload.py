"""
The writes of the demo and of a conformance run.

A unit is a sequence of writes that one task awaits one after another; units run concurrently.
"""

from __future__ import annotations

import sys
from contextlib import nullcontext
from functools import partial
from itertools import chain, cycle, islice
from typing import TYPE_CHECKING
from urllib.parse import quote

import attrs

from invsvc_async.api.operations import BY_NAME
from invsvc_async.batch.file_check import BadLine, Line, check_line, read_lines
from invsvc_async.client import Client
from invsvc_async.conformance.reports import sender_of
from invsvc_async.conformance.service_process import Plan
from invsvc_async.simulator.ledger import SENDER
from invsvc_async.transport.credentials import ApiKey

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from invsvc_async.codec.exact_json import WireObject
    from invsvc_async.reconcile.intent import Intent

HOME = "team_1"  # team of the embedded service's credential
BLOCKS_IN_A_TEAM = 5  # each makes at most 10 webhooks; a list shows 100, and a client may leave duplicates


@attrs.frozen
class WorkloadStep:
    """One write as data; ``tagged``: a create gets a tag."""

    key: str
    operation: str
    arguments: WireObject
    tagged: bool = attrs.field(default=True, kw_only=True)


Unit = tuple[WorkloadStep, ...]


def made_up(writes: int, seed: int) -> list[Unit]:
    """
    Return *writes* writes, in sequences whose writes follow each other.

    Of each 16, four stand alone: a create, an update and a delete of a webhook, and an update of a journey.
    The others are sequences of two and three updates of one journey and of one webhook, and two equal
    creates.
    """
    units: list[Unit] = []
    left = writes
    for number in range(writes):
        for unit in _block(number, seed):
            units.append(unit[:left])
            left -= len(units[-1])
            if not left:
                return units
    return units


def values(
    kind: int,
    count: int,
    mark: str,
    first: str,
) -> tuple[str, ...]:
    """
    Return the values that *count* updates in a row set, by *kind*: different, undoing each other, or equal.

    *first* is the initial value.
    """
    match kind % 3:
        case 0:
            return tuple(f"{mark}/{number}" for number in range(count))
        case 1 if count == 2:
            return mark, first
        case 1:
            return tuple(islice(cycle((mark, f"{mark}/between")), count))
        case _:
            return (mark,) * count


def _block(number: int, seed: int) -> list[Unit]:
    team = f"team_conf_{number // BLOCKS_IN_A_TEAM}"
    mark = f"{seed}/{number}"

    def create(
        key: str,
        url: str,
        *,
        tagged: bool = True,
    ) -> WorkloadStep:
        arguments = {"url": url, "events": ["invoice.created"], "team": team}
        return WorkloadStep(key, "webhooks.create", arguments, tagged=tagged)

    def journeys(what: str, *names: str) -> Unit:
        journey = f"jrn_{what}{number}"
        return tuple(
            WorkloadStep(
                f"{what}-{number}.{n}",
                "journeys.update",
                {"journey": journey, "name": name},
            )
            for n, name in enumerate(names)
        )

    def webhooks(what: str, *texts: str) -> Unit:
        hook = {"webhook": f"wh_{what}{number}", "team": team}
        return tuple(
            WorkloadStep(
                f"{what}-{number}.{n}", "webhooks.update", {**hook, "description": text}
            )
            for n, text in enumerate(texts)
        )

    names = partial(values, number, mark=f"Reminders {mark}", first="Dunning")
    texts = partial(values, number + 1, mark=f"changed {mark}", first="")
    equal = f"https://equal.example/{mark}"
    respelt_or_not = equal
    if number % 2:
        respelt_or_not = respelt(equal)
    is_tagged = number % 4 == 2
    gone = {"webhook": f"wh_gone{number}", "team": team}
    return [
        (create(f"create-{number}", f"https://receiver.example/{mark}"),),
        webhooks("update", f"changed {mark}"),
        (WorkloadStep(f"delete-{number}", "webhooks.delete", gone),),
        journeys("alone", f"Dunning {mark}"),
        journeys("three", *names(3)),
        webhooks("two", *texts(2)),
        journeys("pair", *names(2)),
        webhooks("triple", *texts(3)),
        (
            create(f"equal-{number}.0", equal, tagged=is_tagged),
            create(f"equal-{number}.1", respelt_or_not, tagged=is_tagged),
        ),
    ]


def respelt(url: str) -> str:
    """Return *url*, an https URL, in another spelling."""
    host, _, path = url.removeprefix("https://").partition("/")
    return f"HTTPS://{host.upper()}:443/{path}"


def checked(path: Path) -> tuple[list[Line], list[BadLine]]:
    """
    Return the writes of a file, and its problems: each line that is invalid or repeats a key, or no line.

    ``-`` is standard input.
    """
    client = Client("http://127.0.0.1:1/v2", ApiKey("never-sent"))
    lines = list[Line]()
    problems = list[BadLine]()
    keys = dict[str, int]()
    with nullcontext(sys.stdin.buffer) if str(path) == "-" else path.open("rb") as file:
        for line in read_lines(file):
            if isinstance(line, BadLine):
                problems.append(line)
                continue
            bad = _problem(client, line, keys)
            if bad is None:
                lines.append(line)
            else:
                problems.append(bad)
    if not lines and not problems:
        problems.append(BadLine(0, f"{path}: has no writes. Add at least one"))
    return lines, problems


def _problem(
    client: Client,
    line: Line,
    keys: dict[str, int],
) -> BadLine | None:
    bad = check_line(client, line)
    if bad is not None:
        return bad
    if not BY_NAME[line.operation].listed:
        why = f"{line.operation}: not in the specification, so the embedded service does not have it"
        return BadLine(line.number, why)
    first = keys.setdefault(_key_of(line), line.number)
    if first != line.number:
        why = f"has the same key as line {first}. Give each write a different key"
        return BadLine(line.number, why)
    return None


def _key_of(line: Line) -> str:
    return line.key or f"line-{line.number}"


def from_lines(lines: Iterable[Line]) -> list[Unit]:
    """Return units of a file's writes; writes to the same thing are one unit, in the order of the file."""
    units: dict[object, list[WorkloadStep]] = {}
    for line in lines:
        step = WorkloadStep(
            key=_key_of(line),
            operation=line.operation,
            arguments=line.arguments,
        )
        target = _target(step)
        thing = line.number if target is None else (target, _team(step))
        units.setdefault(thing, []).append(step)
    return [tuple(unit) for unit in units.values()]


def plan_for(
    units: Iterable[Unit],
    *,
    seed: int,
    faults: str,
    stores: str = "none",
) -> Plan:
    """Return the initial state for *units*: every team, webhook and journey that they name."""
    things = {
        (step.operation.partition(".")[0], _target(step), _team(step))
        for step in chain.from_iterable(units)
    }

    def named(resource: str) -> tuple[tuple[str, str], ...]:
        found: list[tuple[str, str]] = []
        for kind, target, team in things:
            if kind == resource and target:
                found.append((target, team))
        return tuple(sorted(found))

    teams = tuple(sorted({team for _, _, team in things} - {HOME}))
    return Plan(
        seed=seed,
        faults=faults,
        stores=stores,
        teams=teams,
        webhooks=named("webhooks"),
        journeys=named("journeys"),
    )


def _team(step: WorkloadStep) -> str:
    """Return the team in which *step* acts."""
    return step.arguments.get("team") or HOME


def _target(step: WorkloadStep) -> str | None:
    """Return the id of what *step* changes; ``None`` for a create."""
    rows = BY_NAME[step.operation].parameters
    in_path = [row.name for row in rows if row.where == "path"]
    if not in_path:
        return None
    found = step.arguments.get(in_path[0])
    if isinstance(found, str):
        return found
    return None


def request_of(intent: Intent, key: str) -> WireObject:
    """Return the request of *intent* as data, with the header that names its write to the ledger."""
    row = BY_NAME[intent.operation]
    path = {name: quote(value, safe="") for name, value in intent.path.items()}
    query = {**intent.query}
    if intent.scope.team:
        query["team"] = intent.scope.team
    return {
        "method": row.method,
        "path": row.path.format_map(path),
        "query": query,
        "headers": {SENDER: sender_of(key)},
        "body": intent.body if intent.has_body else None,
    }
