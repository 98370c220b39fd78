"""Several writes of one program to one thing, and equal creates: none is taken for another's, or for a stranger's."""

import asyncio
from contextlib import suppress

import attrs
import pytest

from invsvc_async import (
    ApiKey,
    Batch,
    Client,
    ConfigurationError,
    Intent,
    ReconcilePolicy,
    Timeouts,
    Verdict,
)
from invsvc_async.client import options_of
from invsvc_async.durable.journal import ClientJournal
from invsvc_async.simulator import Stores
from tests.faults.conftest import NO_WAIT, SHORT, client_of
from tests.support.inside import journal_of

pytestmark = pytest.mark.every_python

URL = "https://me.example/in"
PATIENT = Timeouts(attempt=30.0, call=60.0)
NEVER = attrs.evolve(SHORT, resend="never")
NO_LAG = attrs.evolve(SHORT, reads_lag=0.0)
# so that a gap between creates is short
TIGHT = attrs.evolve(SHORT, clock_slack=0.05, clock_band=0.4)

WIDE = attrs.evolve(NEVER, clock_slack=2.0, clock_band=6.0)
EXACT = attrs.evolve(SHORT, clock_slack=0.0)


def create(client, **options):
    return client.webhooks.create(
        **{
            "url": URL,
            "events": ["invoice.created"],
            "on_lost_secret": "keep",
            **options,
        }
    )


def effects(service, operation):
    return [
        entry for entry in service.ledger.effects(operation) if entry.by == "client"
    ]


async def cancelled(service, write, operation, step):
    """Send *write*, play *step*, cancel it once it has arrived, and return its bare intent."""
    arrived = service.arrivals(operation)
    service.script(operation, step)
    task = asyncio.create_task(write.outcome())
    await service.arrived(operation, arrived + 1)
    await asyncio.sleep(0.02)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    return Intent.from_json(write.intent.to_json())


# --- one thing


async def test_update_that_the_service_tidies(service, client):
    """A name that the service has trimmed is not taken for a stranger's."""
    journey = service.seed_journey()
    service.stores = Stores(words=("trimmed",), fields=("name",))
    service.script("journeys.update", "late 0.3, then reset")
    outcome = (
        await client.journeys.update(journey.id, name="mine ")
        .with_policy(TIGHT)
        .outcome()
    )

    assert outcome.verdict is Verdict.UNKNOWN
    assert len(effects(service, "journeys.update")) == 1


@pytest.mark.parametrize("step", ["reset", "503", "hang"])
async def test_update_right_after_an_update(service, client, step):
    """A second update that never happened is not called superseded: the change before it was our own."""
    journey = service.seed_journey(status="draft")
    await client.journeys.update(journey.id, name="first")
    service.script("journeys.update", step)
    outcome = (
        await client.journeys.update(journey.id, name="second")
        .with_policy(NEVER)
        .outcome()
    )

    assert outcome.verdict is Verdict.NOT_APPLIED
    assert [entry.body["name"] for entry in effects(service, "journeys.update")] == [
        "first"
    ]


async def test_update_right_after_an_update_is_sent_again(service, client):
    """What is provably absent is sent again, and ends applied."""
    journey = service.seed_journey(status="draft")
    await client.journeys.update(journey.id, name="first")
    service.script("journeys.update", "reset")
    outcome = await client.journeys.update(journey.id, name="second").outcome()

    assert (outcome.verdict, outcome.resends) == (Verdict.APPLIED, 1)
    assert [entry.body["name"] for entry in effects(service, "journeys.update")] == [
        "first",
        "second",
    ]


