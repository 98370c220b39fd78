"""
Raw requests that clients, proxies and strangers may send, and how each must be answered.

An event that is answered 2xx must be handled once, and one that is refused never, whatever server is in front.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import attrs

from tests.events.bodies import SECRET, SHARED, encoded, signed_body, v2
from tests.soak.servers.chaos import notes_in
from tests.soak.servers.sending import NO_ANSWER, exchange
from tests.soak.servers.setups import DEADLINE

if TYPE_CHECKING:
    from pathlib import Path

_AT_ONCE: Final = 3
_STARTS_WITHIN: Final = 60.0  # s
_HANDLED_WITHIN: Final = 30.0  # s

Headers = list[tuple[str, str]]


@attrs.frozen(kw_only=True)
class Probe:
    """
    One request, in *parts* with *pause* seconds between them.

    *answers*: the statuses that are right; empty: any that is no 2xx, or no answer; ``None``: either.
    *key*: of the event that is handled if the answer is 2xx.
    """

    name: str
    parts: tuple[bytes, ...]
    answers: frozenset[int] | None
    key: str | None
    pause: float

    def is_right(self, status: int) -> bool:
        """Return whether *status* may be the answer."""
        if self.answers is None:
            return True
        if not self.answers:
            return not 200 <= status < 300
        return status in self.answers


class _Maker:
    """Makes probes, each with an event of its own."""

    def __init__(self) -> None:
        self.made: list[Probe] = []

    def add(
        self,
        name: str,
        answers: frozenset[int] | None,
        *,
        headers: Headers | None = None,
        is_signed: bool = False,
        body: bytes | None = None,
        wire: bytes | None = None,
        length: str | None = "",
        method: str = "POST",
        target: str = "/events",
        version: str = "1.1",
        content_type: str = "application/json",
        cuts: tuple[int, ...] = (),
        pause: float = 0.0,
        has_key: bool = True,
    ) -> None:
        """Add a request: *wire* is what follows the head, by default the body; *length* "" is the right one."""
        number = 1000 + len(self.made)
        event = body if body is not None else self.event(number, is_signed=is_signed)
        given = [("X-Service-Signature", sign(event))] if is_signed else [SHARED]
        lines = [
            f"{method} {target} HTTP/{version}",
            "Host: me.example",
            f"Content-Type: {content_type}",
        ]
        if length is not None:
            lines.append(f"Content-Length: {length or len(event)}")
        for each, value in given if headers is None else headers:
            lines.append(f"{each}: {value.replace('SIGNATURE', sign(event))}")
        lines += ["Connection: close", "", ""]
        whole = "\r\n".join(lines).encode("latin-1") + (event if wire is None else wire)
        marks = [0, *(cut if cut > 0 else len(whole) + cut for cut in cuts), len(whole)]
        parts = tuple(whole[a:b] for a, b in pairwise(marks))
        key = f"evt_{number:016x}" if is_signed else f"dlv_{number}"
        kept = key if has_key else None
        self.made.append(
            Probe(name=name, parts=parts, answers=answers, key=kept, pause=pause)
        )

    def event(self, number: int, *, is_signed: bool) -> bytes:
        """Return the body of an event of its own."""
        return encoded(
            signed_body("sat.invoice.synced", number=number)
            if is_signed
            else v2("invoice.created", number=number)
        )

    def next_event(self) -> bytes:
        """Return the body that the next probe will have, to be cut into chunks."""
        return self.event(1000 + len(self.made), is_signed=False)


def sign(body: bytes) -> str:
    """Return the signature of *body*."""
    return f"sha256={hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()}"


def chunked(
    body: bytes, size: int, *, extension: str = "", trailers: str = ""
) -> bytes:
    """Return *body* in chunks of *size* bytes."""
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    lines = [
        f"{len(piece):x}{extension}\r\n".encode() + piece + b"\r\n" for piece in pieces
    ]
    return b"".join(lines) + f"0\r\n{trailers}\r\n".encode()


_TAKEN = frozenset({200})
_REFUSED: frozenset[int] = frozenset()
_EITHER = None
_NAME, _VALUE = SHARED
_CHUNKED = ("Transfer-Encoding", "chunked")


def _authentic(make: _Maker) -> None:
    """Add requests that must be taken."""
    make.add("shared header", _TAKEN)
    make.add("signature", _TAKEN, is_signed=True)
    make.add("both", _TAKEN, headers=[SHARED, ("X-Service-Signature", "SIGNATURE")])
    make.add(
        "spaces around the shared header", _TAKEN, headers=[(_NAME, f"  {_VALUE}  ")]
    )
    make.add(
        "tabs around the shared header", _TAKEN, headers=[(_NAME, f"\t{_VALUE}\t ")]
    )
    make.add(
        "spaces around the signature",
        _TAKEN,
        is_signed=True,
        headers=[("X-Service-Signature", "  SIGNATURE \t")],
    )
    make.add("names in upper case", _TAKEN, headers=[(_NAME.upper(), _VALUE)])
    make.add("names in lower case", _TAKEN, headers=[(_NAME.lower(), _VALUE)])
    make.add("charset", _TAKEN, content_type="application/json; charset=utf-8")
    make.add("type in upper case", _TAKEN, content_type="Application/JSON")
    make.add("identity", _TAKEN, headers=[SHARED, ("Content-Encoding", "identity")])
    make.add(
        "fifty further headers",
        _TAKEN,
        headers=[SHARED, *((f"X-Other-{n}", "x" * 20) for n in range(50))],
    )
    make.add("query", _TAKEN, target="/events?from=me")
    make.add("head in two pieces", _TAKEN, cuts=(25,), pause=0.2)
    make.add("body after its head", _TAKEN, cuts=(-40,), pause=0.2)
    make.add("HTTP/1.0", _TAKEN, version="1.0")
    make.add(
        "chunks",
        _TAKEN,
        headers=[SHARED, _CHUNKED],
        length=None,
        wire=chunked(make.next_event(), 50),
    )
    make.add(
        "chunks of a byte",
        _TAKEN,
        headers=[SHARED, _CHUNKED],
        length=None,
        wire=chunked(make.next_event(), 1),
    )
    make.add("expects 100", _TAKEN, headers=[SHARED, ("Expect", "100-continue")])
    make.add(
        "signed, no JSON",
        frozenset({202}),
        body=b"{",
        headers=[("X-Service-Signature", "SIGNATURE")],
        has_key=False,
    )


def _forged(make: _Maker) -> None:
    """Add requests that nothing authenticates."""
    refused = frozenset({401})
    make.add("no credential", refused, headers=[])
    make.add("wrong shared header", refused, headers=[(_NAME, "guessed")])
    make.add(
        "shared header with another case", refused, headers=[(_NAME, _VALUE.upper())]
    )
    make.add("shared header twice", _REFUSED, headers=[SHARED, SHARED])
    make.add(
        "right and wrong shared header", _REFUSED, headers=[SHARED, (_NAME, "guessed")]
    )
    make.add(
        "empty signature",
        refused,
        is_signed=True,
        headers=[("X-Service-Signature", "")],
    )
    make.add(
        "signature by SHA-1",
        refused,
        is_signed=True,
        headers=[("X-Service-Signature", "sha1=00")],
    )
    make.add(
        "signature of other bytes",
        refused,
        is_signed=True,
        headers=[("X-Service-Signature", sign(b"other"))],
    )
    make.add(
        "signature twice",
        _REFUSED,
        is_signed=True,
        headers=[("X-Service-Signature", "SIGNATURE")] * 2,
    )
    make.add(
        "shared header and a wrong signature",
        refused,
        headers=[SHARED, ("X-Service-Signature", sign(b"x"))],
    )
    make.add(
        "folded shared header",
        _REFUSED,
        headers=[(_NAME, f"{_VALUE[:6]}\r\n {_VALUE[6:]}")],
    )
    make.add("NUL in the shared header", _REFUSED, headers=[(_NAME, f"{_VALUE}\0")])


def _odd(make: _Maker) -> None:
    """Add requests that are refused for their form, although they are authentic."""
    make.add("GET", frozenset({405}), method="GET")
    make.add("PUT", frozenset({405}), method="PUT")
    make.add("text", frozenset({415}), content_type="text/plain")
    make.add("gzip", frozenset({415}), headers=[SHARED, ("Content-Encoding", "gzip")])
    make.add("too many bytes", frozenset({413, NO_ANSWER}), length=str(2**30))
    make.add("negative length", _REFUSED, length="-1")
    make.add("two lengths", _REFUSED, headers=[SHARED, ("Content-Length", "3")])
    make.add(
        "length and chunks",
        _EITHER,
        headers=[SHARED, _CHUNKED],
        wire=chunked(make.next_event(), 50),
    )
    make.add(
        "chunk of no size",
        _REFUSED,
        headers=[SHARED, _CHUNKED],
        length=None,
        wire=b"zz\r\n{}\r\n0\r\n\r\n",
    )
    make.add("body that ends early", _REFUSED, length="5000")
    # Waitress reads a body before it calls the application, which has its own time then.
    make.add("body that comes too late", _EITHER, cuts=(-10,), pause=DEADLINE + 3.0)


def _all() -> list[Probe]:
    make = _Maker()
    _authentic(make)
    _forged(make)
    _odd(make)
    return make.made


PROBES: Final = _all()


async def wrong_answers(port: int, notes: Path) -> list[str]:
    """Send each request to a server; return in words what was answered or handled as it must not be."""
    await _until_started(port)
    room = asyncio.Semaphore(_AT_ONCE)

    async def sent(probe: Probe) -> int:
        async with room:
            return await exchange(port, *probe.parts, pause=probe.pause)

    statuses = await asyncio.gather(*map(sent, PROBES))
    answered = list(zip(PROBES, statuses, strict=True))
    wanted = {
        probe.key for probe, status in answered if 200 <= status < 300 and probe.key
    }
    await _until_handled(notes, wanted)
    begun = [each.key for each in notes_in(notes) if each.word == "begin"]
    wrong = []
    for probe, status in answered:
        times = begun.count(probe.key) if probe.key else 0
        expected = 1 if probe.key in wanted else 0
        if not probe.is_right(status):
            wrong.append(f"{probe.name}: answered {status}")
        elif times != expected:
            wrong.append(f"{probe.name}: answered {status}, handled {times} times")
    return wrong


async def _until_started(port: int) -> None:
    """Wait until the server answers."""
    async with asyncio.timeout(_STARTS_WITHIN):
        while await exchange(port, PROBES[0].parts[0]) != 200:  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.2)


async def _until_handled(notes: Path, wanted: set[str]) -> None:
    loop = asyncio.get_running_loop()
    until = loop.time() + _HANDLED_WITHIN
    while loop.time() < until:
        if not wanted - {each.key for each in notes_in(notes) if each.word == "end"}:
            break
        await asyncio.sleep(0.2)
    await asyncio.sleep(1.0)  # for what is handled although it was refused
