"""A write as a line of plain JSON values: what is made of it elsewhere is the same request, or it is refused."""

import asyncio
import copy
import gc
import json
import multiprocessing
import pickle
import warnings
from decimal import Decimal

import pytest
from hypothesis import given, strategies as st

from invsvc_async import (
    Absent,
    Batch,
    CallOptions,
    Client,
    InvalidRequestError,
    PersonToken,
    ReconcilePolicy,
    Webhook,
)
from invsvc_async.api.operations import BY_NAME, OperationKind
from invsvc_async.models import Address, JourneyGraph, Member
from tests.support.fuzzing import fuzzed, texts

URL = "http://127.0.0.1:1/v2"
HOOK = {"url": "https://me.example/in", "events": ["invoice.created"]}
CLIENT = Client(URL, PersonToken("never-sent"))  # a person may call each operation

names = st.text(
    st.characters(categories=["L", "N", "P", "S", "Zs"]), min_size=1, max_size=12
)
numbers = (
    st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.floats(-1e9, 1e9).map(lambda number: Decimal(repr(number))) | st.decimals(-9999, 9999, places=3)
)  # fmt: skip
values = st.recursive(
    st.none() | st.booleans() | texts | numbers,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3)
    ),
    max_leaves=6,
)
objects = st.dictionaries(names, values, max_size=3)
extra = st.dictionaries(names.map(lambda name: f"x-{name}"), values, max_size=2)
events = st.lists(
    st.sampled_from(["invoice.created", "service.updated"]), min_size=1
) | st.just({"invoice.created"})
urls = st.sampled_from(["https://me.example/in", "http://me.example:81/?a=b#c"])
graphs = st.just({"nodes": [{"id": "a", "type": "t", "position": {"x": 1.5, "y": Decimal("2.5")}, "data": {"config": {"a": 1}}}],
                  "edges": []})  # fmt: skip
ids = st.sampled_from(["jrn_1", "a b", "ü"])


OPERATIONS = {
    "journeys.update": ({"journey": ids, "name": names}, {
        "description": st.none() | texts, "graph": st.none() | graphs, "trigger_type": st.none() | texts,
        "replaces_defaults": st.none() | st.booleans()}),
    "teams.create": ({}, {
        "legal_name": texts, "tax_id": texts, "address": objects | st.just(Address(country="MEX")), "brand": objects,
        "generate_onboarding_url": st.booleans(), "metadata": objects, "credit_limit": st.none() | numbers,
        "add_members": st.just([Member(id="u", role="admin"), {"id": "v", "role": "viewer"}]), "extra_body": extra}),
    "users.update_preferences": ({"team_id": st.just("team_1"), "testmode": st.booleans()}, {"extra_body": extra}),
    "sheets.save_mapping": ({"fields": objects}, {"extra_body": extra}),
    "webhooks.create": ({"url": urls, "events": events}, {
        "description": texts, "status": st.sampled_from(["active", "inactive"]), "extra_body": extra,
        "on_lost_secret": st.sampled_from(["raise", "keep"])}),
    "webhooks.update": ({"webhook": st.just("wh_1") | st.just(Webhook(id="wh_2", url="https://old.example")), "url": urls}, {
        "events": events, "description": texts, "status": st.sampled_from(["active", "inactive"]), "extra_body": extra}),
    "webhooks.delete": ({"webhook": st.just("wh_1")}, {}),
    "client.write": ({"method": st.sampled_from(["POST", "DELETE"]), "path": st.sampled_from(["/a", "/a b/%25c", "pay/ü"])}, {
        "params": st.dictionaries(names, texts | st.integers() | st.booleans() | st.just(Decimal("1.50")), max_size=2),
        "json": values}),
}  # fmt: skip


def test_operations_of_the_property():
    """It is about every write that there is."""
    assert set(OPERATIONS) == {
        row.name for row in BY_NAME.values() if row.kind is OperationKind.WRITE
    }


