"""
Checks of bodies and queries.

They report all invalid fields, as ``<field path>: <message>``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from invsvc_async.simulator.calls import Malformed, invalid, refusal
from invsvc_async.simulator.json_records import is_array, is_object

if TYPE_CHECKING:
    from invsvc_async.simulator.json_records import Json
    from invsvc_async.simulator.state import State

Check = Callable[["Json", str], Iterator[str]]

EVENTS = (
    "payment.created",
    "payment.updated",
    "payment.succeeded",
    "payment.canceled",
    "payment.deleted",
    "payment.upcoming_due_date",
    "invoice.created",
    "invoice.canceled",
    "invoice.failed",
    "invoice_batch.completed",
    "receipt.created",
    "receipt.updated",
    "receipt.completed",
    "receipt.deleted",
    "customer.created",
    "customer.updated",
    "customer.deleted",
    "service.created",
    "service.updated",
    "service.deleted",
    "sat.invoice.synced",
)


def text(low: int = 0, high: int | None = None) -> Check:
    """Expect a string of *low* to *high* characters."""

    def check(value: Json, path: str) -> Iterator[str]:
        if not isinstance(value, str):
            yield f"{path}: must be a string"
        elif len(value) < low:
            yield f"{path}: must have at least {low} characters"
        elif high is not None and len(value) > high:
            yield f"{path}: must have at most {high} characters"

    return check


def number(value: Json, path: str) -> Iterator[str]:
    """Expect a JSON number."""
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        yield f"{path}: must be a number"


def boolean(value: Json, path: str) -> Iterator[str]:
    """Expect true or false."""
    if not isinstance(value, bool):
        yield f"{path}: must be a boolean"


def free_object(value: Json, path: str) -> Iterator[str]:
    """Expect an object with any content."""
    if not isinstance(value, dict):
        yield f"{path}: must be an object"


def url(value: Json, path: str) -> Iterator[str]:
    """Expect an absolute URL; any scheme is accepted."""
    try:
        valid = isinstance(value, str) and bool(urlsplit(value).scheme and urlsplit(value).hostname)
    except ValueError:
        valid = False
    if not valid:
        yield f"{path}: must be a valid URL"


def one_of(*allowed: str) -> Check:
    """Expect one of the *allowed* words."""

    def check(value: Json, path: str) -> Iterator[str]:
        if value not in allowed:
            yield f"{path}: must be one of {', '.join(allowed)}"

    return check


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


def shape(fields: Mapping[str, Check], *, required: tuple[str, ...] = (), closed: bool = True) -> Check:
    """Expect an object with these *fields*.  If *closed*, other keys are rejected."""

    def check(value: Json, path: str) -> Iterator[str]:
        if not is_object(value):
            yield f"{path}: must be an object"
            return
        dot = f"{path}." if path else ""
        yield from (f"{dot}{key}: is required" for key in required if key not in value)
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
    {"nodes": array(NODE), "edges": array(EDGE), "viewport": nullable(_numbers("x", "y", "zoom"))},
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

_ADDRESS = ("country", "street", "zip", "city", "state", "exterior", "municipality", "neighborhood")
_BRAND = ("alias", "primary_color", "secondary_color")
RESERVED = ("team", "livemode", "owner")  # set by the authentication layer, regardless of the body


def _anything(_value: Json, _path: str) -> Iterator[str]:
    return iter(())


TEAM_CREATE = shape(
    {
        **dict.fromkeys(("support_email", "support_phone", "legal_name", "tax_id", "tax_system"), text()),
        "address": shape(dict.fromkeys(_ADDRESS, text()), closed=False),
        "brand": shape({**dict.fromkeys(_BRAND, nullable(text())), "logo": nullable(url)}, closed=False),
        "generate_onboarding_url": boolean,
        "add_master_team_members": boolean,
        "metadata": free_object,
        "add_members": array(shape({"id": text(1), "role": text(1)}, required=("id", "role"), closed=False)),
        "credit_limit": nullable(number),
        **dict.fromkeys(RESERVED, _anything),
    }
)
MAPPING = shape({"fields": free_object}, required=("fields",), closed=False)
PREFERENCES = shape(
    {"testmode": boolean, "search_collection": text(), "invoices_order_by": text()}, closed=False
)
# The specification has only the name of this operation.  The fields that lists of invoices show are checked.
_ISSUED = {"idempotency_key": nullable(text()), "metadata": free_object}
INCOME_BATCH = shape({**_ISSUED, "invoices": array(shape(_ISSUED, closed=False))}, closed=False)


def checked(state: State, body: Json | Malformed, check: Check) -> dict[str, Json]:
    """
    Return the request's body if *check* finds no problem.

    Raises:
        Refusal: 400, ``invalid_request_body`` or ``validation_failed`` with every problem.

    """
    if isinstance(body, Malformed):
        raise refusal(state, 400, "invalid_request_body", "The body is not valid JSON", body.reason)
    if not is_object(body):
        raise refusal(state, 400, "invalid_request_body", "The body must be a JSON object")
    problems = list(check(body, ""))
    if problems:
        raise invalid(state, problems)
    return body


class Query:
    """Reads query parameters and collects all problems.  Unknown parameters are ignored."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values
        self.problems: list[str] = []

    def text(self, name: str) -> str | None:
        """Read a parameter as text; `None` if it was not sent."""
        return self._values.get(name)

    def choice(self, name: str, *allowed: str) -> str | None:
        """Read one of the *allowed* words."""
        value = self._values.get(name)
        if value is not None and value not in allowed:
            self.problems.append(f"{name}: must be one of {', '.join(allowed)}")
            return None
        return value

    def whole(self, name: str, default: int, high: int | None = None) -> int:
        """Read an integer from 1 to *high*."""
        value = self._values.get(name)
        if value is None:
            return default
        if (
            not re.fullmatch(r"[0-9]{1,9}", value)
            or int(value) < 1
            or (high is not None and int(value) > high)
        ):
            self.problems.append(
                f"{name}: must be an integer of 1 to {high}" if high else f"{name}: must be >= 1"
            )
            return default
        return int(value)

    def instant(self, name: str) -> int | None:
        """Read seconds, milliseconds or an ISO 8601 date as epoch milliseconds."""
        value = self._values.get(name)
        if value is None:
            return None
        try:
            return epoch_ms(value)
        except ValueError:
            self.problems.append(f"{name}: must be seconds, milliseconds or an ISO 8601 date")
            return None

    def check(self, state: State) -> None:
        """Refuse with 400 if any parameter was invalid."""
        if self.problems:
            raise invalid(state, self.problems)


def epoch_ms(value: str) -> int:
    """Convert one of the three formats.  Numbers below 10^11 are seconds (that is until the year 5138)."""
    if re.fullmatch(r"-?[0-9]{1,16}", value):
        count = int(value)
        return count if abs(count) >= 10**11 else count * 1000
    moment = datetime.fromisoformat(value)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)
