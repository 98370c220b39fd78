"""
The writes of a soak: sequences to few things, drawn so that siblings meet as often as possible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from zlib import crc32

import attrs

from invsvc_async.resources.by_name import as_write
from tests.soak.world import HOOKS, HOSTS, JOURNEYS
from tests.support import awkward

if TYPE_CHECKING:
    import random

    from invsvc_async import Client
    from invsvc_async.writes.write import Write

__all__ = ["Drawn", "draw"]

EVENTS = ["invoice.created"]
TEAM = "team_1"  # the credential's own, by name
NAMES = ("a", "b")
TEXTS = (
    {},
    {"description": "spring"},
    {"tag": "spring"},
    {"tag": "the spring"},
    {"description": "the", "tag": "spring"},
)


@attrs.frozen(eq=False)
class Drawn:
    """One write to be made, as data, and the fields by which the state shows it."""

    operation: str
    thing: str
    arguments: dict[str, Any]  # Any: JSON
    wanted: dict[str, Any] | None  # Any: JSON

    def made_by(self, client: Client) -> Write[Any]:  # Any: of any operation
        return as_write(client, self.operation, self.arguments)


def _journey(
    chance: random.Random, thing: str, number: int, *, own: bool = False
) -> Drawn:
    fields: dict[str, Any] = {}
    if own:
        fields["name"] = f"own {number}"
    elif chance.random() < 0.8:
        fields["name"] = chance.choice(NAMES)
    if not own and (not fields or chance.random() < 0.2):
        fields["description"] = chance.choice(NAMES)
    return Drawn("journeys.update", thing, {"journey": thing, **fields}, fields)


def _hook(chance: random.Random, thing: str, number: int) -> Drawn:
    way = chance.random()
    fields: dict[str, Any] = {"description": chance.choice(NAMES)}
    if way < 0.5:
        fields = {"status": chance.choice(("active", "inactive"))}
    elif way < 0.6:
        fields = {"description": f"own {number}"}
    elif way < 0.75:
        fields["status"] = chance.choice(("active", "inactive"))
    return Drawn("webhooks.update", thing, {"webhook": thing, **fields}, fields)


def _create(chance: random.Random, thing: str, _number: int) -> Drawn:
    host = thing.partition(" ")[2]
    url = chance.choice(
        (f"https://{host}.example/in",) * 3
        + (f"https://{host.upper()}.example:443/%69n",)
    )
    wanted = {"url": url, "events": EVENTS}
    fields: dict[str, Any] = {**wanted, "on_lost_secret": "keep"}
    if chance.random() < 0.3:
        fields["team"] = TEAM
    way = chance.random()
    if way < 0.3:
        fields["tag"] = True
    elif way < 0.65:
        fields |= chance.choice(TEXTS)
    return Drawn("webhooks.create", thing, fields, wanted)


def _mapping(_chance: random.Random, thing: str, number: int) -> Drawn:
    fields = {"amount": f"column {number % 2}"}
    return Drawn("sheets.save_mapping", thing, {"fields": fields}, fields)


def draw(
    chance: random.Random, number: int, made: list[str], *, awkwardly: bool = False
) -> list[Drawn]:
    """
    Draw a sequence of one to three writes to one thing, the first of which is the *number*th write.

    *made* are the ids of webhooks that the program has created and not deleted yet.  *Awkwardly* drawn values are
    such that a service may store them in other words.
    """
    drawn = _drawn(chance, number, made)
    return [_awkward(chance, each) for each in drawn] if awkwardly else drawn


def _awkward(chance: random.Random, drawn: Drawn) -> Drawn:
    """Return the same write with other values: equal ones stay equal."""
    changes: dict[str, Any] = {}
    for name, value in drawn.arguments.items():
        if name in ("name", "description"):
            changes[name] = awkward.text(crc32(str(value).encode()) % 10_000)
        elif name == "url":
            changes[name] = awkward.url(
                chance.randrange(2), host=f"{drawn.thing.partition(' ')[2]}.example"
            )
        elif name == "events":
            changes[name] = ["invoice.failed", *value]
    sent = dict(changes)
    if drawn.operation == "journeys.update" and chance.random() < 0.5:
        number = chance.randrange(2)
        changes |= {
            "graph": awkward.graph(number),
            "trigger_type": awkward.trigger(number),
        }
        sent |= {"graph": awkward.graph(number), "triggerType": awkward.trigger(number)}
    wanted = None if drawn.wanted is None else {**drawn.wanted, **sent}
    return Drawn(drawn.operation, drawn.thing, {**drawn.arguments, **changes}, wanted)


def _drawn(chance: random.Random, number: int, made: list[str]) -> list[Drawn]:
    length = chance.choice((1, 1, 2, 2, 3))
    way = chance.random()
    if way < 0.33:
        own, thing = chance.random() < 0.1, chance.choice(JOURNEYS)
        return [
            _journey(chance, thing, number + place, own=own) for place in range(length)
        ]
    if way < 0.58:
        make, thing = _hook, chance.choice(HOOKS)
    elif way < 0.85 or not made:
        make, thing = _create, f"url {chance.choice(HOSTS)}"
    elif way < 0.99:
        return _around_delete(chance, number, made[chance.randrange(len(made))], length)
    else:
        make, thing = _mapping, "/sheets/mapping"
    return [make(chance, thing, number + place) for place in range(length)]


def _around_delete(
    chance: random.Random, number: int, thing: str, length: int
) -> list[Drawn]:
    """Draw updates of a webhook that ends with its delete, most of the time."""
    drawn = [_hook(chance, thing, number + place) for place in range(length - 1)]
    if chance.random() < 0.8:
        return [*drawn, Drawn("webhooks.delete", thing, {"webhook": thing}, None)]
    return [*drawn, _hook(chance, thing, number + length - 1)]
