"""Addresses of databases that are malformed, misspelt or of no server: refused in words that quote no password."""

from __future__ import annotations

import traceback
from contextlib import asynccontextmanager
from pathlib import PureWindowsPath

import pytest

from invsvc_async import ApiKey, Client, ConfigurationError, JournalError, Outbox
from invsvc_async.batch import Batch
from invsvc_async.batch.entries import name_of
from invsvc_async.events import PostgresStore, Receiver, SqliteStore
from invsvc_async.events.stores import open_store
from invsvc_async.storage.address import check_path, is_postgres

SERVICE = "https://host.example/v2", ApiKey("eyJ")
LOGINS = ("user:[hidden]", "user:hid[hidden]den", "user:hidden]", "user:hidden\u2100")


OPENED = {  # how an address is used
    "batch": Batch.open,
    "outbox": Outbox.open,
    "journal": lambda address, _: opened_journal(address),
    "store": lambda address, _: opened(open_store(address)),
    "store in a database": lambda address, _: opened(PostgresStore(address)),
    "store in a file": lambda address, _: opened(SqliteStore(address)),
    "receiver": lambda address, _: Receiver(secrets=["whsec_1"], store=address),
}


@asynccontextmanager
async def opened(store):
    assert "hidden" not in repr(store)
    await store.open()
    yield


@asynccontextmanager
async def opened_journal(address):
    async with Client(*SERVICE, journal=address) as client:
        await client.recover()
        yield


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Return the folder of the process, in which no file may be made; nobody waits for a server there."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("invsvc_async.storage.postgres_pool._TO_OPEN", 0.1)
    yield tmp_path
    assert list(tmp_path.iterdir()) == []


async def refusal_of(kind, address, words=None):
    """Return the error with which *address* is refused; neither it nor its cause quotes a password."""
    with pytest.raises((ConfigurationError, JournalError), match=words) as caught:
        async with OPENED[kind](address, Client(*SERVICE)):
            pass
    error = caught.value
    causes = [
        error.__cause__,
        None if error.__suppress_context__ else error.__context__,
    ]
    assert "hidden" not in "".join(traceback.format_exception_only(error)) + repr(
        causes
    )
    return error


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    "address",
    [
        *(f"postgresql://{login}@127.0.0.1:1/db" for login in LOGINS),
        "postgresql+asyncpg://user:hidden@127.0.0.1:1/none",
        "Postgresql://user:hidden@127.0.0.1:1/none",
        " postgresql://user:hidden@127.0.0.1:1/none",
        "postgresql:hidden",
        "mysql://user:hidden@127.0.0.1:1/none",
        "postgresql://user:12?hidden@127.0.0.1:1/none",
        "postgresql://user:hi/hidden@127.0.0.1:1/none",
        "postgresql://user@127.0.0.1:hidden/none",
        "postgresql://user:hidden@127.0.0.1:99999/none",
        "postgresql://user@127.0.0.1:1/none?password=hidden&sslmode=hidden",
    ],
)
@pytest.mark.parametrize(
    "kind", ["batch", "outbox", "journal", "store", "store in a database"]
)
async def test_address_with_a_password(kind, address):
    """No error and no cause of one contains it, however the address is misspelt."""
    error = await refusal_of(kind, address)
    if any(login in address for login in LOGINS):
        assert error.__cause__ is None


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("kind", ["batch", "outbox", "journal", "store"])
async def test_server_that_is_not_there(kind):
    """An address that nobody answers at is an error in words."""
    error = await refusal_of(
        kind, "postgresql://user:hidden@127.0.0.1:1/none", "database cannot be used"
    )
    assert isinstance(error, JournalError)


@pytest.mark.parametrize("login", LOGINS)
def test_login_in_a_base_url(login):
    """The same is true of a base URL, in which it is a mistake."""
    with pytest.raises(ConfigurationError, match="base_url") as caught:
        Client(f"https://{login}@host.example:port/v2", ApiKey("eyJ"))

    assert "hidden" not in str(caught.value)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    "address",
    [
        "host=127.0.0.1 password=hidden",
        "password = 'hidden' dbname=app",
        "dbname=hidden",
        "sslmode=require user=app password=hidden",
        "hidden password=hidden",
    ],
)
@pytest.mark.parametrize(
    "kind", ["batch", "outbox", "journal", "store in a file", "receiver"]
)
async def test_address_of_keywords(address, kind):
    """It is not taken for the name of a file, which would show the password; the words quote nothing of it."""
    assert isinstance(
        await refusal_of(kind, address, "Use postgresql://"), ConfigurationError
    )


@pytest.mark.parametrize(
    "path",
    [
        str(PureWindowsPath("C:/runs") / "run.db"),
        PureWindowsPath("c:/runs/run.db").as_posix(),
        "C:run.db",
        r"\\host\share\run.db",
        r"D:\postgres\run.db",
        r"C:\users\host\run.db",
    ],
)
def test_path_of_windows(path):
    """A drive is no scheme, and neither a folder's name is one: the file is used, and its path is shown."""
    check_path(path, "journal")

    assert not is_postgres(path)
    assert name_of(path) == path


def test_address_of_sqlite():
    """The form of other libraries is refused in words, and not taken for a path with a drive."""
    with pytest.raises(ConfigurationError, match="the path of a file"):
        check_path("sqlite:///C:/runs/run.db", "journal")


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        (
            "postgresql://me:hunter2@db/batches?batch=june",
            "postgresql://me@db/batches?batch=june",
        ),
        (
            "postgresql://db/batches?password=x&batch=june&user=me",
            "postgresql://db/batches?batch=june&user=me",
        ),
        (
            "postgresql://me:x@host:5432/db?batch=b&password=x&sslmode=require&sslpassword=x",
            "postgresql://me@host:5432/db?batch=b&sslmode=require",
        ),
        ("postgresql:///batches?password=hunter2", "postgresql:///batches"),
        (
            "postgresql://me:hunter2@/batches?host=/run/pg&port=5433&silence=3&batch=june",
            "postgresql://me@/batches?host=/run/pg&port=5433&silence=3&batch=june",
        ),
        ("postgresql://user:12?host=hidden@host/db?batch=b", "postgresql://…"),
        ("postgresql://user:12?batch=hidden@host/db", "postgresql://…"),
        ("postgresql://user:12/hidden@host/db", "postgresql://…"),
        ("postgresql://user:hidden@host:hidden/db", "postgresql://…"),
        ("postgresql://user:hidden@[host/db", "postgresql://…"),
        ("runs/june.db", "runs/june.db"),
    ],
)
def test_name_of_a_journal(address, shown):
    """A command can use what a person is shown of an address; it holds no password, wherever it stands."""
    assert name_of(address) == shown
