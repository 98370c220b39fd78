"""
Checks of bodies and queries.

They report all invalid fields, as ``<field path>: <message>``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from math import inf
from urllib.parse import urlsplit

from invsvc_async.simulator.json_records import Json, is_array, is_object

Check = Callable[["Json", str], Iterator[str]]

# The 21 types of events.
EVENTS = tuple(
    f"{kind}.{what}"
    for kind, happened in {
        "payment": "created updated succeeded canceled deleted upcoming_due_date",
        "invoice": "created canceled failed",
        "invoice_batch": "completed",
        "receipt": "created updated completed deleted",
        "customer": "created updated deleted",
        "service": "created updated deleted",
        "sat": "invoice.synced",
    }.items()
    for what in happened.split()
)


def text(low: int = 0, high: int | None = None) -> Check:
    """Expect a string of *low* to *high* characters."""
    bounds = f" of at least {low} characters" if low else ""
    if high is not None:
        bounds = f" of {low} to {high} characters"
    return expect(
        f"a string{bounds}",
        lambda it: isinstance(it, str) and low <= len(it) <= (high or inf),
    )


def expect(words: str, holds: Callable[[Json], bool]) -> Check:
    """Expect a value for which *holds* is true; *words* describe such a value."""

    def check(value: Json, path: str) -> Iterator[str]:
        if not holds(value):
            yield f"{path}: must be {words}"

    return check


def one_of(*allowed: str) -> Check:
    """Expect one of the *allowed* words."""
    return expect(f"one of {', '.join(allowed)}", lambda value: value in allowed)


def _is_url(value: Json) -> bool:
    if not isinstance(value, str):
        return False
    try:
        parts = urlsplit(value)
        return bool(parts.scheme and parts.hostname)
    except ValueError:
        return False


anything: Check = expect("anything", lambda _value: True)
number: Check = expect(
    "a number", lambda it: isinstance(it, int | Decimal) and not isinstance(it, bool)
)
boolean: Check = expect("a boolean", lambda value: isinstance(value, bool))
free_object: Check = expect("an object", is_object)
url: Check = expect("a valid URL", _is_url)  # absolute, of any scheme


def nullable(inner: Check) -> Check:
    """Accept null and everything that *inner* accepts."""

    def check(value: Json, path: str) -> Iterator[str]:
        if value is not None:
            yield from inner(value, path)

    return check


def array(inner: Check) -> Check:
    """Expect an array and check each item."""

    def check(value: Json, path: str) -> Iterator[str]:
        if not is_array(value):
            yield f"{path}: must be an array"
            return
        for index, item in enumerate(value):
            yield from inner(item, f"{path}.{index}")

    return check


def shape(
    fields: Mapping[str, Check],
    *,
    required: tuple[str, ...] = (),
    closed: bool = True,
) -> Check:
    """Expect an object with these *fields*.  If *closed*, other keys are rejected."""

    def check(value: Json, path: str) -> Iterator[str]:
        if not is_object(value):
            yield f"{path}: must be an object"
            return
        dot = f"{path}." if path else ""
        for key in required:
            if key not in value:
                yield f"{dot}{key}: is required"
        for key, item in value.items():
            if key in fields:
                yield from fields[key](item, f"{dot}{key}")
            elif closed:
                yield f"{dot}{key}: unexpected_key"

    return check


def _numbers(*names: str) -> Check:
    return shape(dict.fromkeys(names, number), required=names)


NAMED = text(1)
NODE = shape(
    {
        "id": NAMED,
        "type": NAMED,
        "position": _numbers("x", "y"),
        "data": shape({"config": nullable(free_object)}),
    },
    required=("id", "type", "position", "data"),
)
EDGE = shape(
    {"id": NAMED, "source": NAMED, "target": NAMED, "sourceHandle": nullable(text())},
    required=("id", "source", "target"),
)
GRAPH = shape(
    {
        "nodes": array(NODE),
        "edges": array(EDGE),
        "viewport": nullable(_numbers("x", "y", "zoom")),
    },
    required=("nodes", "edges"),
)
JOURNEY_UPDATE = shape(
    {
        "name": text(1, 150),
        "description": nullable(text(0, 1000)),
        "graph": nullable(GRAPH),
        "triggerType": nullable(text()),
        "replacesDefaults": nullable(boolean),
    }
)

WEBHOOK_FIELDS: dict[str, Check] = {
    "url": url,
    "events": array(one_of(*EVENTS)),
    "description": text(),
    "status": one_of("active", "inactive"),
}
# The specification rejects unknown keys for journeys and teams only.
WEBHOOK_CREATE = shape(WEBHOOK_FIELDS, required=("url", "events"), closed=False)
WEBHOOK_UPDATE = shape(WEBHOOK_FIELDS, closed=False)

_ADDRESS = (
    "country",
    "street",
    "zip",
    "city",
    "state",
    "exterior",
    "municipality",
    "neighborhood",
)
_BRAND = ("alias", "primary_color", "secondary_color")
# set by the authentication layer, regardless of the body
RESERVED = ("team", "livemode", "owner")


TEAM_CREATE = shape(
    {
        **dict.fromkeys(
            ("support_email", "support_phone", "legal_name", "tax_id", "tax_system"),
            text(),
        ),
        "address": shape(dict.fromkeys(_ADDRESS, text()), closed=False),
        "brand": shape(
            {**dict.fromkeys(_BRAND, nullable(text())), "logo": nullable(url)},
            closed=False,
        ),
        "generate_onboarding_url": boolean,
        "add_master_team_members": boolean,
        "metadata": free_object,
        "add_members": array(
            shape(
                {"id": text(1), "role": text(1)}, required=("id", "role"), closed=False
            )
        ),
        "credit_limit": nullable(number),
        **dict.fromkeys(RESERVED, anything),
    }
)
MAPPING = shape({"fields": free_object}, required=("fields",), closed=False)
PREFERENCES = shape(
    {"testmode": boolean, "search_collection": text(), "invoices_order_by": text()},
    closed=False,
)
# The specification has only the name of this operation.  The fields that lists of invoices show are checked.
_ISSUED = {"idempotency_key": nullable(text()), "metadata": free_object}
INCOME_BATCH = shape(
    {**_ISSUED, "invoices": array(shape(_ISSUED, closed=False))}, closed=False
)


class Query:
    """Reads query parameters and collects all problems.  Unknown parameters are ignored."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values
        self.problems: list[str] = []

    def choice(self, name: str, *allowed: str) -> str | None:
        """Read one of the *allowed* words."""
        value = self._values.get(name)
        if value is not None and value not in allowed:
            self.problems.append(f"{name}: must be one of {', '.join(allowed)}")
            return None
        return value

    def whole(
        self,
        name: str,
        default: int,
        high: int | None = None,
    ) -> int:
        """Read an integer from 1 to *high*."""
        value = self._values.get(name)
        if value is None:
            return default
        if re.fullmatch(r"[0-9]{1,9}", value) and 1 <= int(value) <= (high or inf):
            return int(value)
        words = f"must be an integer of 1 to {high}" if high else "must be >= 1"
        self.problems.append(f"{name}: {words}")
        return default

    def instant(self, name: str) -> int | None:
        """
        Read seconds, milliseconds or an ISO 8601 date as epoch milliseconds.

        Numbers below 10^11 are seconds (that is until the year 5138).
        """
        value = self._values.get(name)
        if value is None:
            return None
        try:
            if re.fullmatch(r"-?[0-9]{1,16}", value):
                count = int(value)
                if abs(count) >= 10**11:
                    return count
                return count * 1000
            moment = datetime.fromisoformat(value)
            if not moment.tzinfo:
                moment = moment.replace(tzinfo=UTC)
            return int(moment.timestamp() * 1000)
        except ValueError:
            self.problems.append(
                f"{name}: must be seconds, milliseconds or an ISO 8601 date"
            )
            return None
