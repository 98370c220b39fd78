"""
Authentication of a delivery, by its raw bytes and headers; secrets and shared headers.

Secrets are compared in constant time, and no repr, message or traceback with local variables contains a
secret or a signature.
"""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from hmac import compare_digest, digest
from typing import Any, Final, NoReturn, TypeAlias

import attrs

from invsvc_async.errors import (
    ConfigurationError,
    SignatureMismatchError,
    SignatureMissingError,
    UnauthenticatedEventError,
    takes_secrets,
)
from invsvc_async.events.event import (
    SIGNATURE,
    Event,
    Head,
    Headers,
    ResourceEvent,
    check_delivered,
    head_of,
    header_in,
    parse,
)

_SPACE: Final = "has white space at an end, as a file's last line has a line break. Remove it with strip()."
_NO_PICKLE: Final = (
    "a secret cannot be pickled or copied. Make a new one where it is needed."
)
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_SIGNATURE_FORM: Final = re.compile("sha256=[0-9a-f]{64}")


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
        self,
        name: str,
        value: str,
        *,
        label: str | None = None,
        retires_at: datetime | None = None,
    ) -> None:
        if not isinstance(name, str) or not _TOKEN.fullmatch(name):
            raise ConfigurationError(
                "name: not a valid header. Use the one in the dashboard: SharedHeader(name, value)."
            )
        if not isinstance(value, str) or not value or not value.isascii():
            raise ConfigurationError("value: not visible ASCII text. Set another one.")
        if value != value.strip():
            raise ConfigurationError(f"value: {_SPACE}")
        if not value.isprintable():
            raise ConfigurationError(
                "value: contains a line break or control character. Set another one."
            )
        _set(self, label, retires_at, name=name, value=value)

    def __reduce__(self) -> NoReturn:
        raise TypeError(_NO_PICKLE)

    def matches(self, headers: Headers | Head | None) -> bool:
        """Return whether the header came exactly once, with this value."""
        found = head_of(headers).get(self.name.lower())
        if found is None:
            return False
        return found.isascii() and compare_digest(found, self.value)


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
        self,
        value: str | bytes,
        *,
        label: str | None = None,
        retires_at: datetime | None = None,
    ) -> None:
        try:
            raw = value.encode() if isinstance(value, str) else value
        except UnicodeEncodeError:
            raw = b""
        # with an empty one, anyone could sign
        if not raw or not isinstance(raw, bytes):
            raise ConfigurationError(
                "secrets: one is empty or not text. Use the secret that creation returned."
            )
        if raw != raw.strip():
            raise ConfigurationError(f"secrets: one {_SPACE}")
        _set(self, label, retires_at, raw=raw)

    def __reduce__(self) -> NoReturn:
        raise TypeError(_NO_PICKLE)


Credential: TypeAlias = Secret | SharedHeader
Secrets: TypeAlias = "str | bytes | Secret | Sequence[str | bytes | Secret]"
SharedHeaders: TypeAlias = "SharedHeader | Sequence[SharedHeader] | None"
SecretsSource: TypeAlias = "Secrets | Callable[[], Secrets | Awaitable[Secrets]]"
SharedHeadersSource: TypeAlias = (
    "SharedHeaders | Callable[[], SharedHeaders | Awaitable[SharedHeaders]]"
)


def is_retired(credential: Credential, now: float) -> bool:
    """Return whether it is no longer accepted at *now*, in seconds since the epoch."""
    if credential.retires_at is None:
        return False
    return now >= credential.retires_at.timestamp()


def _set(
    instance: Credential, label: object, retires_at: object, **values: object
) -> None:
    _check_label(label)
    _check_retirement(retires_at)
    for name, value in {**values, "label": label, "retires_at": retires_at}.items():
        object.__setattr__(instance, name, value)  # as attrs does in a frozen class


def _check_label(label: object) -> None:
    if label is None:
        return
    if not isinstance(label, str) or not label or not label.isprintable():
        raise ConfigurationError(
            "label: not printable text. Use a short name, such as 'old'."
        )


