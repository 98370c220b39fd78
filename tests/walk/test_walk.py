"""
Programs of writes, batches and outboxes, drawn at random.

Here the first ones are walked; ``nox -s walk`` walks on.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.walk.play import play, told
from tests.walk.program import End, Life, Program, Write, read, text_of
from tests.walk.shrink import shrunk
from tests.walk.walk import Asked, walk

pytestmark = [
    pytest.mark.exhaustive,
    pytest.mark.untraced,
    # what a killed process leaves is never awaited
    pytest.mark.filterwarnings("ignore"),
]
SEED = 1_000
PROGRAMS = Path(__file__).parent / "programs"
MANY = {"file": 60, "database": 25}  # histories


@pytest.mark.parametrize("use", ["keys", "batch", "outbox", "writes"])
@pytest.mark.parametrize("journal", ["file", "database"])
def test_walk(journal, use):
    """No program among the first ones breaks a rule."""
    found = walk(Asked(journals=(journal,), uses=(use,)), SEED, most=MANY[journal])

    assert found.histories == MANY[journal]
    assert not found.broken, "\n".join(
        [str(found), *(f"{each.seed}: {each.words}" for each in found.broken)]
    )


@pytest.mark.parametrize(
    "file", sorted(PROGRAMS.glob("*.json")), ids=lambda file: file.stem
)
def test_program(file):
    """A program that broke a rule once breaks none."""
    _, wrong = play(read(file))

    assert wrong == []


@pytest.mark.parametrize("journal", ["file", "database"])
def test_same_history(journal, tmp_path):
    """A program that was stored makes the same history again."""
    program = Asked(journals=(journal,), uses=("keys", "batch", "writes")).program(7)
    file = tmp_path / "program.json"
    file.write_text(text_of(program))

    assert read(file) == program
    assert told(play(read(file))[0]) == told(play(program)[0])


def test_smaller():
    """Shrinking leaves what breaks the rule, and nothing else."""
    writes = tuple(Write(key, "rename") for key in "ABC")
    lives = (
        Life("p1", ("A", "B", "C"), end=End("cancel", at=0.2)),
        Life("last", ("C", "B", "A"), after=("p1",)),
    )
    program = Program(
        "file",
        "keys",
        writes,
        lives,
        fates={"A": ("lost", "ok")},
        reads={"1": "slow"},
        order=5,
    )

    def writes_b(smaller: Program) -> bool:
        return any(write.key == "B" for write in smaller.writes)

    smallest = shrunk(program, writes_b)

    assert smallest == Program(
        "file", "keys", (Write("B", "rename"),), (Life("last", ("B",)),)
    )
