"""
Decide whether a delivery may be trusted, from its raw bytes and headers; never read a clock or the network.

Every comparison with a secret takes constant time, and no message or repr holds a secret or a signature.
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
        raise ConfigurationError(f"{name!r} cannot name a header. Give the one set in the dashboard.")


def _check_value(header: SharedHeader, _: object, value: str) -> None:
    if not isinstance(value, str) or not value or not value.isascii() or not value.isprintable():
        raise ConfigurationError(f"The value of {header.name} must be visible ASCII text. Set another one.")
    if value != value.strip():
        raise ConfigurationError(f"The value of {header.name} has spaces around it, which HTTP drops.")


@attrs.frozen
class SharedHeader:
    """
    Authenticate resource events by a secret custom header, as configured in the dashboard.

    The *value* is compared in constant time and shown in no repr.

    Raises:
        ConfigurationError: *name* or *value* cannot be a header's.

    Spec: Events, Headers.
    """

    name: str = attrs.field(validator=_check_name)
    value: str = attrs.field(repr=False, validator=_check_value)

    def matches(self, headers: Headers | None) -> bool:
        """Whether the header came exactly once and with this value."""
        found = value_of(headers, self.name.lower())
        return found is not None and found.isascii() and compare_digest(found, self.value)


def verify(body: bytes, headers: Headers | None, secrets: Secrets) -> None:
    """
    Hold the signature against the raw body, under each of several secrets (rotation), in constant time.

    Only the specified form counts: one ``X-Service-Signature`` of ``sha256=`` and 64 lower-case hex digits.

    Raises:
        SignatureMissingError: There is no signature.
        SignatureMismatchError: It is not that of this body under any of the secrets.
        ConfigurationError: A secret is empty or not a text.

    Spec: Events, Headers.
    """
    signature = value_of(headers, SIGNATURE)
    if signature is None:
        raise SignatureMissingError("There is no X-Service-Signature. Refuse the delivery.")
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
    Verify a delivery over its raw bytes, then parse it: a returned event may be trusted as far as it can be.

    A signature that is there must be right, and is proof for any event.  Without one, ``sat.*`` and batch
    events are refused, and resource events need the *shared_header*.  *accept_unsigned* is the caller's
    explicit word that nothing authenticates them; it does not waive a *shared_header* that is given, and with
    *secrets* it is of resource events alone.  A dashboard's test event is no exception here: see
    ``Receiver.on_test``.

    Raises:
        SignatureMismatchError: Forged, altered, or signed with another secret.
        SignatureMissingError: This event must be signed.
        UnauthenticatedEventError: A resource event without the shared header.
        MalformedEventError: The body is not an event.
        ConfigurationError: A secret is empty or not a text.

    Spec: Events.
    """
    headers = kept(headers)
    keys = keys_of(secrets)
    proof = prove(body, headers, keys, shared_header, accept_unsigned=accept_unsigned)
    event = parse(body, headers)
    admit(event, proof, keys, shared_header, accept_unsigned=accept_unsigned)
    return event


def keys_of(secrets: Secrets) -> tuple[bytes, ...]:
    """Turn secrets into HMAC keys; an empty one is refused, for anybody could sign with it."""
    if isinstance(secrets, (str, bytes)):
        return (_key(secrets),)
    return tuple(map(_key, secrets))


def _key(secret: str | bytes) -> bytes:
    try:
        key = secret.encode() if isinstance(secret, str) else secret
    except UnicodeEncodeError:
        key = b""
    if not key or not isinstance(key, bytes):
        raise ConfigurationError("A webhook secret is empty or no text. Give the one that creation returned.")
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
    Tell what authenticates these bytes, before anything is made of them.

    Raises:
        SignatureMismatchError: A signature is there and is not right, or there is no secret to check it with.
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
    Refuse an event that its proof does not cover.

    Raises:
        SignatureMissingError: This event must be signed.
        UnauthenticatedEventError: A resource event without the shared header.
    """
    if proof == "signature":  # though no resource event is signed: a family that is new may well be
        return
    if not isinstance(event, ResourceEvent):
        if keys or not accept_unsigned:  # who has a secret is not sent the one without the other
            raise SignatureMissingError(f"{event.type} must be signed and is not. Refuse the delivery.")
    elif proof is None and (shared_header is not None or not accept_unsigned):
        wanted = f"the agreed header {shared_header.name}" if shared_header else "a SharedHeader to check"
        raise UnauthenticatedEventError(f"{event.type} came without {wanted}. Refuse the delivery.")


def signature_of(body: bytes, key: bytes) -> str:
    """Sign the raw *body* in the form of ``X-Service-Signature``."""
    return "sha256=" + digest(key, body, "sha256").hex()


def _match(body: bytes, signature: str, keys: Sequence[bytes]) -> None:
    try:
        for key in keys:
            # As signature_of, which would cost a call for each event.
            if compare_digest("sha256=" + digest(key, body, "sha256").hex(), signature):
                return
    except TypeError:
        fault = "is no ASCII text" if isinstance(body, bytes) else "is over raw bytes, and the body is text"
        raise SignatureMismatchError(f"The signature {fault}. Refuse the delivery.") from None
    why = "is that of this body under none of the secrets" if keys else "cannot be checked without a secret"
    raise SignatureMismatchError(f"The signature {why}. Refuse the delivery; if genuine, see to the secrets.")
