"""Tokens as they are given and fetched: what is no token, and what becomes of a source that is ended."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from invsvc_async import ApiKey, OAuthToken, TokenProvider
from invsvc_async.errors import ConfigurationError


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "needs the token as a string"),
        ("  ", "needs the token as a string"),
        (None, "needs the token as a string"),
        ("Bearer abc", "starts with 'Bearer '"),
        ("abc def", "contains a space"),
        ("abc\nd", "a space, a line break"),
        ("clé", "another invalid character"),
    ],
)
def test_text_that_is_no_token(text, reason):
    """It is refused where it is given, in words that never hold it."""
    with pytest.raises(ConfigurationError, match=f"ApiKey.*{reason}") as refused:
        ApiKey(text)
    assert "abc" not in str(refused.value)


def test_provider_of_an_unknown_kind():
    """The kinds there are stand in the error."""
    with pytest.raises(ConfigurationError, match="kind must be one of api_key"):
        TokenProvider(lambda: None, kind="jwt")


def test_provider_whose_source_is_a_text():
    """A token in the place of what fetches one is refused."""
    with pytest.raises(ConfigurationError, match="must be an async callable"):
        TokenProvider("abc", kind="api_key")


async def test_fixed_token_cannot_be_renewed():
    """Nothing fresher is to be had."""
    assert await OAuthToken("abc").renew("Bearer abc") is False


async def test_token_that_another_call_has_renewed():
    """Who was refused with an older token sends the one at hand: the source is not asked again."""
    asked = []

    async def source():
        asked.append(1)
        return f"token-{len(asked)}"

    provider = TokenProvider(source, kind="api_key")
    first = await provider.header()
    assert await provider.renew(first) is True
    assert await provider.renew(first) is True
    assert (await provider.header(), len(asked)) == ("Bearer token-2", 2)


async def test_source_that_gives_the_same_token_again():
    """It is no renewal."""

    async def source():
        return "same"

    provider = TokenProvider(source, kind="api_key")
    assert await provider.renew(await provider.header()) is False


async def test_source_that_is_cancelled_by_itself():
    """Its cancellation is not the caller's: it is told as a failure of the source, and the next call asks again."""
    answers = iter([asyncio.CancelledError(), "abc"])

    async def source():
        if isinstance(answer := next(answers), BaseException):
            raise answer
        return answer

    provider = TokenProvider(source, kind="api_key")
    with pytest.raises(ConfigurationError, match="the source was cancelled"):
        await provider.header()
    assert await provider.header() == "Bearer abc"


async def test_caller_that_is_cancelled_while_a_token_is_fetched():
    """The cancellation is the caller's; the fetch continues for all others that wait."""
    release = asyncio.Event()

    async def source():
        await release.wait()
        return "abc"

    provider = TokenProvider(source, kind="api_key")
    gone, stays = (
        asyncio.create_task(provider.header()),
        asyncio.create_task(provider.header()),
    )
    await asyncio.sleep(0)
    gone.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gone
    release.set()
    assert await stays == "Bearer abc"


@pytest.mark.parametrize("begins_with", ["source", "caller"])
async def test_caller_that_is_cancelled_together_with_the_source(begins_with):
    """As when an event loop ends: the cancellation is not replaced by an error, which a caller may survive."""
    fetching = asyncio.get_running_loop().create_future()

    async def source():
        fetching.set_result(asyncio.current_task())
        await asyncio.Event().wait()

    caller = asyncio.create_task(TokenProvider(source, kind="api_key").header())
    both = [await fetching, caller]
    if begins_with == "caller":
        both.reverse()
    for task in both:
        task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller


def test_provider_in_two_event_loops_at_once():
    """Each loop fetches a token of its own: neither waits for the other's."""
    both = threading.Barrier(2)

    async def source():
        await asyncio.to_thread(both.wait, 30.0)  # until the other loop fetches as well
        return "abc"

    provider = TokenProvider(source, kind="api_key")

    async def header():
        return await provider.header()

    with ThreadPoolExecutor(2) as threads:
        found = [
            each.result()
            for each in [threads.submit(asyncio.run, header()) for _ in range(2)]
        ]
    assert found == ["Bearer abc", "Bearer abc"]


async def test_provider_whose_event_loop_has_ended():
    """A fetch that its loop did not finish, or not even begin, keeps no other loop from fetching."""
    asked = []

    async def source():
        asked.append(1)
        if len(asked) == 1:
            await asyncio.Event().wait()
        return "abc"

    provider = TokenProvider(source, kind="api_key")
    other = asyncio.new_event_loop()
    waiting = other.create_task(provider.header())
    while not asked:
        await asyncio.to_thread(other.run_until_complete, asyncio.sleep(0))
    other.close()
    for task in (waiting, provider._fetching):
        task._log_destroy_pending = False
    assert await provider.header() == "Bearer abc"
