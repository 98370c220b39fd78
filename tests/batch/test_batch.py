"""Batches on one SQLite file: keys, order, input, pace, what is refused."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from decimal import Decimal

import pytest

from invsvc_async import (
    AmbiguousWriteError,
    ApiKey,
    CallOptions,
    Client,
    ConfigurationError,
    InvalidRequestError,
    Timeouts,
    Verdict,
)
from invsvc_async.batch import Batch
from invsvc_async.batch.intake import AT_ONCE
from invsvc_async.batch.reports.not_applied import groups_of
from tests.batch.conftest import HOOK, POLICY
from tests.batch.writing import (
    all_of,
    create_line,
    create_lines,
    creates,
    run_all,
    updates,
)
from tests.support.raw_server import RawServer
from tests.support.waiting import cancel, until, until_no

GONE = (
    b"HTTP/1.1 404 Not Found\r\nContent-Type: application/json\r\nContent-Length: 84\r\n\r\n"
    b'{"success":false,"error":{"code":"resource_not_found","message":"no"},"timestamp":1}'
)


async def test_writes_of_an_input_happen_once(service, client, tmp_path, path):
    """Every write is applied, its secret handed over and, like the token, in no file; given again, all are skipped."""
    secrets = {}

    def keep(key, hook):
        secrets[key] = hook.secret

    async with Batch.open(path, client, on_secret=keep) as batch:
        results = await all_of(batch, creates(client, 40))
        again = await all_of(batch, creates(client, 40))
        skipped, summary = batch.progress.skipped, await batch.summary()
        content = b"".join(file.read_bytes() for file in tmp_path.iterdir())

    assert {result.verdict for result in results} == {Verdict.APPLIED}
    assert (
        {result.key for result in results}
        == {*secrets}
        == {f"row-{i}" for i in range(40)}
    )
    assert (len(results), again, skipped, service.arrivals("webhooks.create")) == (
        40,
        [],
        40,
        40,
    )
    assert len({*secrets.values()}) == 40
    assert not any(
        secret.encode() in content for secret in [*secrets.values(), service.api_key]
    )
    assert (summary.total, summary.verdicts) == (40, {Verdict.APPLIED: 40})


async def test_batch_that_is_open_already(client, journal):
    """It is not opened again, so that it still works, and nothing is left open once it is closed."""
    batch = Batch.open(journal, client)
    for _ in range(2):
        async with batch:
            with pytest.raises(ConfigurationError, match="open already"):
                await batch.__aenter__()
            assert len(await all_of(batch, creates(client, 1))) <= 1
    async with Batch.open(journal, client) as again:
        assert (await again.summary()).total == 1


async def test_headers_of_a_call(tmp_path):
    """They are on each request of that write, also when the next run resumes it, and on no other."""

    async def silent_to_writes(peer):
        while (arrival := await peer.arrival()) is not None:
            if arrival.method == "GET":
                await peer.send(GONE)

    traced, timeouts = CallOptions(headers={"X-Trace": "t-1"}), Timeouts(attempt=3.0)
    async with (
        RawServer(silent_to_writes) as server,
        Client(
            str(server.url.with_path("/v2")),
            ApiKey("k"),
            reconcile=POLICY,
            timeout=timeouts,
        ) as client,
    ):
        writes = [
            client.webhooks.delete("wh_1", options=traced),
            client.webhooks.delete("wh_2"),
        ]
        async with Batch.open(tmp_path / "run.db", client) as batch:
            running = asyncio.create_task(all_of(batch, writes))
            await until(lambda: len(server.arrivals) >= 2)
            await cancel(running)
        results = await run_all(tmp_path / "run.db", client)

    assert {result.verdict for result in results} == {Verdict.APPLIED}
    traces = {
        (each.head.split()[1], each.method, each.header("X-Trace"))
        for each in server.arrivals
    }
    assert {trace for path, _, trace in traces if b"wh_1" in path} == {"t-1"}
    assert {trace for path, _, trace in traces if b"wh_2" in path} == {None}
    assert {method for _, method, _ in traces} == {"DELETE", "GET"}


async def test_line_put_in_on_top_changes_no_key(service, client, path):
    """Without keys of the caller's, a write put in on top of the input is the only one that is sent."""
    hooks = [service.seed_webhook() for _ in range(5)]
    async with Batch.open(path, client) as batch:
        await all_of(batch, updates(client, hooks[1:], "a"))
        results = await all_of(batch, updates(client, hooks, "a"))
    assert [result.thing for result in results] == [hooks[0].id]


