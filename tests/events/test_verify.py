"""Who is believed: signatures, the shared header, and the caller's explicit word."""

from __future__ import annotations

import copy
import hashlib
import hmac
import pickle
import traceback
from itertools import product

import pytest
from multidict import CIMultiDict

from invsvc_async import events
from invsvc_async.errors import (
    ConfigurationError,
    EventError,
    MalformedEventError,
    SignatureMismatchError,
    SignatureMissingError,
    UnauthenticatedEventError,
)
from invsvc_async.events.event import head_of
from tests.events.bodies import (
    HEADER,
    SECRET,
    SHARED,
    SIGNED_TYPES,
    encoded,
    headers_of,
    signature,
    signed_body,
    v1,
    v2,
    v11,
)

pytestmark = pytest.mark.one_python

BODY = encoded(signed_body("sat.invoice.synced"))
HEX = hmac.new(SECRET.encode(), BODY, hashlib.sha256).hexdigest()


def test_public_example_of_another_provider() -> None:
    """The well-known example of HMAC-SHA256 over a body verifies."""
    given = {
        "X-Service-Signature": "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    }

    events.verify(b"Hello, World!", given, "It's a Secret to Everybody")

    with pytest.raises(SignatureMismatchError):
        events.verify(b"Hello, World?", given, "It's a Secret to Everybody")


@pytest.mark.parametrize(
    "secrets",
    [SECRET, SECRET.encode(), [SECRET], ("old", SECRET), [b"old", SECRET, "new"]],
)
def test_signature_under_several_secrets(secrets) -> None:
    """Any of the secrets will do, in any form."""
    events.verify(BODY, signature(BODY), secrets)


@pytest.mark.parametrize("cls", [bytearray, memoryview])
def test_signature_over_another_buffer(cls) -> None:
    """Any buffer of bytes can be verified."""
    events.verify(cls(BODY), signature(BODY), SECRET)


@pytest.mark.parametrize(
    "headers",
    [
        {"x-service-signature": f"sha256={HEX}"},
        {"X-SERVICE-SIGNATURE": f"sha256={HEX}"},
        CIMultiDict({"X-Service-Signature": f"sha256={HEX}"}),
        [("X-Service-Signature", f"sha256={HEX}")],
        [(b"x-service-signature", f"sha256={HEX}".encode())],
    ],
)
def test_signature_in_headers_of_any_framework(headers) -> None:
    """The header is found in any case, in mappings and in pairs."""
    events.verify(BODY, headers, SECRET)


async def test_headers_that_can_be_walked_once() -> None:
    """An iterator serves every look that is taken at the headers."""
    body = encoded(v2("invoice.created", test=True))
    pairs = [(b"x-shared", SHARED[1].encode()), (b"x-service-test", b"true")]

    event = events.read(body, iter(pairs), secrets=SECRET, shared_header=HEADER)
    receipt = await events.Receiver(secrets=SECRET, shared_header=HEADER).receive(
        body, iter(pairs)
    )

    assert event.is_test
    assert (receipt.status, receipt.outcome) == (200, "test")


@pytest.mark.parametrize(
    "value",
    [
        HEX,
        f"sha1={HEX}",
        f"SHA256={HEX}",
        f"sha256={HEX.upper()}",
        f"sha256={HEX[:-1]}",
        f"sha256={HEX}0",
        f"sha256={HEX}, sha256={HEX}",
        f"sha256={HEX}\n",
        "sha256=",
        "",
        "sha256=ü",
        "sha256=\ud800",
        f"sha256={'0' * 64}",
    ],
)
def test_signature_in_another_form(value: str) -> None:
    """Whatever is not exactly the specified form is a mismatch."""
    with pytest.raises(SignatureMismatchError):
        events.verify(BODY, {"X-Service-Signature": value}, SECRET)


@pytest.mark.parametrize(
    "headers",
    [
        CIMultiDict([("X-Service-Signature", f"sha256={HEX}")] * 2),
        [("X-Service-Signature", f"sha256={HEX}"), ("x-service-signature", "sha256=0")],
        {
            "X-Service-Signature": f"sha256={HEX}",
            "x-service-signature": f"sha256={HEX}",
        },
    ],
)
def test_signature_that_came_twice(headers) -> None:
    """Of two signatures none counts, even where both are right."""
    with pytest.raises(SignatureMismatchError):
        events.verify(BODY, headers, SECRET)


@pytest.mark.parametrize("secret", ["", SECRET + "\n", " " + SECRET])
def test_signature_by_a_secret_that_cannot_be_one(secret) -> None:
    """It does not count, although it fits."""
    found = hmac.new(secret.encode(), BODY, hashlib.sha256).hexdigest()
    with pytest.raises(ConfigurationError):
        events.verify(BODY, {"X-Service-Signature": f"sha256={found}"}, secret)


@pytest.mark.parametrize("value", [5, None, ["sha256="]])
def test_signature_that_is_no_text(value) -> None:
    """It fits nothing."""
    with pytest.raises(SignatureMismatchError):
        events.verify(BODY, {"X-Service-Signature": value}, SECRET)


def test_signature_that_is_missing() -> None:
    """No header is not the same as a wrong one."""
    for headers in (None, {}, [], {"X-Service-Event": "sat.invoice.synced"}):
        with pytest.raises(SignatureMissingError):
            events.verify(BODY, headers, SECRET)


@pytest.mark.parametrize("secrets", [(), []])
def test_signature_without_a_secret(secrets) -> None:
    """Without a secret nothing can be verified."""
    with pytest.raises(SignatureMismatchError, match="without a secret"):
        events.verify(BODY, signature(BODY), secrets)


@pytest.mark.parametrize(
    "secrets", ["", b"", [""], [SECRET, ""], [None], [5], "\ud800"]
)
def test_secret_that_is_none(secrets) -> None:
    """An empty secret would let anybody sign, and is refused at once."""
    for call in (
        events.verify,
        lambda body, headers, given: events.read(body, headers, secrets=given),
    ):
        if secrets in ("", b"") or secrets:
            with pytest.raises(ConfigurationError):
                call(BODY, signature(BODY), secrets)


def test_signature_over_a_decoded_body() -> None:
    """A text cannot be verified, for other bytes may have been signed."""
    with pytest.raises(SignatureMismatchError, match="raw"):
        events.verify(BODY.decode(), signature(BODY), SECRET)  # type: ignore[arg-type]


CASES = list(
    product(
        ["none", "right", "wrong"],
        ["none", "right", "wrong"],
        [True, False],
        [True, False],
        [True, False],
    )
)


@pytest.mark.parametrize("name", ["invoice.created", "robot.painted", *SIGNED_TYPES])
@pytest.mark.parametrize(
    ("signed", "shared", "has_secret", "has_shared", "accept"), CASES
)
def test_trust_in_every_combination(
    name: str,
    signed: str,
    shared: str,
    has_secret: bool,
    has_shared: bool,
    accept: bool,
) -> None:
    """What is there must be right, what must be there is not waived but by the explicit word."""
    must_sign = name in SIGNED_TYPES
    body = encoded(signed_body(name) if must_sign else v2(name))
    headers = headers_of(body)
    if signed != "none":
        headers |= signature(body, SECRET if signed == "right" else "another")
    if shared != "none":
        headers[SHARED[0]] = SHARED[1] if shared == "right" else "guessed"

    expected: type[EventError] | None
    if signed != "none" and (has_secret or not accept):
        expected = None if signed == "right" and has_secret else SignatureMismatchError
    elif must_sign:
        expected = None if accept and not has_secret else SignatureMissingError
    elif has_shared:
        expected = None if shared == "right" else UnauthenticatedEventError
    else:
        expected = None if accept else UnauthenticatedEventError

    def read() -> events.Event:
        return events.read(
            body,
            headers,
            secrets=[SECRET] if has_secret else (),
            shared_header=HEADER if has_shared else None,
            accept_unsigned=accept,
        )

    if expected is None:
        assert read().type == name
    else:
        with pytest.raises(expected):
            read()


@pytest.mark.parametrize("name", SIGNED_TYPES)
@pytest.mark.parametrize("marks", ["resource", "none"])
def test_signed_type_without_a_signature(name: str, marks: str) -> None:
    """The body alone decides whether a signature is required, whatever the headers contain."""
    headers = {"X-Service-Event": "invoice.created"} if marks == "resource" else {}

    with pytest.raises(SignatureMissingError):
        events.read(
            encoded(signed_body(name)), headers, secrets=SECRET, shared_header=HEADER
        )


def test_event_header_that_disagrees_with_a_signed_body() -> None:
    """The body wins over X-Service-Event."""
    headers = {**signature(BODY), "X-Service-Event": "invoice_batch.completed"}

    assert events.read(BODY, headers, secrets=SECRET).type == "sat.invoice.synced"


def test_signed_type_in_the_dress_of_a_resource() -> None:
    """A forger cannot escape the signature by another form of body."""
    for body in (
        v2("sat.invoice.synced"),
        v11("sat.invoice.synced"),
        {"payload": signed_body("sat.invoice.synced")},
    ):
        with pytest.raises(MalformedEventError):
            events.read(
                encoded(body), dict([SHARED]), secrets=SECRET, shared_header=HEADER
            )
    twice = b'{"event":"payment.created","event":"sat.invoice.synced","id":"evt_1","data":{"a":1}}'
    for body in (encoded(v1("sat.invoice.synced", id="evt_1")), twice):
        with pytest.raises(SignatureMissingError):
            events.read(body, dict([SHARED]), secrets=SECRET, shared_header=HEADER)


@pytest.mark.parametrize("make", [v1, v11, v2])
def test_test_event_that_is_read_by_hand(make) -> None:
    """Test marks change nothing in read, because its caller may not look at them."""
    body = encoded(make("invoice.created", test=True))

    with pytest.raises(UnauthenticatedEventError):
        events.read(
            body, headers_of(body, test=True), secrets=SECRET, shared_header=HEADER
        )


@pytest.mark.parametrize(
    "value", ["agreed-in-the- dashboard", "Agreed-in-the-dashboard", "ü", "\ud800", ""]
)
def test_shared_header_of_another_value(value: str) -> None:
    """Only the very value counts, and no text breaks the comparison."""
    assert not HEADER.matches({SHARED[0]: value})


def test_shared_header_that_came_twice() -> None:
    """Of two values none counts."""
    assert not HEADER.matches([SHARED, SHARED])
    assert HEADER.matches([SHARED])


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        *((name, "x", None) for name in ("", "a b", "a:", "ü", 5)),
        *(("a", value, None) for value in ("", "ü", " x", None)),
        ("a", "x\n", "line break"),  # as of a file
    ],
)
def test_shared_header_that_cannot_be_one(name, value, words: str | None) -> None:
    """A header that HTTP could not carry is refused where it is configured."""
    with pytest.raises(ConfigurationError, match=words):
        events.SharedHeader(name, value)


