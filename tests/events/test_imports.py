"""What importing the package of events costs, and what it must not load."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from invsvc_async import events

pytestmark = pytest.mark.one_python

CODE = """
import sys
import invsvc_async.events as events
events.SharedHeader, events.parse, events.read, events.verify, events.ResourceEvent
print(*sorted({"aiohttp.web", "sqlite3", "asyncpg", "invsvc_async.events.receiving.receiver", "invsvc_async.models.invoices"} & set(sys.modules)))
"""


def test_import_of_events() -> None:
    """Importing the package loads no web framework, no database, no receiver and no model."""
    plain = {
        name: value for name, value in os.environ.items() if not name.startswith("COV")
    }  # it loads sqlite3
    command = [sys.executable, "-c", CODE]
    found = subprocess.run(  # noqa: S603
        command, capture_output=True, text=True, check=True, env=plain
    )

    assert found.stdout.strip() == ""


@pytest.mark.parametrize("name", sorted(events.__all__))
def test_public_name(name: str) -> None:
    """Every public name can be had, and tells what it is for."""
    assert getattr(events, name).__doc__


def test_name_that_is_none() -> None:
    """A name that does not exist raises AttributeError."""
    with pytest.raises(AttributeError, match="no attribute 'Reciever'"):
        _ = events.Reciever
