# ruff: noqa: SLF001 - patches another library, which has no public hooks
"""
Adapter for the library aioresponses, which replaces the network for this client.

It cannot reproduce network faults.  The library replaces the sending itself.  It never writes a request's
body, so this client would take its answers for stale; its answers have no length, so they look truncated;
and (0.7.9) it lacks an argument of newer aiohttp responses.
"""

from __future__ import annotations

import inspect
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock, Mock

import aiohttp
from aioresponses import aioresponses as _aioresponses
from aioresponses.core import RequestMatch

from invsvc_async.transport.send_gate import Gate


def _line() -> Any:
    """Return a connection that discards all data."""
    line = Mock(should_close=False, write=AsyncMock())
    line.is_closing.return_value = False
    line.get_extra_info.return_value = None
    line.transport = line.protocol = line
    return line


class aioresponses(_aioresponses):  # noqa: N801 - the name that users know
    """
    The library's class for this client: ``with aioresponses() as mocked: mocked.get(url, payload=…)``.

    Request bodies are in ``mocked.requests`` as ``call.kwargs["data"]`` (bytes).
    """

    async def _request_mock(
        self,
        orig_self: aiohttp.ClientSession,
        method: str,
        url: Any,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        owners = (
            getattr(each, "__self__", None) for each in kwargs.get("middlewares") or ()
        )
        gates = [
            each for each in (kwargs.get("data"), *owners) if isinstance(each, Gate)
        ]
        # The library deep-copies every call, so bodies are replaced by their bytes, and headers by a dict.
        kwargs["headers"] = dict(kwargs.get("headers") or {})
        for gate in gates:
            gate.__deepcopy__ = lambda _, sent=gate.exchange.content: sent  # type: ignore[attr-defined]
        answered = await super()._request_mock(orig_self, method, url, *args, **kwargs)
        for gate in gates:
            if not gate.opened:  # not passed through to the network
                await gate.write_with_length(_line(), None)
        return answered


_build = RequestMatch._build_response
_TAKES_WRITER = (
    "stream_writer" in inspect.signature(aiohttp.ClientResponse.__init__).parameters
)


def _built(self: RequestMatch, *args: Any, **kwargs: Any) -> Any:
    """Add what aioresponses leaves out of its answers."""
    if _TAKES_WRITER:
        kind: Any = kwargs.get("response_class") or aiohttp.ClientResponse
        kwargs["response_class"] = partial(
            kind, stream_writer=SimpleNamespace(output_size=0)
        )
    response: Any = _build(self, *args, **kwargs)
    sent = response.content._buffer
    length = 0
    if sent:
        length = len(sent[0])
    response._headers.setdefault("Content-Length", str(length))
    return response


setattr(RequestMatch, "_build_response", _built)  # noqa: B010 - mypy rejects assigning to a method