async def test_equal_writes_are_counted(service, client, path):
    """Equal writes each happen as often as the input holds them, and a longer input adds the difference."""

    def equal(n):
        return (client.webhooks.create(**HOOK) for _ in range(n))

    async with Batch.open(path, client) as batch:
        first = await all_of(batch, equal(AT_ONCE + 3))
        second = await all_of(batch, equal(AT_ONCE + 5))
    assert (len(first), len(second), service.arrivals("webhooks.create")) == (
        AT_ONCE + 3,
        2,
        AT_ONCE + 5,
    )


async def test_reader_that_has_no_hash(service, client, journal):
    """A policy may have any function as reader of journeys, also an object that is equal to others."""

    class Reader:
        __hash__ = None

        async def __call__(self, client, intent):
            raise AssertionError("no answer is lost")

    service.seed_journey(id="jrn_1")
    write = client.journeys.update("jrn_1", name="May").with_policy(
        journey_reader=Reader()
    )
    results = await run_all(journal, client, [write.keyed("row-1")])

    assert [result.verdict for result in results] == [Verdict.APPLIED]


async def test_number_in_other_digits_is_the_same_write(service, client, journal):
    """Its value counts, as under a key that is awaited: with the key and without, nothing is sent again."""

    def priced(amount):
        return client.write(
            "POST", "/webhooks", json={**HOOK, "amount": Decimal(amount)}
        )

    async with Batch.open(journal, client) as batch:
        await all_of(batch, [priced("2.50"), priced("2.50").keyed("row-1")])
        await all_of(batch, [priced("2.5"), priced("2.500").keyed("row-1")])
        with pytest.raises(InvalidRequestError, match="another write"):
            await all_of(batch, [priced("2.51").keyed("row-1")])
    assert service.arrivals("webhooks.create") == 2


async def test_tag_of_the_callers_own_makes_another_write(service, client, journal):
    """A create whose text tag differs is another write; under the same key it is refused in words."""

    def tagged(tag):
        return client.webhooks.create(**HOOK, tag=tag)

    async with Batch.open(journal, client) as batch:
        await all_of(batch, [tagged("unit A"), tagged(True)])
        await all_of(batch, [tagged("unit A"), tagged("unit B"), tagged(False)])
        await all_of(batch, [tagged("unit A").keyed("row-1")])
        with pytest.raises(InvalidRequestError, match="another write"):
            await all_of(batch, [tagged("unit B").keyed("row-1")])
    made = [entry.body["description"] for entry in service.ledger.effects()]
    assert (len(made), sorted(text for text in made if "unit" in text)) == (
        4,
        ["unit A", "unit A", "unit B"],
    )


async def test_key_that_is_given_twice(service, client, tmp_path):
    """Two writes of one key in one input are refused, in one chunk or far apart; what was sent before is not denied."""
    for gap in (0, 3 * AT_ONCE):
        writes = [
            *creates(client, 1),
            *creates(client, gap, start=1),
            *creates(client, 1),
        ]
        with pytest.raises(
            InvalidRequestError, match="two writes of this input have the key 'row-0'"
        ) as caught:
            await run_all(tmp_path / f"{gap}.db", client, writes)
        assert "writes before it may have been" in str(caught.value)
        assert "Nothing was sent" not in str(caught.value)
    assert service.arrivals("webhooks.create") > 0


async def test_results_of_a_verdict_that_there_is_not(client, path):
    """It is refused in words, as `retry` refuses it."""
    async with Batch.open(path, client) as batch:
        with pytest.raises(
            InvalidRequestError, match=r"verdict: must be one of applied, .* not 'done'"
        ):
            _ = [each async for each in batch.results(verdict="done")]


async def test_input_is_read_as_results_are_taken(service, client, path):
    """A consumer that stops taking results stops the reading of the input."""
    given = 0

    def source():
        nonlocal given
        for write in creates(client, 5000):
            given += 1
            yield write

    async with Batch.open(path, client, concurrency=4) as batch:
        async for _ in batch.run(source()):
            break
        await until_no(lambda: batch.progress.under_way)
        assert given < 500


async def test_async_input_is_not_held_up(service, client, path):
    """What a slow asynchronous source has given is written while the source waits."""
    gate = asyncio.Event()

    async def source():
        for write in creates(client, 1):
            yield write
        await gate.wait()
        for write in creates(client, 1, start=1):
            yield write

    async with Batch.open(path, client) as batch:
        keys = []
        async for result in batch.run(source()):
            keys.append(result.key)
            gate.set()
    assert keys == ["row-0", "row-1"]


