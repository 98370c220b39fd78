"""The writes of a conformance run, as lines for the command under test."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import attrs

from invsvc_async.api.operations import BY_NAME
from invsvc_async.client import Client
from invsvc_async.conformance.judge import Asked, sender_of
from invsvc_async.conformance.workload import Step, Unit, respelt, values
from invsvc_async.resources.by_name import as_write
from invsvc_async.simulator.ledger import SENDER
from invsvc_async.transport.credentials import ApiKey

if TYPE_CHECKING:
    from collections.abc import Iterable

    from invsvc_async.reconcile.intent import Intent

__all__ = ["Task", "made_up", "request_of", "tasks"]

BLOCKS_IN_A_TEAM = 5  # each makes at most 10 webhooks; a list shows 100, and a client may leave duplicates


@attrs.frozen(kw_only=True)
class Task:
    """One write: the line for the client, and its form in the ledger."""

    line: dict[str, Any]  # Any: JSON
    asked: Asked

    @property
    def key(self) -> str:
        """Key under which the client reports it."""
        key: str = self.line["key"]
        return key


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


def _block(number: int, seed: int) -> list[Unit]:
    team, mark = f"team_conf_{number // BLOCKS_IN_A_TEAM}", f"{seed}/{number}"

    def create(key: str, url: str) -> Step:
        arguments = {"url": url, "events": ["invoice.created"], "team": team}
        return Step(key=key, operation="webhooks.create", arguments=arguments)

    def update(key: str, webhook: str, text: str) -> Step:
        arguments = {"webhook": webhook, "description": text, "team": team}
        return Step(key=key, operation="webhooks.update", arguments=arguments)

    def rename(key: str, journey: str, name: str) -> Step:
        return Step(key=key, operation="journeys.update", arguments={"journey": journey, "name": name})

    def journeys(what: str, count: int) -> Unit:
        names = values(number, count, f"Reminders {mark}", "Dunning")
        return tuple(
            rename(f"{what}-{number}.{n}", f"jrn_{what}{number}", name) for n, name in enumerate(names)
        )

    def webhooks(what: str, count: int) -> Unit:
        texts = values(number + 1, count, f"changed {mark}", "")
        return tuple(
            update(f"{what}-{number}.{n}", f"wh_{what}{number}", text) for n, text in enumerate(texts)
        )

    equal = f"https://equal.example/{mark}"
    gone = {"webhook": f"wh_gone{number}", "team": team}
    return [
        (create(f"create-{number}", f"https://receiver.example/{mark}"),),
        (update(f"update-{number}", f"wh_update{number}", f"changed {mark}"),),
        (Step(key=f"delete-{number}", operation="webhooks.delete", arguments=gone),),
        (rename(f"journey-{number}", f"jrn_alone{number}", f"Dunning {mark}"),),
        journeys("three", 3),
        webhooks("two", 2),
        journeys("pair", 2),
        webhooks("triple", 3),
        (
            create(f"equal-{number}.0", equal),
            create(f"equal-{number}.1", respelt(equal) if number % 2 else equal),
        ),
    ]


def tasks(units: Iterable[Unit], *, home: str) -> list[Task]:
    """Return *units* as lines that need no knowledge of the operations; *home* is the credential's team."""
    client = Client("http://127.0.0.1:1/v2", ApiKey("never-sent"))
    found: list[Task] = []
    for unit in units:
        found.append(_task(client, unit[0], None, home))
        found += [_task(client, step, previous.key, home) for previous, step in pairwise(unit)]
    return found


def _task(client: Client, step: Step, after: str | None, home: str) -> Task:
    write = as_write(client, step.operation, step.arguments)
    intent = write.intent
    write.close()
    line = {"key": step.key, "after": after, "operation": intent.operation, **request_of(intent, step.key)}
    return Task(line=line, asked=Asked.of(intent, home=home))


def request_of(intent: Intent, key: str) -> dict[str, Any]:  # Any: JSON
    """Return the request of *intent* as data, with the header that names its write to the ledger."""
    row = BY_NAME[intent.operation]
    return {
        "method": row.method,
        "path": row.path.format_map({name: quote(value, safe="") for name, value in intent.path.items()}),
        "query": {**intent.query, **({"team": intent.scope.team} if intent.scope.team else {})},
        "headers": {SENDER: sender_of(key)},
        "body": intent.body if intent.has_body else None,
    }
