"""A short soak of processes that receive on one store; ``python -m tests.soak.receivers`` is the long one."""

from __future__ import annotations

from signal import SIGTERM

import pytest

from tests.soak.receivers import judge, soak

pytestmark = [pytest.mark.untraced, pytest.mark.one_python]


async def test_receivers_that_are_opened_and_closed(tmp_path) -> None:
    """
    Nothing is lost or forged, and no event is handled by two at one time.

    Kills are left to the long one: leases that they leave take seconds to end.
    """
    found = await soak(
        str(tmp_path / "events.db"),
        tmp_path,
        deliveries=300,
        processes=2,
        seed=3,
        ends=2,
        how=(SIGTERM,),
    )

    assert (found["lost"], found["forged"], found["at once"]) == (0, 0, 0)
    assert found["events"] == 200
    assert found["answers 401"] == 30
    assert found["closed"] >= 2


@pytest.mark.parametrize(
    ("lines", "name"),
    [
        (["begin a 1 1.0", "end a 1 2.0", "begin a 2 1.5", "end a 2 3.0"], "at once"),
        (["begin a 1 1.0", "begin a 2 4.0", "end a 2 5.0"], "at once"),
        (["begin b 1 1.0", "end b 1 2.0"], "lost"),
        (["begin a 1 1.0", "end a 1 2.0", "begin c 1 3.0", "end c 1 4.0"], "forged"),
    ],
)
def test_judge_of_broken_promises(lines: list[str], name: str) -> None:
    """Each is counted; a handler that a kill ended ran until then."""
    assert judge(lines, {"a"}, {1: 4.5})[name] == 1


def test_judge_of_a_handler_that_ran_again() -> None:
    """After a kill, that is no broken promise."""
    lines = ["begin a 1 1.0", "begin a 2 5.0", "end a 2 6.0"]

    found = judge(lines, {"a"}, {1: 4.5})

    assert found["handled again"] == 1
    assert (found["lost"], found["forged"], found["at once"]) == (0, 0, 0)
