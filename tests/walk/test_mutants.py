"""Each mistake that the walk must notice breaks a rule in the program that is stored for it."""

from __future__ import annotations

import pytest

from tests.walk.mutants import MUTANTS, shown

pytestmark = [
    pytest.mark.untraced,
    pytest.mark.one_python,
    # what a killed process leaves is never awaited
    pytest.mark.filterwarnings("ignore"),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_mutant(mutant):
    """Without it, the same program breaks none: see ``test_walk``."""
    assert shown(mutant)