@pytest.mark.parametrize(
    ("last", "words"),
    [
        ("{", "line 301: is not JSON"),
        (
            '{"operation": "webhooks.create", "arguments": {"url": 1}}',
            "line 301: webhooks.create: ",
        ),
        (create_line(0), "line 301: has the key 'row-0', as line 1"),
    ],
)
async def test_file_with_a_bad_line_far_down(
    service, client, tmp_path, last, words, path
):
    """A file is looked through whole before anything of it is sent, as the error says."""
    file = tmp_path / "writes.jsonl"
    file.write_text("".join([*create_lines(300), last]))
    with pytest.raises(InvalidRequestError) as caught:
        await run_all(path, client, file)
    assert words in str(caught.value)
    assert "Nothing was sent" in str(caught.value)
    assert service.arrivals() == 0


async def test_file_with_bad_lines_all_over(client, tmp_path, path):
    """The first of them are named, and how many more there are."""
    file = tmp_path / "writes.jsonl"
    file.write_text("\n".join("{" for _ in range(30)))
    with pytest.raises(
        InvalidRequestError, match=r"line 20: .*; and 10 more lines"
    ) as caught:
        await run_all(path, client, file)
    assert len(caught.value.problems) == 21


async def test_pipe_of_lines(service, client, tmp_path, path):
    """A file that can be read only once is an input like any other."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    feeding = asyncio.create_task(
        asyncio.to_thread(pipe.write_text, "".join(create_lines(3)))
    )
    assert len(await run_all(path, client, pipe)) == 3
    await feeding


async def test_limited_writes_wait(service, client, path):
    """A write refused for its rate waits as long as the service says, as do those that have not begun."""
    service.script("webhooks.create", "429 after 1")
    results = await run_all(path, client, creates(client, 3), concurrency=1)
    times = [entry.received_at for entry in service.ledger.entries]
    assert {result.verdict for result in results} == {Verdict.APPLIED}
    assert len(times) == 4
    assert times[1] - times[0] >= 1.0


async def test_wait_that_the_service_asks_for_is_shown(service, client, path):
    """The progress says why nothing is sent, and for how long."""
    service.script("webhooks.create", "429 after 600")
    async with Batch.open(path, client, concurrency=1) as batch:
        running = asyncio.create_task(all_of(batch, creates(client, 3)))
        progress = await until(
            lambda: batch.progress and batch.progress.paused and batch.progress
        )
        await cancel(running)
        assert batch.progress.paused is None
    assert progress.paused == "the service limits the rate (HTTP 429)"
    assert 500 < progress.next_probe <= 600
    assert service.arrivals("webhooks.create") == 1


async def test_pace_is_smooth(service, client, path):
    """At a rate of 50 a second, 15 writes take as long as that says."""
    await run_all(path, client, creates(client, 15), rate=50)
    times = [entry.received_at for entry in service.ledger.entries]
    # the first may arrive late, and a little is made up for
    assert times[-1] - times[0] >= 14 / 50 - 0.13


async def test_write_in_doubt_gives_its_place_up(service, client, path):
    """With one place, the next write is sent while the one before waits for its window."""
    hooks = [service.seed_webhook() for _ in range(2)]
    service.script("webhooks.update", "500")
    results = await run_all(path, client, updates(client, hooks, "a"), concurrency=1)
    assert [result.thing for result in results] == [hooks[1].id, hooks[0].id]
    assert [result.resends for result in results] == [0, 1]


async def test_list_of_webhooks_that_is_full(service, client, path, caplog):
    """It is said once, before the first create. A create that the list shows is certain, and there is one advice for others."""
    for _ in range(99):
        service.seed_webhook()
    # shows the clock, so no create has to read first
    await client.webhooks.get(service.seed_webhook().id)
    service.script("webhooks.create", "apply, then reset", "reset", "pass", "reset")
    async with Batch.open(path, client, concurrency=1) as batch:
        results = await all_of(batch, creates(client, 5))
        (group,) = await groups_of(batch.entries, "run.db")
    assert caplog.text.count("the list of webhooks is full") == 1
    unknown = [each for each in results if each.verdict is Verdict.UNKNOWN]
    assert (len(results), len(unknown), group.count, group.cause) == (
        5,
        2,
        2,
        "list full",
    )
    for each in unknown:
        with pytest.raises(AmbiguousWriteError) as caught:
            each.outcome.unwrap()
        assert group.advice in str(caught.value)
    assert len(service.ledger.effects("webhooks.create")) == 3


def test_import_without_what_sends():
    """The names of batches, and their results, are there without the engine."""
    text = "import sys, invsvc_async.batch; print('invsvc_async.batch.engine' in sys.modules)"
    assert (
        subprocess.check_output([sys.executable, "-c", text], text=True).strip()  # noqa: S603 - our own
        == "False"
    )
