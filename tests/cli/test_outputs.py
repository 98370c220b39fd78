"""Where results and files go: output that cannot be written, closed streams, and files that are in use."""

from __future__ import annotations

import json
import os
import sys

import pytest

from invsvc_async.cli.app import run

pytestmark = pytest.mark.one_python

HOOK = ("write", "webhooks.create", "url=https://outputs.example/", "events=invoice.created")


def hooks_of(served):
    return served.ask("/_simulator/arrivals?operation=webhooks.create")["arrivals"]


@pytest.fixture
def full():
    """Return a stream whose disk is full."""
    stream = open("/dev/full", "w", encoding="utf-8")  # noqa: SIM115, PTH123 - until the end of the test
    yield stream
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    stream.close()


@pytest.fixture
def left():
    """Return a pipe whose reader has ended."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as stream:
        yield stream


@pytest.mark.parametrize("stream", ["full", "left"])
@pytest.mark.parametrize("more", [(), ("--json",)], ids=["text", "json"])
def test_verdict_that_cannot_be_printed(invsvc, served, monkeypatch, capsys, request, stream, more):
    """The exit code is that of the verdict, which stderr has: the write must not be taken for a failed one."""
    before = hooks_of(served)
    monkeypatch.setattr(sys, "stdout", request.getfixturevalue(stream))

    code = run([*HOOK, *more])

    assert (code, hooks_of(served)) == (0, before + 1)
    assert "webhooks.create: applied" in capsys.readouterr().err


def test_refusal_that_cannot_be_printed(invsvc, monkeypatch, capsys, left):
    """A write that was refused still ends with 1."""
    monkeypatch.setattr(sys, "stdout", left)

    assert run(["write", "webhooks.delete", "wh_none"]) == 1
    assert "webhooks.delete: refused" in capsys.readouterr().err


def test_notes_that_cannot_be_printed(invsvc, monkeypatch, capsys, full):
    """What stderr does not take is dropped: the verdict is printed."""
    monkeypatch.setattr(sys, "stderr", full)

    assert run(HOOK) == 0
    assert capsys.readouterr().out.startswith("APPLIED")


@pytest.mark.parametrize("stream", ["stdin", "stdout", "stderr"])
def test_stream_that_is_closed(invsvc, served, monkeypatch, stream):
    """A closed stream is like the null device."""
    hook = json.loads(invsvc(*HOOK, "--json").out)["value"]["id"]
    monkeypatch.setattr(sys, stream, None)

    code = run(["write", "webhooks.delete", hook])
    opened = getattr(sys, stream)
    monkeypatch.undo()
    opened.close()

    assert code == 0