def asked(write):
    """Return what a write asks for: all of its intent but what is random in each."""
    plain = json.loads(write.intent.to_json())
    for name in ("key", "nonce", "baseline"):
        plain.pop(name, None)
    plain["scope"].pop("credential", None)
    return plain


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("operation", OPERATIONS)
@fuzzed
@given(data=st.data())
def test_line_makes_the_same_request(operation, data):
    """The line survives any JSON encoder, and the write that is made of it asks for the same, byte for value."""
    required, optional = OPERATIONS[operation]
    arguments = data.draw(
        st.fixed_dictionaries(required, optional=optional), "arguments"
    )
    team = data.draw(st.sampled_from([None, "team_9"]), "team")
    room, _, name = operation.partition(".")
    client = (
        CLIENT if team is None or data.draw(st.booleans()) else CLIENT.for_team(team)
    )
    given_team = {} if team is None or client is not CLIENT else {"team": team}
    method = getattr(client if room == "client" else getattr(client, room), name)
    write = method(**arguments, **given_team)
    if (key := data.draw(st.sampled_from([None, "row-17"]), "key")) is not None:
        write = write.keyed(key)

    line = json.loads(json.dumps(write.to_line(), allow_nan=False))
    again = CLIENT.write_from(line)
    again.close()

    assert asked(again) == asked(write)
    assert again.intent.body == _as_floats(write.intent.body)
    assert line.get("key") == key
    told = arguments.get("on_lost_secret", "raise")
    assert line["arguments"].get("on_lost_secret", "raise") == told
    assert again.to_line() == line


def _as_floats(value):
    """Return *value* with numbers as JSON has them, for a comparison that is not ours."""
    return json.loads(json.dumps(value, default=float))


def test_dates_and_objects_are_plain():
    """Models, sets and exact numbers become what JSON has; nothing else is left in a line."""
    graph = JourneyGraph(nodes=(), edges=())
    write = CLIENT.journeys.update("jrn_1", graph=graph)
    assert write.to_line()["arguments"] == {
        "journey": "jrn_1",
        "graph": {"nodes": [], "edges": []},
    }
    line = CLIENT.teams.create(
        credit_limit=Decimal(100), metadata={"a": Decimal("0.5")}
    ).to_line()
    assert line == {
        "operation": "teams.create",
        "arguments": {"credit_limit": 100, "metadata": {"a": 0.5}},
    }
    assert [
        type(each)
        for each in (
            line["arguments"]["credit_limit"],
            line["arguments"]["metadata"]["a"],
        )
    ] == [int, float]


@pytest.mark.parametrize(
    "number", ["0.12345678901234567890123", "1.0000000000000000001E+300", "1E-400"]
)
def test_number_that_a_line_would_round(number):
    """A line that says another number is refused, with its place."""
    write = CLIENT.sheets.save_mapping({"a": [1, Decimal(number)]})
    with pytest.raises(
        InvalidRequestError,
        match=r"arguments\.fields\.a\[1\]: has more digits .*; round it, or pass a text",
    ):
        write.to_line()


async def reader(_client, _intent):
    return Absent()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: CLIENT.webhooks.delete("wh_1").with_policy(resend="never"), "policy: a line has none; give it to the client that reads"),
        (lambda: CLIENT.webhooks.create(**HOOK, tag="ours"), "tag: a line has no text for it, .*; use tag=True"),
        (lambda: CLIENT.sheets.save_mapping({}, reader=reader), "reader: a line has no functions; make this write where"),
        (lambda: CLIENT.write("PUT", "/a", reader=reader), "reader: a line has no functions"),
        (lambda: CLIENT.webhooks.delete("wh_1").keyed("k", match="operation"), "match: a line has none; make this write where"),
        (lambda: CLIENT.webhooks.delete("wh_1", options=CallOptions(headers={"X-A": "1"})), "options: a line has no headers"),
        (lambda: CLIENT.resume(CLIENT.webhooks.delete("wh_1").intent, same_mode=True), "it resumes an intent; .*client.resume there"),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:webhooks.delete was never awaited:RuntimeWarning")
def test_write_that_a_line_cannot_have(make, words):
    """What would be lost on the way is refused, in words that say what to do."""
    with pytest.raises(InvalidRequestError, match=words):
        make().to_line()


def test_all_that_a_line_lacks_is_named_at_once():
    """One error names everything."""
    write = CLIENT.webhooks.create(**HOOK, tag="ours").with_policy(deadline=80.0)
    with pytest.raises(InvalidRequestError) as caught:
        write.to_line()
    assert len(caught.value.problems) == 2


def test_policy_of_the_client_is_no_policy_of_the_write():
    """The client that reads the line has its own."""
    client = CLIENT.with_options(reconcile=ReconcilePolicy(resend="never"))
    line = client.webhooks.delete("wh_1").to_line()
    assert line == {"operation": "webhooks.delete", "arguments": {"webhook": "wh_1"}}


