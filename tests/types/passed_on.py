"""A misspelt or mistyped keyword argument in each marked line, of functions that pass it on. Not run."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_type

from invsvc_async import Client, Portal, Timeouts
from invsvc_async.events.stores import HandlerStore, open_store
from invsvc_async.testing import quick_client, serving

if TYPE_CHECKING:
    from invsvc_async.simulator import Simulator


class Own(Client):
    """A client of the application's own."""


def clients(service: Simulator) -> None:
    assert_type(Client.from_env(), Client)
    assert_type(Own.from_env(profile="live", journal="calls.db"), Own)
    _ = Client.from_env(base_url="https://host.example/v2", credential=None)
    _ = Client.from_env(jurnal="calls.db")  # wrong
    _ = Client.from_env(timeout=30)  # wrong
    _ = Client.from_env(profile="live", max_concurency=10)  # wrong
    _ = Portal(lambda: Client.from_env(jurnal="calls.db"))  # wrong
    assert_type(quick_client(service, timeout=Timeouts(call=9.0)), Client)
    _ = quick_client(service, tiemout=Timeouts(call=9.0))  # wrong
    _ = quick_client(service, journal=7)  # wrong


def services() -> None:
    with serving(seed=7, latency=0.1) as service:
        _ = service.base_url
    with serving(sed=7):  # wrong
        pass
    with serving(latency="0.1"):  # wrong
        pass


def stores() -> None:
    assert_type(open_store("events.db", table="mine", create=False), HandlerStore)
    _ = open_store("events.db", tabel="mine")  # wrong
    _ = open_store("events.db", connections="two")  # wrong