def _check_retirement(retires_at: object) -> None:
    if retires_at is None:
        return
    if not isinstance(retires_at, datetime) or not retires_at.tzinfo:
        raise ConfigurationError(
            "retires_at: not a datetime with a time zone. Use datetime(…, tzinfo=UTC)."
        )


def keys_of(secrets: Secrets) -> tuple[Secret, ...]:
    """Return secrets as keys; raise ``ConfigurationError`` if one is empty or not text."""
    given: Any = secrets
    if isinstance(given, (str, bytes, Secret)):
        given = (given,)
    elif not isinstance(given, Iterable) or isinstance(given, Mapping):
        raise ConfigurationError(
            "secrets: not a text or a list. Use the secret that creation returned."
        )
    return tuple(map(_key_of, given))


def _key_of(secret: str | bytes | Secret) -> Secret:
    if isinstance(secret, Secret):
        return secret
    return Secret(secret)


def shared_headers_of(given: SharedHeaders) -> tuple[SharedHeader, ...]:
    """Return one, several or no shared headers as a tuple; raise ``ConfigurationError`` for what is none."""
    if given is None:
        return ()
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


_REFUSE: Final = "Do not handle it. If the service did send it,"
_SIGNING: Final = (
    "check that its webhook has a secret, and that no proxy removes the header."
)
_UNSIGNED: Final = f"{_REFUSE} {_SIGNING}"
_ALTERED: Final = (
    f"{_REFUSE} check that the webhook's secret is among secrets,"
    " and that no proxy changes the body."
)


@takes_secrets
def verify(
    body: bytes,
    headers: Headers | None,
    secrets: Secrets,
) -> None:
    """
    Check the signature of the raw body against each of the secrets, in constant time.

    Several secrets allow rotation.  The signature must be one ``X-Service-Signature`` header of ``sha256=``
    and 64 lower-case hex digits.

    Raises:
        SignatureMissingError: There is no signature.
        SignatureMismatchError: The signature fits none of the secrets.
        ConfigurationError: A secret is empty or not text.

    Spec: Events, Headers.
    """
    signature = header_in(headers, SIGNATURE)
    if signature is None:
        raise SignatureMissingError(
            f"headers: there is no X-Service-Signature. {_UNSIGNED}"
        )
    if isinstance(secrets, str) and _fits_text(body, signature, secrets):
        return
    _match(body, signature, keys_of(secrets), time.time())


@takes_secrets
def read(
    body: bytes,
    headers: Headers | None,
    *,
    secrets: Secrets = (),
    shared_header: SharedHeaders = None,
    accept_unsigned: bool = False,
) -> Event:
    """
    Authenticate a delivery by its raw bytes, then parse it.

    A signature that is present must be valid, and authenticates any event.  Without one, ``sat.*`` and batch
    events are refused, and resource events need the *shared_header*, or one of several.  *accept_unsigned*
    accepts events that nothing authenticates; with *secrets*, only resource events.  A *shared_header* is
    still required then.  Test events from the dashboard are no exception; see ``Receiver.on_test``.  Only its
    body can make an authentic event a test.

    Raises:
        SignatureMismatchError: The delivery is forged, altered, or signed with another secret.
        SignatureMissingError: This event must be signed.
        UnauthenticatedEventError: A resource event came without the shared header.
        MalformedEventError: The body is not an event.
        ConfigurationError: A secret is empty or not text, or another argument is of a wrong type.

    Spec: Events.
    """
    check_flag(accept_unsigned)
    trust = Trust(keys_of(secrets), shared_headers_of(shared_header), accept_unsigned)
    found = head_of(headers)
    proof = trust.prove(body, found, time.time())
    if proof:
        event = parse(body)
    else:
        event = parse(body, found)
    trust.admit(event, proof)
    check_delivered(event)
    return event


