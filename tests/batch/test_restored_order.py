"""Writes to one thing, in a journal that was restored from a copy: none twice, none lost, none out of order."""

from __future__ import annotations

import asyncio
import random

import attrs
import pytest

from invsvc_async import Verdict
from invsvc_async.batch import Batch
from invsvc_async.cli.app import run as command_line
from tests.batch.conftest import client_of
from tests.batch.test_restored import copied, refused, restore, run
from tests.batch.writing import all_of, line_of
from tests.support.database import database
from tests.support.waiting import cancel

pytestmark = pytest.mark.one_python

YEARS_AGO = 1_500_000_000_000  # ms
KINDS = ("journeys", "webhooks")
FIELD = {"journeys": "name", "webhooks": "description"}


class FileJournal:
    """A journal in a file, whose copy is put back over it."""

    def __init__(self, folder):
        self.folder, self.address = folder, folder / "run.db"

    async def back_up(self):
        self.copy = copied(self.address, self.folder / "backup")

    async def put_back(self):
        restore(self.copy, self.address)


class DatabaseJournal:
    """A journal in PostgreSQL, whose schema is dumped, and made anew from the dump."""

    def __init__(self, folder):
        self.dump, self.name = folder / "dump.sql", f"r{abs(hash(folder))}"
        self.address = database().journal(self.name, silence=1)

    async def back_up(self):
        await self._call(
            "pg_dump",
            "--clean",
            "--schema",
            f"invoicing_batch_{self.name}",
            "--file",
            self.dump,
        )

    async def put_back(self):
        await self._call(
            "psql", "--quiet", "--set", "ON_ERROR_STOP=1", "--file", self.dump
        )

    async def _call(self, program, *arguments):
        path = database()._server.bin_path / program
        child = await asyncio.create_subprocess_exec(
            path, "--dbname", database().address, *arguments,
            stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        _, words = await child.communicate()
        assert child.returncode == 0, words.decode()


@pytest.fixture(
    params=[FileJournal, pytest.param(DatabaseJournal, marks=pytest.mark.slow)],
    ids=["file", "database"],
)
def journal(request, tmp_path):
    """Return a journal that can be restored from a copy."""
    return request.param(tmp_path)


@attrs.frozen
class Things:
    """A journey and a webhook, and the writes A, B, C to each."""

    service: object
    client: object
    ids: dict
    again: str = ""  # what the write "a" writes: the state of an earlier one

    def writes(self, *values):
        return [
            getattr(self.client, kind)
            .update(
                self.ids[kind], **{FIELD[kind]: self.again if value == "a" else value}
            )
            .keyed(f"{kind} {value}")
            for value in values
            for kind in KINDS
        ]

    def change(self, value):
        """Change both things as somebody else does."""
        self.service.change_journey(self.ids["journeys"], name=value)
        self.service.change_webhook(self.ids["webhooks"], description=value)

    def script(self, *steps):
        for kind in KINDS:
            self.service.script(f"{kind}.update", *steps)

    def effects(self):
        """Return the values that took effect, in their order, of each thing."""
        return {
            kind: "".join(
                entry.body[FIELD[kind]]
                for entry in self.service.ledger.effects(f"{kind}.update")
            )
            for kind in KINDS
        }

    async def arrived(self, arrivals):
        """Wait until the writes of each kind have arrived so often."""
        for kind in KINDS:
            await self.service.arrived(f"{kind}.update", arrivals)


@pytest.fixture
def things(service, client):
    """Return a journey and a webhook that nobody has changed."""
    return Things(
        service,
        client,
        {"journeys": service.seed_journey().id, "webhooks": service.seed_webhook().id},
    )


async def run_anew(journal, things, *values, restored=False):
    """Run A, B, C as another process does, which remembers nothing; return the verdict of each key."""
    async with client_of(things.service) as client:
        anew = attrs.evolve(things, client=client)
        found = await run(
            journal.address, client, anew.writes(*values), restored=restored
        )
    return {key: str(each.verdict) for key, each in found.items()}


def told(found):
    """Return the verdicts of writes, each of which both things have in common."""
    both = [
        {
            (key.split()[1], verdict)
            for key, verdict in found.items()
            if key.startswith(kind)
        }
        for kind in KINDS
    ]
    return both[0] & both[1]


async def copy_with_b_in_flight(things, journal, step):
    """Apply A, send B (the service does *step*), and copy the journal."""
    await run(journal.address, things.client, things.writes("A"))
    things.script(step)
    async with Batch.open(journal.address, things.client) as batch:
        sending = asyncio.create_task(all_of(batch, things.writes("B")))
        await things.arrived(2)
        await cancel(sending)
    await journal.back_up()


async def test_copy_with_a_write_in_flight_that_was_applied(things, journal):
    """B, which the copy has as sent, and C, which it lacks, were applied. Neither is sent again."""
    await copy_with_b_in_flight(things, journal, "apply, then hang")
    await run(journal.address, things.client, things.writes("A", "B", "C"))
    await journal.put_back()
    await refused(
        journal.address, things.client, "copy|dump", things.writes("A", "B", "C")
    )
    found = await run_anew(journal, things, "A", "B", "C", restored=True)
    assert things.effects() == dict.fromkeys(KINDS, "ABC")
    assert told(found) >= {("B", Verdict.UNKNOWN), ("C", Verdict.APPLIED)}


async def test_copy_that_lacks_nothing(things, journal):
    """B was applied, and nobody ever sent C. No read can tell that of C, so it is UNKNOWN and not sent."""
    await copy_with_b_in_flight(things, journal, "apply, then hang")
    await journal.put_back()
    found = await run_anew(journal, things, "A", "B", "C", restored=True)
    assert things.effects() == dict.fromkeys(KINDS, "AB")
    assert told(found) >= {("B", Verdict.APPLIED), ("C", Verdict.UNKNOWN)}
    await run_anew(journal, things, "D")  # the input was read: what comes later is new
    assert things.effects() == dict.fromkeys(KINDS, "ABD")


async def test_copy_whose_write_was_refused_and_overtaken(things, journal):
    """B had no effect and C had: B is not sent over C, which the copy lacks."""
    await copy_with_b_in_flight(things, journal, "hang")
    things.script("403")
    await run(journal.address, things.client, things.writes("A", "B", "C"))
    assert things.effects() == dict.fromkeys(KINDS, "AC")
    await journal.put_back()
    found = await run_anew(journal, things, "A", "B", "C", restored=True)
    assert things.effects() == dict.fromkeys(KINDS, "AC")
    for kind in KINDS:
        assert found[f"{kind} C"] == Verdict.APPLIED
        assert found[f"{kind} B"] in (Verdict.UNKNOWN, Verdict.NOT_APPLIED)


async def test_restored_copy_that_is_run_without_the_later_write(things, journal):
    """The state is that of C, which the journal does not know: that is no proof that somebody else made it."""
    await copy_with_b_in_flight(things, journal, "apply, then hang")
    await run(journal.address, things.client, things.writes("A", "B", "C"))
    await journal.put_back()
    found = await run_anew(journal, things, restored=True)
    assert things.effects() == dict.fromkeys(KINDS, "ABC")
    assert found == {f"{kind} B": Verdict.UNKNOWN for kind in KINDS}
    # The input is read later, by a run that need not be told again.
    found = await run_anew(journal, things, "A", "B", "C")
    assert things.effects() == dict.fromkeys(KINDS, "ABC")
    assert found == {f"{kind} C": Verdict.APPLIED for kind in KINDS}


async def retried(journal, things):
    """Retry what is unknown, as another process does; return how many writes, and the verdict of each key."""
    async with (
        client_of(things.service) as client,
        Batch.open(journal.address, client) as batch,
    ):
        many = await batch.retry(verdict=Verdict.UNKNOWN)
        return many, {result.key: str(result.verdict) for result in await all_of(batch)}


async def restored_after_lost(things, journal, kept, lost, then):
    """Run *kept*, copy the journal, run *lost* as well, restore it, and run everything with *then*."""
    await run(journal.address, things.client, things.writes(*kept))
    await journal.back_up()
    await run(journal.address, things.client, things.writes(*kept, *lost))
    await journal.put_back()
    return await run_anew(journal, things, *kept, *lost, *then, restored=True)


@pytest.mark.parametrize(("kept", "lost"), [("A", "B"), ("AB", "")])
async def test_writes_behind_the_one_that_the_state_shows(things, journal, kept, lost):
    """C and D are UNKNOWN at first: B's state says that they have not arrived, or were undone. A retry sends them."""
    found = await restored_after_lost(things, journal, kept, lost, "CD")
    assert things.effects() == dict.fromkeys(KINDS, "AB")
    assert told(found) >= {
        *((each, Verdict.APPLIED) for each in lost),
        ("C", Verdict.UNKNOWN),
        ("D", Verdict.UNKNOWN),
    }
    many, found = await retried(journal, things)
    assert many == 4
    assert set(found.values()) == {str(Verdict.APPLIED)}
    assert things.effects() == dict.fromkeys(KINDS, "ABCD")


async def test_writes_before_the_one_that_the_state_shows(things, journal):
    """C's state does not show whether B was applied before it: B stays UNKNOWN, however often it is retried."""
    found = await restored_after_lost(things, journal, "A", "BC", "")
    for _ in range(3):
        assert told(found) >= {("B", Verdict.UNKNOWN)}
        assert things.effects() == dict.fromkeys(KINDS, "ABC")
        _, found = await retried(journal, things)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
async def test_many_writes_to_few_things(service, client, journal, seed):
    """Of 40 writes, of which a restored journal lacks any number, none is doubled, out of order or falsely told."""
    chance = random.Random(seed)
    ids = [service.seed_journey(status="draft").id for _ in range(12)]
    asked = [
        (chance.choice(ids), chance.choice(("back", f"{number:02}")))
        for number in range(40)
    ]

    def writes(client, until=40):
        pairs = enumerate(asked[:until])
        return [
            client.journeys.update(id_, name=name).keyed(f"{number:02}")
            for number, (id_, name) in pairs
        ]

    def effects():
        came = service.ledger.effects("journeys.update")
        return {
            id_: [each.body["name"] for each in came if each.path_id == id_]
            for id_ in ids
        }

    copied_at = chance.randrange(40)
    lost_at = chance.randrange(copied_at, 40)
    await run(journal.address, client, writes(client, copied_at))
    await journal.back_up()
    await run(journal.address, client, writes(client, lost_at))
    await journal.put_back()
    before, told = effects(), {}
    async with client_of(service) as later:
        found = await run(journal.address, later, writes(later), restored=True)
        told |= {key: each.verdict for key, each in found.items()}
    for _ in range(3):
        async with (
            client_of(service) as later,
            Batch.open(journal.address, later) as batch,
        ):
            await batch.retry(verdict=Verdict.UNKNOWN)
            told |= {each.key: each.verdict for each in await all_of(batch)}
        for id_, done in effects().items():
            wanted = [name for other, name in asked if other == id_]
            # What was done is what was asked, in its order: nothing lost in between but what is told as such.
            assert done[: len(before[id_])] == before[id_]
            rest = iter(wanted)
            assert all(name in rest for name in done), (id_, wanted, done)
        for number, (id_, name) in enumerate(asked):
            verdict = told.get(f"{number:02}", Verdict.APPLIED)
            assert verdict is not Verdict.SUPERSEDED
            assert verdict is not Verdict.NOT_APPLIED or number >= lost_at, (
                f"{number} was applied"
            )
            assert verdict is not Verdict.APPLIED or name in effects()[id_]


async def test_retry_of_some_after_a_restore(things, journal):
    """A later one that is sent alone overtakes those before it: they are not sent, and nothing tells what they did."""
    await restored_after_lost(things, journal, "A", "B", "CD")
    async with (
        client_of(things.service) as client,
        Batch.open(journal.address, client) as batch,
    ):
        await batch.retry(verdict=Verdict.UNKNOWN, keys=[f"{kind} D" for kind in KINDS])
        await all_of(batch)
    assert things.effects() == dict.fromkeys(KINDS, "ABD")
    _, found = await retried(journal, things)
    assert set(found.values()) == {str(Verdict.UNKNOWN)}
    assert things.effects() == dict.fromkeys(KINDS, "ABD")


async def test_state_that_comes_back_after_a_restore(things, journal):
    """A, B, A: the state is that of the last one, so that B came before it, and is not sent again."""
    again = attrs.evolve(things, again="A")
    found = await restored_after_lost(again, journal, "A", "Ba", "C")
    assert things.effects() == dict.fromkeys(KINDS, "ABA")
    assert told(found) >= {
        ("a", Verdict.APPLIED),
        ("B", Verdict.UNKNOWN),
        ("C", Verdict.UNKNOWN),
    }
    _, found = await retried(journal, again)
    assert things.effects() == dict.fromkeys(KINDS, "ABAC")
    assert told(found) >= {("C", Verdict.APPLIED), ("B", Verdict.UNKNOWN)}


async def test_state_of_somebody_else_after_a_restore(things, journal):
    """Nothing tells what became of B, C and D, and a retry sends none of them over somebody else's change."""
    await run(journal.address, things.client, things.writes("A"))
    await journal.back_up()
    await run(journal.address, things.client, things.writes("A", "B"))
    await journal.put_back()
    things.change("X")
    found = await run_anew(journal, things, "A", "B", "C", "D", restored=True)
    assert set(found.values()) == {str(Verdict.UNKNOWN)}
    await retried(journal, things)
    assert things.effects() == dict.fromkeys(KINDS, "ABX")


@pytest.mark.slow
@pytest.mark.usefixtures("credential_in_environment")
async def test_restored_on_the_command_line(service, journal, tmp_path, capsys):
    """Without --restored nothing is sent; with it, nothing is sent again. Later runs do not need it."""
    hook, file = service.seed_webhook().id, tmp_path / "writes.jsonl"

    async def batch(values, *options):
        """Run the command for an input of *values*; return its exit code, and what it printed."""
        lines = [
            line_of("webhooks.update", each, webhook=hook, description=each)
            for each in values
        ]
        file.write_text("".join(lines))
        command = [
            "batch",
            str(file),
            "--journal",
            str(journal.address),
            "--no-secrets",
            *options,
        ]
        code = await asyncio.to_thread(command_line, command)
        return code, "".join(capsys.readouterr())

    assert (await batch("A"))[0] == 0
    await journal.back_up()
    assert (await batch("AB"))[0] == 0
    await journal.put_back()
    code, words = await batch("AB")
    assert (code, "--restored" in words, service.arrivals("webhooks.update")) == (
        1,
        True,
        2,
    ), words
    code, words = await batch("AB", "--restored")
    assert (code, service.arrivals("webhooks.update")) == (0, 2), words
    code, words = await batch("ABC")
    assert code == 0, words
    assert [
        entry.body["description"] for entry in service.ledger.effects("webhooks.update")
    ] == [*"ABC"]
    assert service.api_key not in words


async def test_writes_that_were_perhaps_not_sent(service, client, journal):
    """Nothing of B and C had arrived. B is not sent, because C perhaps was: the reason says "may have been"."""
    other = service.seed_webhook().id
    journey = service.seed_journey(last_updated=YEARS_AGO).id

    def renames(client, values):
        return [
            client.journeys.update(journey, name=value).keyed(value) for value in values
        ]

    def changes(values):
        return [
            client.webhooks.update(other, description=value).keyed(value)
            for value in values
        ]

    await run(journal.address, client, changes("1"))
    await journal.back_up()
    await run(journal.address, client, changes("12"))
    await journal.put_back()
    async with client_of(service) as later:
        found = await run(journal.address, later, renames(later, "BC"), restored=True)
    assert (found["B"].verdict, found["B"].cause) == (
        Verdict.NOT_APPLIED,
        "perhaps overtaken",
    )
    assert "may have been sent" in found["B"].message
    assert found["C"].verdict is Verdict.APPLIED
    assert [
        each.body["name"] for each in service.ledger.effects("journeys.update")
    ] == ["C"]


async def run_in_part(journal, service, writes):
    """Run the first of *writes* on a restored journal, then the input fails; return the results by key."""

    async def failing(client):
        for write in writes(client, "AB"):
            yield write
        raise OSError("the input is away")

    found = {}
    async with (
        client_of(service) as client,
        Batch.open(journal.address, client, restored=True) as batch,
    ):
        with pytest.raises(OSError, match="input is away"):
            async for result in batch.run(failing(client)):
                found[result.key] = result
    return found


async def run_again(journal, service, writes):
    """Retry what is unknown, and run *writes*, as another process does; return the verdicts by key."""
    async with (
        client_of(service) as client,
        Batch.open(journal.address, client) as batch,
    ):
        await batch.retry(verdict=Verdict.UNKNOWN)
        found = await all_of(batch, writes(client))
    return {each.key: each.verdict for each in found}


@pytest.mark.parametrize("is_lost", [True, False], ids=["lost", "never sent"])
async def test_retry_before_the_input_was_read_to_its_end(
    service, client, journal, is_lost
):
    """
    A webhook was "on" (A), then "off" (B) and "on" (C); the copy has A.  A retry of B is not sent over C.

    That both were sent may show only once C is in the journal.  If neither was, both are sent, in their order.
    """
    hook = service.seed_webhook().id
    states = {"A": "on", "B": "off", "C": "on" if is_lost else "last"}

    def writes(client, keys="ABC"):
        return [
            client.webhooks.update(hook, description=states[key]).keyed(key)
            for key in keys
        ]

    def effects():
        return [
            each.body["description"]
            for each in service.ledger.effects("webhooks.update")
        ]

    await run(journal.address, client, writes(client, "A"))
    await journal.back_up()
    if is_lost:
        await run(journal.address, client, writes(client))
    await journal.put_back()
    found = await run_in_part(journal, service, writes)
    assert (found["B"].verdict, found["B"].cause) == (Verdict.UNKNOWN, "perhaps undone")
    assert "Give the whole input, then retry" in found["B"].message
    before = effects()
    found = await run_again(journal, service, lambda _client: [])
    assert found == {"B": Verdict.UNKNOWN}
    assert effects() == before
    found = await run_again(journal, service, writes)
    assert found["B"] is Verdict.UNKNOWN
    assert effects() == before
    found = await run_again(journal, service, lambda _client: [])
    assert effects() == [*states.values()]
    if not is_lost:
        assert found == {"B": Verdict.APPLIED, "C": Verdict.APPLIED}


async def test_deletion_before_a_later_write_of_the_input(service, client, journal):
    """B deletes the thing, and was refused; C was applied. The copy lacks both: B is not sent before C is read."""
    hook = service.seed_webhook().id

    def writes(client, keys="ABC"):
        made = {
            "A": lambda: client.webhooks.update(hook, description="A"),
            "B": lambda: client.webhooks.delete(hook),
            "C": lambda: client.webhooks.update(hook, description="C"),
        }
        return [made[key]().keyed(key) for key in keys]

    await run(journal.address, client, writes(client, "A"))
    await journal.back_up()
    service.script("webhooks.delete", "403")
    await run(journal.address, client, writes(client))
    await journal.put_back()
    await run_in_part(journal, service, writes)
    found = await run_again(journal, service, lambda _client: [])
    assert found["B"] is Verdict.NOT_APPLIED
    found = await run_again(journal, service, writes)
    assert found["C"] is Verdict.APPLIED
    assert service.arrivals("webhooks.delete") == 1
