# ruff: noqa: SLF001 - it mends another library, which has no public way in
"""
Let the library aioresponses stand in for the network under this client; it can prove nothing about faults.

aioresponses replaces the sending itself: it never writes a request's body, without which this client holds an
answer to be stale, gives its answers no length, without which they cannot be told from cut ones, and (0.7.9)
does not know an argument of newer aiohttp responses.
"""

from __future__ import annotations

import inspect
from types import SimpleNamespace
from typing import Any

import aiohttp
from aioresponses import aioresponses as _aioresponses
from aioresponses.core import RequestMatch

from invsvc_async.transport.send_gate import Gate

__all__ = ["aioresponses"]


class _Line:
    """A connection that swallows what is written to it."""

    should_close = False

    def __init__(self) -> None:
        self.transport = self
        self.protocol = self

    def is_closing(self) -> bool:
        return False

    def get_extra_info(self, _name: str) -> None:
        return None

    def abort(self) -> None:
        pass

    async def write(self, _part: bytes) -> None:
        pass


class aioresponses(_aioresponses):  # noqa: N801 - its users know it by this name
    """
    The library's class, usable with this client: ``with aioresponses() as mocked: mocked.get(url,
    payload=…)``.

    Bodies that the client sent are in ``mocked.requests`` as ``call.kwargs["data"]``: bytes.
    """

    async def _request_mock(
        self, orig_self: aiohttp.ClientSession, method: str, url: Any, *args: Any, **kwargs: Any
    ) -> Any:
        gates = [
            each
            for each in (kwargs.get("data"), *map(_owner, kwargs.get("middlewares") or ()))
            if isinstance(each, Gate)
        ]
        # The library keeps a deep copy of every call: of a body its bytes are wanted, of the headers
        # a form that can be copied.
        kwargs["headers"] = dict(kwargs.get("headers") or {})
        for gate in gates:
            gate.__deepcopy__ = lambda _, sent=gate.exchange.content: sent  # type: ignore[attr-defined]
        answered = await super()._request_mock(orig_self, method, url, *args, **kwargs)
        for gate in gates:
            if not gate.opened:  # it was not passed through to the network
                await gate.write_with_length(_Line(), None)  # type: ignore[arg-type]  # it stands in for a StreamWriter
        return answered


def _owner(middleware: Any) -> object:
    return getattr(middleware, "__self__", None)


def _mend(build: Any) -> Any:
    """Add what aioresponses leaves out of the answers that it makes."""
    takes_writer = "stream_writer" in inspect.signature(aiohttp.ClientResponse.__init__).parameters

    def built(self: RequestMatch, *args: Any, **kwargs: Any) -> Any:
        kind = kwargs.get("response_class") or aiohttp.ClientResponse
        if takes_writer:
            kwargs["response_class"] = lambda *a, **k: kind(
                *a, **{"stream_writer": SimpleNamespace(output_size=0), **k}
            )
        response = build(self, *args, **kwargs)
        if "Content-Length" not in response._headers:
            response._headers["Content-Length"] = str(
                len(response.content._buffer[0]) if response.content._buffer else 0
            )
        return response

    return built


setattr(RequestMatch, "_build_response", _mend(RequestMatch._build_response))  # noqa: B010 - a method
