"""Keyword arguments that are passed on have the names and the types of the function that takes them."""

from __future__ import annotations

from inspect import signature
from typing import ForwardRef

import pytest

from invsvc_async import Client
from invsvc_async.client import ClientArguments, ClientKeywords, ClientSettings
from invsvc_async.events.stores import PostgresSettings
from invsvc_async.events.stores.postgres import PostgresStore
from invsvc_async.simulator import Simulator
from invsvc_async.simulator.service import SimulatorSettings


def declared(typed_dict):
    """Return the types of a TypedDict by name, as they are written."""
    return {
        name: kind.__forward_arg__ if isinstance(kind, ForwardRef) else kind
        for name, kind in typed_dict.__annotations__.items()
    }


def taken(function, *, but=()):
    """Return the types of the parameters of *function* by name, as they are written."""
    parameters = signature(function).parameters
    return {
        name: each.annotation for name, each in parameters.items() if name not in but
    }


@pytest.mark.parametrize(
    ("typed_dict", "function", "but"),
    [
        (ClientArguments, Client, ()),
        (ClientKeywords, Client, ("base_url", "credential")),
        (PostgresSettings, PostgresStore, ("dsn",)),
        (SimulatorSettings, Simulator, ()),
    ],
)
def test_arguments_are_those_of_the_function(typed_dict, function, but):
    assert declared(typed_dict) == taken(function, but=but)


def test_settings_from_the_environment():
    """Any argument of the client may be given beside the environment; none has to be."""
    assert declared(ClientSettings).keys() == taken(Client).keys()
    assert not ClientSettings.__required_keys__


def test_arguments_that_are_needed():
    """Those without a default are needed, and no others."""
    needed = {
        name
        for name, each in signature(Client).parameters.items()
        if each.default is each.empty
    }
    assert ClientArguments.__required_keys__ == needed