@pytest.mark.parametrize("ends", ["out of time", "cancelled"])
async def test_newer_update_that_never_leaves(service, tmp_path, ends):
    """It overtakes nothing: the older one, in doubt, is still the newest, and is sent again when it is resumed."""
    path, journey = tmp_path / "journal.db", service.seed_journey(status="draft")
    policy = attrs.evolve(
        SHORT, settle_after_loss=0.1, clock_slack=0.01, clock_band=0.05
    )
    async with client_of(
        service, journal=path, reconcile=policy, max_concurrency=2
    ) as client:
        await client.journeys.get(journey.id)
        bare = await cancelled(
            service,
            client.journeys.update(journey.id, name="older"),
            "journeys.update",
            "hang",
        )
        service.script("webhooks.list", "hang")
        filling = asyncio.create_task(
            client.with_options(timeout=PATIENT).webhooks.list()
        )
        await service.arrived("webhooks.list")
        hurried = client.with_options(
            timeout=PATIENT if ends == "cancelled" else Timeouts(attempt=0.1, call=0.2)
        )
        write = asyncio.create_task(
            hurried.journeys.update(journey.id, name="newer").outcome()
        )
        if ends == "cancelled":
            while client.unsettled[0].newest:  # noqa: ASYNC110 - until it waits for a place
                await asyncio.sleep(0.01)
            write.cancel()
        await asyncio.wait([write])
        filling.cancel()
        await asyncio.wait([filling])
        assert ends == "cancelled" or write.result().verdict is Verdict.NOT_APPLIED
        if ends == "cancelled":
            assert (await client.resume(bare).outcome()).verdict is Verdict.APPLIED
            return
    async with client_of(service, journal=path) as client:
        [left] = [intent async for intent in journal_of(client).open_intents()]

    assert (left.key, left.newest) == (bare.key, True)


async def test_applied_update_of_a_known_journey_needs_one_read(service, client):
    """Where the client has seen the journey before, one read at once shows that a lost update was applied."""
    journey = service.seed_journey(status="draft")
    await client.journeys.get(journey.id)
    before = service.arrivals("journeys.get")
    service.script("journeys.update", "apply, then reset")
    outcome = await client.journeys.update(journey.id, name="mine").outcome()

    assert outcome.verdict is Verdict.APPLIED
    assert service.arrivals("journeys.get") - before == 1
    assert outcome.evidence.read_at < outcome.evidence.window_until


async def test_lines_of_a_batch_that_touch_one_journey(service, client, tmp_path):
    """The second line of a batch, lost and without effect, is not called superseded by the first."""
    journey = service.seed_journey(status="draft")
    service.script("journeys.update", "pass", "503")
    writes = [
        client.journeys.update(journey.id, name=name).with_policy(NEVER)
        for name in ("one", "two")
    ]
    async with Batch.open(tmp_path / "run.db", client) as batch:
        verdicts = {
            result.outcome.intent.body["name"]: result.verdict
            async for result in batch.run(writes)
        }

    assert verdicts == {"one": Verdict.APPLIED, "two": Verdict.NOT_APPLIED}


async def test_updates_of_one_thing_keep_their_order(service, client):
    """Of updates begun at once, each is sent when the one before is answered."""
    journey = service.seed_journey(status="draft")
    names = [f"name {number}" for number in range(5)]
    service.script("journeys.update", *["slow 0.05"] * 5)
    await asyncio.gather(
        *(client.journeys.update(journey.id, name=name) for name in names)
    )

    assert [
        entry.body["name"] for entry in effects(service, "journeys.update")
    ] == names


@pytest.mark.parametrize("kind", ["journeys.update", "webhooks.update"])
async def test_older_update_settled_after_a_newer_one(service, client, kind):
    """A cancelled update that a newer one of this program has overtaken is not called superseded by a stranger."""
    if kind == "journeys.update":
        thing, change = service.seed_journey(status="draft"), client.journeys.update
        old, new = {"name": "old"}, {"name": "new"}
    else:
        thing, change = (
            service.seed_webhook(description="start"),
            client.webhooks.update,
        )
        old, new = {"description": "old"}, {"description": "new"}
    bare = await cancelled(service, change(thing.id, **old), kind, "apply, then hang")
    await change(thing.id, **new)

    same = await client.settle(bare)
    async with client_of(service) as other:
        elsewhere = await other.settle(bare)

    assert Verdict.SUPERSEDED not in (same.verdict, elsewhere.verdict)
    assert same.applied is not False
    assert elsewhere.applied is not False
    # only a journey shows when it was changed last
    whose = {
        "journeys.update": "a later write of this program",
        "webhooks.update": "another write",
    }
    assert whose[kind] in elsewhere.message


