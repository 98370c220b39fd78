"""
Receipts: an outcome with its intent, its history and its verdict, as one file that anybody can check offline.

A receipt holds the outcome as text, its digest and, if a key was given, a signature of it (Ed25519).  The
whole file has one form, so that each changed byte is noticed: by the digest, what happened by accident; by
the signature, what somebody changed on purpose.  Without a signature, a check still shows whether the verdict
follows from the history, but not who wrote the history.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from contextlib import suppress
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

import attrs

from invsvc_async.codec import envelope
from invsvc_async.errors import (
    ConfigurationError,
    InvalidRequestError,
    takes_secrets,
)
from invsvc_async.reconcile.explain import replay, story_of
from invsvc_async.reconcile.history import Done
from invsvc_async.reconcile.json_form import SCHEMA, parsed

if TYPE_CHECKING:
    from invsvc_async.codec.exact_json import WireObject
    from invsvc_async.reconcile.intent import Intent

_KIND: Final = "invsvc receipt"
_SIGNED: Final = (
    b"invsvc receipt 1\n"  # before the outcome, so that a signature is of nothing else
)
_WHAT: Final = "a receipt"
_EXTRA: Final = "needs cryptography. Install invsvc-async with its extra 'receipts'."
_ORIGINAL: Final = "Ask its writer for the original."
_CHANGED: Final = "receipt: was changed since it was made"


@attrs.frozen(kw_only=True)
class Checked:
    """
    What a check of a receipt found.

    ``verdict`` is the one in the receipt, and ``now`` the one that the rules of this version reach by the
    history: ``None`` if there is no history, as in an outcome that a store gave back, or a person's finding.
    ``signed_by`` is the public key (Ed25519, raw, in base64) whose signature holds, ``None`` without one.
    """

    intent: Intent
    verdict: str
    now: str | None
    reason: str
    signed_by: str | None

    @property
    def follows(self) -> bool | None:
        """Whether the verdict follows from the history; ``None`` if there is no history."""
        return None if self.now is None else self.now == self.verdict


@takes_secrets
def receipt_of(outcome: str | bytes, key: str | bytes | None = None) -> str:
    """
    Return the receipt of an *outcome*, as JSON: one line, and a line feed.

    *key* is a private key of Ed25519 in PEM, without a password.

    Raises:
        InvalidRequestError: *outcome* is no outcome with an intent, or the *key* is none.
        ConfigurationError: To sign, the extra ``receipts`` has to be installed.
    """
    plain = parsed(outcome, "an outcome")
    story_of(plain, "an outcome")
    text = envelope.dumps(plain).decode()
    signature = public = None
    if key is not None:
        signature, public = _signature_of(text, key)
    return _file_of(text, signature, public).decode()


def _file_of(text: str, signature: object, public: object) -> bytes:
    """Return the only form of the receipt with this content."""
    plain: WireObject = {
        "schema": SCHEMA,
        "kind": _KIND,
        "sha256": sha256(text.encode()).hexdigest(),
        "public_key": public,
        "signature": signature,
        "outcome": text,
    }
    return envelope.dumps(plain) + b"\n"


def check_receipt(
    receipt: str | bytes, public_key: str | bytes | None = None
) -> Checked:
    """
    Check a *receipt*, and decide again from its history.

    With a *public_key* (Ed25519, PEM) the receipt must be signed by its owner.

    Raises:
        InvalidRequestError: It is no receipt, or was changed, or its signature does not hold; or the
            *public_key* is none.
        ConfigurationError: To check a signature, the extra ``receipts`` has to be installed.
    """
    content = receipt.encode() if isinstance(receipt, str) else receipt
    plain = parsed(content, _WHAT)
    text = plain.get("outcome")
    if plain.get("kind") != _KIND or not isinstance(text, str):
        raise InvalidRequestError(f"not {_WHAT}", hint=_ORIGINAL)
    signature = plain.get("signature")
    public = plain.get("public_key")
    if content != _file_of(text, signature, public):
        raise InvalidRequestError(_CHANGED, hint=_ORIGINAL)
    signed_by = _checked_signer(text, signature, public, public_key)
    intent, history, verdict = story_of(parsed(text, "an outcome"), "an outcome")
    now, reason = (
        None,
        "it has no history: a store gave the outcome back, or a person did",
    )
    if history:
        last = replay(intent, history)[-1][1]
        if isinstance(last, Done):
            now = str(last.verdict)
            reason = last.reason
        else:
            now = "none"
            reason = "the history ends before a verdict"
    return Checked(
        intent=intent,
        verdict=verdict,
        now=now,
        reason=reason,
        signed_by=signed_by,
    )


def _checked_signer(
    text: str,
    signature: object,
    public: object,
    wanted: str | bytes | None,
) -> str | None:
    """Return the key that has signed *text*, which must be the *wanted* one if there is one."""
    if signature is None and public is None:
        if wanted is not None:
            raise InvalidRequestError(
                "receipt: is not signed", hint="Ask its writer for a signed one."
            )
        return None
    if not isinstance(signature, str) or not isinstance(public, str):
        raise InvalidRequestError(_CHANGED, hint=_ORIGINAL)
    if wanted is not None and public != public_key_of(wanted):
        raise InvalidRequestError(
            "receipt: is signed by another key",
            hint="Ask its writer for the public key.",
        )
    if not _holds(text, signature, public):
        raise InvalidRequestError(
            f"{_CHANGED}: its signature does not hold", hint=_ORIGINAL
        )
    return public


# --- Ed25519, by the library of the extra


def _library() -> Any:  # Any: its modules
    try:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ModuleNotFoundError:
        raise ConfigurationError(f"receipt: {_EXTRA}") from None
    return InvalidSignature, serialization, ed25519


def _bytes(pem: str | bytes) -> bytes:
    if isinstance(pem, str):
        return pem.encode()
    return pem


def _signature_of(text: str, key: str | bytes) -> tuple[str, str]:
    """Return the signature of *text* by the private *key*, and its public key, in base64."""
    _, serialization, ed25519 = _library()
    private: Any = None  # Any: of the library
    with suppress(ValueError, TypeError):  # whose text may show a part of the key
        private = serialization.load_pem_private_key(_bytes(key), None)
    if not isinstance(private, ed25519.Ed25519PrivateKey):
        raise InvalidRequestError(
            "key: is no private key of Ed25519 in PEM without a password",
            hint="Make one with: openssl genpkey -algorithm ed25519",
        )
    signature = private.sign(_SIGNED + text.encode())
    public = private.public_key().public_bytes_raw()
    return b64encode(signature).decode(), b64encode(public).decode()


def public_key_of(key: str | bytes) -> str:
    """
    Return the public *key*, in PEM, as a receipt has it: raw, in base64.

    Raises:
        InvalidRequestError: It is none of Ed25519.
        ConfigurationError: The extra ``receipts`` is not installed.
    """
    _, serialization, ed25519 = _library()
    public: Any = None  # Any: of the library
    with suppress(ValueError):
        public = serialization.load_pem_public_key(_bytes(key))
    if not isinstance(public, ed25519.Ed25519PublicKey):
        raise InvalidRequestError(
            "public_key: is no public key of Ed25519 in PEM",
            hint="Make it with: openssl pkey -pubout -in KEY",
        )
    return b64encode(public.public_bytes_raw()).decode()


def _holds(text: str, signature: str, public: str) -> bool:
    """Return whether the *signature* of *text* by the *public* key holds."""
    invalid, _, ed25519 = _library()
    try:
        owner = ed25519.Ed25519PublicKey.from_public_bytes(b64decode(public))
        owner.verify(b64decode(signature), _SIGNED + text.encode())
    except (ValueError, invalid):
        return False
    return True
