"""
Hold what a user can set, as frozen values; never read the environment or act.

Times are in seconds.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

import attrs

from invsvc_async._errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


__all__ = ["ParameterNames", "ReadRetries", "ReconcilePolicy", "Timeouts", "unpickles_older"]

T = TypeVar("T")

# A reader, as the folders below the client know it; `readers.Reader` has the types.  Any: a Client, an
# Intent, and what a reader returns
AnyReader: TypeAlias = "Callable[[Any, Any], Awaitable[Any]]"

# By it an intent remembers a reader of the caller's own.  Any: it stands where a reader does
JOURNEY_READER: Any = "journey_reader"


def unpickles_older(cls: type[T]) -> type[T]:
    """Let an attrs class be unpickled from the state of an older version, which lacks its newer fields."""
    fields = attrs.fields(cls)  # type: ignore[arg-type]  # it is an attrs class

    def restore(self: T, state: dict[str, Any]) -> None:  # Any: the fields
        for field in fields:
            default = field.default
            if field.name not in state and isinstance(default, attrs.Factory):  # type: ignore[arg-type]
                default = default.factory()
            object.__setattr__(self, field.name, state.get(field.name, default))

    cls.__setstate__ = restore  # type: ignore[attr-defined]  # what pickle calls
    return cls


def _positive(_settings: object, field: attrs.Attribute[float], value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < inf:
        raise ConfigurationError(f"{field.name} must be a number of seconds above 0, not {value!r}")


def _not_negative(_settings: object, field: attrs.Attribute[float], value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < inf:
        raise ConfigurationError(f"{field.name} must be a number, 0 or above, not {value!r}")


def _count(least: int) -> Callable[[object, attrs.Attribute[int], object], None]:
    def check(_settings: object, field: attrs.Attribute[int], value: object) -> None:
        check_count(field.name, value, least=least)

    return check


def check_count(name: str, value: object, *, least: int) -> None:
    """
    Check a setting that counts.

    Raises:
        ConfigurationError: It is no whole number, or below *least*.

    """
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ConfigurationError(f"{name} must be a whole number, {least} or above, not {value!r}")


def _resend(_settings: object, _field: object, value: object) -> None:
    if value not in ("proven", "never"):
        raise ConfigurationError(f"resend must be 'proven' or 'never', not {value!r}")


def _flag(_settings: object, field: attrs.Attribute[bool], value: object) -> None:
    if not isinstance(value, bool):
        raise ConfigurationError(f"{field.name} must be true or false, not {value!r}")


def _journey_reader(_settings: object, _field: object, value: object) -> None:
    if value not in (None, "journeys.get", JOURNEY_READER) and not callable(value):
        raise ConfigurationError(
            f"journey_reader must be 'journeys.get', None or an async callable, not {value!r}"
        )


@attrs.frozen(kw_only=True)
class Timeouts:
    """
    Bound one attempt, its connection, and a whole call with its retries, in seconds.

    A write's time to find out what became of it is its :class:`ReconcilePolicy`'s.
    """

    attempt: float = attrs.field(default=30.0, validator=_positive)
    connect: float = attrs.field(default=10.0, validator=_positive)
    call: float = attrs.field(default=60.0, validator=_positive)


@attrs.frozen(kw_only=True)
class ReadRetries:
    """
    Say how often and how fast reads are tried again: full-jitter exponential backoff, in seconds.

    ``quota`` bounds the retries of one client together, so that an outage is not amplified: a retry takes
    1 of it (``timeout_cost`` after a timeout), a success gives ``refund`` back; at 0 nothing is retried.
    """

    attempts: int = attrs.field(default=4, validator=_count(1))
    initial: float = attrs.field(default=0.1, validator=_positive)
    maximum: float = attrs.field(default=5.0, validator=_positive)
    quota: float = attrs.field(default=100.0, validator=_not_negative)
    timeout_cost: float = attrs.field(default=2.0, validator=_not_negative)
    refund: float = attrs.field(default=0.1, validator=_not_negative)


@unpickles_older
@attrs.frozen(kw_only=True)
class ReconcilePolicy:
    """
    Say how a write whose answer cannot be trusted is settled; all times in seconds.

    ``settle_after_error`` is the window after a 500 in the service's own envelope, ``settle_after_loss``
    after every other ambiguous end: no "not applied" is said on a read that was started
    earlier.  ``deadline`` counts from the first ambiguous end.  ``resend="proven"`` sends again on proof of
    absence, ``max_resends`` times at most. ``absence_within`` is how long after the first send the absence of
    a create, or a webhook equal to its baseline, still proves anything. ``journey_reader`` names the read of
    a journey: ``"journeys.get"`` is ``GET /journeys/{id}``, which the specification does not list; ``None``
    says that there is none; an async callable of the client and the intent replaces it, and returns a Journey
    or a finding.  ``journey_reads_show_drafts`` says that the read shows the draft of a published journey
    too.  ``tag_creates`` tags every new webhook (``tag=True`` of ``webhooks.create``).
    """

    settle_after_error: float = attrs.field(default=2.0, validator=_not_negative)
    settle_after_loss: float = attrs.field(default=15.0, validator=_not_negative)
    deadline: float = attrs.field(default=90.0, validator=_not_negative)
    resend: Literal["proven", "never"] = attrs.field(default="proven", validator=_resend)
    max_resends: int = attrs.field(default=1, validator=_count(0))
    wait_when_limited: bool = attrs.field(default=False, validator=_flag)
    clock_slack: float = attrs.field(default=0.25, validator=_not_negative)
    clock_band: float = attrs.field(default=1.0, validator=_not_negative)
    absence_within: float = attrs.field(default=600.0, validator=_not_negative)
    journey_reader: AnyReader | Literal["journeys.get"] | None = attrs.field(
        default="journeys.get", validator=_journey_reader
    )
    journey_reads_show_drafts: bool = attrs.field(default=False, validator=_flag)
    tag_creates: bool = attrs.field(default=False, validator=_flag)


@attrs.frozen(kw_only=True)
class ParameterNames:
    """
    Name the query parameters whose names the specification does not show.

    Every default here is an *assumption*: ``invsvc doctor`` asks a deployment which of them it honours.  A
    name set to ``None`` is never sent, and asking for that filter is an error.

    Spec: Endpoints, Invoices.
    """

    limit: str | None = "limit"
    cursor: str | None = "next"
    order_by: str | None = "order_by"
    order: str | None = "order"
    created_after: str | None = "created_after"
    created_before: str | None = "created_before"
    client_id: str | None = "client_id"
    client_tax_id: str | None = "client_tax_id"
    page: str | None = "page"
    dbtable_limit: str | None = "limit"
    dbtable_state: str | None = "state"

    def __attrs_post_init__(self) -> None:
        for field in attrs.fields(type(self)):
            value: object = getattr(self, field.name)
            if value is not None and (not isinstance(value, str) or not value):
                raise ConfigurationError(f"{field.name} must be a parameter's name or None, not {value!r}")
