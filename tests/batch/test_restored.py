"""Journals that were copied, restored, moved or replaced: refused in words, or settled before anything is sent."""

from __future__ import annotations

import shutil

import attrs
import pytest

from invsvc_async import JournalError, Verdict
from invsvc_async.batch import Batch
from tests.batch.conftest import POLICY, client_of
from tests.batch.writing import SECRETS, all_of, creates, run_all

pytestmark = pytest.mark.one_python

MANY = 49


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
    """Run *writes*, as far as the journal allows; return the results by key."""
    try:
        return {
            result.key: result
            for result in await run_all(path, client, writes, **SECRETS, **settings)
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
async def older(service, client, tmp_path, path):
    """Return a journal that was restored from a copy: 4 of its 49 writes are in the copy, all are applied."""
    await run(path, client, creates(client, 4))
    copy = copied(path, tmp_path / "backup")
    await run(path, client, creates(client, MANY))
    assert service.arrivals("webhooks.create") == MANY
    restore(copy, path)
    return path


async def test_older_copy_is_refused(service, client, older):
    """It is refused with how many sends it lacks, and what to do; nothing is sent."""
    words = await refused(
        older,
        client,
        "older copy, which lacks the last 45 sends",
        creates(client, MANY),
    )
    assert "--restored" in words
    assert service.arrivals("webhooks.create") == MANY
    await refused(
        older, client, "older copy", creates(client, MANY), moved=True
    )  # the count proves otherwise


async def test_older_copy_is_settled_first(service, client, older):
    """With *restored*, the writes that it lacks are found by their tags, and none is sent again."""
    results = await run(older, client, creates(client, MANY + 1), restored=True)
    assert {each.verdict for each in results.values()} == {Verdict.APPLIED}
    assert len(results) == MANY + 1 - 4
    assert results["row-20"].basis == "tag"
    assert results["row-20"].secret_lost
    # one was new, and proven absent
    assert len(service.ledger.effects("webhooks.create")) == MANY + 1
    assert service.arrivals("webhooks.create") == MANY + 1


async def test_row_that_was_edited_since_the_copy(service, client, older):
    """The webhook that its old text has made has its tag, but another URL: that is no proof of the new text."""
    events = ["invoice.created"]
    edited = client.webhooks.create(url="https://edited.example/", events=events)
    results = await run(older, client, [edited.keyed("row-20")], restored=True)
    assert results["row-20"].verdict is Verdict.UNKNOWN, results["row-20"].reason
    assert len(results["row-20"].candidates) == 1
    assert service.arrivals("webhooks.create") == MANY


async def test_restored_journal_without_the_right_to_list(service, client, older):
    """A refusal of the first read, which is for the service's clock, is no obstacle."""
    service.script("webhooks.list", "403")
    results = await run(older, client, creates(client, MANY), restored=True)
    assert {each.verdict for each in results.values()} == {Verdict.APPLIED}
    assert service.arrivals("webhooks.create") == MANY


async def test_restored_run_that_was_interrupted(service, client, older):
    """The next run goes on settling first, without being told again, until the input was read to its end."""
    async with Batch.open(
        older, client, restored=True, concurrency=1, **SECRETS
    ) as batch:
        async for _ in batch.run(creates(client, MANY)):
            break
    await run(older, client, creates(client, MANY))
    assert service.arrivals("webhooks.create") == MANY
    # from now on, new writes are not settled first
    service.script("webhooks.list", *["500"] * 200)
    results = await run(older, client, creates(client, MANY + 3))
    assert {each.verdict for each in results.values()} == {Verdict.APPLIED}
    assert service.arrivals("webhooks.create") == MANY + 3


async def test_copy_without_the_file_beside_it(service, client, tmp_path, path):
    """A copy in another place is refused; with the file, or with *moved*, it goes on."""
    await run(path, client, creates(client, 5))
    copy = copied(path, tmp_path / "elsewhere")
    words = await refused(
        copy,
        client,
        "run.db.epoch is missing or empty, so this may be a copy",
        creates(client, 6),
    )
    assert "--moved" in words
    assert service.arrivals("webhooks.create") == 5
    await run(copy, client, creates(client, 6), moved=True)
    assert service.arrivals("webhooks.create") == 6
    whole = copied(copy, tmp_path / "moved", ("", "-wal", ".epoch"))
    await run(whole, client, creates(client, 7))
    assert service.arrivals("webhooks.create") == 7


async def test_journal_that_was_lost(service, client, path):
    """The file beside it has its identity, so that all its writes are found."""
    await run(path, client, creates(client, 5))
    path.unlink()
    await refused(
        path,
        client,
        "it is new, but run.db.epoch counts 5 sends of a journal that was here",
    )
    results = await run(path, client, creates(client, 6), restored=True)
    assert [key for key, each in results.items() if each.applied is not True] == [
        "row-5"
    ]
    # since when it may have been sent is not known
    assert results["row-5"].verdict is Verdict.UNKNOWN
    assert len(service.ledger.effects("webhooks.create")) == 5


@pytest.mark.parametrize("text", [b"", bytes(80)], ids=["empty", "zeros"])
async def test_file_that_a_kill_left_unwritten(service, client, path, text):
    """A journal without sends is opened; one that has counted some is refused, as if the file were lost."""
    beside = path.with_name("run.db.epoch")
    await run(path, client)
    beside.write_bytes(text)
    results = await run(path, client, creates(client, 2))
    assert [each.applied for each in results.values()] == [True, True]
    beside.write_bytes(text)
    await refused(path, client, "run.db.epoch is missing or empty", creates(client, 3))
    assert (
        len(service.ledger.effects("webhooks.create"))
        == service.arrivals("webhooks.create")
        == 2
    )
    assert len(await run(path, client, creates(client, 3), moved=True)) == 1


async def test_restored_writes_of_other_kinds(service, client, tmp_path, path):
    """A delete, or an update of what was not written before, is found by what is there; if no read can tell: UNKNOWN."""
    journey = service.seed_journey()
    hooks = [service.seed_webhook() for _ in range(2)]
    await run(path, client, creates(client, 2))
    copy = copied(path, tmp_path / "backup")

    def begun():
        deleted, sheet = (
            client.webhooks.delete(hooks[0].id),
            client.sheets.save_mapping({"a": "b"}),
        )
        return [deleted.keyed("deleted"), sheet.keyed("sheet")]

    await run(path, client, begun())
    restore(copy, path)
    later = (
        client.journeys.update(journey.id, name="x"),
        client.webhooks.delete(hooks[1].id),
    )
    new = [
        write.keyed(key)
        for write, key in zip(later, ("to update", "to delete"), strict=True)
    ]
    results = await run(path, client, begun() + new, restored=True)
    assert {key: str(each.verdict) for key, each in results.items()} == {
        "deleted": "applied", "sheet": "unknown", "to update": "applied", "to delete": "applied",
    }  # fmt: skip
    assert service.arrivals("sheets.save_mapping") == 1
    assert [
        len(service.ledger.effects(each))
        for each in ("webhooks.delete", "journeys.update")
    ] == [2, 1]


@pytest.mark.parametrize("force", [False, True])
async def test_failed_write_of_a_copy_may_have_been_retried(
    service, client, tmp_path, force, path
):
    """A write that the copy has as refused is settled before a retry of it is sent, also as the newest one."""
    service.script("webhooks.create", "403")
    await run(path, client, creates(client, 2))
    copy = copied(path, tmp_path / "backup")
    async with Batch.open(path, client, **SECRETS) as batch:
        await batch.retry(verdict=Verdict.REFUSED)
        await all_of(batch)
    assert len(service.ledger.effects("webhooks.create")) == 2
    restore(copy, path)
    await run(path, client, creates(client, 3), restored=True)
    async with Batch.open(path, client, **SECRETS) as batch:
        assert await batch.retry(verdict=Verdict.REFUSED, force=force) == 1
        [result] = await all_of(batch)
    assert (result.verdict, result.basis) == (Verdict.APPLIED, "tag")
    assert len(service.ledger.effects("webhooks.create")) == 3


async def test_old_copy_does_not_prove_absence(service, path):
    """A create that is not found long after the copy was made is UNKNOWN: it may have been deleted since."""
    async with client_of(
        service, reconcile=attrs.evolve(POLICY, absence_within=1.0)
    ) as client:
        await run(path, client, creates(client, 2))
        results = await run(path, client, creates(client, 3), restored=True)
    assert results["row-2"].verdict is Verdict.UNKNOWN
    assert results["row-2"].cause == "too long ago"
    assert service.arrivals("webhooks.create") == 2
