"""Addresses of databases that are malformed, as those with an unencoded password are."""

from __future__ import annotations

import pytest

from invsvc_async import ApiKey, Client, ConfigurationError, JournalError, Outbox
from invsvc_async.batch import Batch
from invsvc_async.events import PostgresStore, Receiver, SqliteStore

LOGINS = ("user:[hidden]", "user:hid[hidden]den", "user:hidden]", "user:hidden\u2100")


@pytest.mark.parametrize("login", LOGINS)
@pytest.mark.parametrize("kind", ["batch", "outbox", "journal", "store"])
async def test_login_that_makes_an_address_malformed(login, kind):
    """It is refused in words that contain nothing of it."""
    address = f"postgresql://{login}@127.0.0.1:1/db"
    service = "https://host.example/v2", ApiKey("eyJ")

    with pytest.raises((ConfigurationError, JournalError)) as caught:
        if kind == "store":
            await PostgresStore(address).open()
        elif kind == "journal":
            Client(*service, journal=address)
        else:
            client = Client(*service)
            async with Batch.open(address, client) if kind == "batch" else Outbox.open(address, client):
                pass

    assert "hidden" not in str(caught.value)
    assert caught.value.__cause__ is None


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
@pytest.mark.parametrize("kind", ["batch", "outbox", "journal", "store", "receiver"])
async def test_address_of_keywords(tmp_path, monkeypatch, address, kind):
    """It is not taken for the name of a file, which would show the password; the words quote nothing of it."""
    monkeypatch.chdir(tmp_path)
    service = "https://host.example/v2", ApiKey("eyJ")

    with pytest.raises(ConfigurationError, match=r"Use postgresql://") as caught:
        if kind == "store":
            await SqliteStore(address).open()
        elif kind == "receiver":
            Receiver(secrets=["whsec_1"], store=address)
        elif kind == "journal":
            async with Client(*service, journal=address):
                pass
        else:
            client = Client(*service)
            async with Batch.open(address, client) if kind == "batch" else Outbox.open(address, client):
                pass

    assert "hidden" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []
