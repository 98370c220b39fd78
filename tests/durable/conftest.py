"""The service and the client of the batches' tests."""

from __future__ import annotations

import pytest
from hypothesis import Phase, settings

from tests.batch.conftest import client, silence_of  # noqa: F401 - pytest finds the first by name
from tests.durable.stores import KINDS
from tests.support.away_at_start import away, sooner  # noqa: F401 - pytest finds them by name
from tests.support.database import database

# For mutants: that an example fails is enough, however long it is.
settings.register_profile(
    "mutants", phases=(Phase.explicit, Phase.reuse, Phase.generate)
)


@pytest.fixture
def shared(request):
    """
    Return the address of a shared journal for this test.

    No process counts as dead on a busy machine, unless the test is marked with ``silence``.
    """
    return database().at(
        journal=f"t{abs(hash(request.node.nodeid))}", silence=silence_of(request)
    )


@pytest.fixture(params=KINDS)
def address(request, tmp_path):
    """Return the path or the address of a journal for this test."""
    return (
        tmp_path / "calls.db"
        if request.param == "SQLite"
        else request.getfixturevalue("shared")
    )
