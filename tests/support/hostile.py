"""
Answers that no honest service gives, as scripts for a server of bare sockets. A client must accept none of
them.
"""

from __future__ import annotations

import asyncio
import gzip

CAP = 1_500_000  # bytes: ``max_response_bytes`` of the clients that meet these
DEEP = 100_000
MANY_DIGITS = b"9" * 1_000_000


def head(*headers, status="200 OK", kind="application/json"):
    """Make the head of an answer."""
    lines = [f"HTTP/1.1 {status}", f"Content-Type: {kind}", *headers, "", ""]
    return "\r\n".join(lines).encode()


def whole(body, *headers, status="200 OK", kind="application/json"):
    """Make an answer that states the length of *body*."""
    return (
        head(f"Content-Length: {len(body)}", *headers, status=status, kind=kind) + body
    )


def enveloped(payload):
    """Return *payload*, in bytes, in the envelope of a success."""
    return b'{"success":true,"timestamp":1750000000000,"data":' + payload + b"}"


def once(*parts, end="fin"):
    """Make a script that answers each request with *parts*, then ends the connection."""

    async def script(peer):
        while await peer.arrival():
            await peer.send(*parts)
            if end:
                await peer.end(end)

    return script


def endless(first, part, pause=0.0):
    """
    Make a script that answers with *first*, then with *part* for ever.

    Without a *pause*, in seconds, virtual time hardly advances, so that only what ends at once ends soon.
    """

    async def script(peer):
        await peer.arrival()
        await peer.send(first)
        # on uvloop, sending would not raise an OSError
        while not peer.writer.transport.is_closing():
            await peer.send(part)
            # sleeps: in virtual time, or it is a peer that is slow
            await asyncio.sleep(pause)

    return script


def bomb():
    """Fold 64 MiB into 64 KiB."""
    return gzip.compress(bytes(64 * 2**20), compresslevel=9)


def chunks(*parts):
    """Make an answer in chunks, sizes and all as given."""
    return head("Transfer-Encoding: chunked") + b"".join(parts)


# What never becomes an answer: it is cut, too long, or no HTTP.
NEVER_WHOLE = {
    "headers without end": endless(
        b"HTTP/1.1 200 OK\r\n", b"X-More: " + b"y" * 4000 + b"\r\n"
    ),
    "one header without end": endless(b"HTTP/1.1 200 OK\r\nX-More: ", b"y" * 65536),
    "many small headers": endless(b"HTTP/1.1 200 OK\r\n", b"a: b\r\n" * 10_000),
    "a body without end": endless(
        head("Transfer-Encoding: chunked"), b"2000\r\n" + b"x" * 8192 + b"\r\n"
    ),
    "a length beyond the cap": endless(
        head("Content-Length: 999999999999"), b"x" * 65536
    ),
    "a length of a million digits": once(
        head(f"Content-Length: {MANY_DIGITS[:60_000].decode()}")
    ),
    "a bomb": once(whole(bomb(), "Content-Encoding: gzip")),
    "members without end": once(
        whole(gzip.compress(b"") * 70_000, "Content-Encoding: gzip")
    ),
    "streams without end": once(
        whole(b"\x03\x00" * 700_000, "Content-Encoding: deflate")
    ),
    "less than its length": once(head("Content-Length: 4000") + enveloped(b"{}")),
    "two lengths": once(
        head("Content-Length: 2", "Content-Length: 20") + enveloped(b"{}")
    ),
    "a negative length": once(head("Content-Length: -2") + b"{}"),
    "no length": once(head() + enveloped(b'{"id":"usr_1"}')),
    "chunks of no size": once(chunks(b"zz\r\n{}\r\n0\r\n\r\n")),
    "a chunk longer than said": once(
        chunks(b"2\r\n" + enveloped(b"{}") + b"\r\n0\r\n\r\n")
    ),
    "trailers without end": endless(
        chunks(b"2\r\n{}\r\n0\r\n"), b"X-More: y\r\n" * 500
    ),
    "another language": once(b"SSH-2.0-OpenSSH_9.2\r\n"),
    "a status of many digits": once(
        b"HTTP/1.1 2000000 OK\r\nContent-Length: 2\r\n\r\n{}"
    ),
    "HTTP/2's preface": once(
        b"\x00\x00\x12\x04\x00\x00\x00\x00\x00\x00\x03\x00\x00\x00\x80"
    ),
}

