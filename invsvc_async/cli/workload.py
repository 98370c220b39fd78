"""
Make the writes of the demo, each with a value of its own; never send one.

A unit is a row of writes that follow each other, because they touch the same thing; units run side by side.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import attrs

from invsvc_async.batch.lines import BadLine, Line, as_write, check_line, read_lines
from invsvc_async.cli.embedded import Plan, Thing
from invsvc_async.cli.judge import Asked
from invsvc_async.client import Client
from invsvc_async.credentials import ApiKey
from invsvc_async.operations import BY_NAME

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

__all__ = ["Step", "Unit", "checked", "from_lines", "made_up", "plan_for"]

HOME = "team_1"  # of the credential that the service in a box gives
CHAINS_IN_A_TEAM = 25  # each with a webhook from before and one of its own: a list of webhooks holds 100


@attrs.frozen(kw_only=True)
class Step:
    """
    One write as data.

    ``follows``: it changes the webhook that its unit has made; the one in ``arguments`` stands in where the
    create did not come about.
    """

    key: str
    operation: str
    arguments: dict[str, Any]  # Any: JSON as Python values
    follows: bool = False


Unit = tuple[Step, ...]


def made_up(writes: int, seed: int) -> list[Unit]:
    """Make *writes* writes: three in four make, change, delete a webhook; the rest change draft journeys."""
    chains = writes // 4
    units = [_chain(number, seed) for number in range(chains)]
    units += [_journey(number, seed) for number in range(writes - 3 * chains)]
    random.Random(seed).shuffle(units)  # noqa: S311 - an order that repeats, no secret
    return units


def _chain(number: int, seed: int) -> Unit:
    team = f"team_demo_{number // CHAINS_IN_A_TEAM}"
    create = {"url": f"https://receiver.example/{seed}/{number}", "events": ["invoice.created"], "team": team}
    spare = {"webhook": f"wh_before{number}", "team": team}
    return (
        Step(key=f"create-{number}", operation="webhooks.create", arguments=create),
        Step(
            key=f"update-{number}",
            operation="webhooks.update",
            arguments={**spare, "description": f"changed {seed}/{number}"},
            follows=True,
        ),
        Step(key=f"delete-{number}", operation="webhooks.delete", arguments=spare, follows=True),
    )


def _journey(number: int, seed: int) -> Unit:
    arguments = {"journey": f"jrn_demo{number}", "name": f"Dunning {seed}/{number}"}
    return (Step(key=f"journey-{number}", operation="journeys.update", arguments=arguments),)


def checked(path: Path) -> tuple[list[Line], list[BadLine]]:
    """Read a file's writes; name each line that is none, or that the ledger could not tell from another."""
    client = Client("http://127.0.0.1:1/v2", ApiKey("never-sent"))
    lines, problems, seen = list[Line](), list[BadLine](), dict[object, int]()
    with path.open("rb") as file:
        for line in read_lines(file):
            bad = line if isinstance(line, BadLine) else _problem(client, line, seen)
            if bad is not None:
                problems.append(bad)
            elif isinstance(line, Line):
                lines.append(line)
    return lines, problems


def _problem(client: Client, line: Line, seen: dict[object, int]) -> BadLine | None:
    bad = check_line(client, line)
    if bad is not None:
        return bad
    if not BY_NAME[line.operation].listed:
        return BadLine(
            line.number, f"{line.operation}: the service in a box has only what the specification lists"
        )
    write = as_write(client, line.operation, line.arguments)
    asked = Asked.of(write.intent, home=HOME)
    write.close()
    for same, what in ((asked, "write"), (line.key, "key")):
        if same is not None and seen.setdefault(same, line.number) != line.number:
            return BadLine(
                line.number, f"is the same {what} as line {seen[same]}: no ledger can tell them apart"
            )
    return None


def from_lines(lines: Iterable[Line]) -> list[Unit]:
    """Make units of a file's writes: those that touch the same thing follow each other, in its order."""
    units: dict[object, list[Step]] = {}
    for line in lines:
        step = Step(key=line.key or f"line-{line.number}", operation=line.operation, arguments=line.arguments)
        target = _target(step)
        units.setdefault(
            line.number if target is None else (target, step.arguments.get("team") or HOME), []
        ).append(step)
    return [tuple(unit) for unit in units.values()]


def plan_for(units: Iterable[Unit], *, seed: int, faults: str, home: str = HOME) -> Plan:
    """Say what must be there before *units* run: every team, webhook and journey that they name."""
    steps = [step for unit in units for step in unit]
    things = {
        (step.operation.partition(".")[0], _target(step), step.arguments.get("team") or home)
        for step in steps
    }
    named = sorted((room, target, team) for room, target, team in things if target is not None)
    return Plan(
        seed=seed,
        faults=faults,
        teams=tuple(sorted({team for _, _, team in things} - {home})),
        webhooks=tuple(Thing(target, team) for room, target, team in named if room == "webhooks"),
        journeys=tuple(Thing(target, team) for room, target, team in named if room == "journeys"),
    )


def _target(step: Step) -> str | None:
    """Name the thing that *step* changes, as its path does; ``None`` for a create."""
    names = [row.name for row in BY_NAME[step.operation].parameters if row.where == "path"]
    found = step.arguments.get(names[0]) if names else None
    return found if isinstance(found, str) else None
