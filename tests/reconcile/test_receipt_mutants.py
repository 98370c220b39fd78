"""Each mistake in receipts and their check is noticed by the test that its list names."""

from __future__ import annotations

import inspect
from functools import partial
from pathlib import Path

import pytest

from tests.reconcile import test_receipt as tests
from tests.reconcile.test_receipt import outcome
from tests.support.mutation import in_process, mutants_in

__all__ = ["outcome"]  # a fixture
pytestmark = [pytest.mark.one_python, pytest.mark.untraced]

SCENES = {
    "changed byte": tests.test_each_changed_byte_is_noticed,
    "forged": tests.test_forged,
    "signature": tests.test_signature,
    "ends early": tests.test_history_that_ends_early,
    "no history": tests.test_no_history,
    "private key": partial(tests.test_wrong_private_key, key=tests.ELLIPTIC),
    "public key": partial(tests.test_wrong_public_key, key=tests.ELLIPTIC_PUBLIC),
    "extra": tests.test_extra_is_missing,
}


@pytest.mark.parametrize(
    "mutant",
    mutants_in(Path(__file__).with_name("receipts.patches")),
    ids=lambda mutant: mutant.name,
)
async def test_mutant(mutant, outcome, monkeypatch):
    [name] = mutant.where
    scene = SCENES[name]
    there = {"outcome": outcome, "monkeypatch": monkeypatch}
    takes = inspect.signature(scene).parameters
    given = {each: there[each] for each in there if each in takes}
    with in_process(mutant), pytest.raises((Exception, pytest.fail.Exception)):
        running = scene(**given)
        if inspect.isawaitable(running):
            await running