async def test_update_that_a_newer_one_set_back(service, client):
    """An update that landed, and was undone by a later one of this program, is not called absent."""
    hook = service.seed_webhook(status="active")
    await client.webhooks.get(hook.id)
    write = client.webhooks.update(hook.id, status="inactive")
    bare = await cancelled(service, write, "webhooks.update", "apply, then hang")
    await client.webhooks.update(hook.id, status="active")

    same = await client.settle(bare)
    async with client_of(service) as other:
        elsewhere = await other.settle(bare)

    assert len(effects(service, "webhooks.update")) == 2
    assert same.applied is not False
    assert elsewhere.applied is not False


async def test_older_update_is_not_resumed_after_a_newer_one(service, client):
    """An older write of a thing is not sent any more once a newer one was, and its verdict says so."""
    journey = service.seed_journey(status="draft")
    await client.journeys.get(journey.id)
    bare = await cancelled(
        service,
        client.journeys.update(journey.id, name="old"),
        "journeys.update",
        "hang",
    )
    service.script("journeys.update", "422")
    with suppress(Exception):
        await client.journeys.update(journey.id, name="new")
    outcome = await client.resume(bare).outcome()

    assert outcome.verdict is Verdict.NOT_APPLIED
    assert "newer write of this program" in outcome.message
    assert effects(service, "journeys.update") == []


async def test_update_that_somebody_else_changed_while_we_looked(service, client):
    """Two reads after the send that differ prove somebody else's change: SUPERSEDED."""
    hook = service.seed_webhook(description="start")
    await client.webhooks.get(hook.id)
    looked = service.arrivals("webhooks.get")
    service.script("webhooks.update", "reset")

    async def somebody():
        await service.arrived("webhooks.get", looked + 1)
        await asyncio.sleep(0.02)
        service.change_webhook(hook.id, description="theirs")

    write = client.webhooks.update(hook.id, description="mine").with_policy(NO_LAG)
    outcome, _ = await asyncio.gather(write.outcome(), somebody())
    assert outcome.verdict is Verdict.SUPERSEDED


async def test_journey_changed_in_the_future(service, client):
    """A time of change later than the answer's own time proves nothing: the service's clock has stepped."""
    journey = service.seed_journey(
        status="draft", last_updated=service.clock.now_ms() + 3_600_000
    )
    await client.webhooks.list()
    service.script("journeys.update", "reset")
    outcome = await client.journeys.update(journey.id, name="mine").outcome()

    assert outcome.verdict is Verdict.UNKNOWN


@pytest.mark.parametrize("lag", [0.0, SHORT.reads_lag])
async def test_update_of_a_webhook_that_was_never_there(service, client, lag):
    """Not there before and not there after: it was not applied, unless the first read may have lagged."""
    service.script("webhooks.update", "reset")
    write = client.webhooks.update("wh_none", description="mine")
    outcome = await write.with_policy(reads_lag=lag).outcome()

    assert outcome.verdict is (Verdict.UNKNOWN if lag else Verdict.NOT_APPLIED)
    assert service.arrivals("webhooks.update") == 1


async def test_read_before_a_write_is_tried_again(service, client):
    """A failed read for the baseline does not cost the verdict: it is read up to three times."""
    hook = service.seed_webhook(description="start")
    service.script("webhooks.get", "503", "reset", "pass")
    service.script("webhooks.update", "apply, then reset")
    outcome = (
        await client.webhooks.update(hook.id, description="mine")
        .with_policy(NO_LAG)
        .outcome()
    )

    assert outcome.verdict is Verdict.APPLIED
    assert outcome.evidence.read_at < outcome.evidence.window_until


# --- equal creates