def test_secrets_in_reprs_and_messages() -> None:
    """Neither secrets nor signatures show in a repr or in an error, pickled ones included."""
    shown = [repr(HEADER)]
    for headers in (
        {"X-Service-Signature": f"sha256={HEX[::-1]}", **dict([SHARED])},
        {},
    ):
        try:
            events.read(BODY, headers, secrets=SECRET, shared_header=HEADER)
        except EventError as error:
            shown += [repr(error), str(error), repr(pickle.dumps(error))]
    assert len(shown) == 7
    for text in shown:
        assert SECRET not in text
        assert SHARED[1] not in text
        assert HEX[::-1] not in text


def test_shared_headers_during_a_rotation() -> None:
    """Each of several shared headers authenticates, of one name or of two, and no other does."""
    pair = [
        HEADER,
        events.SharedHeader(SHARED[0], "new"),
        events.SharedHeader("X-Other", "new"),
    ]
    body = encoded(v2("invoice.created"))
    for header in pair:
        assert (
            events.read(body, {header.name: header.value}, shared_header=pair).type
            == "invoice.created"
        )
        events.read(body, {header.name: header.value}, shared_header=tuple(pair))
    for headers in ({SHARED[0]: "newer"}, {"X-Other": SHARED[1]}, {}):
        with pytest.raises(UnauthenticatedEventError, match=f"{SHARED[0]} or X-Other"):
            events.read(body, headers, shared_header=pair)


