"""A service that stores in its own way: own words, in part, lists and times, compared with the ledger."""

from __future__ import annotations

from random import Random

import pytest

from invsvc_async.simulator import Simulator, Stores
from invsvc_async.simulator.own_words import FIELDS, WAYS, WORDS
from tests.support.virtual_time import service_clock

from .conftest import HOOK, Caller, plain_session

pytestmark = [pytest.mark.one_python, pytest.mark.loop_time]

NFD = "Cafe\u0301"
NODE = {"id": "n1", "type": "start", "position": {"x": 1.25, "y": -0.75}, "data": {}}
GRAPH = {"nodes": [NODE, {**NODE, "id": "n2"}], "edges": [], "viewport": None}
PLAIN_NODE = {**NODE, "position": {"x": 1, "y": -1}}

# A word, what is sent in one field, and what is stored.
OF_JOURNEYS = [
    ("nfc", "name", NFD, "Caf\u00e9"),
    ("no markup", "description", "a <b>bold</b> 1 < 2", "a bold 1 < 2"),
    ("no emoji", "name", "paid \U0001f389\u2705", "paid "),
    ("no zero-width", "name", "in\u200bvoice\ufeff", "invoice"),
    ("trimmed", "name", "  due \n", "due"),
    ("folded", "name", "Überfällig STRASSE", "überfällig strasse"),
    ("masked", "description", "key abcd1234efgh5678 of shop", "key abcd**** of shop"),
    ("cut", "name", "x" * 40, "x" * 24),
    ("entities", "name", "R&D <1>", "R&amp;D &lt;1&gt;"),
    ("viewport", "graph", GRAPH, {**GRAPH, "viewport": {"x": 0, "y": 0, "zoom": 1}}),
    ("reordered", "graph", GRAPH, {**GRAPH, "nodes": GRAPH["nodes"][::-1]}),
    (
        "rounded",
        "graph",
        GRAPH,
        {**GRAPH, "nodes": [PLAIN_NODE, {**PLAIN_NODE, "id": "n2"}]},
    ),
    ("alias", "triggerType", "manual", "on_demand"),
    ("alias", "triggerType", "invoice.overdue", "INVOICE_OVERDUE"),
]
OF_WEBHOOKS = [
    ("nfc", "url", f"https://me.example/{NFD}", "https://me.example/Caf\u00e9"),
    ("no zero-width", "url", "https://me.example/in\u200b", "https://me.example/in"),
    ("trimmed", "url", "https://me.example/in ", "https://me.example/in"),
    ("folded", "url", "https://Me.example/In?Q=A", "https://me.example/in?Q=A"),
    (
        "masked",
        "url",
        "https://a:b@me.example/in?token=secret&q=1",
        "https://a:****@me.example/in?token=****&q=1",
    ),
    (
        "masked",
        "url",
        "https://me.example/hooks/T0B1abcd2efgh3",
        "https://me.example/hooks/T0B1****",
    ),
    ("masked", "description", "mine [iv-abcdefghij234567]", "mine [iv-a****]"),
    ("sorted", "url", "https://me.example/in?b=1&a=2", "https://me.example/in?a=2&b=1"),
    (
        "sorted",
        "events",
        ["invoice.failed", "invoice.created"],
        ["invoice.created", "invoice.failed"],
    ),
    (
        "entities",
        "url",
        "https://me.example/in?b=1&a=2",
        "https://me.example/in?b=1&amp;a=2",
    ),
    ("cut", "description", "x" * 40, "x" * 24),
    ("inactive", "status", "active", "inactive"),
]