PAIRS = {
    "a named team": (lambda _: {}, lambda service: {"team": service.teams[0]}),
    "a text and a tag": (
        lambda _: {"description": "spring"},
        lambda _: {"tag": "spring"},
    ),
    "tags of one end": (
        lambda _: {"tag": "the spring"},
        lambda _: {"description": "the", "tag": "spring"},
    ),
    "a spelling": (lambda _: {}, lambda _: {"url": "https://ME.example:443/%69n"}),
}


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize(
    "steps",
    [("apply, then reset", "reset"), ("reset", "apply, then reset")],
    ids=["first", "second"],
)
async def test_equal_creates_in_two_spellings(service, pair, steps):
    """Each create ends with a webhook of its own, whichever of the two was lost."""
    one, other = (options(service) for options in PAIRS[pair])
    async with client_of(service, reconcile=TIGHT) as client:
        await client.webhooks.list()
        service.script("webhooks.create", *steps)
        outcomes = await asyncio.gather(
            create(client, **one).outcome(), create(client, **other).outcome()
        )

    assert [outcome.verdict for outcome in outcomes] == [
        Verdict.APPLIED,
        Verdict.APPLIED,
    ]
    assert sorted(outcome.value.id for outcome in outcomes) == sorted(
        entry.target for entry in effects(service, "webhooks.create")
    )
    first_sent = service.ledger.find("webhooks.create")[0]
    assert first_sent.applied or outcomes[0].resends == 1  # applied by its own effect


async def test_second_of_two_equal_creates_settled_elsewhere(service, client):
    """The webhook of an earlier equal create is not taken for that of the second, which never happened."""
    await client.webhooks.list()
    first = await create(client)
    bare = await cancelled(service, create(client), "webhooks.create", "hang")
    async with client_of(service) as other:
        outcome = await other.settle(bare)

    assert outcome.verdict is not Verdict.APPLIED
    assert [entry.target for entry in effects(service, "webhooks.create")] == [first.id]


async def test_leftover_create_and_an_equal_one(service):
    """Settling a leftover create and making an equal webhook do not share one webhook."""
    async with client_of(service, reconcile=TIGHT) as dead:
        await dead.webhooks.list()
        bare = await cancelled(service, create(dead), "webhooks.create", "hang")
    async with client_of(service, reconcile=TIGHT) as client:
        await client.webhooks.list()
        service.script("webhooks.create", "late 0.1, then reset")
        settled, made = await asyncio.gather(
            client.settle(bare), create(client).outcome()
        )

    assert made.verdict is Verdict.APPLIED
    assert settled.verdict is not Verdict.APPLIED
    assert len(effects(service, "webhooks.create")) == 1


@pytest.mark.parametrize("lists", ["pass", "503"])
@pytest.mark.parametrize("journal", [True, False])
async def test_create_right_after_a_restart(service, tmp_path, journal, lists):
    """A client that was just started does not take the webhook of the process before it for its own."""
    kept = {"journal": tmp_path / "journal.db"} if journal else {}
    journey = service.seed_journey()
    async with client_of(service, **kept) as client:
        first = await create(client)
    service.script("webhooks.create", "reset")
    service.script("webhooks.list", *[lists] * 3)
    async with client_of(service, **kept) as client:
        await client.journeys.get(journey.id)  # so that the service's clock is known
        outcome = await create(client).with_policy(WIDE).outcome()

    assert [entry.target for entry in effects(service, "webhooks.create")] == [first.id]
    assert outcome.verdict is (
        Verdict.NOT_APPLIED if lists == "pass" else Verdict.UNKNOWN
    )


@pytest.mark.parametrize("shown", [{"status": "inactive"}, {"limit": 1}])
async def test_create_right_after_a_restart_and_a_part_of_the_list(service, shown):
    """A list that the program read for itself, filtered or cut off, does not count as one that shows all."""
    journey = service.seed_journey()
    async with client_of(service) as client:
        first = await create(client)
        other = await create(client, url="https://other.example/in", status="inactive")
    service.script("webhooks.create", "reset")
    async with client_of(service) as client:
        await client.journeys.get(journey.id)  # so that the service's clock is known
        assert [hook.id for hook in await client.webhooks.list(**shown)] == [other.id]
        outcome = await create(client).with_policy(WIDE).outcome()

    assert [entry.target for entry in effects(service, "webhooks.create")] == [
        first.id,
        other.id,
    ]
    assert outcome.verdict is Verdict.NOT_APPLIED


async def test_list_before_the_first_create_is_read_once(service, client):
    """Where a client has seen a list, and where the create has a unique tag, none is read before a create."""
    journey = service.seed_journey()
    await client.journeys.get(journey.id)
    await create(client, tag=True)
    assert service.arrivals("webhooks.list") == 0
    await create(client)
    await create(client, url="https://other.example/in")
    assert service.arrivals("webhooks.list") == 1