@pytest.mark.parametrize(
    "given",
    [SHARED, ":".join(SHARED), [SHARED], {"X-Key": "agreed"}, 5, [HEADER, None]],
)
def test_shared_header_of_another_type(given) -> None:
    """A tuple or a text in the place of a SharedHeader is refused before any delivery."""
    with pytest.raises(ConfigurationError, match="SharedHeader"):
        events.Receiver(secrets=SECRET, shared_header=given)
    with pytest.raises(ConfigurationError, match="SharedHeader"):
        events.read(BODY, signature(BODY), secrets=SECRET, shared_header=given)


def test_text_instead_of_a_flag() -> None:
    """A text, as from the environment, does not accept unsigned events."""
    with pytest.raises(ConfigurationError, match="accept_unsigned"):
        events.read(BODY, {}, accept_unsigned="false")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "secrets", [None, 5, {"a": "b"}, SECRET + "\n", [SECRET, SECRET + "\r\n"], b" x"]
)
def test_secret_of_another_kind_or_from_a_file(secrets) -> None:
    """A secret that could fit no signature is refused before any delivery, in words."""
    with pytest.raises(
        ConfigurationError, match=r"secrets: .*(white space|not a text)"
    ):
        events.Receiver(secrets=secrets)


@pytest.mark.parametrize("make", [v1, v11, v2])
@pytest.mark.parametrize("proof", [signature, lambda _: dict([SHARED])])
def test_test_header_of_an_authentic_event(make, proof) -> None:
    """The header is not signed: alone it does not make an authentic event a test."""
    body = encoded(make("invoice.created"))
    headers = {**proof(body), "X-Service-Test": "true"}

    assert not events.read(body, headers, secrets=SECRET, shared_header=HEADER).is_test


