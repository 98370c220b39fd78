"""Results of a write that has another verdict by the time at which the one before is acknowledged."""

from __future__ import annotations

import pytest

from invsvc_async import Verdict
from invsvc_async.batch import Batch
from tests.batch.conftest import client_of
from tests.batch.writing import creates
from tests.support.gate import PATIENT, gate
from tests.support.waiting import until

pytestmark = pytest.mark.one_python


async def results_of_next_run(service, journal, key="row-0"):
    """Return the verdicts of the write that a further run gives, in a process of its own."""
    async with client_of(service) as other, Batch.open(journal, other) as batch:
        return [each.verdict async for each in batch.run() if each.key == key]


async def test_write_that_is_retried_as_its_result_is_handled(service, journal):
    """Its next verdict is given by the next run, though this one ends after it has acknowledged the one before."""
    service.script("webhooks.create", "400")
    retried = None  # the key of the write that arrives first, whichever that is
    async with (
        client_of(service, timeout=PATIENT) as client,
        Batch.open(journal, client, concurrency=4) as batch,
    ):

        async def is_applied():
            outcome = await batch.get(retried)
            return outcome is not None and outcome.verdict is Verdict.APPLIED

        # The others end once it is sent again: a run in which all have ended sends nothing more.
        with (
            gate(service, "webhooks.create", first=2, many=3) as others,
            gate(service, "webhooks.create", first=5) as again,
        ):
            async for result in batch.run(creates(client, 4)):
                if result.verdict is Verdict.REFUSED:
                    assert retried is None
                    retried = result.key
                    assert await batch.retry(keys=[retried]) == 1
                    await until(lambda: again.held)
                    others.open()
                else:
                    assert result.key != retried
                    again.open()
                    await until(is_applied)
                    break
    assert retried is not None
    told_next = await results_of_next_run(service, journal, retried)
    assert told_next == [Verdict.APPLIED]
    assert await results_of_next_run(service, journal, retried) == []


async def test_write_that_is_resolved_as_its_result_is_handled(
    service, client, journal
):
    """The next run gives what was found out, and once."""
    service.script("webhooks.create", "apply, then 500")
    service.script("webhooks.list", *["403"] * 9)
    async with Batch.open(journal, client, concurrency=1) as batch:
        given = []
        async for result in batch.run(creates(client, 2)):
            given.append((result.key, result.verdict))
            if given[-1] == ("row-0", Verdict.UNKNOWN):
                await batch.resolve(
                    "row-0", applied=True, because="seen there", by="me"
                )
    assert ("row-0", Verdict.UNKNOWN) in given
    told_here = ("row-0", Verdict.APPLIED) in given
    told_next = await results_of_next_run(service, journal)
    assert [Verdict.APPLIED] * told_here + told_next == [Verdict.APPLIED]
    assert await results_of_next_run(service, journal) == []