async def test_commit_that_is_seen_after_the_window(service):
    """An equal webhook that appears just after the window is not read as absence: nothing is sent again."""
    policy = ReconcilePolicy(
        settle_after_error=0.2, settle_after_loss=0.4, clock_slack=0.0, deadline=20.0
    )
    async with client_of(service, reconcile=policy) as client:
        await client.webhooks.list()
        service.script("webhooks.create", "late 0.45, then reset")
        service.script("webhooks.list", "pass", "slow 0.3", "slow 0.3", "slow 0.3")
        outcome = await create(client).outcome()

    assert len(effects(service, "webhooks.create")) == 1
    assert outcome.applied is not False


class Canceller(ClientJournal):
    """A journal that cancels a write before it is sent."""

    armed = False

    async def sending(self, intent):
        if self.armed:
            self.armed = False
            asyncio.current_task().cancel()
            await asyncio.sleep(0)
        return await super().sending(intent)

    async def cancel(self, write):
        self.armed = True
        await asyncio.wait([asyncio.create_task(write.outcome())])


@pytest.mark.parametrize("refused", [True, False])
async def test_create_that_was_cancelled_before_it_was_sent(service, tmp_path, refused):
    """When it is awaited again, a webhook that an equal create has made meanwhile is known, also elsewhere."""
    policy, journal = (
        attrs.evolve(SHORT, wait_when_limited=True),
        Canceller(tmp_path / "journal.db"),
    )
    async with client_of(service, reconcile=policy, journal=journal) as client:
        await client.webhooks.list()
        write = create(client)
        if refused:
            await cancelled(service, write, "webhooks.create", "429 after 0.2")
        else:
            await journal.cancel(write)
        assert not client.unsettled
        made = await create(client)
        bare = await cancelled(service, write, "webhooks.create", "hang")
    async with client_of(service) as other:
        outcome = await other.settle(bare)

    assert made.id in bare.strangers
    assert outcome.verdict is Verdict.NOT_APPLIED
    assert [entry.target for entry in effects(service, "webhooks.create")] == [made.id]


async def test_update_that_was_cancelled_before_it_was_sent(service, tmp_path):
    """When it is awaited again, its baseline is not the state before a later update of this program."""
    journal, hook = (
        Canceller(tmp_path / "journal.db"),
        service.seed_webhook(description="start"),
    )
    async with client_of(service, reconcile=NEVER, journal=journal) as client:
        write = client.webhooks.update(hook.id, description="first")
        await journal.cancel(write)
        await client.webhooks.update(hook.id, description="second")
        service.script("webhooks.update", "reset")
        outcome = await write.outcome()

    assert outcome.verdict is Verdict.NOT_APPLIED
    assert [
        entry.body["description"] for entry in effects(service, "webhooks.update")
    ] == ["second"]


async def test_resume_of_a_delete_that_was_cancelled_before_it_was_sent(
    service, tmp_path
):
    """No newer write is made up: the webhook is still there, so the delete is sent."""
    journal, hook = Canceller(tmp_path / "journal.db"), service.seed_webhook()
    async with client_of(service, journal=journal) as client:
        write = client.webhooks.delete(hook.id)
        await journal.cancel(write)
        settled = await client.settle(write.intent)
        outcome = await client.resume(write.intent).outcome()

    assert settled.evidence.cause == "only read"
    assert outcome.verdict is Verdict.APPLIED
    assert len(effects(service, "webhooks.delete")) == 1


@pytest.mark.parametrize("kind", ["journeys.update", "webhooks.update"])
async def test_update_under_another_name_of_the_team(service, client, kind):
    """What writes without ``team=`` left counts for those that name the same team, and the other way round."""
    if kind == "journeys.update":
        thing, change, field = (
            service.seed_journey(status="draft"),
            client.journeys.update,
            "name",
        )
    else:
        thing, change, field = (
            service.seed_webhook(),
            client.webhooks.update,
            "description",
        )
    for name in ("named", "unnamed", "named again"):
        await change(
            thing.id, **{field: name}, team=None if name == "unnamed" else service.team
        )
    for team in (None, service.team):
        service.script(kind, "reset")
        outcome = (
            await change(thing.id, **{field: "lost"}, team=team)
            .with_policy(NEVER)
            .outcome()
        )
        assert outcome.verdict is Verdict.NOT_APPLIED


