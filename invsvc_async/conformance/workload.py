"""
The writes of the demo.

A unit is a sequence of writes that one task awaits one after another; units run concurrently.
"""

from __future__ import annotations

import random
import sys
from contextlib import nullcontext
from itertools import cycle, islice
from typing import TYPE_CHECKING, Any

import attrs

from invsvc_async.api.operations import BY_NAME
from invsvc_async.batch.file_check import BadLine, Line, check_line, read_lines
from invsvc_async.client import Client
from invsvc_async.conformance.service_process import Plan, Thing
from invsvc_async.transport.credentials import ApiKey

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

__all__ = ["Step", "Unit", "checked", "from_lines", "made_up", "plan_for", "respelt", "values"]

HOME = "team_1"  # team of the embedded service's credential
# A list shows 100 webhooks: each of these units has one from the start and makes one or two.
UNITS_IN_A_TEAM = 25


@attrs.frozen(kw_only=True)
class Step:
    """
    One write as data.

    ``follows``: it changes the webhook that its unit created, or the one in ``arguments`` if the create was
    not applied.  ``tagged``: a create gets a tag.
    """

    key: str
    operation: str
    arguments: dict[str, Any]  # Any: JSON values
    follows: bool = False
    tagged: bool = True


Unit = tuple[Step, ...]


