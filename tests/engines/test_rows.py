"""Tables on real sockets: each row once, and a true result for each, whatever is lost, late or killed."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from importlib import import_module, metadata
from itertools import accumulate, islice

import pytest

from invsvc_async import (
    ApiKey,
    Client,
    ConfigurationError,
    JournalError,
    ReconcilePolicy,
)
from invsvc_async.durable.key_claims import Claims
from invsvc_async.engines import sender, versions
from invsvc_async.engines.again import RUN_AGAIN
from invsvc_async.engines.portals import portal_of
from invsvc_async.engines.results import PartCounts
from invsvc_async.engines.rows import (
    IncompleteError,
    RowResult,
    partition_key,
    send_part,
    send_rows,
)
from invsvc_async.engines.sender import AHEAD, Settings
from invsvc_async.engines.versions import require
from invsvc_async.simulator import Faults
from invsvc_async.testing import serving
from tests.engines.programs import ROOT, example_of, output_of, program_of
from tests.engines.rows_child import rows_of
from tests.support.database import database
from tests.support.database_proxy import database_proxy
from tests.support.inside import journal_of, store_beneath
from tests.support.waiting import until

LONG = 120.0  # s that nothing here takes


@pytest.fixture
def service():
    with serving() as running:
        yield running


@pytest.fixture
def client(service, tmp_path):
    """Return what makes a client with short times, and a file as its journal."""
    return made(service, tmp_path / "calls.db")


def made(service, journal, **settings):
    policy = ReconcilePolicy(
        settle_after_error=0.1, settle_after_loss=0.3, reads_lag=0.05
    )
    given = {"reconcile": policy, "on_secret": lambda key, webhook: None, **settings}

    def make():
        return Client(
            service.base_url, ApiKey(service.api_key), journal=journal, **given
        )

    return make


def rows(many, prefix="row"):
    return [{"order": f"{prefix}-{number}"} for number in range(many)]


def creates(client, row):
    url = f"https://rows.example/{row['order']}"
    return client.webhooks.create(url=url, events=["invoice.created"])


def renames(client, row):
    return client.journeys.update(row.get("journey", "jrn_1"), name=row["order"])


def sent(given, write_of, client, **settings):
    """Return the results by their keys; each row has one."""
    results = list(send_rows(given, write_of, key="order", client=client, **settings))
    by_key = {result.key: result for result in results}
    assert len(by_key) == len(results)
    return by_key


def effects_of(service, operation="webhooks.create"):
    """Count the effects of each row, by the last part of what it wrote."""
    field = "url" if operation == "webhooks.create" else "name"
    return Counter(
        entry.body[field].rpartition("/")[2]
        for entry in service.ledger.effects(operation)
    )


# --- results


def test_each_row_once(service, client):
    """Each row has one effect and its result; sent again, all are replayed, and nothing is sent."""
    given = rows(40)
    first = sent(given, creates, client)
    again = sent(given, creates, client)

    once = {row["order"]: 1 for row in given}
    assert effects_of(service) == once
    assert service.arrivals("webhooks.create") == 40
    assert {each.verdict for each in first.values()} == {"applied"}
    assert not any(each.replayed for each in first.values())
    assert all(each.replayed for each in again.values())
    made_ids = {entry.target for entry in service.ledger.effects("webhooks.create")}
    assert {each.id for each in first.values()} == made_ids
    assert {key: each.id for key, each in again.items()} == {
        key: each.id for key, each in first.items()
    }


def test_secrets(service, tmp_path):
    """The run that creates a webhook has its secret, once, and no repr shows it; a lost one is told."""
    client = made(service, tmp_path / "calls.db", on_secret=None)
    service.script("webhooks.create", "apply, then reset")
    [lost] = sent(rows(1, "lost"), creates, client).values()
    [new] = sent(rows(1, "new"), creates, client).values()
    [replay] = sent(rows(1, "new"), creates, client).values()

    assert new.secret is not None
    assert new.secret not in repr(new)
    assert new.to_dict()["secret"] == new.secret
    assert (replay.secret, replay.id, replay.replayed) == (None, new.id, True)
    assert "is not stored" in replay.message
    assert (lost.verdict, lost.secret) == ("applied", None)
    assert "Its secret was lost with the answer: nobody has it." in lost.message


def test_secrets_with_a_hook(service, tmp_path):
    """The hook has each secret, and results do not."""
    kept = {}
    client = made(
        service, tmp_path / "calls.db",
        on_secret=lambda key, webhook: kept.update({key: webhook.secret}),
    )  # fmt: skip
    results = sent(rows(3), creates, client)
    assert set(kept) == set(results)
    assert all(kept.values())
    assert {each.secret for each in results.values()} == {None}
    assert all("on_secret has had" in each.message for each in results.values())


class NA:
    """Stands in for the value of pandas that is missing: it compares to nothing, and is not false."""

    def __ne__(self, other):
        return self

    __hash__ = None

    def __bool__(self):
        raise TypeError("boolean value of NA is ambiguous")


def test_rows_that_are_invalid(service, client):
    """Each is a result with its message, and the other rows are sent."""

    def write_of(client, row):
        url = row.get("url", f"https://rows.example/{row['order']}")
        return client.webhooks.create(url=url, events=["invoice.created"])

    sent(rows(1), renames, client)  # its key has another write then
    given = [
        *rows(3),
        {"order": "bad-url", "url": "no url"},
        {"order": "k" * 201},
        {"order": None},
        {"order": float("nan")},
        {"order": NA()},
    ]
    results = list(send_rows(given, write_of, key="order", client=client))
    found = {each.key: each for each in results if each.verdict != "applied"}

    assert Counter(each.verdict for each in results) == {"applied": 2, "not applied": 6}
    assert "has another write in the journal" in found["row-0"].message
    assert "url" in found["bad-url"].message
    assert "1 to 200 printable characters" in found["k" * 201].message
    assert "key: is missing" in found[""].message
    assert effects_of(service) == {"row-1": 1, "row-2": 1}


def test_key_that_is_a_float_where_another_one_is_missing(service, client):
    """A whole number is one key, as an integer and as a float; a float that may be rounded is none."""

    def write_of(client, row):
        return client.journeys.update("jrn_1", name="May")

    whole, again, rounded, half = (
        next(send_rows([{"order": order}], write_of, key="order", client=client))
        for order in (17, 17.0, 2.0**53, 0.5)
    )
    assert (whole.key, again.key, half.key) == ("17", "17", "0.5")
    assert again.replayed
    assert rounded.verdict == "not applied"
    assert "may stand for several numbers" in rounded.message
    assert len(service.ledger.effects("journeys.update")) == 2


def test_refused_rows(service, client):
    """What the service said is the message."""
    given = [*rows(1), {"order": "gone", "journey": "jrn_gone"}]
    results = sent(given, renames, client)
    assert (results["row-0"].verdict, results["gone"].verdict) == ("applied", "refused")
    assert "404" in results["gone"].message
    assert results["row-0"].id == "jrn_1"


def test_unknown_rows(service, client):
    """A write that no read can settle is a result."""
    service.script("teams.create", "apply, then reset")
    given = [{"order": "team"}]
    results = list(
        send_rows(
            given,
            lambda client, row: client.teams.create(extra_body={"name": "T"}),
            key=lambda row: row["order"],
            client=client,
        )
    )
    assert [(each.key, each.verdict) for each in results] == [("team", "unknown")]


def test_key_that_comes_twice(service, client):
    """The rows have one effect, and the second says so; with another write it is invalid."""
    same = [*rows(2), *rows(1)]
    results = list(send_rows(same, creates, key="order", client=client))
    twice = [each for each in results if "is in the input twice" in each.message]

    assert effects_of(service) == {"row-0": 1, "row-1": 1}
    assert [(each.key, each.verdict) for each in twice] == [("row-0", "applied")]
    assert len({each.id for each in results}) == 2


# --- what they wait for


def test_labels_of_a_row(service, tmp_path):
    """They are stored with the key of the row."""
    path = tmp_path / "journal.db"

    def labelled(client, row):
        return renames(client, row).keyed("replaced", labels={"of": row["order"]})

    results = sent(rows(2), labelled, made(service, path))
    assert {result.verdict for result in results.values()} == {"applied"}
    with closing(sqlite3.connect(path)) as connection:
        found = connection.execute("SELECT labels FROM entries ORDER BY seq")
        assert {*found} == {('{"of":"row-0"}',), ('{"of":"row-1"}',)}


def test_order_of_rows_of_one_thing(service, client):
    """Rows of one journey take effect in their order, while answers are lost and come late."""
    journeys = [service.seed_journey()["id"] for _ in range(4)]
    steps = ["apply, then reset", "reset", "500", "apply, then 500"]
    chance = random.Random(5)
    service.script(
        "journeys.update", *(chance.choice([*steps, "pass", "pass"]) for _ in range(30))
    )
    given = [
        {"order": f"row-{number:02}", "journey": journeys[number % 4]}
        for number in range(40)
    ]
    results = sent(given, renames, client, concurrency=10)

    for journey in journeys:
        done = [
            entry.body["name"]
            for entry in service.ledger.effects("journeys.update")
            if entry.target == journey
        ]
        applied = [
            row["order"]
            for row in given
            if row["journey"] == journey and results[row["order"]].verdict == "applied"
        ]
        assert sorted(set(done)) == [*dict.fromkeys(done)]
        assert set(applied) <= set(done)
        assert done[-1] == applied[-1]


def test_rows_in_doubt_hold_no_place(service, tmp_path):
    """With two places, two rows in doubt keep none of the others waiting."""
    # which no machine is too slow for
    policy = ReconcilePolicy(settle_after_loss=50.0, deadline=60.0)
    client = made(service, tmp_path / "calls.db", reconcile=policy)
    service.script("webhooks.create", "reset", "reset")
    results = send_rows(rows(32), creates, key="order", client=client, concurrency=2)
    first = {each.key for each in islice(results, 30)}
    results.close()

    assert len(first) == 30
    assert effects_of(service) == dict.fromkeys(first, 1)


def test_rows_that_wait_for_a_row_in_doubt_hold_no_place(service, tmp_path):
    """Rows of the same journey wait for the first, which is in doubt; those of other journeys do not."""
    policy = ReconcilePolicy(settle_after_loss=50.0, deadline=60.0)
    client = made(service, tmp_path / "calls.db", reconcile=policy)
    other = service.seed_journey()["id"]
    service.script("journeys.update", "reset")
    given = [{"order": f"one-{n}", "journey": "jrn_1"} for n in range(4)]
    given += [{"order": f"two-{n}", "journey": other} for n in range(4)]
    results = send_rows(given, renames, key="order", client=client, concurrency=2)
    first = [each.key for each in islice(results, 4)]
    results.close()

    assert first == [f"two-{number}" for number in range(4)]


def most_in_flight(service):
    """Return how many creates the service had at the same time at most."""
    entries = [
        each for each in service.ledger.entries if each.operation == "webhooks.create"
    ]
    steps = [(each.received_at, 1) for each in entries]
    steps += [(each.ended_at, -1) for each in entries]
    return max(accumulate(step for _, step in sorted(steps)))


@pytest.mark.parametrize("lost", [0, 12])
def test_requests_at_the_same_time(service, tmp_path, lost):
    """They are as many as asked for, also when rows that were in doubt together are sent again together."""
    policy = ReconcilePolicy(settle_after_loss=1.5)
    client = made(service, tmp_path / "calls.db", reconcile=policy)
    service.latency = 0.1
    service.script("webhooks.create", *["reset"] * lost)
    sent(rows(20), creates, client, concurrency=4)

    assert most_in_flight(service) == 4
    assert service.arrivals("webhooks.create") == 20 + lost


def test_rate(service, client):
    """New rows are spread over time."""
    began = time.monotonic()
    sent(rows(21), creates, client, rate=40)
    assert time.monotonic() - began >= 0.45


def test_rate_of_rows_that_are_done(service, client):
    """Rows that an earlier run has done do not wait for turns: what is new waits."""
    sent(rows(50), creates, client)
    again = threading.Thread(
        target=sent,
        args=(rows(51), creates, client),
        kwargs={"rate": 0.001},
        daemon=True,
    )
    again.start()
    again.join(60)  # their turns would take 50,000 seconds
    assert not again.is_alive()
    assert service.arrivals("webhooks.create") == 51


@pytest.mark.slow
def test_rows_that_are_read_ahead(service, client):
    """While no result is taken, a bounded number of rows is read."""
    read = []

    def many():
        for row in rows(500):
            read.append(row)
            yield row

    results = send_rows(many(), creates, key="order", client=client, concurrency=2)
    assert read == []
    for taken, _ in enumerate(results, start=1):
        assert len(read) <= 2 * AHEAD + taken
    assert len(read) == 500


# --- errors


def test_clients_without_a_fitting_journal(service, tmp_path):
    """It is said in words, before a row is sent."""
    with pytest.raises(
        ConfigurationError, match=r"journal: the client has none, .* Use journal='calls"
    ):
        list(send_rows(rows(1), creates, key="order", client=made(service, None)))
    settings = Settings(write_of=creates, key="order", several=True)
    with pytest.raises(
        ConfigurationError, match=r"a file belongs to one process.* Use journal='postg"
    ):
        list(send_part(rows(1), settings, made(service, tmp_path / "calls.db")))
    assert service.arrivals("webhooks.create") == 0


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"key": "ordr"}, "key: the rows have no column 'ordr', but order"),
        ({"key": ""}, "key: takes the name of a column"),
        ({"key": None}, "key: takes the name of a column"),
        ({"write_of": None}, "write_of: takes a function"),
        ({"write_of": lambda client, row: row}, "must return a write, such as"),
        ({"concurrency": 0}, "concurrency: takes a whole number"),
        ({"rate": 0}, "rate: takes rows a second"),
    ],
)
def test_arguments_of_no_use(service, client, changed, said):
    """Each is told in words, and nothing is sent."""
    given = {"write_of": creates, "key": "order", **changed}
    write_of = given.pop("write_of")
    with pytest.raises(ConfigurationError, match=said):
        list(send_rows(rows(2), write_of, client=client, **given))
    assert service.arrivals("webhooks.create") == 0


class Frame:
    """Stands in for a frame of pandas, which is iterated over by the names of its columns."""

    columns = ("order", "url")

    def __iter__(self):
        return iter(self.columns)

    def to_dict(self, orient):
        return rows(3)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (Frame(), r"not a Frame\. .* frame\.to_dict\('records'\)"),
        (None, "not NoneType"),
    ],
)
def test_rows_that_are_no_rows(service, client, given, said):
    """It is said in words what to pass instead; nothing is sent."""
    with pytest.raises(
        ConfigurationError, match=f"rows: takes an iterable of rows, {said}"
    ):
        sent(given, creates, client)
    assert not service.ledger.effects()


def test_writes_of_another_client(service, client):
    """They would not be counted, nor sent in this loop: it is said in words."""
    other = Client(service.base_url, ApiKey(service.api_key))
    with pytest.raises(
        ConfigurationError, match="must use the client that it is given"
    ):
        list(
            send_rows(
                rows(1), lambda _, row: creates(other, row), key="order", client=client
            )
        )


def test_error_of_the_program(service, client):
    """It is raised once the rows under way have ended, and their results were given."""

    def write_of(client, row):
        if row["order"] == "row-5":
            raise ZeroDivisionError
        return creates(client, row)

    results = []
    with pytest.raises(ZeroDivisionError):
        results.extend(send_rows(rows(10), write_of, key="order", client=client))
    got = []
    service.latency = 0.2
    with pytest.raises(ZeroDivisionError):
        for result in send_rows(rows(10), write_of, key="order", client=client):
            got.append(result.key)  # noqa: PERF401 - what came before the error
    assert sorted(got) == [f"row-{number}" for number in range(5)]
    assert effects_of(service) == dict.fromkeys(got, 1)


def test_error_of_the_rows(service, client):
    """The same, if the rows cannot be read any more."""

    def broken():
        yield from rows(3)
        raise OSError("no more")

    got = []
    with pytest.raises(OSError, match="no more"):
        for result in send_rows(broken(), creates, key="order", client=client):
            got.append(result.key)  # noqa: PERF401 - as above
    assert sorted(got) == ["row-0", "row-1", "row-2"]


def test_journal_that_cannot_be_opened(service, tmp_path):
    """It is an error of the journal."""
    (tmp_path / "calls.db").write_text("this is no journal" * 100)
    with pytest.raises(JournalError):
        list(
            send_rows(
                rows(1),
                creates,
                key="order",
                client=made(service, tmp_path / "calls.db"),
            )
        )


async def lose_lease(portal):
    """Let the process of *portal* have given no sign of life for longer than a write waits for it."""
    lane = await journal_of(portal.client).life.own_lane()
    lane.leases.patience = lane.leases.until = 0.0


def test_journal_that_is_away_for_a_while(service):
    """Rows wait until it is there again, and go on under their keys: each has one effect."""
    make = made(service, database().at(namespace="away", silence=12))
    with portal_of(make, keep=False) as lent:
        lent.portal.call(lose_lease(lent.portal))  # until the next sign, in 3 s
        results = sent(rows(4), creates, make)
    assert {each.verdict for each in results.values()} == {"applied"}
    assert effects_of(service) == {row["order"]: 1 for row in rows(4)}


def test_journal_that_stays_away(service, monkeypatch):
    """After a while it is an error, which says that the journal is away; nothing was sent."""
    # reaches: five minutes otherwise
    monkeypatch.setattr(sender, "AWAY", 0.5)
    make = made(service, database().at(namespace="gone", silence=12))
    with portal_of(make, keep=False) as lent:
        lent.portal.call(lose_lease(lent.portal))
        with pytest.raises(JournalError, match="is away") as caught:
            sent(rows(4), creates, make)
    assert caught.value.is_away
    assert not effects_of(service)


def names_of(service):
    return [entry.body["name"] for entry in service.ledger.effects("journeys.update")]


async def test_order_while_the_database_is_away(service):
    """Rows that wait for it keep their places: no later row to the same thing passes them."""
    service.latency = 0.02
    journeys = [service.seed_journey()["id"] for _ in range(3)]
    given = [{**row, "journey": journeys[at % 3]} for at, row in enumerate(rows(60))]
    results = {}

    def send(make):
        with portal_of(make, keep=False) as lent:
            # ten seconds otherwise, after which writes other than rows give up
            store_beneath(lent.portal.client).patience = 0.3
            for result in send_rows(given, renames, key="order", client=make):
                results[result.key] = result

    async with database_proxy() as proxy:
        make = made(service, f"{proxy.address}&namespace=cut&silence=4")
        sending = asyncio.create_task(asyncio.to_thread(send, make))
        await until(lambda: len(results) > 10 or sending.done())
        proxy.cut()
        await asyncio.sleep(1.5)  # real: longer than other writes wait
        await proxy.open()
        await sending
    assert {each.verdict for each in results.values()} == {"applied"}
    names = [int(name.removeprefix("row-")) for name in names_of(service)]
    for first in range(3):
        of_one = [name for name in names if name % 3 == first]
        assert of_one == [*range(first, 60, 3)]


def test_rows_behind_one_that_fails(service, client, monkeypatch):
    """They are not sent: the one that has failed would come after them."""
    claim, errors = Claims.claim, [JournalError("damaged")]

    async def claimed(claims, run, entry):
        if errors:
            raise errors.pop()
        return await claim(claims, run, entry)

    # reaches: a store that refuses one statement
    monkeypatch.setattr(Claims, "claim", claimed)
    journey = service.seed_journey()["id"]
    given = [{**row, "journey": journey} for row in rows(4)]
    with pytest.raises(JournalError, match="damaged"):
        sent(given, renames, client)
    assert not names_of(service)
    sent(given, renames, client)
    assert names_of(service) == [row["order"] for row in given]


def test_order_of_rows_with_a_rate(service, client, monkeypatch):
    """A row is not passed while the journal is asked whether it was done before."""
    looks = iter([0.1, 0.0, 0.0])
    ask = sender._has_happened  # reaches: to delay it

    async def asked(write):
        await asyncio.sleep(next(looks))
        return await ask(write)

    # reaches: an answer of the database that comes late
    monkeypatch.setattr(sender, "_has_happened", asked)
    journey = service.seed_journey()["id"]
    given = [{**row, "journey": journey} for row in rows(3)]
    sent(given, renames, client, rate=1000)
    assert names_of(service) == [row["order"] for row in given]


def test_iterator_that_is_left_early(service, client):
    """What is under way is cancelled; sent again, each row has one effect."""
    service.latency = 0.2
    results = send_rows(rows(30), creates, key="order", client=client, concurrency=5)
    taken = [each.key for each in islice(results, 3)]
    results.close()
    service.latency = 0.0
    again = sent(rows(30), creates, client)

    assert effects_of(service) == {row["order"]: 1 for row in rows(30)}
    assert {each.verdict for each in again.values()} == {"applied"}
    assert all(again[key].replayed for key in taken)


# --- processes and threads


def test_threads_share_one_client(service, tmp_path):
    """Four threads that send parts at the same time have one client, which is closed after the last."""
    clients = []
    make = made(service, tmp_path / "calls.db")

    def noting():
        clients.append(make())
        return clients[-1]

    barrier = threading.Barrier(4)

    def part(number):
        def begun():
            for at, row in enumerate(rows(10, f"part-{number}")):
                if at == 1:
                    barrier.wait(LONG)  # while all have begun
                yield row

        return sent(begun(), creates, noting)

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(part, range(4)))
    assert [len(each) for each in found] == [10] * 4
    assert len(clients) == 1
    assert not [each for each in threading.enumerate() if each.name == "invsvc portal"][
        1:
    ], "the first one is that of the service"


def test_threads_share_the_limits(service, tmp_path):
    """Together they have as many requests in flight as asked for."""
    make = made(service, tmp_path / "calls.db")
    service.latency = 0.1
    barrier = threading.Barrier(3)

    def part(number):
        def begun():
            for at, row in enumerate(rows(8, f"part-{number}")):
                if at == 1:
                    barrier.wait(LONG)  # while all have begun
                yield row

        return sent(begun(), creates, make, concurrency=3)

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(part, range(3)))
    assert most_in_flight(service) == 3


def test_worker_keeps_its_client(service):
    """The worker of an engine has one client for all parts, and one for another environment."""
    clients = []
    place = database().at(namespace="kept", silence=1)
    make = made(service, place)

    def noting():
        clients.append(make())
        return clients[-1]

    settings = Settings(write_of=creates, key="order", several=True)
    for number in range(3):
        results = list(send_part(rows(3, f"part-{number}"), settings, noting))
        assert [each.verdict for each in results] == ["applied"] * 3
    assert len(clients) == 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("INVSVC_TEAM", "another")
        assert len(list(send_part(rows(3, "part-3"), settings, noting))) == 3
    assert len(clients) == 2
    sent(rows(1, "last"), creates, noting)  # which leaves none


@pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows cannot fork")
@pytest.mark.filterwarnings("default::DeprecationWarning")  # of a fork with threads
def test_forked_process(service):
    """It opens a client of its own, while the parent's stays open."""
    place = database().at(namespace="forked", silence=1)
    settings = Settings(write_of=creates, key="order", several=True)
    make = made(service, place)
    assert len(list(send_part(rows(2, "parent"), settings, make))) == 2
    child = os.fork()
    if child == 0:
        try:
            found = list(send_part(rows(2, "child"), settings, make))
            os._exit(0 if [each.verdict for each in found] == ["applied"] * 2 else 1)
        finally:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    assert len(list(send_part(rows(2, "again"), settings, make))) == 2
    assert len(effects_of(service)) == 6
    sent(rows(1, "last"), creates, make)  # which leaves none


