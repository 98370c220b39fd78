"""The list of errors after which engines run a task again, and the keys and results of writes of tasks."""

from __future__ import annotations

import copy

import pytest

from invsvc_async import (
    AmbiguousWriteError,
    DeadlineExceededError,
    InvalidRequestError,
    KeyConflictError,
    RateLimitedError,
    SecretLostError,
    ServerError,
    ServiceError,
    Verdict,
    WriteError,
    WriteNotAppliedError,
    WriteSupersededError,
)
from invsvc_async.engines.again import (
    MOST_RUNS,
    RUN_AGAIN,
    OvertakenError,
    failing_again,
    overtaken_is_final,
    runs_again,
    seconds_before,
)
from invsvc_async.engines.results import RowResult
from invsvc_async.engines.task_writes import task_key
from invsvc_async.testing import quick_client


def limited(seconds):
    return RateLimitedError(status=429, message="Slow down", retry_after=seconds)


@pytest.mark.parametrize(
    ("error", "runs", "seconds"),
    [
        (DeadlineExceededError("late"), 1, 1.0),
        (DeadlineExceededError("late"), 4, 8.0),
        (DeadlineExceededError("late"), MOST_RUNS - 1, 300.0),
        (DeadlineExceededError("late"), MOST_RUNS, None),
        (limited(900), 1, 900.0),
        (limited(2), 5, 16.0),
        (limited(None), 1, 1.0),
        (InvalidRequestError("url: is no URL"), 1, None),
        (ZeroDivisionError("its own"), 1, None),
    ],
)
def test_seconds_before(error, runs, seconds):
    """They grow up to five minutes; what the service asks for is waited for; some errors never run again."""
    assert seconds_before(error, runs) == seconds


def test_failing_again():
    """They are all other errors, and no class that one of the list belongs to."""
    others = set(failing_again())
    assert {InvalidRequestError, KeyConflictError, SecretLostError} <= others
    assert WriteSupersededError in others
    assert not others & {AmbiguousWriteError, ServerError, WriteError, ServiceError}
    assert not any(issubclass(each, RUN_AGAIN) for each in others)


@pytest.fixture
async def keyed(service, tmp_path):
    """Yield a function that renames one journey under a key."""
    journey = service.seed_journey()["id"]
    async with quick_client(service, journal=tmp_path / "calls.db") as client:
        yield lambda key: client.journeys.update(journey, name=key).keyed(key)


def names(service):
    return [entry.body["name"] for entry in service.ledger.effects("journeys.update")]


async def test_write_that_had_no_effect(service, keyed):
    """Its task runs again, and the next run does the write."""
    service.script("journeys.update", "reset", "reset")
    outcome = await keyed("order-1").outcome()
    with pytest.raises(WriteNotAppliedError) as caught:
        outcome.unwrap()
    assert runs_again(caught.value)
    with pytest.raises(WriteNotAppliedError), overtaken_is_final():
        outcome.unwrap()
    assert RowResult.of("order-1", outcome).runs_again
    assert names(service) == []

    await keyed("order-1")
    assert names(service) == ["order-1"]


async def test_write_that_a_newer_one_has_overtaken(service, keyed):
    """Its task does not run again, because no run under its key would send it."""
    service.script("journeys.update", "reset", "reset")
    assert (await keyed("older").outcome()).verdict is Verdict.NOT_APPLIED
    await keyed("newer")
    arrived = service.arrivals("journeys.update")

    for _ in range(2):
        outcome = await keyed("older").outcome()
        with pytest.raises(WriteNotAppliedError) as caught:
            outcome.unwrap()
        assert outcome.evidence.cause == "overtaken"
        assert not runs_again(caught.value)
        assert seconds_before(caught.value, 1) is None
        assert not RowResult.of("older", outcome).runs_again
        # for engines that know classes alone
        with pytest.raises(OvertakenError) as final, overtaken_is_final():
            outcome.unwrap()
        assert not isinstance(copy.copy(final.value), RUN_AGAIN)
    assert names(service) == ["newer"]
    assert service.arrivals("journeys.update") == arrived


def test_task_key():
    """Different parts make different keys, each of which a write takes."""
    long = "x" * 300
    keys = [
        task_key(*parts)
        for parts in [
            ("a", "b"), ("a/b",), ("a%2Fb",), ("a", "b", "c"), (long, "1"), (long, "2"),
            ("line\n", "1"), ("line", "1"),
        ]
    ]  # fmt: skip
    assert keys[0] == "a/b"
    assert task_key("", "a", "") == "a"
    assert len(set(keys)) == len(keys)
    assert all(key.isprintable() and len(key) <= 200 for key in keys)
