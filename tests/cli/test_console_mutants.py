"""Each mistake in the guards of the console is noticed by the scene that its list names."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.console_scenes import SCENES
from tests.support.mutation import in_process, mutants_in

pytestmark = [pytest.mark.one_python, pytest.mark.untraced]
MISSED = (AssertionError, pytest.fail.Exception)


@pytest.mark.parametrize(
    "mutant",
    mutants_in(Path(__file__).with_name("console.patches")),
    ids=lambda mutant: mutant.name,
)
async def test_mutant(mutant, service, tmp_path):
    [scene] = mutant.where
    with in_process(mutant), pytest.raises(MISSED):
        await SCENES[scene](service, tmp_path)