@pytest.mark.parametrize(("word", "name", "sent", "stored"), OF_JOURNEYS)
async def test_own_words_of_a_journey(service, call, word, name, sent, stored):
    """The answer, the state and the ledger show the service's words; other fields are as sent."""
    service.stores = Stores(words=(word,))
    other = {"name": "plain"} if name != "name" else {"description": "plain"}

    answered = await call("PUT", "/journeys/jrn_1", json={name: sent, **other})

    read = await call("GET", "/journeys/jrn_1")
    (entry,) = service.ledger.entries
    assert answered.status == 200
    assert answered.body["data"][name] == read.body["data"][name] == stored
    assert read.body["data"].items() >= other.items()
    assert entry.stored == "other words"
    assert entry.fields == {name: stored, **other}


@pytest.mark.parametrize(("word", "name", "sent", "stored"), OF_WEBHOOKS)
async def test_own_words_of_a_webhook(service, call, word, name, sent, stored):
    """A create stores the service's words."""
    service.stores = Stores(words=(word,))

    answered = await call("POST", "/webhooks", json={**HOOK, name: sent})

    read = await call("GET", f"/webhooks/{answered.body['data']['id']}")
    (entry,) = service.ledger.entries
    assert answered.body["data"][name] == read.body["data"][name] == stored
    assert "secret" in answered.body["data"]
    assert (entry.stored, entry.fields[name]) == ("other words", stored)


def test_each_word_is_tried():
    """Each word, with each kind of value for which it has a way, has a case above."""
    tried = {(word, FIELDS[name]) for word, name, *_ in (*OF_JOURNEYS, *OF_WEBHOOKS)}
    assert tried == {(word, kind) for word, ways in WAYS.items() for kind in ways}


async def test_update_of_a_status_is_not_overruled(service, call):
    """Only a new webhook is stored as inactive."""
    hook = service.seed_webhook(status="inactive")
    service.stores = Stores(words=("inactive",))
    await call("PUT", f"/webhooks/{hook.id}", json={"status": "active"})
    assert service.book().webhooks.items[hook.id].status == "active"


async def test_letter_by_letter(service, call):
    """By default, everything is stored as it was sent, and the ledger says so."""
    for name, sent in (("name", f"  {NFD} <b>&\u200b"), ("graph", GRAPH)):
        await call("PUT", "/journeys/jrn_1", json={name: sent})
        assert (
            service.book().journeys.items["jrn_1"][name]
            == service.ledger.entries[-1].body[name]
        )
    await call("POST", "/webhooks", json=HOOK)
    assert [entry.stored for entry in service.ledger.entries] == ["as sent"] * 3


async def test_only_chosen_fields(service, call):
    """`fields` leaves the others as sent."""
    service.stores = Stores(words=("trimmed",), fields=("description",))
    await call("PUT", "/journeys/jrn_1", json={"name": " a ", "description": " b "})
    assert service.ledger.entries[0].fields == {"name": " a ", "description": "b"}


@pytest.mark.parametrize("seed", range(6))
async def test_texts_of_a_field_are_cut_alike(seed):
    """With a rate, all texts of a field are cut, or none."""
    stores = Stores(words=("cut",), longest=4, rate=0.5)
    for field in ("name", "description"):
        kept = {
            stores.in_own_words(
                field, f"text {number}", lambda what: Random(f"{seed}/{what}")
            )
            for number in range(20)
        }
        assert len(kept) in (1, 20)


async def test_same_text_in_the_same_words(service, call):
    """With a rate, some values are stored in own words, always the same ones."""
    service.stores = Stores(words=("trimmed",), rate=0.5)
    names = [f" {number} " for number in range(40)]
    for name in (*names, *names):
        await call("PUT", "/journeys/jrn_1", json={"name": name})
    stored = [entry.fields["name"] for entry in service.ledger.entries]
    assert stored[:40] == stored[40:]
    assert (
        8
        < sum(each == name.strip() for each, name in zip(stored, names, strict=False))
        < 32
    )