async def test_webhook_that_another_team_does_not_have(service, client):
    """A 404 of another team does not count as the state of the webhook."""
    hook = service.seed_webhook()
    service.script("webhooks.update", "reset", "reset")
    theirs = (
        await client.webhooks.update(hook.id, description="mine", team="team_2")
        .with_policy(reads_lag=0.0)
        .outcome()
    )
    outcome = (
        await client.webhooks.update(hook.id, description="mine")
        .with_policy(NEVER)
        .outcome()
    )

    assert (theirs.verdict, outcome.verdict) == (
        Verdict.NOT_APPLIED,
        Verdict.NOT_APPLIED,
    )


@pytest.mark.parametrize("tag", [True, "spring", False])
async def test_value_of_a_create_that_was_answered(service, client, tag):
    """Settled later, it is applied, but an equal webhook that was made right after it is not its value."""
    first = create(client, tag=tag)
    made = await first
    await client.webhooks.delete(made.id)
    await create(client, tag=tag)
    async with client_of(service) as other:
        outcome = await other.settle(first.intent)

    assert (outcome.verdict, outcome.value) == (Verdict.APPLIED, None)


async def test_guess_is_no_absence(service, client):
    """A webhook that another write took by a match does not prove that this one is absent."""
    await client.webhooks.list()
    service.script("webhooks.create", "apply, then reset")
    bare = await cancelled(
        service, create(client), "webhooks.create", "apply, then hang"
    )
    (entry,) = effects(service, "webhooks.create")
    async with client_of(service) as other:
        options_of(other).core.writes.claim(entry.target, "another", is_certain=False)
        outcome = await other.settle(bare)

    assert outcome.verdict is Verdict.UNKNOWN


# --- one settler at a time


@pytest.mark.parametrize(
    "operation",
    ["webhooks.create", "journeys.update", "webhooks.delete", "webhooks.update"],
)
@pytest.mark.parametrize(
    "together", [True, False], ids=["at once", "one after the other"]
)
@pytest.mark.parametrize("tag", [True, False], ids=["tagged", "plain"])
async def test_two_resumes_of_one_intent(service, operation, together, tag):
    """Resuming one intent twice makes one effect, at once or one after the other."""
    async with client_of(service, reconcile=EXACT) as dead:
        await dead.webhooks.list()
        write = {
            "webhooks.create": lambda: create(dead, tag=tag),
            "journeys.update": lambda: dead.journeys.update(
                service.seed_journey(status="draft").id, name="mine"
            ),
            "webhooks.update": lambda: dead.webhooks.update(
                service.seed_webhook().id, description="mine"
            ),
            "webhooks.delete": lambda: dead.webhooks.delete(service.seed_webhook().id),
        }[operation]()
        bare = await cancelled(service, write, operation, "hang")
    async with client_of(service, reconcile=EXACT) as client:
        if together:
            outcomes = await asyncio.gather(
                client.resume(bare).outcome(), client.resume(bare).outcome()
            )
        else:
            outcomes = [await client.resume(bare).outcome() for _ in range(2)]

    assert [outcome.verdict for outcome in outcomes] == [
        Verdict.APPLIED,
        Verdict.APPLIED,
    ]
    assert len(effects(service, operation)) == 1


async def test_resume_of_one_intent_in_two_clients(service):
    """A job that is delivered again, to another process, makes no second webhook."""
    async with client_of(service, reconcile=EXACT) as dead:
        await dead.webhooks.list()
        bare = await cancelled(service, create(dead), "webhooks.create", "hang")
    for _ in range(2):
        async with client_of(service, reconcile=EXACT) as client:
            outcome = await client.resume(bare).outcome()

    assert len(effects(service, "webhooks.create")) == 1
    assert outcome.applied is not False


