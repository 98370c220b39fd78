"""
The record of each thing: whose turn it is, what was shown last, what is open; all bounded together, and always right.
"""

import asyncio
import pickle
from decimal import Decimal

import pytest
from msgspec import Raw

from invsvc_async import ApiKey, Client
from invsvc_async.client import options_of
from invsvc_async.models import Journey
from invsvc_async.reconcile.intent import Intent, Scope
from invsvc_async.reconcile.kinds import KINDS
from invsvc_async.simulator import Simulator
from invsvc_async.testing import VirtualClock
from invsvc_async.writes import shown, things
from invsvc_async.writes.line_names import line_of
from invsvc_async.writes.new_intent import request_of
from invsvc_async.writes.register import WriteRegister
from invsvc_async.writes.starting import taken_up
from invsvc_async.writes.things import LastState, UrlIds, version_of

THING = "/journeys/j1"
URL = "https://a.example/in"
SCOPE = Scope(base_url="https://host.example/v2")


def state(name, at=None):
    return {"name": name} if at is None else {"name": name, "last_updated": at}


def lines_at(clock):
    return WriteRegister(is_of_one_mode=True, clock=clock)


@pytest.fixture
def own():
    return WriteRegister(is_of_one_mode=True)


async def never(_seconds):
    raise AssertionError("nobody has to wait")


async def settle_down():
    """Run all tasks until they wait."""
    for _ in range(5):
        await asyncio.sleep(0)


def waiting(lines, line, *, owner=None, pause=never):
    return asyncio.create_task(lines.lines.turn(lines.records.of(line), owner, pause))


# --- whose turn it is


async def test_free_lock():
    """A free lock is acquired at once and only once; nothing remains after its release."""
    lines = lines_at(VirtualClock())

    assert lines.records.of("a").enter()
    assert not lines.records.of("a").enter()
    assert lines.records.of("b").enter()
    lines.lines.leave(lines.records.of("a"))
    assert len(lines.records.all()) == 1
    assert lines.records.of("a").enter()


async def test_waiters_are_served_in_order():
    """Each release wakes the one that has waited longest; nobody overtakes the queue."""
    lines, served = lines_at(VirtualClock()), []
    lines.records.of("a").enter()

    async def one(name):
        await lines.lines.turn(lines.records.of("a"), None, never)
        served.append(name)

    tasks = []
    for name in "bcd":
        tasks.append(asyncio.create_task(one(name)))
        await settle_down()
    for expected in ("b", "bc", "bcd"):
        lines.lines.leave(lines.records.of("a"))
        assert not lines.records.of("a").enter(), (
            "it is handed over before the waiter runs"
        )
        await settle_down()
        assert "".join(served) == expected
    lines.lines.leave(lines.records.of("a"))
    assert len(lines.records.all()) == 0


async def test_waiter_that_is_cancelled_while_it_waits():
    """A cancelled waiter leaves the queue, and the next one gets the lock."""
    lines = lines_at(VirtualClock())
    lines.records.of("a").enter()
    gone, stays = waiting(lines, "a"), waiting(lines, "a")
    await settle_down()
    gone.cancel()
    await settle_down()
    assert len(lines.records.of("a").waiters) == 1
    lines.lines.leave(lines.records.of("a"))

    await asyncio.wait_for(stays, 30)
    lines.lines.leave(lines.records.of("a"))
    assert gone.cancelled()
    assert len(lines.records.all()) == 0


async def test_waiter_that_is_cancelled_as_the_lock_is_handed_over():
    """The lock is passed to the next one."""
    lines = lines_at(VirtualClock())
    lines.records.of("a").enter()
    gone, stays = waiting(lines, "a"), waiting(lines, "a")
    await settle_down()
    lines.lines.leave(lines.records.of("a"))
    gone.cancel()

    await asyncio.wait_for(stays, 30)
    assert gone.cancelled()
    lines.lines.leave(lines.records.of("a"))
    assert len(lines.records.all()) == 0


async def test_last_waiter_that_is_cancelled_as_the_lock_is_handed_over():
    """The lock is free again."""
    lines = lines_at(VirtualClock())
    lines.records.of("a").enter()
    gone = waiting(lines, "a")
    await settle_down()
    lines.lines.leave(lines.records.of("a"))
    gone.cancel()
    await settle_down()

    assert gone.cancelled()
    assert len(lines.records.all()) == 0


