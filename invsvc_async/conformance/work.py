"""
Make the writes that a client is judged by, each of a thing of its own; never send one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import attrs

from invsvc_async.batch.lines import as_write
from invsvc_async.cli.judge import Asked
from invsvc_async.cli.workload import Step
from invsvc_async.client import Client
from invsvc_async.credentials import ApiKey
from invsvc_async.operations import BY_NAME

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Task", "made_up", "tasks"]

IN_A_TEAM = 80  # writes: a list of webhooks holds 100, and a client may leave doubles


@attrs.frozen(kw_only=True)
class Task:
    """One write: the line that the client gets, and how the ledger knows it."""

    line: dict[str, Any]  # Any: JSON
    asked: Asked

    @property
    def key(self) -> str:
        """The name by which the client reports it."""
        key: str = self.line["key"]
        return key


def made_up(writes: int, seed: int) -> list[Step]:
    """Make *writes* writes, a quarter each: creates, changes and deletes of webhooks, changes of journeys."""
    return [_step(number, seed) for number in range(writes)]


def _step(number: int, seed: int) -> Step:
    team, mark = f"team_conf_{number // IN_A_TEAM}", f"{seed}/{number}"
    match number % 4:
        case 0:
            made = {"url": f"https://receiver.example/{mark}", "events": ["invoice.created"], "team": team}
            return Step(key=f"create-{number}", operation="webhooks.create", arguments=made)
        case 1:
            changed = {"webhook": f"wh_u{number}", "description": f"changed {mark}", "team": team}
            return Step(key=f"update-{number}", operation="webhooks.update", arguments=changed)
        case 2:
            gone = {"webhook": f"wh_d{number}", "team": team}
            return Step(key=f"delete-{number}", operation="webhooks.delete", arguments=gone)
        case _:
            renamed = {"journey": f"jrn_c{number}", "name": f"Dunning {mark}"}
            return Step(key=f"journey-{number}", operation="journeys.update", arguments=renamed)


def tasks(steps: Iterable[Step], *, home: str) -> list[Task]:
    """Turn *steps* into lines that need no knowledge of the operations; *home* is the credential's team."""
    client = Client("http://127.0.0.1:1/v2", ApiKey("never-sent"))
    return [_task(client, step, home) for step in steps]


def _task(client: Client, step: Step, home: str) -> Task:
    write = as_write(client, step.operation, step.arguments, key=step.key)
    intent = write.intent
    write.close()
    row = BY_NAME[intent.operation]
    path = row.path
    for name, value in intent.path.items():
        path = path.replace(f"{{{name}}}", quote(value, safe=""))
    query = {**intent.query, **({"team": intent.scope.team} if intent.scope.team else {})}
    line = {
        "key": step.key, "operation": row.name, "method": row.method, "path": path, "query": query,
        "body": intent.body if intent.has_body else None,
    }  # fmt: skip
    return Task(line=line, asked=Asked.of(intent, home=home))