# What is no answer yet for as long as one waits: only the client's own time ends it.
NEVER_ENDING = {
    "a byte at a time": endless(head("Content-Length: 1000"), b" ", 0.05),
    "no byte at all": endless(b"", b"", 0.05),
    "interim answers without end": endless(
        b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 50, 0.001
    ),
    "hints without end": endless(
        b"", b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" * 50, 0.001
    ),
    "a chunk size without end": endless(chunks(), b"0" * 4096),
    "a chunk's remark without end": endless(chunks(b"2;"), b"x=y;" * 1024),
}

# Whole answers of HTTP 200 that say nothing.
SAYS_NOTHING = {
    "HTML": whole(b"<html><body>Welcome</body></html>", kind="text/html"),
    "nothing": whole(b""),
    "a bomb in a bomb": whole(gzip.compress(bomb()), "Content-Encoding: gzip, gzip"),
    "a field one level too deep": whole(
        enveloped(b'{"id":"usr_1","address":' + b"[" * 255 + b"]" * 255 + b"}")
    ),
    "arrays 100,000 deep": whole(enveloped(b"[" * DEEP + b"]" * DEEP)),
    "objects 100,000 deep": whole(b'{"a":' * DEEP + b"1" + b"}" * DEEP),
    "a cut document": whole(enveloped(b'{"id":"us')),
    "two documents": whole(enveloped(b"{}") * 2),
    "NaN": whole(enveloped(b"NaN")),
    "infinity": whole(enveloped(b"[-Infinity]")),
    "invalid UTF-8": whole(enveloped(b'{"id":"\xff\xfe"}')),
    "UTF-16": whole(enveloped(b"{}").decode().encode("utf-16")),
    "half a surrogate, raw": whole(enveloped(b'{"id":"\xed\xa0\x80"}')),
    "success that is no boolean": whole(b'{"success":"true","data":{}}'),
    "success that is false": whole(b'{"success":false,"data":{}}'),
    "success twice": whole(b'{"success":true,"data":{},"success":false}'),
    "an array": whole(b"[1,2,3]"),
}

# Whole answers with a payload that is odd in one field, and the addresses that are lost by it.
ODD_USERS = {
    "a number of a million digits": (
        b'{"id":"usr_1","created_at":' + MANY_DIGITS + b"}",
        ["$.created_at"],
    ),
    "a fraction of a million digits": (
        b'{"id":"usr_1","created_at":0.' + MANY_DIGITS + b"}",
        ["$.created_at"],
    ),
    "an unknown number of a million digits": (
        b'{"id":"usr_1","more":' + MANY_DIGITS + b"}",
        [],
    ),
    "an exponent beyond all": (
        b'{"id":"usr_1","created_at":1e999999999999}',
        ["$.created_at"],
    ),
    "a time beyond the calendar": (
        b'{"id":"usr_1","created_at":99999999999999999}',
        ["$.created_at"],
    ),
    "a time before it": (
        b'{"id":"usr_1","created_at":-99999999999999999}',
        ["$.created_at"],
    ),
    "a deep field": (
        b'{"id":"usr_1","address":' + b"[" * 254 + b"]" * 254 + b"}",
        ["$.address"],
    ),
    "another type": (b'{"id":"usr_1","teams":"team_1"}', ["$.teams"]),
    "a field twice": (b'{"id":"usr_0","id":"usr_1"}', []),
    "half a surrogate": (b'{"id":"usr_1","email":"\\ud83d"}', []),
    "unknown fields": (
        b'{"id":"usr_1",' + b",".join(b'"f%d":%d' % (n, n) for n in range(5000)) + b"}",
        [],
    ),
    "a name of Python's": (
        b'{"id":"usr_1","__class__":"x","__dict__":{},"extra":{"a":1},"problems":[1]}',
        [],
    ),
}