async def test_update_in_part(service, call):
    """Some fields are stored, then the answer is 500; the ledger has what was stored."""
    service.stores = Stores(partly=1.0)
    before = service.book().journeys.items["jrn_1"]
    sent = {"name": "new", "description": "new", "triggerType": "new"}
    timed = set()
    for _ in range(20):
        service.book().journeys.put("jrn_1", before)
        answered = await call("PUT", "/journeys/jrn_1", json=sent)
        entry, journey = (
            service.ledger.entries[-1],
            service.book().journeys.items["jrn_1"],
        )
        assert (answered.status, answered.body["success"]) == (500, False)
        assert (entry.applied, entry.stored, entry.answered, entry.refused) == (
            True,
            "in part",
            500,
            False,
        )
        assert 0 < len(entry.fields) < len(sent)
        assert {name for name in sent if journey[name] == sent[name]} == set(
            entry.fields
        )
        timed.add(journey["last_updated"] == before["last_updated"])
    assert timed == {True, False}, "the time of the change may be stored, or not"


async def test_part_of_what_changes_one_field(service, call):
    """An update that would change one field only has no parts."""
    service.stores = Stores(partly=1.0)
    hook = service.seed_webhook(description="old")
    answered = await call(
        "PUT", f"/webhooks/{hook.id}", json={"description": "new", "status": "active"}
    )
    assert answered.status == 200
    assert service.ledger.entries[0].stored == "as sent"


async def test_update_in_part_and_lost(service, call):
    """A script can lose the answer of an update in part."""
    service.stores = Stores(partly=1.0)
    hook = service.seed_webhook()
    service.script("webhooks.update", "apply, then 502")
    answered = await call(
        "PUT", f"/webhooks/{hook.id}", json={"description": "new", "status": "inactive"}
    )
    assert answered.status == 502
    assert service.ledger.entries[0].stored == "in part"


@pytest.mark.parametrize(
    ("method", "body"), [("PUT", {"description": "new"}), ("POST", HOOK)]
)
async def test_not_in_part(service, call, method, body):
    """An update of one field, and a create, are stored whole."""
    service.stores = Stores(partly=1.0)
    path = "/webhooks" if method == "POST" else f"/webhooks/{service.seed_webhook().id}"
    assert (await call(method, path, json=body)).status < 300
    assert service.ledger.entries[0].stored == "as sent"


async def test_answer_that_echoes(service, call):
    """The answer shows what was sent, and reads show what is stored."""
    service.stores = Stores(words=("masked",), echoes=True)
    url = "https://me.example/in?token=abc"
    answered = await call("POST", "/webhooks", json={**HOOK, "url": url})
    read = await call("GET", f"/webhooks/{answered.body['data']['id']}")
    assert answered.body["data"]["url"] == url
    assert read.body["data"]["url"] == "https://me.example/in?token=****"


async def test_list_that_shows_an_id_twice(service, call):
    """Some webhooks are shown twice, always the same ones; the limit holds."""
    made = [service.seed_webhook().id for _ in range(30)]
    service.stores = Stores(twice=0.5)
    first, again = [
        await call("GET", "/webhooks", params={"limit": "100"}) for _ in range(2)
    ]
    shown = [hook["id"] for hook in first.body["data"]]
    assert shown == [hook["id"] for hook in again.body["data"]]
    assert set(shown) == set(made)
    assert 30 < len(shown) < 60
    assert (
        len((await call("GET", "/webhooks", params={"limit": "3"})).body["data"]) == 3
    )


async def test_list_that_hides_inactive_ones(service, call):
    """Inactive webhooks are shown only if asked for."""
    active = service.seed_webhook().id
    inactive = service.seed_webhook(status="inactive").id
    service.stores = Stores(hides_inactive=True)
    for status, wanted in (
        (None, [active]),
        ("active", [active]),
        ("inactive", [inactive]),
    ):
        params = {"status": status} if status else {}
        listed = (await call("GET", "/webhooks", params=params)).body["data"]
        assert [hook["id"] for hook in listed] == wanted
    assert (await call("GET", f"/webhooks/{inactive}")).status == 200