async def test_closed_lock():
    """It stays closed to the next one until its time has passed, even after its release."""
    lines, paused = lines_at(clock := VirtualClock()), []

    async def pause(seconds):
        paused.append(seconds)
        clock.advance(seconds)
        return True

    lines.records.of("a").enter()
    lines.lines.close("a", "first", clock.now() + 4)
    lines.lines.leave(lines.records.of("a"))
    assert not lines.records.of("a").enter()
    assert lines.lines.closed_for("a") == 4
    await lines.lines.turn(lines.records.of("a"), None, pause)

    assert paused == [4]
    lines.lines.leave(lines.records.of("a"))
    assert len(lines.records.all()) == 0


async def test_closed_lock_and_its_owner():
    """The one that closed it ignores its own closing, but not that of others."""
    lines, paused = lines_at(clock := VirtualClock()), []

    async def pause(seconds):
        paused.append(seconds)
        clock.advance(seconds)
        return True

    lines.lines.close("a", "first", clock.now() + 4)
    await lines.lines.turn(lines.records.of("a"), "first", never)
    lines.lines.close("a", "second", clock.now() + 2)
    lines.lines.leave(lines.records.of("a"))
    await lines.lines.turn(lines.records.of("a"), "first", pause)

    assert paused == [2]


async def test_lock_that_is_closed_again():
    """The later of two times counts, in any order; a time in the past does not."""
    lines = lines_at(clock := VirtualClock())
    begun = clock.now()
    lines.lines.close("a", "first", begun + 4)
    lines.lines.close("a", "first", begun + 2)
    lines.lines.close("a", "second", begun + 3)

    assert lines.lines.closed_for("a") == begun + 4 - clock.now()
    clock.advance(5)
    lines.lines.close("a", "third", begun + 6)
    assert lines.lines.closed_for("a") == begun + 6 - clock.now()
    assert set(lines.records.of("a").closed_until) == {"third"}
    assert lines.lines.closed_for("b") == 0


async def test_lock_that_is_closed_while_somebody_waits():
    """The next one waits until it opens, and is woken if the client is closed."""
    lines, paused = lines_at(clock := VirtualClock()), []

    async def interrupted(seconds):
        paused.append(seconds)
        return False

    lines.records.of("a").enter()
    waiter = waiting(lines, "a", pause=interrupted)
    await settle_down()
    lines.lines.close("a", "first", clock.now() + 4)
    lines.lines.leave(lines.records.of("a"))
    await asyncio.wait_for(waiter, 30)

    assert paused == [4]


async def test_lock_that_is_closed_for_longer_during_a_pause():
    """The next one waits for the rest of the time, too."""
    lines, paused = lines_at(clock := VirtualClock()), []

    async def pause(seconds):
        paused.append(seconds)
        clock.advance(seconds)
        if len(paused) == 1:
            lines.lines.close("a", "second", clock.now() + 3)
        return True

    lines.lines.close("a", "first", clock.now() + 4)
    await lines.lines.turn(lines.records.of("a"), None, pause)

    assert paused == [4, 3]


async def test_waiter_that_is_cancelled_while_the_lock_is_closed():
    """It passes the lock to the next one, which waits for the rest of the time."""
    lines, paused = lines_at(clock := VirtualClock()), []
    forever = asyncio.Event()

    async def stuck(_seconds):
        return await forever.wait()

    async def pause(seconds):
        paused.append(seconds)
        clock.advance(seconds)
        return True

    lines.lines.close("a", "first", clock.now() + 4)
    gone = waiting(lines, "a", pause=stuck)
    await settle_down()
    stays = waiting(lines, "a", pause=pause)
    await settle_down()
    clock.advance(1)
    gone.cancel()
    await asyncio.wait_for(stays, 30)

    assert gone.cancelled()
    assert paused == [3]


# --- the last state of a thing


def test_thing_that_nothing_showed(own):
    """Nothing is known about it."""
    assert own.shown.last_state(None, THING) is None
    own.shown.forget_state(THING)
    assert own.shown.last_state(None, THING) is None


