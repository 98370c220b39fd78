"""
The writes of a soak: sequences to few things, drawn so that siblings meet as often as possible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from tests.soak.world import HOOKS, HOSTS, JOURNEYS

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from invsvc_async import Client
    from invsvc_async.writes.write import Write

__all__ = ["Drawn", "draw"]

EVENTS = ("invoice.created",)
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
    """One write to be made: by whom it is recognised, and how a client makes it."""

    operation: str
    thing: str
    wanted: dict[str, Any] | None  # Any: JSON
    make: Callable[[Client], Write[Any]]  # Any: of any operation


def _journey(chance: random.Random, thing: str, _number: int) -> Drawn:
    fields: dict[str, Any] = {}
    if chance.random() < 0.8:
        fields["name"] = chance.choice(NAMES)
    if not fields or chance.random() < 0.2:
        fields["description"] = chance.choice(NAMES)
    return Drawn("journeys.update", thing, fields, lambda client: client.journeys.update(thing, **fields))


def _own_name(chance: random.Random, thing: str, number: int) -> Drawn:
    fields = {"name": f"own {number}"}
    return Drawn("journeys.update", thing, fields, lambda client: client.journeys.update(thing, **fields))


def _hook(chance: random.Random, thing: str, number: int) -> Drawn:
    way = chance.random()
    fields: dict[str, Any] = {"description": chance.choice(NAMES)}
    if way < 0.5:
        fields = {"status": chance.choice(("active", "inactive"))}
    elif way < 0.6:
        fields = {"description": f"own {number}"}
    elif way < 0.75:
        fields["status"] = chance.choice(("active", "inactive"))
    return Drawn("webhooks.update", thing, fields, lambda client: client.webhooks.update(thing, **fields))


def _delete(_chance: random.Random, thing: str, _number: int) -> Drawn:
    return Drawn("webhooks.delete", thing, None, lambda client: client.webhooks.delete(thing))


def _create(chance: random.Random, thing: str, _number: int) -> Drawn:
    host = thing.partition(" ")[2]
    url = chance.choice((f"https://{host}.example/in",) * 3 + (f"https://{host.upper()}.example:443/%69n",))
    fields: dict[str, Any] = {"url": url, "events": EVENTS, "on_lost_secret": "keep"}
    if chance.random() < 0.3:
        fields["team"] = TEAM
    way = chance.random()
    if way < 0.3:
        fields["tag"] = True
    elif way < 0.65:
        fields |= chance.choice(TEXTS)
    body = {name: value for name, value in fields.items() if name in ("url", "events")}
    return Drawn("webhooks.create", thing, body, lambda client: client.webhooks.create(**fields))


def _mapping(_chance: random.Random, thing: str, number: int) -> Drawn:
    fields = {"amount": f"column {number % 2}"}
    return Drawn(
        "sheets.save_mapping", thing, fields, lambda client: client.sheets.save_mapping(fields=fields)
    )


def draw(chance: random.Random, number: int, made: list[str]) -> list[Drawn]:
    """
    Draw a sequence of one to three writes to one thing, the first of which is the *number*th write.

    *made* are the ids of webhooks that the program has created and not deleted yet.
    """
    length = chance.choice((1, 1, 2, 2, 3))
    way = chance.random()
    if way < 0.33:
        make, thing = (_own_name if chance.random() < 0.1 else _journey), chance.choice(JOURNEYS)
    elif way < 0.58:
        make, thing = _hook, chance.choice(HOOKS)
    elif way < 0.85 or not made:
        make, thing = _create, f"url {chance.choice(HOSTS)}"
    elif way < 0.99:
        return _around_delete(chance, number, made[chance.randrange(len(made))], length)
    else:
        make, thing = _mapping, "/sheets/mapping"
    return [make(chance, thing, number + place) for place in range(length)]


def _around_delete(chance: random.Random, number: int, thing: str, length: int) -> list[Drawn]:
    """Draw updates of a webhook that ends with its delete, most of the time."""
    updates = [_hook(chance, thing, number + place) for place in range(length - 1)]
    last = _delete if chance.random() < 0.8 else _hook
    return [*updates, last(chance, thing, number + length - 1)]
