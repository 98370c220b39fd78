"""Each mistake in sending through aiohttp's connections is noticed by the scene that its list names."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import aiohttp
import pytest

from invsvc_async.transport import sender_choice
from invsvc_async.transport.session_sender import SessionSender
from tests.support.mutation import in_process, mutants_in
from tests.support.raw_server import RawServer, obliging, transport_for
from tests.transport import test_lean_sender as lean, test_sender_choice as choice

pytestmark = pytest.mark.one_python

_odd_one = lean.test_request_that_could_be_taken_for_another


async def _of_version():
    async with RawServer(obliging) as server, transport_for(server) as transport:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sender_choice, "TESTED", frozenset())
            assert type(await choice.sent(server, transport)) is SessionSender


async def _instrumented():
    with pytest.MonkeyPatch.context() as patch:
        await choice.test_instrumented_sessions(patch)


SCENES = {
    "early": partial(lean.early_answers, None),
    "interim": lean.test_interim_answers,
    "refused": lean.test_request_that_is_too_late,
    "cancelled": lean.test_cancelled_wait_for_an_answer,
    "path": partial(_odd_one, "a control character in the path"),
    "value": partial(_odd_one, "a line break in a value"),
    "name": partial(_odd_one, "a line break in a name"),
    "length": partial(_odd_one, "a length"),
    "method": partial(_odd_one, "a space in the method"),
    "bounded": lean.test_many_tokens_and_destinations,
    "credentials": partial(
        lean.test_address_that_is_none_of_a_service,
        "http://user:secret@127.0.0.1:1/v2/x",
        "contains credentials",
    ),
    "replaced": partial(
        choice.test_requests_that_another_library_takes_over, "a function"
    ),
    "replaced_by_an_object": partial(
        choice.test_requests_that_another_library_takes_over, "an object"
    ),
    "version": _of_version,
    "instrumented": _instrumented,
}


@pytest.fixture(autouse=True)
def sender():
    """Run these once: they choose the way by themselves."""


@pytest.mark.parametrize("scene", SCENES)
async def test_scene(scene, monkeypatch):
    """Each of them passes as the code is."""
    monkeypatch.setattr(sender_choice, "IS_ON", True)
    monkeypatch.setattr(sender_choice, "TESTED", {aiohttp.__version__})
    await SCENES[scene]()


@pytest.mark.untraced
@pytest.mark.parametrize(
    "mutant",
    mutants_in(Path(__file__).with_name("lean.patches")),
    ids=lambda mutant: mutant.name,
)
async def test_mutant(mutant, monkeypatch):
    [scene] = mutant.where
    with in_process(mutant):
        monkeypatch.setattr(sender_choice, "IS_ON", True)
        monkeypatch.setattr(sender_choice, "TESTED", {aiohttp.__version__})
        with pytest.raises((AssertionError, ExceptionGroup)):
            await SCENES[scene]()
