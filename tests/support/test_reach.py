"""The check of sleeps, changes and private names sees what it is for; ``nox -s lint`` runs it on the tests."""

import pytest

from tests.support import reach
from tests.support.reach import CHANGE, PRIVATE, SLEEP, Found, judged, without_comment

pytestmark = pytest.mark.one_python

PRIVATES = frozenset({"_pool", "_store"})


def found_in(text, **options):
    return [
        (each.kind, each.name)
        for each in reach.occurrences("tests/test_x.py", text, PRIVATES, **options)
    ]


@pytest.mark.parametrize(
    ("text", "kind", "name"),
    [
        ("import asyncio\nasyncio.sleep(0.1)", SLEEP, "0.1"),
        ("import time\ntime.sleep(pause)", SLEEP, "pause"),
        ("from time import sleep\nsleep(1)", SLEEP, "1"),
        ("client._store.rows()", PRIVATE, "_store"),
        ("getattr(client, '_store', None)", PRIVATE, "_store"),
        ("from invsvc_async.storage import _other", PRIVATE, "_other"),
        ("monkeypatch.setattr('invsvc_async.client.X', 1)", CHANGE, "X"),
        ("monkeypatch.setattr(client, 'put', 1)", CHANGE, "put"),
        ("patch.object(client, 'put')", CHANGE, "put"),
        ("from invsvc_async import client\nclient.X = 1", CHANGE, "X"),
        ("from invsvc_async import client\nclient._X = 1", CHANGE, "_X"),
    ],
)
def test_what_is_found(text, kind, name):
    """Whatever way it is written."""
    assert found_in(text) == [(kind, name)]


@pytest.mark.parametrize(
    "text",
    [
        "import asyncio\nasyncio.sleep(0)",
        "class A:\n    def a(self): self._store = self._pool = 1",
        "import x\nx._store",
        "import asyncio\ndef f():\n    loop = asyncio.get_running_loop()\n    loop._pool",
        "import time\nmonkeypatch.setattr(time, 'time', 1)",
        "monkeypatch.setattr('sys.stdin', 1)",
        "client._other",
        "outcome._repr_html_()",
    ],
)
def test_what_is_not(text):
    """No time, one's own names, those of others, and protocols."""
    assert found_in(text) == []


def test_class_that_derives_from_the_package():
    """Its own names are those that it defines; the others are the package's."""
    text = """
from invsvc_async.client import Client
class Mine(Client):
    def a(self):
        self._store = 1
        return self._pool
"""
    assert found_in(text) == [(PRIVATE, "_pool")]


@pytest.mark.parametrize(
    ("mark", "inherited", "is_real"),
    [
        ("", False, True),
        ("", True, False),
        ("@pytest.mark.loop_time", False, False),
        ("@pytest.mark.real_time", True, True),
        ("@pytest.mark.steady_time", False, True),
    ],
)
def test_virtual_time(mark, inherited, is_real):
    """A sleep of a test in virtual time is none."""
    text = f"import asyncio\n{mark}\nasync def test():\n    await asyncio.sleep(9)\n"

    assert bool(found_in(text, in_virtual_time=inherited)) is is_real


def test_reasons_in_comments():
    """A comment is about its own line, or the next one, and about its own kind."""
    lines = (
        "import asyncio",
        "asyncio.sleep(1)  # sleeps: why",
        "# sleeps: why",
        "asyncio.sleep(2)",
        "asyncio.sleep(3)  # reaches: why",
        "asyncio.sleep(4)  # sleeps:",
        "asyncio.sleep(  # sleeps: why",
        "    5)",
    )
    text = "\n".join(lines)
    found = reach.occurrences("tests/test_x.py", text, PRIVATES)

    assert [each.name for each in without_comment(found, text)] == ["3", "4"]


def test_reasons_in_the_list():
    """What no entry is about is told, and so is an entry, or a name in it, that is about nothing."""
    found = [
        Found(CHANGE, "tests/batch/test_x.py", 1, 1, name) for name in ("X", "Y", "Z")
    ]
    entry = {"kind": CHANGE, "where": ["tests/batch/*"], "why": "w"}

    bare, gone = judged([entry | {"names": ["X", "Y", "gone"]}], found)
    assert (len(bare), len(gone)) == (1, 1)
    assert "Z" in bare[0]
    assert "gone" in gone[0]
    assert judged([entry], found) == ([], [])
    assert len(judged([entry, entry | {"kind": SLEEP}], found)[1]) == 1
