"""Each mistake in the tools for agents is noticed by the test that its list names."""

from __future__ import annotations

import inspect
from functools import partial
from pathlib import Path

import pytest

from tests.agents import (
    test_bad_input,
    test_http,
    test_plans,
    test_processes,
    test_reads,
    test_tools,
    test_writes,
)
from tests.agents.conftest import HOOK
from tests.agents.test_plans import planner
from tests.support.mutation import in_process, mutants_in

__all__ = ["planner"]  # a fixture
pytestmark = [pytest.mark.one_python, pytest.mark.untraced]

LARGE = {**HOOK, "key": "k", "description": "x" * 1_000_000}
SCENES = {
    "same key": test_writes.test_same_key_again,
    "other arguments": test_writes.test_other_arguments_under_a_key,
    "refused": partial(test_writes.test_refused, step="400", following="another key"),
    "limited": partial(
        test_writes.test_refused, step="429 after 1", following="same key"
    ),
    "no read": test_writes.test_unknown_is_told_as_unknown,
    "thrown away": test_writes.test_secrets_that_are_thrown_away,
    "secret": test_writes.test_secrets_go_to_the_operator,
    "instructions": test_reads.test_instructions_in_what_a_write_shows,
    "large answer": test_reads.test_large_answer_is_left_out,
    "not shown": test_reads.test_secrets_and_credentials_are_not_shown,
    "large text": test_reads.test_large_text_is_left_out,
    "hidden text": test_reads.test_text_that_hides,
    "numbers": test_reads.test_numbers_keep_their_values,
    "large argument": partial(
        test_bad_input.test_bad_arguments, given=LARGE, words="more than"
    ),
    "no key": partial(
        test_bad_input.test_bad_arguments, given=HOOK, words="key: is missing"
    ),
    "fault": test_bad_input.test_fault_of_the_server,
    "another plan": partial(
        test_plans.test_digest_of_another_plan, change={"status": "inactive"}
    ),
    "another key": partial(
        test_plans.test_digest_of_another_plan, change={"key": "order-2"}
    ),
    "no journal": test_writes.test_writes_need_a_journal,
    "read only": test_tools.test_read_only,
    "closed": test_tools.test_closed_operations_are_not_offered,
    "tagged": test_writes.test_lost_update_of_a_tagged_webhook,
    "token": test_http.test_token_is_needed,
    "lines": test_processes.test_line_that_is_too_long,
}


@pytest.mark.parametrize(
    "mutant",
    mutants_in(Path(__file__).with_name("mutants.patches")),
    ids=lambda mutant: mutant.name,
)
async def test_mutant(  # each test takes some of them
    mutant,
    service,
    agent,
    secrets,
    planner,
    tmp_path_factory,
    monkeypatch,
    caplog,
):
    [name] = mutant.where
    scene = SCENES[name]
    there = {
        "service": service,
        "agent": agent,
        "secrets": secrets,
        "planner": planner,
        "tmp_path": tmp_path_factory.mktemp("scene"),
        "monkeypatch": monkeypatch,
        "caplog": caplog,
    }
    takes = inspect.signature(scene).parameters
    given = {each: there[each] for each in there if each in takes}
    with in_process(mutant), pytest.raises((Exception, pytest.fail.Exception)):
        running = scene(**given)
        if inspect.isawaitable(running):
            await running
