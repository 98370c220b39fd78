"""
Authentication of a delivery, by its raw bytes and headers.

Secrets are compared in constant time, and no message or repr contains a secret or a signature.
"""

from __future__ import annotations

import time
from hmac import compare_digest, digest
from typing import TYPE_CHECKING, Final

import attrs

from invsvc_async.errors import (
    SignatureMismatchError,
    SignatureMissingError,
    UnauthenticatedEventError,
    takes_secrets,
)
from invsvc_async.events.credentials import (
    Credential,
    Secret,
    Secrets,
    SharedHeader,
    SharedHeaders,
    check_flag,
    is_retired,
    keys_of,
    shared_headers_of,
)
from invsvc_async.events.event import Event, ResourceEvent
from invsvc_async.events.headers import SIGNATURE, ByName, by_name
from invsvc_async.events.parse import parse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from invsvc_async.events.headers import Headers

__all__ = ["Trust", "read", "signature_of", "unauthenticated", "verify"]

_REFUSE: Final = "Do not handle it. If the service did send it,"
_SIGNING: Final = "check that its webhook has a secret, and that no proxy removes the header."
_UNSIGNED: Final = f"{_REFUSE} {_SIGNING}"
_ALTERED: Final = (
    f"{_REFUSE} check that the webhook's secret is among secrets, and that no proxy changes the body."
)


@takes_secrets
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
    signature = by_name(headers).get(SIGNATURE)
    if signature is None:
        raise SignatureMissingError(f"headers: there is no X-Service-Signature. {_UNSIGNED}")
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
    trust, found = (
        Trust(keys_of(secrets), shared_headers_of(shared_header), accept_unsigned),
        by_name(headers),
    )
    proof = trust.prove(body, found, time.time())
    event = parse(body, None if proof else found)
    trust.admit(event, proof)
    return event


@attrs.frozen
class Trust:
    """What authenticates events: the arguments of ``read``, checked."""

    keys: tuple[Secret, ...]
    shared_headers: tuple[SharedHeader, ...]
    accept_unsigned: bool

    def prove(self, body: bytes, headers: ByName, now: float) -> Credential | None:
        """
        Return what authenticates these bytes at *now*, in seconds since the epoch, before they are parsed.

        Raises:
            SignatureMismatchError: The signature is not valid, or there is no secret to check it with.
        """
        signature = headers.get(SIGNATURE)
        if signature is not None and (self.keys or not self.accept_unsigned):
            return _match(body, signature, self.keys, now)
        for header in self.shared_headers:
            if header.matches(headers) and (header.retires_at is None or not is_retired(header, now)):
                return header
        return None

    def admit(self, event: Event, proof: Credential | None) -> None:
        """
        Raise an error if *proof* does not authenticate *event*.

        Raises:
            SignatureMissingError: This event must be signed.
            UnauthenticatedEventError: A resource event came without the shared header.
        """
        if isinstance(proof, Secret):  # no resource event is signed today, but a new family may be
            return
        if not isinstance(event, ResourceEvent):
            if self.keys or not self.accept_unsigned:  # the service signs these for all who have a secret
                raise SignatureMissingError(f"{event.type}: it has no X-Service-Signature. {_UNSIGNED}")
        elif proof is None and (self.shared_headers or not self.accept_unsigned):
            raise UnauthenticatedEventError(f"{event.type}: {_without_header(self.shared_headers)}")


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


def signature_of(body: bytes, key: Secret) -> str:
    """Return the value of ``X-Service-Signature`` for the raw *body*."""
    return "sha256=" + digest(key.raw, body, "sha256").hex()


def _match(body: bytes, signature: str, keys: Sequence[Secret], now: float) -> Secret:
    try:
        for key in keys:
            if compare_digest(signature_of(body, key), signature) and not is_retired(key, now):
                return key
    except TypeError:
        fault = (
            "it is not ASCII text" if isinstance(body, bytes) else "it signs raw bytes, and the body is text"
        )
        raise SignatureMismatchError(f"signature: {fault}. {_ALTERED}") from None
    why = "it fits none of the secrets" if keys else "it cannot be checked without a secret"
    raise SignatureMismatchError(f"signature: {why}. {_ALTERED}")
