"""Addresses of databases that are malformed, as those with an unencoded password are."""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest

from invsvc_async import ApiKey, Client, ConfigurationError, JournalError, Outbox
from invsvc_async.batch import Batch
from invsvc_async.events import PostgresStore, Receiver, SqliteStore

SERVICE = "https://host.example/v2", ApiKey("eyJ")
LOGINS = ("user:[hidden]", "user:hid[hidden]den", "user:hidden]", "user:hidden\u2100")


OPENED = {  # how an address is used
    "batch": Batch.open,
    "outbox": Outbox.open,
    "journal": lambda address, _: Client(*SERVICE, journal=address),
    "store in a database": lambda address, _: opened(PostgresStore(address)),
    "store in a file": lambda address, _: opened(SqliteStore(address)),
    "receiver": lambda address, _: Receiver(secrets=["whsec_1"], store=address),
}


@asynccontextmanager
async def opened(store):
    await store.open()
    yield


async def refusal_of(kind, address, words=None):
    """Return the error with which *address* is refused, in words that do not quote it."""
    with pytest.raises((ConfigurationError, JournalError), match=words) as caught:
        async with OPENED[kind](address, Client(*SERVICE)):
            pass
    assert "hidden" not in str(caught.value)
    return caught.value


@pytest.mark.parametrize("login", LOGINS)
@pytest.mark.parametrize("kind", ["batch", "outbox", "journal", "store in a database"])
async def test_login_that_makes_an_address_malformed(login, kind):
    """It is refused in words that contain nothing of it."""
    assert (await refusal_of(kind, f"postgresql://{login}@127.0.0.1:1/db")).__cause__ is None


@pytest.mark.parametrize("login", LOGINS)
def test_login_in_a_base_url(login):
    """The same is true of a base URL, in which it is a mistake."""
    with pytest.raises(ConfigurationError, match="base_url") as caught:
        Client(f"https://{login}@host.example:port/v2", ApiKey("eyJ"))

    assert "hidden" not in str(caught.value)


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
@pytest.mark.parametrize("kind", ["batch", "outbox", "journal", "store in a file", "receiver"])
async def test_address_of_keywords(tmp_path, monkeypatch, address, kind):
    """It is not taken for the name of a file, which would show the password; the words quote nothing of it."""
    monkeypatch.chdir(tmp_path)
    assert isinstance(await refusal_of(kind, address, "Use postgresql://"), ConfigurationError)
    assert list(tmp_path.iterdir()) == []
