"""The short soak of siblings; ``python -m tests.soak.siblings`` is the long one."""

from __future__ import annotations

import pytest

from invsvc_async.writes import things
from tests.soak.report import UNKNOWN_ALLOWED, Report
from tests.soak.siblings import one_seed
from tests.soak.world import WORLDS

pytestmark = pytest.mark.untraced

WRITES = 500  # of each world


def check(report: Report) -> None:
    """Fail with the stories if anything was false."""
    assert report.faults == {}, report.text()
    calm = next(world.calm for world in WORLDS if world.name == report.world)
    assert not calm or report.share <= UNKNOWN_ALLOWED, report.text()
    assert report.writes >= WRITES
    assert report.verdicts["applied"] > WRITES / 2
    assert report.most_hooks < 100, "the list was full, and could tell nothing"


@pytest.mark.parametrize("world", [each.name for each in WORLDS])
def test_siblings(world):
    """No verdict is false, nothing is lost or done twice, and few writes are unknown."""
    check(one_seed(1, writes=WRITES, world=world))


@pytest.mark.parametrize("world", ["few at once", "killed"])
def test_siblings_of_a_client_that_forgets(monkeypatch, world):
    """Each record goes as soon as it is idle: verdicts are less certain then, but none is false."""
    monkeypatch.setattr(things, "MOST_BYTES", 0)
    report = one_seed(1, writes=500, world=world)
    assert report.faults == {}, report.text()
    assert report.verdicts["applied"] > 250


def test_siblings_over_tls():
    """The same over TLS, where the end of a connection shows in other ways."""
    report = one_seed(1, writes=300, world="killed, short attempts", tls=True)
    assert report.faults == {}, report.text()
    assert report.verdicts["applied"] > 150


@pytest.mark.parametrize("world", ["few at once", "killed"])
def test_a_seed_repeats(world):
    """A failing seed can be run alone: the same seed gives the same verdicts, at the same moments."""
    one, again = (one_seed(3, writes=500, world=world) for _ in range(2))
    assert (one.verdicts, one.per_write, one.virtual) == (
        again.verdicts,
        again.per_write,
        again.virtual,
    )
    assert one.kills == again.kills
