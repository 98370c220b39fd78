"""Each mistake in the search for duplicates is noticed by the scene that its list names."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.audit.scenes import SCENES
from tests.support.mutation import in_process, mutants_in

pytestmark = [pytest.mark.one_python, pytest.mark.untraced]


@pytest.mark.parametrize(
    "mutant",
    mutants_in(Path(__file__).with_name("mutants.patches")),
    ids=lambda mutant: mutant.name,
)
async def test_mutant(mutant, service):
    [scene] = mutant.where
    with in_process(mutant), pytest.raises(AssertionError):
        await SCENES[scene](service)