def child(service, journal, many, *more):
    command = [sys.executable, "-m", "tests.engines.rows_child"]
    return subprocess.Popen(  # noqa: S603 - this package's
        [*command, service.base_url, service.api_key, str(journal), str(many), *more],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


def results_in(lines):
    return {(each := RowResult(**json.loads(line))).key: each for line in lines}


@pytest.mark.slow
@pytest.mark.parametrize("shared", [False, True], ids=["file", "postgresql"])
def test_process_that_is_killed(tmp_path, shared):
    """Killed twice while answers are lost and commits late, then run to its end: each row once, all told."""
    faults = Faults(rate=0.15, reads=0.02, late_up_to=0.2, hang=0.3)
    journal = (
        database().at(namespace="rows", silence=1) if shared else tmp_path / "c.db"
    )
    with serving(seed=11, faults=faults, latency=0.02) as service:
        journeys = [service.seed_journey()["id"] for _ in range(4)]
        more = ("40", *journeys)
        before = {}
        for kill_after in (15, 60):
            with child(service, journal, 120, *more) as running:
                lines = list(islice(running.stdout, kill_after))
                running.send_signal(signal.SIGKILL)
            before |= results_in(lines)
        with child(service, journal, 120, *more) as running:
            results = results_in(running.stdout)
        assert running.returncode == 0
        # sleeps: what is late has arrived by then
        time.sleep(0.3)

        given = rows_of(120, 40, journeys)
        assert set(results) == {row["order"] for row in given}
        judged(service, given, results)
        for key, each in before.items():
            if each.verdict == "applied":
                assert (results[key].verdict, results[key].replayed) == (
                    "applied",
                    True,
                )


@pytest.mark.slow
def test_rows_that_two_processes_send_at_once():
    """As of a part that an engine runs speculatively: each row once, and both have its verdict."""
    faults = Faults(rate=0.1, reads=0.02, late_up_to=0.2, hang=0.3)
    journal = database().at(namespace="twice", silence=60)
    with serving(seed=12, faults=faults, latency=0.02) as service:
        journeys = [service.seed_journey()["id"] for _ in range(4)]
        more = ("80", *journeys)
        with (
            child(service, journal, 120, *more) as first,
            child(service, journal, 120, *more) as second,
        ):
            outputs = [run.communicate()[0] for run in (first, second)]
        assert (first.returncode, second.returncode) == (0, 0)
        given = rows_of(120, 80, journeys)
        one, other = (results_in(output.splitlines()) for output in outputs)
        judged(service, given, one, elsewhere=other)
        judged(service, given, other, elsewhere=one)


def judged(service, given, results, *, elsewhere=None):
    """Compare each verdict with the ledger.  What was not applied may have been done anew *elsewhere*."""
    created = effects_of(service)
    renamed = effects_of(service, "journeys.update")
    for row in given:
        key = row["order"]
        verdict = results[key].verdict
        many = (created if row["journey"] is None else renamed)[key]
        assert many <= 1, f"{key}: {many} effects"
        if verdict == "unknown":
            continue
        if verdict == "not applied" and many:
            assert elsewhere is not None, results[key]
            by_other = elsewhere[key]
            assert (by_other.verdict, by_other.replayed) == ("applied", False), by_other
            continue
        assert (verdict == "applied") == bool(many), results[key]


# --- what they are for engines


def test_secrets_that_nobody_would_get(service, tmp_path):
    """A sink, which returns no results, creates webhooks only for a client with ``on_secret``."""
    settings = Settings(write_of=creates, key="order", is_sink=True)
    client = made(service, tmp_path / "calls.db", on_secret=None)
    with pytest.raises(ConfigurationError, match="on_secret: is not set"):
        list(send_part(rows(3), settings, client))
    assert service.arrivals("webhooks.create") == 0
    kept = made(service, tmp_path / "kept.db")
    assert {each.verdict for each in send_part(rows(3), settings, kept)} == {"applied"}


@pytest.mark.parametrize("incomplete", ["raise", "rase"])
def test_sink_whose_rows_are_not_applied(service, client, incomplete):
    """It tells the counts, and the first such row; a slip of the pen does not make it silent."""
    refused = {"order": "gone", "journey": "jrn_gone"}
    results = send_rows([refused], renames, key="order", client=client)
    with pytest.raises(
        IncompleteError, match=r"1 rows: 1 refused\. The first .* gone: ref"
    ):
        PartCounts.sum([PartCounts.of(results)]).conclude(incomplete)


def test_sum_of_parts_of_a_table():
    """It has all counts, and the first row that was not applied."""
    parts = [
        PartCounts.of([RowResult(key=key, verdict=verdict)])
        for key, verdict in (("a", "applied"), ("b", "refused"), ("c", "unknown"))
    ]
    told = PartCounts.sum(parts)
    assert told.counts.rows == 3
    assert told.first == "b: refused: "


def test_names_of_things(service, tmp_path):
    """Writes to one thing have one name, also creates of one URL; a write that was only asked can be dropped."""
    client = made(service, None)()
    one, same, other = (
        partition_key(client.journeys.update(journey, name="A"))
        for journey in ("jrn_1", "jrn_1", "jrn_2")
    )
    hook, equal, another = (
        partition_key(client.webhooks.create(url=url, events=["invoice.created"]))
        for url in ("https://a.example/", "https://A.example/", "https://b.example/")
    )
    team = partition_key(client.teams.create(extra_body={"name": "T"}))
    assert one == same != other
    assert hook == equal != another
    assert team


def test_program_of_the_docstring(service, tmp_path, monkeypatch):
    """It runs as it stands, and again it replays."""
    monkeypatch.setenv("INVSVC_BASE_URL", service.base_url)
    monkeypatch.setenv("INVSVC_API_KEY", service.api_key)
    monkeypatch.setenv("INVSVC_JOURNAL", "calls.db")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    first, again = (output_of("rows", tmp_path) for _ in range(2))
    assert sorted(first.splitlines()) == [f"order-{n} applied sent" for n in range(3)]
    assert again.count("applied replayed") == 3


@pytest.mark.parametrize("engine", ["spark", "ray", "dask", "dlt"])
def test_programs_of_docstrings_and_pages(engine):
    """They are the same."""
    assert program_of(engine) == example_of(engine)


def test_schema_of_results():
    """It has the fields of a result, in their order."""
    pyarrow = pytest.importorskip("pyarrow")
    from invsvc_async.engines import rows as module

    schema = module.RESULT_SCHEMA
    plain = RowResult(key="k", verdict="applied").to_dict()
    assert schema.names == list(plain)
    assert pyarrow.Table.from_pylist([plain], schema=schema).num_rows == 1
    with pytest.raises(AttributeError, match="no attribute 'SCHEMA'"):
        _ = module.SCHEMA


def test_errors_after_which_a_task_runs_again():
    """They are those of the page's table."""
    page = (ROOT / "docs/how-to/task-engines.md").read_text()
    table = page.partition("| Error | Run it again? |")[2].partition("\n\n")[0]
    told = {
        name
        for line in table.splitlines()
        if line.endswith("| yes |")
        for name in re.findall(r"`(\w+)`", line)
    }
    assert told == {error.__name__ for error in RUN_AGAIN}


def test_modules_without_their_engines():
    """Each says in words what to install; so does one for an engine that is too old."""
    with pytest.raises(
        ConfigurationError,
        match=r"no-such-engine: is not installed\. Run: pip install 'no-such-engine>=4\.1'",
    ):
        require("no-such-engine", 4, 1)
    with pytest.raises(
        ConfigurationError,
        match=r"pytest: [\d.]+ does not fit\. Run: pip install 'pytest>=9999'",
    ):
        require("pytest", 9999)
    require("pytest", 1)


@pytest.mark.parametrize(
    ("module", "needed"),
    [
        ("airflow", versions.AIRFLOW),
        ("airflow_trigger", versions.AIRFLOW_TRIGGERER),
        ("celery", versions.CELERY),
        ("dask", versions.DASK),
        ("dlt", versions.DLT),
        ("procrastinate", versions.PROCRASTINATE),
        ("ray", versions.RAY),
        ("spark", versions.SPARK),
        ("temporal", versions.TEMPORAL),
    ],
)
def test_first_words_of_a_module_without_its_engine(module, needed):
    """They name the package and the version, whatever else the module imports."""
    package, *least = needed
    if installed(package):
        pytest.skip(f"{package} is installed")
    wanted = re.escape(f"{package}>={'.'.join(map(str, least))}")
    with pytest.raises(ConfigurationError, match=f"is not installed.*'{wanted}'"):
        import_module(f"invsvc_async.engines.{module}")


def installed(package):
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def test_what_is_imported():
    """The package imports no module for engines, and ``rows`` nothing of an engine, pandas or pyarrow."""
    code = (
        "import sys, invsvc_async; from invsvc_async import *;"
        "print(*sorted(each for each in sys.modules if each.startswith('invsvc_async.engines')));"
        "import invsvc_async.engines.rows;"
        "print(*{'pyspark', 'ray', 'dask', 'celery', 'pandas', 'pyarrow', 'numpy'} & {*sys.modules})"
    )
    ran = subprocess.run(  # noqa: S603 - as above
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert ran.stdout == "\n\n"


def test_portal_shows_no_token_of_the_environment(monkeypatch):
    """A frame or an error that shows what is lent shows no setting."""
    monkeypatch.setenv("INVSVC_API_KEY", "a-token-of-the-environment")

    def make():
        return Client("http://127.0.0.1:9/v2", ApiKey("another"))

    with portal_of(make, keep=False) as lent:
        assert "a-token" not in repr(lent)
        with portal_of(make, keep=False) as again:
            assert again is lent
        monkeypatch.setenv("INVSVC_API_KEY", "one-more-token")
        with portal_of(make, keep=False) as other:
            assert other is not lent
