"""What the chaos of servers counts; ``python -m tests.soak.servers`` runs it."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.soak.servers.chaos import Note, judge
from tests.soak.servers.probes import PROBES
from tests.soak.servers.sending import Sent

pytestmark = pytest.mark.one_python


def notes(*lines: str) -> list[Note]:
    return [
        Note(word=word, key=key, pid=int(pid))
        for word, key, pid in map(str.split, lines)
    ]


@pytest.mark.parametrize(
    ("lines", "lost", "again", "after_kill", "strange"),
    [
        (("begin a 1", "end a 1"), 0, 0, 0, 0),
        ((), 1, 0, 0, 0),
        (("begin a 1",), 1, 0, 0, 0),
        (("begin a 1", "end a 1", "begin a 2", "end a 2"), 0, 1, 0, 0),
        (("begin a 9", "begin a 2", "end a 2"), 0, 0, 1, 0),
        (("begin a 1", "end a 1", "begin b 1", "end b 1"), 0, 0, 0, 1),
    ],
    ids=[
        "well",
        "never begun",
        "never ended",
        "begun again",
        "begun again after a kill",
        "never sent",
    ],
)
def test_judge(
    lines: tuple[str, ...], lost: int, again: int, after_kill: int, strange: int
) -> None:
    """An acknowledged event must end, and be begun again only if its process was killed."""
    sent = Sent(acknowledged={"a"}, sent={"a"})
    found = judge(notes(*lines), sent, {9}, Counter())
    assert (found.lost, found.again, found.after_kill, found.strange) == (
        lost,
        again,
        after_kill,
        strange,
    )


def test_raw_requests() -> None:
    """Each has its own name and event, and says what may be answered."""
    assert len(PROBES) == 43
    assert len({each.name for each in PROBES}) == 43
    keys = [each.key for each in PROBES if each.key]
    assert len(set(keys)) == len(keys)
    by_name = {each.name: each for each in PROBES}
    assert by_name["tabs around the shared header"].is_right(200)
    assert not by_name["tabs around the shared header"].is_right(401)
    assert by_name["two lengths"].is_right(400)
    assert not by_name["two lengths"].is_right(200)