def test_read_after_a_read(own):
    """The later one counts."""
    own.shown.learn_state(None, THING, state("one"), 1.0, 2.0, stamp=1000, weight=10)
    own.shown.learn_state(None, THING, state("two"), 2.0, 3.0, stamp=2000, weight=20)

    assert own.shown.last_state(None, THING) == LastState(state("two"), 3.0, 2000, 20)


@pytest.mark.parametrize(
    ("started", "ended"), [(1.5, 2.5), (0.5, 3.0), (1.2, 1.8), (0.0, 0.5)]
)
def test_read_that_overlaps_with_what_is_kept(own, started, ended):
    """It is ignored, because it is unknown which state is the later one."""
    own.shown.learn_state(None, THING, state("one"), 1.0, 2.0)
    own.shown.learn_state(None, THING, state("two"), started, ended)

    assert own.shown.last_state(None, THING).state == state("one")


def test_answer_to_a_write_that_overlaps_with_a_read(own):
    """The write has the lock of its resource, so its answer is the later state."""
    own.shown.learn_state(None, THING, state("read"), 1.0, 2.0)
    own.shown.learn_state(None, THING, state("written"), 1.5, 2.5, written=True)
    own.shown.learn_state(None, THING, state("read before it landed"), 1.9, 2.4)

    assert own.shown.last_state(None, THING).state == state("written")


def test_json_that_was_shown(own):
    """It is decoded when it is asked for, but for members that no parser accepts."""
    own.shown.learn_state(None, THING, Raw(b'{"name":"one","size":1.50}'), 1.0, 2.0)
    assert own.shown.last_state(None, THING).state == {
        "name": "one",
        "size": Decimal("1.50"),
    }
    own.shown.learn_state(
        None, THING, Raw(b'{"name":"two","size":1E999999999999999999999}'), 2.0, 3.0
    )
    assert own.shown.last_state(None, THING).state == {"name": "two"}
    own.shown.learn_state(None, THING, Raw(b"[1E999999999999999999999]"), 3.0, 4.0)
    assert own.shown.last_state(None, THING).state is None
    assert "1E9" not in repr(own.records.of(THING))


def test_states_of_several_things(own):
    """States are stored separately; a resource that is gone has an empty state."""
    own.shown.learn_state(None, THING, state("one"), 1.0, 2.0)
    own.shown.learn_state(None, "/webhooks/wh_1", {}, 1.0, 2.0)
    own.shown.learn_state(None, "/journeys/j2", state("of no team"), 1.0, 2.0)
    own.shown.forget_state(THING)

    assert own.shown.last_state(None, THING) is None
    assert own.shown.last_state(None, "/webhooks/wh_1").state == {}
    assert own.shown.last_state(None, "/journeys/j2").state == state("of no team")


def test_states_that_are_too_long(own, monkeypatch):
    """The oldest are dropped until the rest fits; storing a state again makes it new."""
    monkeypatch.setattr(things, "MOST_BYTES", 100_000)
    for number in range(3):
        own.shown.learn_state(
            None, str(number), state(str(number)), number, number + 0.5, weight=30_000
        )
    own.shown.learn_state(None, "0", state("again"), 5.0, 5.5, weight=30_000)
    own.shown.learn_state(None, "3", state("3"), 6.0, 6.5, weight=30_000)

    assert [
        number for number in range(4) if own.shown.last_state(None, str(number))
    ] == [0, 2, 3]
    assert own.shown.last_state(None, "0").state == state("again")


def test_states_that_are_too_many(own, monkeypatch):
    """The oldest are dropped, however short they are."""
    monkeypatch.setattr(things, "MOST_BYTES", 3 * things.OWN_BYTES)
    for number in range(5):
        own.shown.learn_state(
            None, str(number), state(str(number)), number, number + 0.5
        )

    assert [
        number for number in range(5) if own.shown.last_state(None, str(number))
    ] == [2, 3, 4]