@attrs.frozen
class Trust:
    """What authenticates events: the arguments of ``read``, checked."""

    keys: tuple[Secret, ...]
    shared_headers: tuple[SharedHeader, ...]
    accept_unsigned: bool

    def prove(
        self,
        body: bytes,
        headers: Head,
        now: float,
    ) -> Credential | None:
        """
        Return what authenticates these bytes at *now*, in seconds since the epoch, before they are parsed.

        A signature that is not valid, or that no secret can check, is a ``SignatureMismatchError``.
        """
        signature = headers.get(SIGNATURE)
        if signature is not None and self._needs_signature:
            return _match(body, signature, self.keys, now)
        for header in self.shared_headers:
            if header.matches(headers) and not is_retired(header, now):
                return header
        return None

    def admit(self, event: Event, proof: Credential | None) -> None:
        """Raise an error if *proof* does not authenticate *event*."""
        # no resource event is signed today, but a new family may be
        if isinstance(proof, Secret):
            return
        if not isinstance(event, ResourceEvent):
            if self._needs_signature:
                raise SignatureMissingError(
                    f"{event.type}: it has no X-Service-Signature. {_UNSIGNED}"
                )
        elif proof is None and self._needs_header:
            raise UnauthenticatedEventError(
                f"{event.type}: {_without_header(self.shared_headers)}"
            )

    @property
    def _needs_signature(self) -> bool:
        """Whether an event of a signed family must be signed: the service signs for all who have a secret."""
        return bool(self.keys) or not self.accept_unsigned

    @property
    def _needs_header(self) -> bool:
        """Whether a resource event without a signature must come with a shared header."""
        return bool(self.shared_headers) or not self.accept_unsigned


def unauthenticated(shared: Sequence[SharedHeader]) -> UnauthenticatedEventError:
    """Return the error for a delivery whose headers cannot authenticate any event."""
    return UnauthenticatedEventError(
        f"headers: there is no X-Service-Signature; {_without_header(shared)} If it should be signed, "
        f"{_SIGNING}"
    )


def _without_header(shared: Sequence[SharedHeader]) -> str:
    if not shared:
        return "no shared_header is set, which it needs. Pass the custom header of its webhook."
    names = " or ".join(dict.fromkeys(header.name for header in shared))
    return (
        f"it came without the header {names}, or with another value. {_REFUSE} compare the webhook's custom "
        "header in the dashboard with shared_header."
    )


def check_form(signature: str) -> None:
    """
    Raise ``SignatureMismatchError`` unless *signature* has the form of one, whatever the body is.

    Spec: Events, Headers.
    """
    if not _SIGNATURE_FORM.fullmatch(signature):
        fault = "it is not one X-Service-Signature of sha256= and 64 hex digits"
        raise SignatureMismatchError(f"signature: {fault}. {_ALTERED}")


def signature_of(body: bytes, secret: bytes) -> str:
    """Return the value of ``X-Service-Signature`` for the raw *body*."""
    return "sha256=" + digest(secret, body, "sha256").hex()


def _fits_text(body: bytes, signature: str, secret: str) -> bool:
    """Return whether a valid *secret* fits. To make a ``Secret`` would take as long as the digest."""
    try:
        fits = compare_digest(signature_of(body, secret.encode()), signature)
    except (TypeError, UnicodeEncodeError):  # the slower check says what is wrong
        return False
    if not fits:
        return False
    return secret != "" and secret == secret.strip()


def _match(
    body: bytes,
    signature: str,
    keys: Sequence[Secret],
    now: float,
) -> Secret:
    try:
        for key in keys:
            fits = compare_digest(signature_of(body, key.raw), signature)
            if fits and not is_retired(key, now):
                return key
    except TypeError:
        is_raw = isinstance(body, bytes)
        fault = "it is not ASCII text"
        if not is_raw:
            fault = "it signs raw bytes, and the body is text"
        raise SignatureMismatchError(f"signature: {fault}. {_ALTERED}") from None
    why = "it cannot be checked without a secret"
    if keys:
        why = "it fits none of the secrets"
    raise SignatureMismatchError(f"signature: {why}. {_ALTERED}")
