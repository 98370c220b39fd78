"""``Client(proxy=…)``: requests go through it, and its login is in nothing that is shown."""

from __future__ import annotations

import logging

import pytest

from invsvc_async import ApiKey, Client, ReadRetries
from invsvc_async.client import options_of
from invsvc_async.errors import ConfigurationError, InvsvcError, NotSentError
from invsvc_async.transport.proxy import Proxy, proxy_from, proxy_of_environment
from tests.support.raw_server import RawServer, obliging

LOGIN = "Basic dXNlcjpodXNoLWh1c2g="  # user:hush-hush
REFUSED = b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n"


def through(proxy, login="user:hush-hush@"):
    return f"http://{login}{proxy.url.host}:{proxy.url.port}"


def client_of(base, **settings):
    return Client(
        base,
        ApiKey("key-of-the-tests"),
        reads=ReadRetries(attempts=1),
        allow_insecure_http=True,
        **settings,
    )


async def test_plain_request_through_a_proxy(caplog):
    """The proxy gets the request with its login. A write is sent once. The service's token stays the same."""
    async with (
        RawServer(obliging) as proxy,
        client_of("http://service.example/v2", proxy=through(proxy)) as client,
    ):
        with caplog.at_level(logging.DEBUG):
            await client.request("GET", "/a")
            await client.write("PUT", "/a", json={}).outcome()

        assert [arrival.method for arrival in proxy.arrivals] == ["GET", "PUT"]
        assert proxy.arrivals[0].head.startswith(b"GET http://service.example/v2/a ")
        for arrival in proxy.arrivals:
            assert arrival.header("Proxy-Authorization") == LOGIN
            assert arrival.header("Authorization") == "Bearer key-of-the-tests"
        assert "hush-hush" not in caplog.text + repr(client) + repr(
            options_of(client).core.transport
        )


async def test_tunnel(caplog):
    """For https, the login is in the CONNECT request alone; refused there, nothing was sent to the service."""

    async def refusing(peer):
        await peer.arrival()
        await peer.send(REFUSED)

    async with (
        RawServer(refusing) as proxy,
        client_of("https://service.example/v2", proxy=through(proxy)) as client,
    ):
        with caplog.at_level(logging.DEBUG), pytest.raises(NotSentError) as raised:
            await client.users.get("usr_1")
        outcome = await client.webhooks.delete("wh_1").outcome()

        assert outcome.applied is False
        assert {arrival.method for arrival in proxy.arrivals} == {"CONNECT"}
        assert proxy.arrivals[0].header("Proxy-Authorization") == LOGIN
        assert not [
            arrival for arrival in proxy.arrivals if b"key-of-the-tests" in arrival.head
        ]
        shown = f"{raised.value!r} {outcome!r} {outcome.explain()} {outcome.to_json()} {caplog.text}"
        assert "hush-hush" not in shown
        assert LOGIN.removeprefix("Basic ") not in shown


async def test_proxy_that_is_away():
    """The error names the proxy's address, without the login."""
    async with client_of(
        "http://service.example/v2", proxy="http://user:hush-hush@127.0.0.1:1"
    ) as client:
        with pytest.raises(NotSentError) as raised:
            await client.users.get("usr_1")

    assert "127.0.0.1:1" in str(raised.value)
    assert "hush-hush" not in repr(raised.value) + repr(raised.value.__cause__)


async def test_login_of_a_proxy_of_the_environment(monkeypatch):
    """It is sent, and shown by no error, too."""
    for name in ("no_proxy", "NO_PROXY", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    async with RawServer(obliging) as proxy:
        monkeypatch.setenv("http_proxy", through(proxy))
        async with client_of("http://service.example/v2", trust_env=True) as client:
            await client.request("GET", "/a")
        monkeypatch.setenv("http_proxy", "http://user:hush-hush@127.0.0.1:1")
        async with client_of("http://service.example/v2", trust_env=True) as client:
            with pytest.raises(InvsvcError) as raised:
                await client.request("GET", "/a")

        assert [
            arrival.header("Proxy-Authorization") for arrival in proxy.arrivals
        ] == [LOGIN]
        assert "hush-hush" not in repr(raised.value) + repr(raised.value.__cause__)


@pytest.mark.parametrize(
    "wrong", ["", "proxy.example:3128", "socks5://user:hush-hush@proxy:1", "http://", "http://a/path", 7, "http://[::1", "http://a:b"],
)  # fmt: skip
def test_text_that_is_no_proxy(wrong):
    """Refused when the client is made, without the text."""
    with pytest.raises(ConfigurationError, match="proxy: ") as raised:
        client_of("https://service.example/v2", proxy=wrong)

    assert "hush-hush" not in str(raised.value)


async def test_settings_that_contradict_a_proxy():
    """A proxy beside the environment's, or with a session of the user's, is refused."""
    import aiohttp

    with pytest.raises(ConfigurationError, match="trust_env"):
        client_of("https://service.example/v2", proxy="http://proxy:1", trust_env=True)
    async with aiohttp.ClientSession() as session:
        with pytest.raises(ConfigurationError, match="session"):
            client_of(
                "https://service.example/v2", proxy="http://proxy:1", session=session
            )


def test_proxy_shows_no_login(monkeypatch):
    """Its repr has the address only; one without a scheme, as environments have it, is an HTTP proxy."""
    assert (
        repr(proxy_from("http://user:hush-hush@proxy.example:3128/"))
        == "Proxy(url=URL('http://proxy.example:3128'))"
    )
    monkeypatch.setenv("https_proxy", "proxy.example:3128")
    monkeypatch.delenv("no_proxy", raising=False)
    from yarl import URL

    assert proxy_of_environment(URL("https://a.example/")) == Proxy(
        URL("http://proxy.example:3128")
    )
