"""Each mistake in catching up is noticed by the test that its list names."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from invsvc_async import events
from invsvc_async.testing import quick_client
from tests.events.conftest import Kept
from tests.events.receiving import test_catching_up as tests
from tests.support.database import database
from tests.support.mutation import in_process, mutants_in

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

pytestmark = [pytest.mark.one_python, pytest.mark.untraced]
MISSED = (AssertionError, TimeoutError, pytest.fail.Exception)


class Place:
    """What the tests take: a service, its client, and where stores are."""

    def __init__(self, service: Any, client: Any, folder: Path) -> None:
        self.folder = folder
        self.given = (service, client)

    @property
    def file(self) -> str:
        return str(self.folder / "events.db")


async def in_a_database(test: Callable[[str], Awaitable[None]]) -> None:
    """Run *test* with a database of its own."""
    async with database().fresh("mutants_of_catching_up") as address:
        await test(address)


SCENES = {
    "outage": lambda at: tests.test_outage_of_an_hour(*at.given, at.file, "v1"),
    "later": lambda at: tests.test_delivery_that_comes_later(*at.given, at.file),
    "handlers": lambda at: tests.test_several_handlers_and_an_order(*at.given, at.file),
    "times": lambda at: tests.test_times(*at.given, at.folder),
    "says so": lambda at: tests.test_delivery_that_says_so(at.folder),
    "first version": lambda at: tests.test_store_of_the_first_version(
        *at.given, at.folder, "sqlite"
    ),
    "claim": lambda at: tests.test_claim_is_not_known(
        Kept(events.SqliteStore(at.file))
    ),
    "being made": lambda _: in_a_database(
        partial(tests.test_event_that_is_being_made, handlers=2)
    ),
    "being stored": lambda _: in_a_database(tests.test_delivery_that_is_being_stored),
}


@pytest.fixture
async def at(service: Any, tmp_path: Path) -> AsyncIterator[Place]:
    async with quick_client(service) as client:
        yield Place(service, client, tmp_path)


@pytest.mark.parametrize(
    "mutant",
    mutants_in(Path(__file__).with_name("catching_up.patches")),
    ids=lambda mutant: mutant.name,
)
async def test_mutant(mutant: Any, at: Place) -> None:
    """It is noticed."""
    [scene] = mutant.where
    with in_process(mutant), pytest.raises(MISSED):
        await SCENES[scene](at)
