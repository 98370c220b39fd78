"""
Authentication of a delivery, by its raw bytes and headers.

Secrets are compared in constant time, and no message or repr contains a secret or a signature.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from hmac import compare_digest, digest
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar

import attrs

from invsvc_async._errors import (
    ConfigurationError,
    SignatureMismatchError,
    SignatureMissingError,
    UnauthenticatedEventError,
)
from invsvc_async.events.event import Event, ResourceEvent
from invsvc_async.events.headers import SIGNATURE, kept, value_of
from invsvc_async.events.parse import parse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from invsvc_async.events.headers import Headers

__all__ = [
    "Key", "Proof", "Secrets", "SharedHeader", "SharedHeaders", "admit", "checked", "keys_of", "prove",
    "read", "shared_headers_of", "signature_of", "verify",
]  # fmt: skip

T = TypeVar("T")

Secrets: TypeAlias = "str | bytes | Sequence[str | bytes]"
SharedHeaders: TypeAlias = "SharedHeader | Sequence[SharedHeader] | None"
Proof: TypeAlias = Literal["signature", "shared header"]

_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


@attrs.frozen(init=False)
class SharedHeader:
    """
    A secret custom header, as set in the dashboard, that authenticates resource events.

    The *value* is compared in constant time, and no repr contains it.

    Raises:
        ConfigurationError: *name* or *value* is not valid in a header.

    Spec: Events, Headers.
    """

    name: str
    value: str = attrs.field(repr=False)

    def __init__(self, name: str, value: str) -> None:
        fault = _fault_of_header(name, value)
        if fault is not None:
            del self, value  # so that a traceback with local variables does not show it
            raise ConfigurationError(fault)
        object.__setattr__(self, "name", name)  # as attrs does in a frozen class
        object.__setattr__(self, "value", value)

    def matches(self, headers: Headers | None) -> bool:
        """Return whether the header came exactly once, with this value."""
        found = value_of(headers, self.name.lower())
        return found is not None and found.isascii() and compare_digest(found, self.value)


def _fault_of_header(
    name: Any, value: Any
) -> str | None:  # Any: what a caller without a type checker may pass
    if not isinstance(name, str) or not _TOKEN.fullmatch(name):
        return f"name: {name!r} is not a valid header. Use the one in the dashboard."
    if not isinstance(value, str) or not value or not value.isascii():
        return f"value: that of {name} is not visible ASCII text. Set another one."
    if value != value.strip():
        return (
            f"value: that of {name} has white space at an end, as a file's last line has a line break. "
            "Remove it with strip()."
        )
    if not value.isprintable():
        return f"value: that of {name} contains a line break or control character. Set another one."
    return None


@attrs.frozen
class Key:
    """A webhook's secret as the key of signatures; its own class, so that no repr of a variable shows it."""

    raw: bytes = attrs.field(repr=False)