def test_weight_of_what_is_forgotten(own, monkeypatch):
    """It makes room for others."""
    monkeypatch.setattr(things, "MOST_BYTES", 100_000)
    for number in range(20):
        own.shown.learn_state(
            None, THING, state(str(number)), number, number + 0.5, weight=60_000
        )
        own.shown.forget_state(THING)
    own.shown.learn_state(None, "other", state("kept"), 30.0, 31.0, weight=30_000)
    for number in range(31, 35):
        own.shown.learn_state(
            None, THING, state("last"), number, number + 0.5, weight=60_000
        )

    assert own.shown.last_state(None, "other") is not None
    assert own.shown.last_state(None, THING) is not None


@pytest.mark.parametrize(
    ("shown", "version"),
    [
        ({"last_updated": 1_700_000_000_123}, 1_700_000_000_123),
        ({"last_updated": None}, None),
        ({"last_updated": "yesterday"}, None),
        ({"last_updated": True}, None),
        ({}, None),
        (None, None),
    ],
)
def test_version_of_a_state(shown, version):
    """It is the time of the last change, in ms, if the state shows it."""
    assert version_of(shown) == version


def test_version_of_a_model():
    """A model's time is that of the wire, to the millisecond."""
    from invsvc_async.codec import structure

    assert (
        version_of(structure(Journey, {"id": "j1", "last_updated": 1_700_000_000_123}))
        == 1_700_000_000_123
    )


# --- webhooks, by URL


def test_ids_that_answers_gave(own):
    """Ids are stored with their times; those created before a given time can be excluded."""
    own.shown.learn_created(URL, "wh_1", 1000)
    own.shown.learn_created(URL, "wh_2", 3000)
    own.shown.learn_created(URL, "wh_3", None)
    own.shown.learn_created("https://b.example/in", "wh_4", 3000)
    known = own.shown.ids(URL)

    assert known.forgotten_until is None
    assert known.created_since(None) == {"wh_1", "wh_2", "wh_3"}
    assert known.created_since(2.0) == {"wh_2", "wh_3"}, (
        "of one without a time nothing is sure"
    )
    assert known.created_since(3.0) == {"wh_2", "wh_3"}


def test_url_that_nothing_was_created_of(own):
    """Nothing is known, and nothing is forgotten."""
    assert own.shown.ids(URL) == UrlIds()
    assert own.shown.ids(URL).forgotten_until is None


def test_ids_of_one_url_that_are_too_many(own, monkeypatch):
    """The older half is dropped, and its latest time kept: a webhook created until then may be one of them."""
    monkeypatch.setattr(shown, "IDS_OF_A_URL", 4)
    for number in range(1, 6):
        own.shown.learn_created(URL, f"wh_{number}", number * 1000)
    known = own.shown.ids(URL)

    assert known.created_since(None) == {"wh_4", "wh_5"}
    assert known.forgotten_until == 3000


def test_forgotten_ids_out_of_order(own, monkeypatch):
    """The latest of the forgotten times counts, and it never decreases."""
    monkeypatch.setattr(shown, "IDS_OF_A_URL", 2)
    for webhook_id, at in (
        ("wh_1", 9000),
        ("wh_2", 1000),
        ("wh_3", 2000),
        ("wh_4", 3000),
        ("wh_5", 4000),
    ):
        own.shown.learn_created(URL, webhook_id, at)

    assert own.shown.ids(URL).forgotten_until == 9000


def test_forgotten_id_without_a_time(own, monkeypatch):
    """Any webhook may be that one."""
    monkeypatch.setattr(shown, "IDS_OF_A_URL", 2)
    for number, at in enumerate((None, 1000, 2000)):
        own.shown.learn_created(URL, f"wh_{number}", at)

    assert own.shown.ids(URL).forgotten_until > 10**14


def test_urls_that_are_too_many(own, monkeypatch):
    """The least recently used URL is dropped; for URLs not stored, something may have been forgotten."""
    monkeypatch.setattr(things, "MOST_BYTES", 2 * (things.OWN_BYTES + 256))
    own.shown.learn_created("a", "wh_1", 5000)
    own.shown.learn_created("b", "wh_2", 1000)
    own.shown.learn_created("a", "wh_3", 6000)
    own.shown.learn_created("c", "wh_4", 7000)

    assert own.shown.ids("a").created_since(None) == {"wh_1", "wh_3"}
    assert own.shown.ids("a").forgotten_until is None
    for gone in ("b", "never seen"):
        assert own.shown.ids(gone).ids == ()
        assert own.shown.ids(gone).forgotten_until == 1000