@pytest.mark.parametrize("description", ["", "d", "ends with a space "])
def test_generated_tag(description):
    """It is made anew, so that two writes of one line are never taken for each other; the text before it stays."""
    given_text = {"description": description} if description else {}
    line = CLIENT.webhooks.create(**HOOK, **given_text, tag=True).to_line()
    assert line["arguments"] == {**HOOK, **given_text, "tag": True}
    first, second = CLIENT.write_from(line), CLIENT.write_from(line)
    first.close()
    second.close()
    assert first.intent.tag != second.intent.tag
    assert first.intent.body[
        "description"
    ] == f"{description} {first.intent.tag}".removeprefix(" " * (not description))


def test_line_is_a_handover():
    """Nobody is left to await the write, so nothing warns of that; without a line it does."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        CLIENT.webhooks.delete("wh_1").to_line()
        gc.collect()
    with pytest.warns(RuntimeWarning, match="never awaited"):
        CLIENT.webhooks.delete("wh_1")


async def test_write_under_way_has_no_line(service, client):
    """Made of it, another process would send it again. Its intent is what can be handed over."""
    write = client.webhooks.create(**HOOK)
    await write
    with pytest.raises(
        InvalidRequestError, match="would send it again; hand over its intent"
    ):
        write.to_line()
    assert len(service.ledger.effects("webhooks.create")) == 1


async def test_line_through_a_batch(service, client, tmp_path):
    """A file of lines of writes is an input of a batch, and each line has one effect."""
    hook = service.seed_webhook()
    writes = [
        client.webhooks.create(**HOOK).keyed("row-1"),
        client.webhooks.update(hook.id, description="new").keyed("row-2"),
        client.journeys.update(service.seed_journey().id, name="May").keyed("row-3"),
    ]
    file = tmp_path / "writes.jsonl"
    file.write_text("".join(json.dumps(write.to_line()) + "\n" for write in writes))
    async with Batch.open(tmp_path / "run.db", client) as batch:
        results = [result async for result in batch.run(file)]
    assert sorted((result.key, result.applied) for result in results) == [
        ("row-1", True),
        ("row-2", True),
        ("row-3", True),
    ]
    assert len(service.ledger.effects()) == 3


def write_it(line, base_url, token, told):
    async def run():
        async with Client(base_url, PersonToken(token)) as client:
            return (await client.write_from(line)).name

    told.put(asyncio.run(run()))


@pytest.mark.untraced
async def test_line_in_another_process(service):
    """The request of a line that was sent to another process is the one that was meant."""
    journey = service.seed_journey(status="draft")
    context = multiprocessing.get_context("spawn")
    told = context.Queue()
    line = CLIENT.journeys.update(journey.id, name="May").to_line()
    child = context.Process(
        target=write_it, args=(line, service.base_url, service.person_token, told)
    )
    child.start()
    try:
        assert await asyncio.to_thread(told.get, timeout=60) == "May"
    finally:
        await asyncio.to_thread(child.join, 60)
    assert [entry.body for entry in service.ledger.effects("journeys.update")] == [
        {"name": "May"}
    ]


async def sent(client):
    """Return a write that was sent, with all that it has then."""
    write = client.webhooks.create(**HOOK)
    await write
    return write


async def unsent(client):
    write = client.webhooks.create(**HOOK)
    write.close()
    return write


@pytest.mark.parametrize(
    "make",
    [
        lambda client: client,
        lambda client: client.for_team("team_9"),
        lambda client: client.webhooks,
        lambda client: client.webhooks.create,
        lambda client: client.invoices.egress(),
        unsent,
        sent,
    ],
)
@pytest.mark.parametrize(
    "through", [*range(2, pickle.HIGHEST_PROTOCOL + 1), copy.deepcopy]
)
async def test_what_does_not_pickle_says_what_to_do(service, client, make, through):
    """A client, and what has one, names the way to another process."""
    made = await make(client) if make in (sent, unsent) else make(client)
    with pytest.raises(TypeError) as caught:
        through(made) if callable(through) else pickle.dumps(made, through)
    if make in (sent, unsent):  # of which a copy would be sent, too
        assert str(caught.value) == (
            "Write: cannot be copied or pickled. Both would be sent. Call the method again for another write. For "
            "another process, use to_line(), and client.write_from(line) there."
        )
        return
    assert str(caught.value) == (
        "Client: cannot be pickled, because its connections belong to this process. Make a client in the other one, "
        "and give it a write as write.to_line(), for client.write_from(line)."
    )
