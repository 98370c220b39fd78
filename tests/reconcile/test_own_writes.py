"""The memory of a client's own writes is bounded and always right."""

from __future__ import annotations

import pickle

import pytest

from invsvc_async.models import Journey
from invsvc_async.reconcile import own_writes
from invsvc_async.reconcile.kinds import KINDS
from invsvc_async.reconcile.own_writes import LastState, OwnWrites, UrlIds, version_of

THING = ("team", "/journeys/j1")
URL = "https://a.example/in"


def state(name, at=None):
    return {"name": name} if at is None else {"name": name, "last_updated": at}


@pytest.fixture
def own():
    return OwnWrites()


# --- the last state of a thing


def test_thing_that_nothing_showed(own):
    """Nothing is known about it."""
    assert own.last(THING) is None
    own.forget(THING)
    assert own.last(THING) is None


def test_read_after_a_read(own):
    """The later one counts."""
    own.learn(THING, state("one"), 1.0, 2.0, stamp=1000, weight=10)
    own.learn(THING, state("two"), 2.0, 3.0, stamp=2000, weight=20)

    assert own.last(THING) == LastState(state("two"), 3.0, 2000, 20)


@pytest.mark.parametrize(("started", "ended"), [(1.5, 2.5), (0.5, 3.0), (1.2, 1.8), (0.0, 0.5)])
def test_read_that_overlaps_with_what_is_kept(own, started, ended):
    """It is ignored, because it is unknown which state is the later one."""
    own.learn(THING, state("one"), 1.0, 2.0)
    own.learn(THING, state("two"), started, ended)

    assert own.last(THING).state == state("one")


def test_answer_to_a_write_that_overlaps_with_a_read(own):
    """The write has the lock of its resource, so its answer is the later state."""
    own.learn(THING, state("read"), 1.0, 2.0)
    own.learn(THING, state("written"), 1.5, 2.5, written=True)
    own.learn(THING, state("read before it landed"), 1.9, 2.4)

    assert own.last(THING).state == state("written")


def test_states_of_several_things(own):
    """States are stored separately; a resource that is gone has an empty state."""
    own.learn(THING, state("one"), 1.0, 2.0)
    own.learn(("team", "/webhooks/wh_1"), {}, 1.0, 2.0)
    own.learn((None, "/journeys/j1"), state("of no team"), 1.0, 2.0)
    own.forget(THING)

    assert own.last(THING) is None
    assert own.last(("team", "/webhooks/wh_1")).state == {}
    assert own.last((None, "/journeys/j1")).state == state("of no team")


def test_states_that_are_too_long(own, monkeypatch):
    """The oldest are dropped until the rest fits; storing a state again makes it new."""
    monkeypatch.setattr(own_writes, "MOST_BYTES", 100_000)
    for number in range(3):
        own.learn(number, state(str(number)), number, number + 0.5, weight=30_000)
    own.learn(0, state("again"), 5.0, 5.5, weight=30_000)
    own.learn(3, state("3"), 6.0, 6.5, weight=30_000)

    assert [number for number in range(4) if own.last(number)] == [0, 2, 3]
    assert own.last(0).state == state("again")


def test_states_that_are_too_many(own, monkeypatch):
    """The oldest are dropped, however short they are."""
    monkeypatch.setattr(own_writes, "MOST_BYTES", 3 * 1024)
    for number in range(5):
        own.learn(number, state(str(number)), number, number + 0.5)

    assert [number for number in range(5) if own.last(number)] == [2, 3, 4]


def test_weight_of_what_is_forgotten(own, monkeypatch):
    """It makes room for others."""
    monkeypatch.setattr(own_writes, "MOST_BYTES", 100_000)
    for number in range(20):
        own.learn(THING, state(str(number)), number, number + 0.5, weight=60_000)
        own.forget(THING)
    own.learn("other", state("kept"), 30.0, 31.0, weight=30_000)
    for number in range(31, 35):
        own.learn(THING, state("last"), number, number + 0.5, weight=60_000)

    assert own.last("other") is not None
    assert own.last(THING) is not None


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
        version_of(structure(Journey, {"id": "j1", "last_updated": 1_700_000_000_123})) == 1_700_000_000_123
    )


# --- webhooks, by URL


def test_ids_that_answers_gave(own):
    """Ids are stored with their times; those created before a given time can be excluded."""
    own.created(URL, "wh_1", 1000)
    own.created(URL, "wh_2", 3000)
    own.created(URL, "wh_3", None)
    own.created("https://b.example/in", "wh_4", 3000)
    known = own.ids(URL)

    assert known.forgotten_until is None
    assert known.created_since(None) == {"wh_1", "wh_2", "wh_3"}
    assert known.created_since(2.0) == {"wh_2", "wh_3"}, "of one without a time nothing is sure"
    assert known.created_since(3.0) == {"wh_2", "wh_3"}