async def test_delete_that_is_settled_from_a_bare_intent(service, client):
    """The evidence of a delete that arrived and did nothing is a read, not that it was never sent."""
    hook = service.seed_webhook()
    write = client.webhooks.delete(hook.id)
    bare = Intent.from_json(write.intent.to_json())
    await cancelled(service, write, "webhooks.delete", "hang")
    async with client_of(service) as other:
        outcome = await other.settle(bare)

    assert (outcome.verdict, outcome.evidence.basis) == (Verdict.NOT_APPLIED, "absence")
    assert outcome.evidence.read_at is not None


# --- tags as a setting


async def test_policy_tags_every_create(service):
    """With ``tag_creates`` each create has a tag of its own, as with ``tag=True``."""
    async with client_of(
        service, reconcile=attrs.evolve(SHORT, tag_creates=True)
    ) as client:
        outcomes = await asyncio.gather(
            create(client).outcome(), create(client).outcome()
        )
        own = await create(client, tag="mine").outcome()
    async with client_of(service) as plain:
        asked = await create(plain).with_policy(tag_creates=True).outcome()

    tags = {outcome.intent.tag for outcome in (*outcomes, asked)}
    assert len(tags) == 3
    assert all(tag.startswith("[iv-") for tag in tags)
    assert own.intent.tag == "mine"


async def test_profile_tags_every_create(service, tmp_path, monkeypatch):
    """A profile can ask for it, too."""
    (tmp_path / "invsvc.toml").write_text(
        f'[profiles.live]\nbase_url = "{service.base_url}"\n[profiles.live.reconcile]\ntag_creates = true\n'
    )
    monkeypatch.chdir(tmp_path)
    async with Client.from_env(
        profile="live", credential=ApiKey(service.api_key), reads=NO_WAIT
    ) as client:
        outcome = await create(client).outcome()
    assert outcome.intent.tag.startswith("[iv-")


# --- several runs of one write


async def test_write_that_was_settled_and_is_awaited_again(service, client):
    """Its verdict stands, even after a newer write put back the state before it: it is not sent again."""
    hook = service.seed_webhook(status="active")
    write = client.webhooks.update(hook.id, status="inactive")
    await cancelled(service, write, "webhooks.update", "apply, then hang")
    settled = await client.settle(client.unsettled[0])
    await client.webhooks.update(hook.id, status="active")
    outcome = await write.outcome()

    assert (settled.verdict, outcome.verdict) == (Verdict.APPLIED, Verdict.APPLIED)
    assert [entry.body["status"] for entry in effects(service, "webhooks.update")] == [
        "inactive",
        "active",
    ]


async def test_write_that_was_settled_as_absent_and_is_awaited_after_a_newer_one(
    service, client
):
    """It is not sent any more, because a newer write to the webhook was."""
    hook = service.seed_webhook(status="active", description="old")
    write = client.webhooks.update(hook.id, description="first")
    await cancelled(service, write, "webhooks.update", "hang")
    settled = await client.settle(client.unsettled[0])
    await client.webhooks.update(hook.id, status="inactive")
    outcome = await write.outcome()

    assert settled.verdict is Verdict.NOT_APPLIED
    assert outcome.verdict in (Verdict.NOT_APPLIED, Verdict.UNKNOWN)
    assert [entry.body for entry in effects(service, "webhooks.update")] == [
        {"status": "inactive"}
    ]


async def test_settle_that_is_cancelled_while_a_newer_write_runs(service, client):
    """What is known of the older write stays: it was overtaken, so resuming it does not undo the newer one."""
    hook = service.seed_webhook(status="active")
    service.script("webhooks.update", "apply, then reset")
    # the baseline; then no read before the deadline
    service.script("webhooks.get", "pass", "503")
    first = (
        await client.webhooks.update(hook.id, status="inactive")
        .with_policy(deadline=0.0)
        .outcome()
    )
    service.script("webhooks.update", "slow 0.2")
    newer = asyncio.create_task(
        client.webhooks.update(hook.id, status="active").outcome()
    )
    await service.arrived("webhooks.update", 2)
    settling = asyncio.create_task(
        client.settle(attrs.evolve(first.intent, policy=SHORT))
    )
    await asyncio.sleep(0.01)
    settling.cancel()
    await asyncio.wait([settling])
    await newer
    outcome = await client.resume(
        attrs.evolve(client.unsettled[0], policy=SHORT)
    ).outcome()

    assert first.verdict is Verdict.UNKNOWN
    assert outcome.verdict in (Verdict.NOT_APPLIED, Verdict.UNKNOWN)
    assert [entry.body["status"] for entry in effects(service, "webhooks.update")] == [
        "inactive",
        "active",
    ]