def made_up(writes: int, seed: int, *, sequences: bool = False) -> list[Unit]:
    """
    Return *writes* writes: three in four create, update and delete a webhook; the rest update a journey
    once.

    With *sequences*, three in ten create, update and delete a webhook; a quarter do that with two or three
    updates in a row; a fifth are such updates of a journey; one in twelve is one of two equal creates; the
    rest update a journey once.
    """
    units = [_chain(number, seed, 1) for number in range(writes // 10 if sequences else writes // 4)]
    if sequences:
        units += [_chain(len(units) + number, seed, 2 + number % 2) for number in range(writes // 18)]
        units += [unit for number in range(writes // 24) for unit in _equal_creates(number, seed)]
        units += [
            _journey(f"sequence{number}", seed, 2 + number % 2, number) for number in range(writes * 2 // 25)
        ]
    done = sum(map(len, units))
    units += [_journey(f"demo{number}", seed, 1) for number in range(writes - done)]
    random.Random(seed).shuffle(units)  # noqa: S311 - reproducible order, not a secret
    return units


def values(kind: int, count: int, mark: str, first: str) -> tuple[str, ...]:
    """
    Return the values that *count* updates in a row set, by *kind*: different, undoing each other, or equal.

    *first* is the initial value.
    """
    match kind % 3:
        case 0:
            return tuple(f"{mark}/{number}" for number in range(count))
        case 1:
            return (mark, first) if count == 2 else tuple(islice(cycle((mark, f"{mark}/between")), count))
        case _:
            return (mark,) * count


def _chain(number: int, seed: int, changes: int) -> Unit:
    """Create a webhook, update it *changes* times, and delete it."""
    team, mark = f"team_demo_{number // UNITS_IN_A_TEAM}", f"{seed}/{number}"
    create = {"url": f"https://receiver.example/{mark}", "events": ["invoice.created"], "team": team}
    spare = {"webhook": f"wh_before{number}", "team": team}
    fields: Iterator[dict[str, Any]]
    if changes == 2 and number % 3 == 1:
        fields = ({"status": status} for status in ("inactive", "active"))
    else:
        fields = ({"description": each} for each in values(number, changes, f"changed {mark}", ""))
    return (
        Step(key=f"create-{number}", operation="webhooks.create", arguments=create),
        *(
            Step(
                key=f"update-{number}.{index}",
                operation="webhooks.update",
                arguments={**spare, **each},
                follows=True,
            )
            for index, each in enumerate(fields)
        ),
        Step(key=f"delete-{number}", operation="webhooks.delete", arguments=spare, follows=True),
    )


def _equal_creates(number: int, seed: int) -> list[Unit]:
    """Return two equal creates: with and without tag, URL spelt alike or not, in sequence or concurrent."""
    team, url = f"team_equal_{number // UNITS_IN_A_TEAM}", f"https://equal.example/{seed}/{number}"
    both = [
        Step(
            key=f"equal-{number}.{index}",
            operation="webhooks.create",
            arguments={"url": each, "events": ["invoice.created"], "team": team},
            tagged=number % 4 == 2,
        )
        for index, each in enumerate((url, respelt(url) if number % 2 else url))
    ]
    return [(both[0],), (both[1],)] if number % 4 == 3 else [(both[0], both[1])]


def respelt(url: str) -> str:
    """Return *url*, an https URL, in another spelling."""
    host, _, path = url.removeprefix("https://").partition("/")
    return f"HTTPS://{host.upper()}:443/{path}"


def _journey(name: str, seed: int, changes: int, kind: int = 0) -> Unit:
    """Update a journey *changes* times, one after another."""
    names = values(kind, changes, f"Reminders {seed}/{name}", "Dunning")
    return tuple(
        Step(
            key=f"{name}.{index}",
            operation="journeys.update",
            arguments={"journey": f"jrn_{name}", "name": each},
        )
        for index, each in enumerate(names)
    )


def checked(path: Path) -> tuple[list[Line], list[BadLine]]:
    """
    Return the writes of a file, and a problem for each line that is invalid or repeats a key.

    ``-`` is standard input.
    """
    client = Client("http://127.0.0.1:1/v2", ApiKey("never-sent"))
    lines, problems, keys = list[Line](), list[BadLine](), dict[str, int]()
    with nullcontext(sys.stdin.buffer) if str(path) == "-" else path.open("rb") as file:
        for line in read_lines(file):
            bad = line if isinstance(line, BadLine) else _problem(client, line, keys)
            if bad is not None:
                problems.append(bad)
            elif isinstance(line, Line):
                lines.append(line)
    return lines, problems


def _problem(client: Client, line: Line, keys: dict[str, int]) -> BadLine | None:
    bad = check_line(client, line)
    if bad is not None:
        return bad
    if not BY_NAME[line.operation].listed:
        return BadLine(
            line.number,
            f"{line.operation}: not in the specification, so the embedded service does not have it",
        )
    first = keys.setdefault(_key_of(line), line.number)
    if first != line.number:
        return BadLine(line.number, f"has the same key as line {first}. Give each write a different key")
    return None


def _key_of(line: Line) -> str:
    return line.key or f"line-{line.number}"


def from_lines(lines: Iterable[Line]) -> list[Unit]:
    """Return units of a file's writes; writes to the same thing are one unit, in the order of the file."""
    units: dict[object, list[Step]] = {}
    for line in lines:
        step = Step(key=_key_of(line), operation=line.operation, arguments=line.arguments)
        target = _target(step)
        units.setdefault(
            line.number if target is None else (target, step.arguments.get("team") or HOME), []
        ).append(step)
    return [tuple(unit) for unit in units.values()]


def plan_for(units: Iterable[Unit], *, seed: int, faults: str, home: str = HOME) -> Plan:
    """Return the initial state that *units* need: every team, webhook and journey that they name."""
    steps = [step for unit in units for step in unit]
    things = {
        (step.operation.partition(".")[0], _target(step), step.arguments.get("team") or home)
        for step in steps
    }
    named = sorted((resource, target, team) for resource, target, team in things if target is not None)
    return Plan(
        seed=seed,
        faults=faults,
        teams=tuple(sorted({team for _, _, team in things} - {home})),
        webhooks=tuple(Thing(target, team) for resource, target, team in named if resource == "webhooks"),
        journeys=tuple(Thing(target, team) for resource, target, team in named if resource == "journeys"),
    )


def _target(step: Step) -> str | None:
    """Return the id of what *step* changes; ``None`` for a create."""
    names = [row.name for row in BY_NAME[step.operation].parameters if row.where == "path"]
    found = step.arguments.get(names[0]) if names else None
    return found if isinstance(found, str) else None