def _locals_of(call) -> str:
    """Return the local variables of this package's frames in the traceback of what *call* raises."""
    with pytest.raises(Exception) as caught:  # noqa: PT011 - each call raises another one
        call()
    frames = traceback.walk_tb(caught.value.__traceback__)
    ours = [
        frame for frame, _ in frames if "invsvc_async" in frame.f_globals["__name__"]
    ]
    assert ours
    return repr([frame.f_locals for frame in ours])


@pytest.mark.parametrize(
    "call",
    [
        lambda: events.verify(BODY, {"X-Service-Signature": "sha256=0"}, ["hidden"]),
        lambda: events.verify(
            BODY, {"X-Service-Signature": "sha256=0"}, ["", "hidden"]
        ),
        lambda: events.read(
            BODY, {}, secrets="hidden", shared_header=events.SharedHeader("X", "hidden")
        ),
        lambda: events.read(b"", signature(b"", "hidden"), secrets=["hidden"]),
        lambda: events.read(BODY, {}, secrets="hidden\n"),
        lambda: events.read(BODY, {}, shared_header=("X", "hidden")),
        lambda: events.Receiver(secrets=["hidden"], mode="outbox"),
        lambda: events.Receiver(secrets=["hidden\n"]),
        lambda: events.Receiver(secrets=(), shared_header=("X", "hidden")),
        lambda: events.SharedHeader("X", "hidden\n"),
    ],
)
def test_secrets_in_tracebacks(call) -> None:
    """Tools that show the local variables of a traceback show no secret."""
    assert "hidden" not in _locals_of(call)


@pytest.mark.parametrize(
    "given",
    [
        {"Content-Type": "a", "X-One": "b"},
        [("Content-Type", "a"), ("X-One", "b")],
        [(b"content-type", b"a"), (b"x-one", b"b")],
        CIMultiDict({"Content-Type": "a", "X-One": "b"}),
    ],
)
def test_headers_by_name(given) -> None:
    """They are found by their names in lower case, in whichever form and case they came."""
    found = head_of(given)

    assert (found.get("content-type"), found.get("x-one"), found.get("x-two")) == (
        "a",
        "b",
        None,
    )
    assert head_of(found) is found


@pytest.mark.parametrize("blanks", [" ", "\t", " \t  "])
async def test_headers_with_blanks_around_them(blanks) -> None:
    """Blanks around a value are no part of it, although some servers leave them."""
    body = encoded(signed_body("sat.invoice.synced"))
    [(name, value)] = signature(body).items()
    signed = f"{blanks}{value}{blanks}"
    shared = {SHARED[0]: f"{blanks}{SHARED[1]}{blanks}"}

    events.verify(body, {name: signed}, SECRET)
    events.verify(body, [(name, signed)], SECRET)
    assert (
        events.read(
            encoded(v2("invoice.created")), shared, secrets=(), shared_header=HEADER
        ).id
        == "dlv_1"
    )


@pytest.mark.parametrize("secret", [events.Secret("hush"), HEADER])
@pytest.mark.parametrize("copying", [pickle.dumps, copy.copy, copy.deepcopy])
def test_secret_that_is_pickled(secret, copying) -> None:
    """A pickle would show it; like a client's credential, it is made where it is needed."""
    with pytest.raises(TypeError, match="cannot be pickled"):
        copying(secret)


def test_headers_in_a_repr() -> None:
    """The names are shown, the values are not: one may be a secret."""
    assert (
        repr(head_of({"X-One": "hush", "X-Two": "x"})) == "<the headers x-one, x-two>"
    )


@pytest.mark.parametrize(
    "given",
    [
        [("X-One", "a"), ("x-one", "a")],
        {"X-One": "a", "x-one": "a"},
        [(b"X-One", b"a"), ("x-one", "a")],
    ],
)
def test_headers_by_name_that_came_twice(given) -> None:
    """Such a header has a value that nothing accepts."""
    assert head_of(given).get("x-one") == ""