def test_url_that_comes_back(own, monkeypatch):
    """What was forgotten of it stays forgotten, with its time."""
    monkeypatch.setattr(things, "MOST_BYTES", things.OWN_BYTES + 256)
    own.shown.learn_created("a", "wh_1", 5000)
    own.shown.learn_created("b", "wh_2", 1000)
    own.shown.learn_created("a", "wh_3", 6000)

    assert own.shown.ids("a").created_since(None) == {"wh_3"}
    assert own.shown.ids("a").forgotten_until == 5000
    assert own.shown.ids("b").forgotten_until == 5000


# --- lists


def test_last_list(own):
    """The list is stored by team, and its ids are found by URL in any form."""
    own.shown.learn_list(
        "hooks", "team", [{"id": "wh_1", "url": "https://old.example/in"}]
    )
    own.shown.learn_list(
        "hooks",
        "team",
        [
            {"id": "wh_2", "url": "HTTPS://A.example:443/in"},
            {"id": 5, "url": URL},
            "damaged",
        ],
    )
    own.shown.learn_list("hooks", None, [{"id": "wh_3", "url": URL}])

    assert own.shown.last_list("hooks", "team").ids(
        KINDS["create of a webhook"], {"url": URL}
    ) == {"wh_2"}
    assert (
        own.shown.last_list("hooks", "team").ids(
            KINDS["create of a webhook"], {"url": "https://old.example/in"}
        )
        == set()
    )
    assert own.shown.last_list("hooks", None).ids(
        KINDS["create of a webhook"], {"url": URL}
    ) == {"wh_3"}
    assert own.shown.last_list("hooks", "other") is None


def test_last_lists_of_many_teams(own, monkeypatch):
    """Those that were read longest ago are dropped: their next create reads the list first."""
    monkeypatch.setattr(shown, "MOST_TEAMS", 2)
    for team in ("a", "b", "a", "c"):
        own.shown.learn_list("hooks", team, [{"id": f"wh_{team}", "url": URL}])

    assert own.shown.last_list("hooks", "a").ids(
        KINDS["create of a webhook"], {"url": URL}
    ) == {"wh_a"}
    assert own.shown.last_list("hooks", "b") is None
    assert own.shown.last_list("hooks", "c").ids(
        KINDS["create of a webhook"], {"url": URL}
    ) == {"wh_c"}


def test_last_list_that_is_asked_for_many_urls(own):
    """Its size does not grow with the URLs that are created."""
    own.shown.learn_list("hooks", None, [{"id": "wh_1", "url": URL}, "not a webhook"])
    for number in range(1000):
        assert (
            own.shown.last_list("hooks", None).ids(
                KINDS["create of a webhook"], {"url": f"https://me.example/{number}"}
            )
            == set()
        )

    assert own.shown.last_list("hooks", None).ids(
        KINDS["create of a webhook"], {"url": URL}
    ) == {"wh_1"}
    assert len(pickle.dumps(own.shown.last_list("hooks", None))) < 1000


# --- what was left open


@pytest.mark.parametrize(
    ("operation", "newest"),
    [("webhooks.update", False), ("webhooks.delete", False), ("webhooks.create", True)],
)
def test_open_write_that_a_newer_one_follows(own, operation, newest):
    """A change of the same thing overtakes it once it is sent; a create of the same URL does not."""
    own.open_writes.leave_open(
        Intent(key="older", operation=operation, scope=SCOPE, newest=True), "the line"
    )
    before = own.open_writes.doubt_others(own.records.of("the line"), "newer")

    assert [intent.newest for intent in before] == [True] * (newest is not True)
    assert own.open_writes.opened("older").newest is (None if before else True)
    own.open_writes.revise(*before)
    assert own.open_writes.opened("older").newest is True
    own.open_writes.overtake(*before)
    assert own.open_writes.opened("older").newest is newest
    assert own.open_writes.doubt_others(own.records.of("the line"), "newest") == []
    own.open_writes.forget("older")
    assert own.open_writes.opened("older") is None
    assert not own.records.of("the line").open


