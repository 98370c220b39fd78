"""
Authentication of a delivery, by its raw bytes and headers.

Secrets are compared in constant time, and no message or repr contains a secret or a signature.
"""

from __future__ import annotations

import re
from hmac import compare_digest, digest
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

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

__all__ = ["Proof", "Secrets", "SharedHeader", "admit", "keys_of", "prove", "read", "signature_of", "verify"]

Secrets: TypeAlias = "str | bytes | Sequence[str | bytes]"
Proof: TypeAlias = Literal["signature", "shared header"]

_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


def _check_name(_: SharedHeader, __: object, name: str) -> None:
    if not isinstance(name, str) or not _TOKEN.fullmatch(name):
        raise ConfigurationError(f"name: {name!r} is not a valid header. Use the one in the dashboard.")


def _check_value(header: SharedHeader, _: object, value: str) -> None:
    if not isinstance(value, str) or not value or not value.isascii() or not value.isprintable():
        raise ConfigurationError(f"value: that of {header.name} is not visible ASCII text. Set another one.")
    if value != value.strip():
        raise ConfigurationError(
            f"value: that of {header.name} has spaces around it, which HTTP drops. Remove them."
        )


@attrs.frozen
class SharedHeader:
    """
    A secret custom header, as set in the dashboard, that authenticates resource events.

    The *value* is compared in constant time, and no repr contains it.

    Raises:
        ConfigurationError: *name* or *value* is not valid in a header.

    Spec: Events, Headers.
    """

    name: str = attrs.field(validator=_check_name)
    value: str = attrs.field(repr=False, validator=_check_value)

    def matches(self, headers: Headers | None) -> bool:
        """Return whether the header came exactly once, with this value."""
        found = value_of(headers, self.name.lower())
        return found is not None and found.isascii() and compare_digest(found, self.value)


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
    _match(body, signature, keys_of(secrets))


def read(
    body: bytes,
    headers: Headers | None,
    *,
    secrets: Secrets = (),
    shared_header: SharedHeader | None = None,
    accept_unsigned: bool = False,
) -> Event:
    """
    Authenticate a delivery by its raw bytes, then parse it.

    A signature that is present must be valid, and authenticates any event.  Without one, ``sat.*`` and batch
    events are refused, and resource events need the *shared_header*.  *accept_unsigned* accepts events that
    nothing authenticates; with *secrets*, only resource events.  A *shared_header* is still required then.
    Test events from the dashboard are no exception; see ``Receiver.on_test``.

    Raises:
        SignatureMismatchError: The delivery is forged, altered, or signed with another secret.
        SignatureMissingError: This event must be signed.
        UnauthenticatedEventError: A resource event came without the shared header.
        MalformedEventError: The body is not an event.
        ConfigurationError: A secret is empty or not text.

    Spec: Events.
    """
    headers = kept(headers)
    keys = keys_of(secrets)
    proof = prove(body, headers, keys, shared_header, accept_unsigned=accept_unsigned)
    event = parse(body, headers)
    admit(event, proof, keys, shared_header, accept_unsigned=accept_unsigned)
    return event


def keys_of(secrets: Secrets) -> tuple[bytes, ...]:
    """Return secrets as HMAC keys; an empty one is refused, because anyone could sign with it."""
    if isinstance(secrets, (str, bytes)):
        return (_key(secrets),)
    return tuple(map(_key, secrets))


def _key(secret: str | bytes) -> bytes:
    try:
        key = secret.encode() if isinstance(secret, str) else secret
    except UnicodeEncodeError:
        key = b""
    if not key or not isinstance(key, bytes):
        raise ConfigurationError("secrets: one is empty or not text. Use the secret that creation returned.")
    return key


def prove(
    body: bytes,
    headers: Headers | None,
    keys: Sequence[bytes],
    shared_header: SharedHeader | None,
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
    return "shared header" if shared_header is not None and shared_header.matches(headers) else None


def admit(
    event: Event,
    proof: Proof | None,
    keys: Sequence[bytes],
    shared_header: SharedHeader | None,
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
    elif proof is None and (shared_header is not None or not accept_unsigned):
        wanted = f"the agreed header {shared_header.name}" if shared_header else "a SharedHeader to check"
        raise UnauthenticatedEventError(f"{event.type}: it came without {wanted}. Refuse the delivery.")


def signature_of(body: bytes, key: bytes) -> str:
    """Return the value of ``X-Service-Signature`` for the raw *body*."""
    return "sha256=" + digest(key, body, "sha256").hex()


def _match(body: bytes, signature: str, keys: Sequence[bytes]) -> None:
    try:
        for key in keys:
            # As signature_of, without the time of a call.
            if compare_digest("sha256=" + digest(key, body, "sha256").hex(), signature):
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