async def test_write_of_another_process_after_a_refused_one_here(service):
    """A newer update that was refused has changed nothing, so it does not hold an older one back."""
    hook = service.seed_webhook(status="active")
    async with client_of(service, reconcile=NO_LAG) as dead:
        write = dead.webhooks.update(hook.id, status="inactive")
        older = await cancelled(service, write, "webhooks.update", "hang")
    async with client_of(service, reconcile=NO_LAG) as client:
        service.script("webhooks.update", "422")
        newer = await client.webhooks.update(hook.id, description="x").outcome()
        outcome = await client.resume(older).outcome()

    assert newer.verdict is Verdict.REFUSED
    assert outcome.evidence.cause != "overtaken"
    assert outcome.verdict is Verdict.APPLIED
    assert [entry.body for entry in effects(service, "webhooks.update")] == [
        {"status": "inactive"}
    ]


async def test_settle_that_is_cancelled_before_it_begins_elsewhere(service):
    """An intent from another process is no newest write here, even after it waited in vain."""
    hook = service.seed_webhook(status="active")
    async with client_of(service) as first:
        intent = await cancelled(
            service,
            first.webhooks.update(hook.id, status="inactive"),
            "webhooks.update",
            "hang",
        )
    assert intent.newest
    async with client_of(service) as second:
        service.script("webhooks.update", "slow 0.2")
        newer = asyncio.create_task(
            second.webhooks.update(hook.id, description="newer").outcome()
        )
        await service.arrived("webhooks.update", 2)
        settling = asyncio.create_task(second.settle(intent))
        await asyncio.sleep(0.01)
        settling.cancel()
        await asyncio.wait([settling])
        (kept,) = second.unsettled
        await newer

    assert (kept.identity, kept.newest) == (intent.identity, None)


async def test_settle_in_another_event_loop(service, client):
    """It is refused at once, instead of reading in vain until the deadline."""
    hook = service.seed_webhook(status="active")
    write = client.webhooks.update(hook.id, status="inactive")
    intent = await cancelled(service, write, "webhooks.update", "apply, then hang")
    for settling in (
        lambda: client.settle(intent),
        lambda: client.resume(intent).outcome(),
    ):
        with pytest.raises(ConfigurationError, match="one client for each loop"):
            await asyncio.to_thread(lambda settling=settling: asyncio.run(settling()))
    assert (await client.settle(intent)).verdict is Verdict.APPLIED


async def test_settle_of_a_known_verdict_keeps_nobody_waiting(service, client):
    """A verdict that is given again does not keep the next write until another window is over."""
    hook = service.seed_webhook(status="active")
    write = client.webhooks.update(hook.id, status="inactive")
    await cancelled(service, write, "webhooks.update", "apply, then hang")
    intent, loop = client.unsettled[0], asyncio.get_running_loop()
    await client.settle(intent)
    await client.webhooks.update(hook.id, description="newer")
    assert (await client.settle(intent)).verdict is Verdict.APPLIED
    begun = loop.time()
    await client.webhooks.update(hook.id, description="newest")

    assert loop.time() - begun < SHORT.settle_after_loss


@pytest.mark.parametrize("answered", [True, False])
async def test_tagged_webhook_whose_tag_was_edited_away(service, answered):
    """A webhook that a tagged create of this program made is not taken for an untagged create's, even if it is equal."""
    async with client_of(service, reconcile=NEVER) as client:
        await client.webhooks.list()
        service.script(
            "webhooks.create", "reset", "pass" if answered else "apply, then reset"
        )
        ours = asyncio.create_task(create(client, description="spring").outcome())
        await service.arrived("webhooks.create", 1)
        tagged = await create(client, tag=True)
        await client.webhooks.update(tagged, description="spring")
        outcome = await ours

    assert [entry.target for entry in effects(service, "webhooks.create")] == [
        tagged.id
    ]
    assert outcome.verdict is Verdict.NOT_APPLIED