def verify(body: bytes, headers: Headers | None, secrets: Secrets) -> None:
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
    signature = value_of(headers, SIGNATURE)
    if signature is None:
        raise SignatureMissingError("headers: there is no X-Service-Signature. Refuse the delivery.")
    keys = keys_of(secrets)
    del secrets
    _match(body, signature, checked(keys))


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
        ConfigurationError: A secret is empty or not text, or *shared_header* is of another type.

    Spec: Events.
    """
    headers = kept(headers)
    found_keys, found_headers = keys_of(secrets), shared_headers_of(shared_header)
    del secrets, shared_header
    keys, shared = checked(found_keys), checked(found_headers)
    proof = prove(body, headers, keys, shared, accept_unsigned=accept_unsigned)
    event = parse(body, None if proof else headers)
    admit(event, proof, keys, shared, accept_unsigned=accept_unsigned)
    return event


def keys_of(secrets: Secrets) -> tuple[Key, ...] | ConfigurationError:
    """
    Return secrets as keys, or what is wrong with one, to be raised by ``checked``.

    The caller deletes *secrets* in between, so that a traceback with local variables does not show them.
    """
    given: Any = secrets
    if isinstance(given, (str, bytes)):
        given = (given,)
    elif not isinstance(given, Iterable) or isinstance(given, Mapping):
        return ConfigurationError("secrets: not a text or a list. Use the secret that creation returned.")
    keys: list[Key] = []
    for secret in given:
        key = _key(secret)
        if isinstance(key, ConfigurationError):
            return key
        keys.append(key)
    return tuple(keys)


def _key(secret: Any) -> Key | ConfigurationError:
    try:
        raw = secret.encode() if isinstance(secret, str) else secret
    except UnicodeEncodeError:
        raw = b""
    if not raw or not isinstance(raw, bytes):  # with an empty one, anyone could sign
        return ConfigurationError("secrets: one is empty or not text. Use the secret that creation returned.")
    if raw != raw.strip():
        return ConfigurationError(
            "secrets: one has white space at an end, as a file's last line has a line break. "
            "Remove it with strip()."
        )
    return Key(raw)


def shared_headers_of(given: Any) -> tuple[SharedHeader, ...] | ConfigurationError:
    """Return one, several or no shared headers as a tuple, or what is wrong with them, for ``checked``."""
    if given is None or isinstance(given, SharedHeader):
        return () if given is None else (given,)
    headers = tuple(given) if isinstance(given, Iterable) else (given,)
    if all(isinstance(header, SharedHeader) for header in headers):
        return headers
    return ConfigurationError(
        "shared_header: neither a SharedHeader nor a list of them. Use SharedHeader(name, value)."
    )


def checked(found: T | ConfigurationError) -> T:
    """Return *found*, or raise it if it is an error."""
    if isinstance(found, ConfigurationError):
        raise found
    return found


def prove(
    body: bytes,
    headers: Headers | None,
    keys: Sequence[Key],
    shared: Sequence[SharedHeader],
    *,
    accept_unsigned: bool,
) -> Proof | None:
    """
    Return what authenticates these bytes, before they are parsed.

    Raises:
        SignatureMismatchError: The signature is not valid, or there is no secret to check it with.
    """
    signature = value_of(headers, SIGNATURE)
    if signature is not None and (keys or not accept_unsigned):
        _match(body, signature, keys)
        return "signature"
    return "shared header" if any(header.matches(headers) for header in shared) else None


def admit(
    event: Event,
    proof: Proof | None,
    keys: Sequence[Key],
    shared: Sequence[SharedHeader],
    *,
    accept_unsigned: bool,
) -> None:
    """
    Raise an error if *proof* does not authenticate *event*.

    Raises:
        SignatureMissingError: This event must be signed.
        UnauthenticatedEventError: A resource event came without the shared header.
    """
    if proof == "signature":  # no resource event is signed today, but a new family may be
        return
    if not isinstance(event, ResourceEvent):
        if keys or not accept_unsigned:  # the service signs these for everyone who has a secret
            raise SignatureMissingError(f"{event.type}: it must be signed and is not. Refuse the delivery.")
    elif proof is None and (shared or not accept_unsigned):
        names = " or ".join(dict.fromkeys(header.name for header in shared))
        wanted = f"the agreed header {names}" if shared else "a SharedHeader to check"
        raise UnauthenticatedEventError(f"{event.type}: it came without {wanted}. Refuse the delivery.")


def signature_of(body: bytes, key: Key) -> str:
    """Return the value of ``X-Service-Signature`` for the raw *body*."""
    return "sha256=" + digest(key.raw, body, "sha256").hex()


def _match(body: bytes, signature: str, keys: Sequence[Key]) -> None:
    try:
        for key in keys:
            # As signature_of, without the time of a call.
            if compare_digest("sha256=" + digest(key.raw, body, "sha256").hex(), signature):
                return
    except TypeError:
        fault = (
            "it is not ASCII text" if isinstance(body, bytes) else "it signs raw bytes, and the body is text"
        )
        raise SignatureMismatchError(f"signature: {fault}. Refuse the delivery.") from None
    why = "it fits none of the secrets" if keys else "it cannot be checked without a secret"
    raise SignatureMismatchError(
        f"signature: {why}. Refuse the delivery; if it is genuine, check the secrets."
    )
