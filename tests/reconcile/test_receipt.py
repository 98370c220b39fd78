"""Receipts: what is in them, that a changed byte is noticed, and that the verdict is decided again."""

from __future__ import annotations

import json
import sys

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from invsvc_async import ConfigurationError, InvalidRequestError
from invsvc_async.reconcile.receipt import check_receipt, receipt_of

pytestmark = pytest.mark.one_python

EVENTS = ["invoice.created"]


def pair(private=None):
    """Return a private key and its public one, in PEM; of Ed25519, unless one is given."""
    private = private or Ed25519PrivateKey.generate()
    return (
        private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
        private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
    )  # fmt: skip


OURS, OUR_PUBLIC = pair()
THEIRS, THEIR_PUBLIC = pair()
ELLIPTIC, ELLIPTIC_PUBLIC = pair(ec.generate_private_key(ec.SECP256R1()))


@pytest.fixture
async def outcome(client, service):
    """Return the outcome of a create whose answer was lost."""
    service.script("webhooks.create", "apply, then reset")
    write = client.webhooks.create(url="https://me.example/in", events=EVENTS, tag=True)
    return await write.outcome()


@pytest.mark.parametrize(
    ("step", "verdict"),
    [("pass", "applied"), ("apply, then reset", "applied"), ("reset", "applied"), ("403", "refused")],
)  # fmt: skip
async def test_verdict_follows(client, service, step, verdict):
    """Whatever a write's fate was, its verdict follows from the history in the receipt."""
    service.script("webhooks.create", step)
    outcome = await client.webhooks.create(
        url="https://me.example/in", events=EVENTS, tag=True
    ).outcome()
    found = check_receipt(outcome.receipt())

    assert (found.verdict, found.now, found.follows) == (verdict, verdict, True)
    assert (found.intent, found.reason) == (outcome.started_as, outcome.message)
    assert found.signed_by is None


async def test_unknown(client, service):
    """Also that it is unknown."""
    service.script("sheets.save_mapping", "reset")
    found = check_receipt(
        (await client.sheets.save_mapping({"a": "b"}).outcome()).receipt()
    )

    assert (found.verdict, found.follows) == ("unknown", True)


async def test_each_changed_byte_is_noticed(outcome):
    """Of a receipt with a signature, and of one without; also a byte more or less."""
    for receipt, key in (
        (outcome.receipt(), None),
        (outcome.receipt(OURS), OUR_PUBLIC),
    ):
        content = receipt.encode()
        assert check_receipt(content, key).follows
        for place in range(len(content)):
            for change in (1, 32):
                changed = bytearray(content)
                changed[place] ^= change
                with pytest.raises(InvalidRequestError):
                    check_receipt(bytes(changed), key)
        for changed in (content + b"\n", content[:-1], b" " + content, b""):
            with pytest.raises(InvalidRequestError):
                check_receipt(changed, key)


async def test_signature(outcome):
    """It holds for the owner of the key alone, and a receipt without one is not taken for signed."""
    signed = outcome.receipt(OURS.decode())
    found = check_receipt(signed, OUR_PUBLIC.decode())

    assert found.signed_by == check_receipt(signed).signed_by
    assert found.signed_by in signed
    with pytest.raises(InvalidRequestError, match="is signed by another key"):
        check_receipt(signed, THEIR_PUBLIC)
    with pytest.raises(InvalidRequestError, match="is not signed"):
        check_receipt(outcome.receipt(), OUR_PUBLIC)


async def test_forged(outcome):
    """Another verdict does not follow; without the key, nobody can sign it."""
    plain = json.loads(outcome.to_json()) | {"verdict": "not applied"}
    forged = receipt_of(json.dumps(plain))

    found = check_receipt(forged)
    assert (found.verdict, found.now, found.follows) == (
        "not applied",
        "applied",
        False,
    )
    mine, theirs = json.loads(outcome.receipt(OURS)), json.loads(forged)
    mixed = {**theirs, "signature": mine["signature"], "public_key": mine["public_key"]}
    with pytest.raises(InvalidRequestError, match="signature does not hold"):
        check_receipt(
            json.dumps(mixed, separators=(",", ":"), ensure_ascii=False) + "\n",
            OUR_PUBLIC,
        )


async def test_no_history(outcome):
    """What a store gave back cannot be decided again, and that is told."""
    plain = json.loads(outcome.to_json()) | {"history": []}
    found = check_receipt(receipt_of(json.dumps(plain)))

    assert (found.now, found.follows) == (None, None)
    assert "no history" in found.reason


async def test_history_that_ends_early(outcome):
    """No verdict follows from a part of it."""
    plain = json.loads(outcome.to_json())
    plain["history"] = plain["history"][:1]
    found = check_receipt(receipt_of(json.dumps(plain)))

    assert (found.now, found.follows) == ("none", False)


async def test_no_secret(client, service):
    """The token and the secret of the new webhook are not in it, nor is the private key."""
    outcome = await client.webhooks.create(
        url="https://me.example/in", events=EVENTS
    ).outcome()
    receipt = outcome.receipt(OURS)

    assert service.secret_of(outcome.value.id) == outcome.value.secret
    assert outcome.value.secret not in receipt
    assert service.api_key not in receipt
    assert OURS.decode().splitlines()[1] not in receipt


@pytest.mark.parametrize(
    "key", [b"", b"no key", OUR_PUBLIC, OURS.replace(b"M", b"N", 1), ELLIPTIC]
)
async def test_wrong_private_key(outcome, key):
    with pytest.raises(InvalidRequestError, match="key: is no private key of Ed25519"):
        outcome.receipt(key)


@pytest.mark.parametrize("key", [b"", b"no key", OURS, ELLIPTIC_PUBLIC])
async def test_wrong_public_key(outcome, key):
    with pytest.raises(InvalidRequestError, match="public_key: is no public key"):
        check_receipt(outcome.receipt(OURS), key)


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", "no receipt", '{"schema":1}', '{"verdict":"applied"}']
)
def test_something_else(text):
    with pytest.raises(InvalidRequestError):
        check_receipt(text)


async def test_newer_version(outcome):
    newer = outcome.receipt().replace('"schema":1', '"schema":2', 1)
    with pytest.raises(InvalidRequestError, match="version"):
        check_receipt(newer)


def test_receipt_of_something_else():
    outcome_text = '{"schema":1}'
    with pytest.raises(InvalidRequestError, match="not an outcome"):
        receipt_of(outcome_text)


async def test_extra_is_missing(outcome, monkeypatch):
    """Without it, receipts are made and checked, but not signatures; the error names the extra."""
    signed = outcome.receipt(OURS)
    monkeypatch.setitem(sys.modules, "cryptography.exceptions", None)

    assert check_receipt(outcome.receipt()).follows
    for call in (lambda: outcome.receipt(OURS), lambda: check_receipt(signed)):
        with pytest.raises(ConfigurationError, match="its extra 'receipts'"):
            call()