@pytest.mark.parametrize(
    ("users", "newest"),
    [(("own", "other"), True), (("other", "own"), True), (("other",), False)],
)
async def test_write_that_others_came_after(users, newest):
    """One that did nothing does not overtake it; one that was sent does."""
    async with Client("http://127.0.0.1:1/v2", ApiKey("abc")) as client:
        core = options_of(client).core
        write = client.webhooks.update("wh_1", description="mine")
        intent = write.intent
        write.close()
        own = {"own": intent.identity}
        line = line_of(core, request_of(intent), None)
        core.writes.records.of(line).users = tuple(
            own.get(user, user) for user in users
        )
        assert taken_up(core, intent).history[0].newest is newest


@pytest.mark.parametrize("name", ["é", "a b", "a|b", "jrn_1", "100%"])
def test_one_line_for_each_way_to_name_a_thing(name):
    """A path of ``client.write``, quoted or not, is that of the resource's own methods."""
    client = Client("http://127.0.0.1:1/v2", ApiKey("abc"))
    quoted = "".join(f"%{byte:02X}" for byte in name.encode())
    core = options_of(client).core
    paths = [f"/journeys/{quoted}", f"journeys/{quoted}/"]
    if "%" not in name:
        paths.append(f"/journeys/{name}")
    writes = [client.journeys.update(name, name="x")]
    writes += [client.write("PUT", path, json={"name": "x"}) for path in paths]
    # reaches: the request of a write that is not sent
    lines = {line_of(core, write._spec.request, None) for write in writes}
    for write in writes:
        write.close()
    assert len(lines) == 1


# --- what is dropped


def test_records_in_use_that_are_too_many(monkeypatch):
    """Those that a write holds, or that are closed or have open writes, lose only what was shown."""
    monkeypatch.setattr(things, "MOST_BYTES", 2 * things.OWN_BYTES)
    own = lines_at(clock := VirtualClock())
    own.records.of("held").enter()
    own.lines.close("closed", "owner", clock.now() + 60)
    own.lines.close("open again", "owner", clock.now() + 1)
    own.open_writes.leave_open(
        Intent(key="k", operation="webhooks.update", scope=SCOPE), "left open"
    )
    clock.advance(2)
    for line in ("held", "left open"):
        own.shown.learn_state(None, line, state("shown"), 1.0, 2.0)
    own.shown.learn_created("url", "wh_1", 5000)
    for number in range(100):
        own.shown.learn_state(None, f"other {number}", state("shown"), 1.0, 2.0)

    kept = own.records.all()
    assert {"held", "closed", "left open"} <= kept.keys()
    assert not {"open again", "url"} & kept.keys()
    assert kept["held"].held
    assert kept["left open"].open == {"k": None}
    assert kept["held"].last is kept["left open"].last is None
    assert own.lines.closed_for("closed") == 58
    assert own.shown.ids("url") == UrlIds((), 5000), "some may be missing"
    assert len(kept) < 12


def test_last_users_of_very_many_things(own):
    """The latest 20,000 are known, and memory does not grow with the rate of writes."""
    for number in range(100_000):
        own.records.of(str(number)).users = ("me",)

    assert all(
        own.last_users(str(number)) == ("me",) for number in range(80_000, 100_000)
    )
    assert not any(own.last_users(str(number)) for number in range(60_000))
    assert own.records.bytes == things.OWN_BYTES * len(own.records.all())


async def test_users_that_a_client_remembers():
    """A create cannot be overtaken, so a batch of creates does not fill the memory with their lines."""
    async with (
        Simulator() as service,
        Client(service.base_url, ApiKey(service.api_key)) as client,
    ):
        journey = service.seed_journey(status="draft")
        await client.journeys.update(journey.id, name="new")
        await client.webhooks.create(
            url="https://me.example/1", events=["invoice.created"], tag=False
        )
        await client.webhooks.create(
            url="https://me.example/2", events=["invoice.created"], tag=True
        )
        things = options_of(client).core.writes.records.all()

        assert [line for line, thing in things.items() if thing.users] == [
            f"/journeys/{journey.id}"
        ]
        assert len(things) == 2, "of a create with a tag nothing is known"
