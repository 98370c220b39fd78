"""
Settings of a client, as frozen values.

There are timeouts, retries of reads with their quota, and names of parameters.  A policy says how a write in
doubt is settled: its windows and its deadline.  All times are in seconds.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Mapping
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Final,
    Literal,
    TypeAlias,
    TypeGuard,
    cast,
)

import attrs

from invsvc_async.concurrency.plain_function import is_plain_function
from invsvc_async.errors import ConfigurationError, takes_secrets

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence


__all__ = [
    "CallOptions",
    "ParameterNames",
    "ReadRetries",
    "ReconcilePolicy",
    "Timeouts",
]

READ_TIME = 5.0  # s: timeout of one settling read
SHORTEST_RESEND = 5.0  # s: minimum timeout of a re-send, unless the configured attempt timeout is shorter

_MOST = sys.float_info.max  # an integer above it cannot be added to a time

# The folders below `client` cannot import Client, so this is untyped; `readers.Reader` has the types.
AnyReader: TypeAlias = "Callable[[Any, Any], Awaitable[Any]]"
# the same; of a key and a Webhook
OnSecret: TypeAlias = "Callable[[str, Any], Awaitable[None] | None]"
# of a field; Any: an attribute of attrs
Check: TypeAlias = "Callable[[object, Any, object], None]"

# Stands for a user-supplied journey reader in a stored intent.  Any: used in place of a reader
JOURNEY_READER: Any = "journey_reader"


def is_number(value: object) -> TypeGuard[float]:
    """Return whether *value* is a number, and not so large that no time can be added to it."""
    if isinstance(value, bool):
        return False
    if not isinstance(value, (int, float)):
        return False
    return abs(value) <= _MOST


def _must(be: str, fits: Callable[[Any], bool]) -> Check:
    """Return a validator whose error says what the value must *be*."""

    def check(
        _settings: object,
        field: attrs.Attribute[Any],
        value: object,
    ) -> None:
        if not fits(value):
            raise ConfigurationError(f"{field.name}: must be {be}, not {value!r}.")

    return check


_positive = _must(
    "a number of seconds above 0", lambda value: is_number(value) and value > 0
)
_not_negative = _must(
    "a number, 0 or above", lambda value: is_number(value) and value >= 0
)
_flag = _must("true or false", lambda value: isinstance(value, bool))
_resend = _must("'proven' or 'never'", ("proven", "never").__contains__)
_journey_reader = _must(
    "'journeys.get', None or an async callable",
    lambda value: value in (None, "journeys.get", JOURNEY_READER) or callable(value),
)
_name = _must(
    "a parameter name or None",
    lambda value: value is None or (isinstance(value, str) and value != ""),
)


def _count(least: int) -> Check:
    return lambda _settings, field, value: check_count(field.name, value, least=least)


def check_count(name: str, value: object, *, least: int) -> None:
    """
    Check an integer setting.

    Raises:
        ConfigurationError: It is not an integer, or below *least*.
    """
    if not (is_number(value) and isinstance(value, int) and value >= least):
        raise ConfigurationError(
            f"{name}: must be an integer, {least} or above, not {value!r}."
        )


def check_rate(value: object) -> None:
    """
    Check a rate; ``None`` is none.

    Raises:
        ConfigurationError: It is not a positive number.
    """
    if value is None:
        return
    if not (is_number(value) and value > 0):
        raise ConfigurationError(
            f"rate: must be a number of sends per second above 0, not {value!r}"
        )


def check_hooks(**hooks: object) -> None:
    """
    Check functions that are called without ``await``; ``None`` is none.

    Raises:
        ConfigurationError: One is async, or not a function.
    """
    for name, hook in hooks.items():
        if hook is not None and not is_plain_function(hook):
            raise ConfigurationError(
                f"{name}: must be a function that is not async. To await something, start a task in it."
            )


def check_on_secret(on_secret: object) -> None:
    """
    Check what gets the secrets of new webhooks; it may be async.

    Raises:
        ConfigurationError: It is not a function.
    """
    if on_secret is not None and not callable(on_secret):
        raise ConfigurationError(
            f"on_secret: must be a function, not a {type(on_secret).__name__}."
        )


class _Settings:
    """
    Equality, hash, repr and pickling of settings, by their fields.

    attrs would compile them for each class, which takes half of the time to make it, at each import.  A class
    with slots would be made twice, so the settings have none.
    """

    __slots__ = ()
    if TYPE_CHECKING:
        __attrs_attrs__: ClassVar[tuple[attrs.Attribute[Any], ...]]

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self.__getstate__() == other.__getstate__()

    def __hash__(self) -> int:
        return hash((type(self), *self.__getstate__().values()))

    def __repr__(self) -> str:
        shown = (
            f"{field.name}={_repr_of(field, getattr(self, field.name))}"
            for field in attrs.fields(type(self))
        )
        return f"{type(self).__qualname__}({', '.join(shown)})"

    def __getstate__(self) -> dict[str, object]:
        return {
            field.name: getattr(self, field.name) for field in attrs.fields(type(self))
        }

    def __setstate__(self, state: dict[str, object]) -> None:
        for name, value in state.items():
            object.__setattr__(self, name, value)  # as attrs does in a frozen class


def _repr_of(field: attrs.Attribute[Any], value: object) -> str:
    if callable(field.repr):
        return field.repr(value)
    return repr(value)


@attrs.frozen(
    kw_only=True,
    eq=False,
    repr=False,
    getstate_setstate=False,
    slots=False,
)
class Timeouts(_Settings):
    """
    Time limits in seconds: of one attempt, of connecting, and of a whole call with its retries.

    How long a write may take to settle is part of :class:`ReconcilePolicy`.
    """

    attempt: float = attrs.field(default=30.0, validator=_positive)
    connect: float = attrs.field(default=10.0, validator=_positive)
    call: float = attrs.field(default=60.0, validator=_positive)


# Names of headers.
_SET_BY_CLIENT = "authorization content-type content-length content-encoding expect host transfer-encoding"
# A call cannot change these either: the client relies on them, or they make another request of it.
_SET_FOR_CALLS = (
    "accept accept-encoding connection keep-alive proxy-connection range te trailer upgrade "
    "x-http-method x-http-method-override x-method-override"
)
_HEADER_NAME = r"[A-Za-z0-9!#$%&'*+.^_`|~-]+"
_SECRET_NAME = r"(?i)cookie|auth|token|secret|password|api-?key|credential"


def checked_headers(given: object, *, of_client: bool = False) -> dict[str, str]:
    """
    Return headers of one call or, with *of_client*, of all calls of a client.

    Raises:
        ConfigurationError: They are no mapping of texts, or the client sets one of them itself.
    """
    if not isinstance(given, Mapping):
        raise ConfigurationError(
            "headers: must be a mapping of names to values, both strings."
        )
    headers: dict[str, str] = {}
    taken = _SET_BY_CLIENT.split()
    if not of_client:
        taken += _SET_FOR_CALLS.split()
    for name, value in cast("Mapping[object, object]", given).items():
        if not (isinstance(name, str) and isinstance(value, str)):
            raise ConfigurationError(
                "headers and user_agent: names and values must be strings"
            )
        # it may be a value, by mistake, and so a secret
        if not re.fullmatch(_HEADER_NAME, name):
            raise ConfigurationError(
                f"headers: the name of number {len(headers) + 1} is not valid. Pass {{name: value}}."
            )
        problem = _header_problem(name, value, taken, may_be_secret=of_client)
        if problem is not None:
            raise ConfigurationError(f"headers: {problem}")
        headers[name] = value
    return headers


def _header_problem(
    name: str,
    value: str,
    taken: Sequence[str],
    *,
    may_be_secret: bool,
) -> str | None:
    if name.lower() in taken:
        return f"{name} is set by the client itself"
    if not may_be_secret and re.search(_SECRET_NAME, name):
        return f"{name} may be a secret, which an intent would store. Pass it as Client(headers=…)."
    if not value.isprintable():
        return f"the value of {name} contains a line break or control character"
    return None


def _call_timeout(
    settings: object,
    field: attrs.Attribute[Any],
    value: object,
) -> None:
    if value is not None and not isinstance(value, Timeouts):
        _positive(settings, field, value)


@attrs.frozen(
    kw_only=True,
    eq=False,
    repr=False,
    getstate_setstate=False,
    slots=False,
)
class CallOptions(_Settings):
    """
    Options of one call, which every method of a resource takes as ``options=``.

    ``timeout`` replaces the client's :class:`Timeouts`; a number of seconds limits the whole call, and each
    attempt, to that.  A write may still take longer to settle, as its :class:`ReconcilePolicy` says.

    ``headers`` are added to each request of the call, reads that settle a write included.  They are meant for
    gateways and tracing: they must not select other data, which is what ``team=`` is for.  Headers that the
    client sets itself, and those that may be secrets, are refused, because the headers of a write are stored
    in its intent: who settles or resumes it sends them as well.

    Raises:
        ConfigurationError: The timeout is not positive, or a header is not allowed.
    """

    timeout: Timeouts | float | None = attrs.field(
        default=None, validator=_call_timeout
    )
    headers: Mapping[str, str] = attrs.field(
        factory=dict,
        converter=checked_headers,
        repr=lambda given: f"<{', '.join(given)}>",
    )


# Mistakes in the arguments are raised without them.
CallOptions.__init__ = takes_secrets(CallOptions.__init__)  # type: ignore[method-assign]  # that of attrs


@attrs.frozen(
    kw_only=True,
    eq=False,
    repr=False,
    getstate_setstate=False,
    slots=False,
)
class ReadRetries(_Settings):
    """
    Retries of reads: exponential backoff with full jitter; times in seconds.

    ``quota`` limits the retries of one client, so that it does not amplify an outage.  A retry uses 1
    (``timeout_cost`` after a timeout), and a success gives ``refund`` back; at 0 nothing is retried.
    """

    attempts: int = attrs.field(default=4, validator=_count(1))
    initial: float = attrs.field(default=0.1, validator=_positive)
    maximum: float = attrs.field(default=5.0, validator=_positive)
    quota: float = attrs.field(default=100.0, validator=_not_negative)
    timeout_cost: float = attrs.field(default=2.0, validator=_not_negative)
    refund: float = attrs.field(default=0.1, validator=_not_negative)


# Settings of a policy that promise more if they are more, or if they are less.
MORE_IS_SAFER: Final = (
    "settle_after_error",
    "settle_after_loss",
    "reads_lag",
    "clock_slack",
)
LESS_IS_SAFER: Final = ("absence_within", "clock_band")


@attrs.frozen(
    kw_only=True,
    eq=False,
    repr=False,
    getstate_setstate=False,
    slots=False,
)
class ReconcilePolicy(_Settings):
    """
    How a write is settled if its answer cannot be trusted; all times in seconds.

    ``settle_after_error`` is the settle window of an update or a delete after a 500 in the service's own
    envelope, but at least ``reads_lag``; ``settle_after_loss`` is the window after any other ambiguous end,
    and of a create.  A read started within the window cannot prove that the write was not applied.

    ``deadline`` counts from the first ambiguous end.  ``resend="proven"`` sends again, at most
    ``max_resends`` times, if the write is proven absent.  ``wait_when_limited`` sends again after a 429
    with ``Retry-After``.  ``clock_slack`` is how far clocks of the service may disagree, and ``clock_band``
    how close to the send a time proves nothing.  ``absence_within`` is how long after the first send
    absence of a create still counts, or a webhook equal to its baseline.

    ``reads_lag`` is how old a state that a read shows may be, but at most ``settle_after_loss``: after the
    settle window, every read counts.  A state that shows the write within the settle window counts only if
    the state before was seen so long before, or the write was sent so long before.

    ``journey_reader`` selects the read of a journey.  ``"journeys.get"`` is ``GET /journeys/{id}``, which
    the specification does not list; ``None`` means that there is none; an async callable that takes
    (client, intent) replaces it and returns a Journey or a finding.  Set ``journey_reads_show_drafts`` if
    that read also shows the draft of a published journey.

    ``tag_creates`` tags every new webhook (like ``tag=True`` of ``webhooks.create``).
    """

    settle_after_error: float = attrs.field(default=2.0, validator=_not_negative)
    settle_after_loss: float = attrs.field(default=15.0, validator=_not_negative)
    deadline: float = attrs.field(default=90.0, validator=_not_negative)
    resend: Literal["proven", "never"] = attrs.field(
        default="proven", validator=_resend
    )
    max_resends: int = attrs.field(default=1, validator=_count(0))
    wait_when_limited: bool = attrs.field(default=False, validator=_flag)
    clock_slack: float = attrs.field(default=0.25, validator=_not_negative)
    clock_band: float = attrs.field(default=1.0, validator=_not_negative)
    absence_within: float = attrs.field(default=600.0, validator=_not_negative)
    reads_lag: float = attrs.field(default=5.0, validator=_not_negative)
    journey_reader: AnyReader | Literal["journeys.get"] | None = attrs.field(
        default="journeys.get", validator=_journey_reader
    )
    journey_reads_show_drafts: bool = attrs.field(default=False, validator=_flag)
    tag_creates: bool = attrs.field(default=False, validator=_flag)


def warn_if_never_sent_again(policy: ReconcilePolicy, timeouts: Timeouts) -> None:
    """Warn the caller's caller if *policy* allows re-sends, and its deadline leaves no time for them."""
    if policy.resend == "never":
        return
    if not policy.max_resends:
        return
    least = (
        2 * policy.settle_after_loss
        + min(SHORTEST_RESEND, timeouts.attempt)
        + 2 * READ_TIME
    )
    if policy.deadline <= least:
        warnings.warn(
            f"deadline: {policy.deadline:g} s leave no time to send a write again after a lost answer, so "
            f"resend='proven' cannot work. Use more than {least:g} s, or pass resend='never'.",
            UserWarning,
            stacklevel=3,
        )


@attrs.frozen(
    kw_only=True,
    eq=False,
    repr=False,
    getstate_setstate=False,
    slots=False,
)
class ParameterNames(_Settings):
    """
    Names of the query parameters that the specification does not name.

    The defaults are *assumptions*; ``invsvc doctor`` checks which of them a deployment honours.  A name set
    to ``None`` is never sent, and using that filter is an error.

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
            _name(self, field, getattr(self, field.name))
