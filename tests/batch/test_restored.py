"""Journals that were copied, restored, moved or replaced: refused in words, or settled before anything is sent."""

from __future__ import annotations

import shutil

import pytest

from invsvc_async import JournalError, ReconcilePolicy, Verdict
from invsvc_async.batch import Batch
from tests.batch.conftest import HOOK, POLICY, client_of
from tests.batch.writing import all_of, run_all

MANY = 49


def creates(client, many=MANY, start=0):
    return [
        client.webhooks.create(**{**HOOK, "url": f"https://me.example/{number}"}).keyed(f"row-{number}")
        for number in range(start, many)
    ]


def copied(path, folder, ends=("", "-wal")):
    """Copy the journal at *path* to *folder*; the file beside it only if *ends* has it."""
    folder.mkdir(exist_ok=True)
    for end in ends:
        source = path.with_name(path.name + end)
        if source.exists():
            shutil.copy(source, folder / source.name)
    return folder / path.name


def restore(copy, path):
    """Replace the journal by the file of a backup, as an operator does."""
    path.with_name(f"{path.name}-wal").unlink(missing_ok=True)
    path.with_name(f"{path.name}-shm").unlink(missing_ok=True)
    shutil.copy(copy, path)


async def run(path, client, writes=(), **settings):
    try:
        return {
            result.key: result
            for result in await run_all(path, client, writes, on_secret=lambda *_: None, **settings)
        }
    finally:
        for write in writes:
            write.close()


async def refused(path, client, words, writes=(), **settings):
    """Check that the journal is not opened, and return the error's words."""
    with pytest.raises(JournalError, match=words) as found:
        await run(path, client, writes, **settings)
    return str(found.value)


@pytest.fixture
async def older(service, client, tmp_path):
    """Return a journal that was restored from a copy: 4 of its 49 writes are in the copy, all are applied."""
    path = tmp_path / "run.db"
    await run(path, client, creates(client, 4))
    copy = copied(path, tmp_path / "backup")
    await run(path, client, creates(client))
    assert service.arrivals("webhooks.create") == MANY
    restore(copy, path)
    return path


async def test_older_copy_is_refused(service, client, older):
    """It is refused with how many sends it lacks, and what to do; nothing is sent."""
    words = await refused(older, client, "older copy, which lacks the last 45 sends", creates(client))
    assert "--restored" in words
    assert service.arrivals("webhooks.create") == MANY
    await refused(older, client, "older copy", creates(client), moved=True)  # the count proves otherwise


async def test_older_copy_is_settled_first(service, client, older):
    """With *restored*, the writes that it lacks are found by their tags, and none is sent again."""
    results = await run(older, client, creates(client, MANY + 1), restored=True)
    assert {each.verdict for each in results.values()} == {Verdict.APPLIED}
    assert len(results) == MANY + 1 - 4
    assert results["row-20"].basis == "tag"
    assert results["row-20"].secret_lost
    assert len(service.ledger.effects("webhooks.create")) == MANY + 1  # one was new, and proven absent
    assert service.arrivals("webhooks.create") == MANY + 1


async def test_restored_journal_without_the_right_to_list(service, client, older):
    """A refusal of the first read, which is for the service's clock, is no obstacle."""
    service.script("webhooks.list", "403")
    results = await run(older, client, creates(client), restored=True)
    assert {each.verdict for each in results.values()} == {Verdict.APPLIED}
    assert service.arrivals("webhooks.create") == MANY


async def test_restored_run_that_was_interrupted(service, client, older):
    """The next run goes on settling first, without being told again, until the input was read to its end."""
    async with Batch.open(older, client, restored=True, concurrency=1, on_secret=lambda *_: None) as batch:
        async for _ in batch.run(creates(client)):
            break
    await run(older, client, creates(client))
    assert service.arrivals("webhooks.create") == MANY
    service.script("webhooks.list", *["500"] * 200)  # from now on, new writes are not settled first
    results = await run(older, client, creates(client, MANY + 3))
    assert {each.verdict for each in results.values()} == {Verdict.APPLIED}
    assert service.arrivals("webhooks.create") == MANY + 3


async def test_restored_journal_that_lacked_nothing(service, client, tmp_path):
    """Once the input was read again, writes that come later are new. A run without input is not enough."""
    path = tmp_path / "run.db"
    await run(path, client, creates(client, 5))
    await run(path, client, restored=True)
    async with Batch.open(path, client) as batch:
        assert batch.sending.restored.is_open
    await run(path, client, creates(client, 5))
    async with Batch.open(path, client) as batch:
        assert not batch.sending.restored.is_open