@pytest.mark.parametrize(
    ("times", "shown"),
    [
        ("exact", lambda ms: ms),
        ("zero", lambda _ms: 0),
        ("seconds", lambda ms: ms // 1000),
        ("minute", lambda ms: ms // 60_000 * 60_000),
        ("day", lambda ms: ms // 86_400_000 * 86_400_000),
    ],
)
async def test_times(service, call, times, shown):
    """The times of new webhooks and changed journeys are cut as the plan says."""
    service.stores = Stores(created_at=times, last_updated=times)
    made = await call("POST", "/webhooks", json=HOOK)
    changed = await call("PUT", "/journeys/jrn_1", json={"name": "new"})
    assert made.body["data"]["created_at"] == shown(made.body["timestamp"])
    assert changed.body["data"]["last_updated"] == shown(changed.body["timestamp"])


async def test_another_seed():
    """What becomes of a value depends on the seed."""
    names = [f" {number} " for number in range(20)]
    stored = []
    for seed in (1, 1, 2):
        plan = Stores(words=("trimmed",), rate=0.5)
        async with (
            Simulator(seed=seed, clock=service_clock(), stores=plan) as service,
            plain_session() as session,
        ):
            for name in names:
                await Caller(session, service)(
                    "PUT", "/journeys/jrn_1", json={"name": name}
                )
            stored.append([entry.fields["name"] for entry in service.ledger.entries])
    assert stored[0] == stored[1] != stored[2]


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"words": ("nfd",)}, "words: nfd is not among nfc, no markup"),
        ({"words": "nfc"}, "words takes several"),
        ({"fields": ()}, "fields: nothing is not among name"),
        ({"fields": ("id",)}, "fields: id is not among name"),
        ({"rate": 1.5}, "rate must be a probability, 0 to 1, not 1.5"),
        ({"partly": -1}, "partly must be a probability"),
        ({"twice": "x"}, "twice must be a probability"),
        ({"longest": 0}, "longest must be 1 or more, not 0"),
        ({"longest": True}, "longest must be 1 or more"),
        ({"echoes": 1}, "echoes must be True or False, not 1"),
        ({"hides_inactive": "yes"}, "hides_inactive must be True or False"),
        (
            {"created_at": "hour"},
            "created_at: hour is not among exact, zero, seconds, minute, day",
        ),
        ({"last_updated": "hour"}, "last_updated: hour is not among"),
    ],
)
def test_plan_that_cannot_be(settings, reason):
    """Each setting is checked."""
    with pytest.raises(ValueError, match=reason):
        Stores(**settings)


@pytest.mark.parametrize(
    ("text", "plan"),
    [
        ("none", Stores()),
        ("", Stores()),
        (
            "words=no-emoji+cut,fields=name,longest=8",
            Stores(words=("no emoji", "cut"), fields=("name",), longest=8),
        ),
        ("partly=0.25,twice=0.5", Stores(partly=0.25, twice=0.5)),
        (
            "echoes=true,hides_inactive=true,created_at=day",
            Stores(echoes=True, hides_inactive=True, created_at="day"),
        ),
        ("words=no-zero-width", Stores(words=("no zero-width",))),
    ],
)
def test_plan_of_a_command_line(text, plan):
    """A plan is parsed, and printed so that it can be parsed again."""
    assert Stores.parse(text) == plan
    assert Stores.parse(plan.text()) == plan


def test_every_word_of_a_command_line():
    """Each word can be given."""
    plan = Stores(words=WORDS)
    assert Stores.parse(plan.text()) == plan


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("word=nfc", "stores: 'word' is not among"),
        ("partly=x", "stores: partly takes a number, not 'x'"),
        ("longest=1.5", "stores: longest takes a number, not '1.5'"),
        ("echoes=maybe", "echoes must be True or False"),
    ],
)
def test_command_line_that_is_not_a_plan(text, reason):
    """The reason is told."""
    with pytest.raises(ValueError, match=reason):
        Stores.parse(text)