def test_url_that_nothing_was_created_of(own):
    """Nothing is known, and nothing is forgotten."""
    assert own.ids(URL) == UrlIds()
    assert own.ids(URL).forgotten_until is None


def test_ids_of_one_url_that_are_too_many(own, monkeypatch):
    """The older half is dropped, and its latest time kept: a webhook created until then may be one of them."""
    monkeypatch.setattr(own_writes, "IDS_OF_A_URL", 4)
    for number in range(1, 6):
        own.created(URL, f"wh_{number}", number * 1000)
    known = own.ids(URL)

    assert known.created_since(None) == {"wh_4", "wh_5"}
    assert known.forgotten_until == 3000


def test_forgotten_ids_out_of_order(own, monkeypatch):
    """The latest of the forgotten times counts, and it never decreases."""
    monkeypatch.setattr(own_writes, "IDS_OF_A_URL", 2)
    for webhook_id, at in (("wh_1", 9000), ("wh_2", 1000), ("wh_3", 2000), ("wh_4", 3000), ("wh_5", 4000)):
        own.created(URL, webhook_id, at)

    assert own.ids(URL).forgotten_until == 9000


def test_forgotten_id_without_a_time(own, monkeypatch):
    """Any webhook may be that one."""
    monkeypatch.setattr(own_writes, "IDS_OF_A_URL", 2)
    for number, at in enumerate((None, 1000, 2000)):
        own.created(URL, f"wh_{number}", at)

    assert own.ids(URL).forgotten_until > 10**14


def test_urls_that_are_too_many(own, monkeypatch):
    """The least recently used URL is dropped; for URLs not stored, something may have been forgotten."""
    monkeypatch.setattr(own_writes, "MOST_URLS", 2)
    own.created("a", "wh_1", 5000)
    own.created("b", "wh_2", 1000)
    own.created("a", "wh_3", 6000)
    own.created("c", "wh_4", 7000)

    assert own.ids("a").created_since(None) == {"wh_1", "wh_3"}
    assert own.ids("a").forgotten_until is None
    for gone in ("b", "never seen"):
        assert own.ids(gone).ids == ()
        assert own.ids(gone).forgotten_until == 1000


def test_url_that_comes_back(own, monkeypatch):
    """What was forgotten of it stays forgotten, with its time."""
    monkeypatch.setattr(own_writes, "MOST_URLS", 1)
    own.created("a", "wh_1", 5000)
    own.created("b", "wh_2", 1000)
    own.created("a", "wh_3", 6000)

    assert own.ids("a").created_since(None) == {"wh_3"}
    assert own.ids("a").forgotten_until == 5000
    assert own.ids("b").forgotten_until == 5000


# --- lists


def test_last_list(own):
    """The list is stored by team, and its ids are found by URL in any form."""
    own.listed("team", [{"id": "wh_1", "url": "https://old.example/in"}])
    own.listed("team", [{"id": "wh_2", "url": "HTTPS://A.example:443/in"}, {"id": 5, "url": URL}, "damaged"])
    own.listed(None, [{"id": "wh_3", "url": URL}])

    assert own.last_list("team").ids(KINDS["create of a webhook"], {"url": URL}) == {"wh_2"}
    assert own.last_list("team").ids(KINDS["create of a webhook"], {"url": "https://old.example/in"}) == set()
    assert own.last_list(None).ids(KINDS["create of a webhook"], {"url": URL}) == {"wh_3"}
    assert own.last_list("other") is None


def test_last_lists_of_many_teams(own, monkeypatch):
    """Those that were read longest ago are dropped: their next create reads the list first."""
    monkeypatch.setattr(own_writes, "MOST_TEAMS", 2)
    for team in ("a", "b", "a", "c"):
        own.listed(team, [{"id": f"wh_{team}", "url": URL}])

    assert own.last_list("a").ids(KINDS["create of a webhook"], {"url": URL}) == {"wh_a"}
    assert own.last_list("b") is None
    assert own.last_list("c").ids(KINDS["create of a webhook"], {"url": URL}) == {"wh_c"}


def test_last_list_that_is_asked_for_many_urls(own):
    """Its size does not grow with the URLs that are created."""
    own.listed(None, [{"id": "wh_1", "url": URL}, "not a webhook"])
    for number in range(1000):
        assert (
            own.last_list(None).ids(KINDS["create of a webhook"], {"url": f"https://me.example/{number}"})
            == set()
        )

    assert own.last_list(None).ids(KINDS["create of a webhook"], {"url": URL}) == {"wh_1"}
    assert len(pickle.dumps(own.last_list(None))) < 1000