async def test_copy_of_a_running_batch(service, client, tmp_path):
    """A copy made in the middle of a run is older than the file beside it, even if the run was killed."""
    path, seen = tmp_path / "run.db", 0
    async with Batch.open(path, client, concurrency=1, on_secret=lambda *_: None) as batch:
        async for _ in batch.run(creates(client, 10)):
            seen += 1
            if seen == 4:
                copy = copied(path, tmp_path / "backup")
            if seen == 9:
                copied(path, tmp_path / "backup", (".epoch",))  # as a kill leaves it
    sent = service.arrivals("webhooks.create")
    await refused(copy, client, "older copy", creates(client, 10))
    assert service.arrivals("webhooks.create") == sent


async def test_crash_at_any_moment_is_no_restore(service, client, tmp_path):
    """What a kill leaves of both files is opened: the file beside the journal never counts more."""
    path, seen = tmp_path / "run.db", 0
    copies = []
    async with Batch.open(path, client, concurrency=3, on_secret=lambda *_: None) as batch:
        async for _ in batch.run(creates(client, 30)):
            seen += 1
            copies.append(copied(path, tmp_path / f"at-{seen}", (".epoch", "-wal", "")))
    for copy in copies:
        async with Batch.open(copy, client) as batch:
            assert (await batch.summary()).total >= 1


async def test_copy_without_the_file_beside_it(service, client, tmp_path):
    """A copy in another place is refused; with the file, or with *moved*, it goes on."""
    path = tmp_path / "run.db"
    await run(path, client, creates(client, 5))
    copy = copied(path, tmp_path / "elsewhere")
    words = await refused(
        copy, client, "run.db.epoch is missing or empty, so this may be a copy", creates(client, 6)
    )
    assert "--moved" in words
    assert service.arrivals("webhooks.create") == 5
    await run(copy, client, creates(client, 6), moved=True)
    assert service.arrivals("webhooks.create") == 6
    whole = copied(copy, tmp_path / "moved", ("", "-wal", ".epoch"))
    await run(whole, client, creates(client, 7))
    assert service.arrivals("webhooks.create") == 7


@pytest.mark.parametrize("kind", ["lost", "other", "damaged"])
async def test_file_beside_another_journal(service, client, tmp_path, kind):
    """The words say which it is, and what to do; nothing is sent."""
    path, other = tmp_path / "run.db", tmp_path / "other.db"
    await run(path, client, creates(client, 5))
    beside = path.with_name("run.db.epoch")
    match kind:
        case "lost":
            path.unlink()
            words = "it is new, but run.db.epoch counts 5 sends of a journal that was here"
        case "other":
            await run(other, client, creates(client, 2))
            restore(other, path)
            words = "the file run.db.epoch belongs to another journal"
        case "damaged":
            beside.write_bytes(beside.read_bytes()[:20])
            words = "the file run.db.epoch is damaged"
    sent = service.arrivals()
    found = await refused(path, client, words, creates(client, 6))
    assert "Nothing was sent" in found
    assert service.arrivals() == sent
    if kind == "lost":  # all of them are found, because the file has the identity of the journal
        results = await run(path, client, creates(client, 6), restored=True)
        assert [key for key, each in results.items() if each.applied is not True] == ["row-5"]
        assert results["row-5"].verdict is Verdict.UNKNOWN  # since when it may have been sent is not known
        assert len(service.ledger.effects("webhooks.create")) == 5


@pytest.mark.parametrize("text", [b"", bytes(80)], ids=["empty", "zeros"])
async def test_file_that_a_kill_left_unwritten(service, client, tmp_path, text):
    """A journal without sends is opened; one that has counted some is refused, as if the file were lost."""
    path = tmp_path / "run.db"
    beside = path.with_name("run.db.epoch")
    await run(path, client)
    beside.write_bytes(text)
    results = await run(path, client, creates(client, 2))
    assert [each.applied for each in results.values()] == [True, True]
    beside.write_bytes(text)
    await refused(path, client, "run.db.epoch is missing or empty", creates(client, 3))
    assert len(service.ledger.effects("webhooks.create")) == service.arrivals("webhooks.create") == 2
    assert len(await run(path, client, creates(client, 3), moved=True)) == 1


