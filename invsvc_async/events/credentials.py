"""
What authenticates deliveries: webhook secrets and shared headers, with names and times of retirement.

No repr, message or traceback with local variables contains a secret.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from hmac import compare_digest
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import attrs

from invsvc_async.errors import ConfigurationError, takes_secrets
from invsvc_async.events.headers import ByName, by_name

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from invsvc_async.events.headers import Headers

__all__ = [
    "Credential", "Secret", "Secrets", "SecretsSource", "SharedHeader", "SharedHeaders",
    "SharedHeadersSource", "check_flag", "is_retired", "keys_of",
    "shared_headers_of",
]  # fmt: skip

_setattr: Final = object.__setattr__  # as attrs does in a frozen class
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


@attrs.frozen(init=False)
class SharedHeader:
    """
    A secret custom header, as set in the dashboard, that authenticates resource events.

    The *value* is compared in constant time, and no repr contains it.  *label* names it in
    ``Receiver.stats``; from *retires_at* on, an aware ``datetime``, it is no longer accepted.

    Raises:
        ConfigurationError: *name* or *value* is not valid in a header, or *retires_at* has no time zone.

    Spec: Events, Headers.
    """

    name: str
    value: str = attrs.field(repr=False)
    label: str | None
    retires_at: datetime | None

    @takes_secrets
    def __init__(
        self, name: str, value: str, *, label: str | None = None, retires_at: datetime | None = None
    ) -> None:
        fault = _fault_of_header(name, value) or _fault_of_terms(label, retires_at)
        if fault is not None:
            raise ConfigurationError(fault)
        _set(self, name=name, value=value, label=label, retires_at=retires_at)

    def matches(self, headers: Headers | None) -> bool:
        """Return whether the header came exactly once, with this value."""
        found = (headers if isinstance(headers, ByName) else by_name(headers)).get(self.name.lower())
        return found is not None and found.isascii() and compare_digest(found, self.value)


@attrs.frozen(init=False)
class Secret:
    """
    A webhook's secret, which signs events; plain text does as well, without a label and a time.

    *label* names it in ``Receiver.stats``; from *retires_at* on, an aware ``datetime``, it is no longer
    accepted.

    Raises:
        ConfigurationError: *value* is empty or not text, or *retires_at* has no time zone.

    Spec: Events, Headers.
    """

    raw: bytes = attrs.field(repr=False)
    label: str | None
    retires_at: datetime | None

    @takes_secrets
    def __init__(
        self, value: str | bytes, *, label: str | None = None, retires_at: datetime | None = None
    ) -> None:
        raw = _raw_of(value)
        if (fault := raw if isinstance(raw, str) else _fault_of_terms(label, retires_at)) is not None:
            raise ConfigurationError(fault)
        _set(self, raw=raw, label=label, retires_at=retires_at)


Credential: TypeAlias = Secret | SharedHeader
Secrets: TypeAlias = "str | bytes | Secret | Sequence[str | bytes | Secret]"
SharedHeaders: TypeAlias = "SharedHeader | Sequence[SharedHeader] | None"
SecretsSource: TypeAlias = "Secrets | Callable[[], Secrets | Awaitable[Secrets]]"
SharedHeadersSource: TypeAlias = "SharedHeaders | Callable[[], SharedHeaders | Awaitable[SharedHeaders]]"


def is_retired(credential: Credential, now: float) -> bool:
    """Return whether it is no longer accepted at *now*, in seconds since the epoch."""
    return credential.retires_at is not None and now >= credential.retires_at.timestamp()


def _set(instance: object, **values: object) -> None:
    for name, value in values.items():
        _setattr(instance, name, value)


def _fault_of_header(name: object, value: object) -> str | None:
    if not isinstance(name, str) or not _TOKEN.fullmatch(name):
        return "name: not a valid header. Use the one in the dashboard: SharedHeader(name, value)."
    if not isinstance(value, str) or not value or not value.isascii():
        return "value: not visible ASCII text. Set another one."
    if value != value.strip():
        return (
            "value: has white space at an end, as a file's last line has a line break. "
            "Remove it with strip()."
        )
    if not value.isprintable():
        return "value: contains a line break or control character. Set another one."
    return None


def _fault_of_terms(label: object, retires_at: object) -> str | None:
    if label is not None and not (isinstance(label, str) and label and label.isprintable()):
        return "label: not printable text. Use a short name, such as 'old'."
    if retires_at is not None and not (isinstance(retires_at, datetime) and retires_at.tzinfo):
        return "retires_at: not a datetime with a time zone. Use datetime(…, tzinfo=UTC)."
    return None


def keys_of(secrets: Secrets) -> tuple[Secret, ...]:
    """
    Return secrets as keys.

    Raises:
        ConfigurationError: One is empty or not text.
    """
    given: Any = secrets
    if isinstance(given, (str, bytes, Secret)):
        given = (given,)
    elif not isinstance(given, Iterable) or isinstance(given, Mapping):
        raise ConfigurationError("secrets: not a text or a list. Use the secret that creation returned.")
    return tuple(secret if isinstance(secret, Secret) else Secret(secret) for secret in given)


def _raw_of(secret: object) -> bytes | str:
    """Return the bytes of a secret, or, as text, what is wrong with it."""
    try:
        raw = secret.encode() if isinstance(secret, str) else secret
    except UnicodeEncodeError:
        raw = b""
    if not raw or not isinstance(raw, bytes):  # with an empty one, anyone could sign
        return "secrets: one is empty or not text. Use the secret that creation returned."
    if raw != raw.strip():
        return (
            "secrets: one has white space at an end, as a file's last line has a line break. "
            "Remove it with strip()."
        )
    return raw


def shared_headers_of(given: SharedHeaders) -> tuple[SharedHeader, ...]:
    """
    Return one, several or no shared headers as a tuple.

    Raises:
        ConfigurationError: They are something else.
    """
    if given is None or isinstance(given, SharedHeader):
        return () if given is None else (given,)
    headers = tuple(given) if isinstance(given, Iterable) else (given,)
    if all(isinstance(header, SharedHeader) for header in headers):
        return headers
    raise ConfigurationError(
        "shared_header: neither a SharedHeader nor a list of them. Use SharedHeader(name, value)."
    )


def check_flag(accept_unsigned: object) -> None:
    """Raise ``ConfigurationError`` if it is not a boolean: ``"false"`` from the environment would be true."""
    if not isinstance(accept_unsigned, bool):
        raise ConfigurationError(
            f"accept_unsigned: must be true or false, not a {type(accept_unsigned).__name__}."
        )