async def test_restored_updates(service, client, tmp_path):
    """What the state shows decides; a write that no read can tell of is UNKNOWN, and is not sent."""
    path = tmp_path / "run.db"
    journeys = [service.seed_journey() for _ in range(3)]
    hooks = [service.seed_webhook() for _ in range(3)]
    await run(path, client, creates(client, 2))
    copy = copied(path, tmp_path / "backup")

    def writes(names):
        made = {
            "same": client.journeys.update(journeys[0].id, name="ours"),
            "first": client.journeys.update(journeys[1].id, name="one"),
            "second": client.journeys.update(journeys[1].id, name="two"),
            "hook": client.webhooks.update(hooks[0].id, description="ours"),
            "deleted": client.webhooks.delete(hooks[1].id),
            "sheet": client.sheets.save_mapping({"a": "b"}),
            "not begun": client.journeys.update(journeys[2].id, name="late"),
            "to delete": client.webhooks.delete(hooks[2].id),
        }
        for name, write in made.items():
            if name not in names:
                write.close()
        return [made[name].keyed(name) for name in names]

    begun = ["same", "first", "second", "hook", "deleted", "sheet"]
    await run(path, client, writes(begun))
    sent = service.arrivals("sheets.save_mapping"), service.arrivals("webhooks.update")
    restore(copy, path)
    results = await run(path, client, writes([*begun, "not begun", "to delete"]), restored=True)
    verdicts = {key: str(each.verdict) for key, each in results.items()}
    assert verdicts == {
        "same": "applied", "first": "unknown", "second": "applied", "hook": "applied", "deleted": "applied",
        "sheet": "unknown", "not begun": "applied", "to delete": "applied",
    }  # fmt: skip
    assert (service.arrivals("sheets.save_mapping"), service.arrivals("webhooks.update")) == sent
    names = [entry.body["name"] for entry in service.ledger.effects("journeys.update")]
    assert names == ["ours", "one", "two", "late"]


@pytest.mark.parametrize("force", [False, True])
async def test_failed_write_of_a_copy_may_have_been_retried(service, client, tmp_path, force):
    """A write that the copy has as refused is settled before a retry of it is sent, also as the newest one."""
    path = tmp_path / "run.db"
    service.script("webhooks.create", "403")
    await run(path, client, creates(client, 2))
    copy = copied(path, tmp_path / "backup")
    async with Batch.open(path, client, on_secret=lambda *_: None) as batch:
        await batch.retry(verdict=Verdict.REFUSED)
        await all_of(batch)
    assert len(service.ledger.effects("webhooks.create")) == 2
    restore(copy, path)
    await run(path, client, creates(client, 3), restored=True)
    async with Batch.open(path, client, on_secret=lambda *_: None) as batch:
        assert await batch.retry(verdict=Verdict.REFUSED, force=force) == 1
        [result] = await all_of(batch)
    assert (result.verdict, result.basis) == (Verdict.APPLIED, "tag")
    assert len(service.ledger.effects("webhooks.create")) == 3


async def test_unknown_write_of_a_copy_is_the_newest(service, client, tmp_path):
    """A forced retry of a write that the copy has as unknown settles it, too."""
    path = tmp_path / "run.db"
    await client.webhooks.list()
    service.script("webhooks.create", "apply, then reset")
    service.script("webhooks.list", "403")
    assert {each.verdict for each in (await run(path, client, creates(client, 1))).values()} == {"unknown"}
    copy = copied(path, tmp_path / "backup")
    await run(path, client, creates(client, 2))
    restore(copy, path)
    await run(path, client, creates(client, 2), restored=True)
    async with Batch.open(path, client, on_secret=lambda *_: None) as batch:
        assert await batch.retry(verdict=Verdict.UNKNOWN, force=True) == 1
        [result] = await all_of(batch)
    assert (result.verdict, result.basis) == (Verdict.APPLIED, "tag")
    assert service.arrivals("webhooks.create") == 2


async def test_old_copy_does_not_prove_absence(service, tmp_path):
    """A create that is not found long after the copy was made is UNKNOWN: it may have been deleted since."""
    path = tmp_path / "run.db"
    policy = ReconcilePolicy(
        settle_after_error=POLICY.settle_after_error, settle_after_loss=0.2, deadline=30.0, absence_within=1.0
    )
    async with client_of(service, reconcile=policy) as client:
        await run(path, client, creates(client, 2))
        results = await run(path, client, creates(client, 3), restored=True)
    assert results["row-2"].verdict is Verdict.UNKNOWN
    assert results["row-2"].cause == "too long ago"
    assert service.arrivals("webhooks.create") == 2
