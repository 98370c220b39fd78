"""Where results and files go: output that cannot be written, closed streams, and files that are in use."""

from __future__ import annotations

import json
import os
import sqlite3
import sys

import pytest

from invsvc_async import JournalError
from invsvc_async.cli.app import run
from invsvc_async.storage.file_lock import FileLock

pytestmark = pytest.mark.one_python

HOOK = (
    "write",
    "webhooks.create",
    "url=https://outputs.example/",
    "events=invoice.created",
)
LINE = {
    "operation": "webhooks.create",
    "arguments": {"url": "https://outputs.example/", "events": ["invoice.created"]},
    "key": "row-1",
}

REFUSED = {
    "operation": "webhooks.delete",
    "arguments": {"webhook": "wh_none"},
    "key": "row-2",
}


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
def test_verdict_that_cannot_be_printed(
    invsvc, served, monkeypatch, capsys, request, stream, more
):
    """
    The exit code is that of the verdict: the write must not be taken for a failed one.

    On a full disk stderr names it; a reader that has left wanted no more.
    """
    before = hooks_of(served)
    monkeypatch.setattr(sys, "stdout", request.getfixturevalue(stream))

    code = run([*HOOK, *more])

    assert (code, hooks_of(served)) == (0, before + 1)
    assert ("webhooks.create: applied" in capsys.readouterr().err) == (stream == "full")


def test_refusal_that_cannot_be_printed(invsvc, monkeypatch, capsys, full):
    """A write that was refused still ends with 1."""
    monkeypatch.setattr(sys, "stdout", full)

    assert run(["write", "webhooks.delete", "wh_none"]) == 1
    assert "webhooks.delete: refused" in capsys.readouterr().err


def test_summary_that_cannot_be_printed(invsvc, here, monkeypatch, capsys, full):
    """A batch that has ended well ends with 0."""
    (here / "writes.jsonl").write_text(json.dumps(LINE) + "\n")
    monkeypatch.setattr(sys, "stdout", full)

    assert (
        run(["batch", "writes.jsonl", "--journal", "run.db", "--secrets-to", "secrets"])
        == 0
    )
    assert "The run has ended" in capsys.readouterr().err


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


@pytest.mark.parametrize(
    ("words", "refused"),
    [
        (
            "batch writes.jsonl --journal new.db --secrets-to new.db",
            "--secrets-to: new.db is the journal",
        ),
        (
            "batch writes.jsonl --journal run.db --secrets-to writes.jsonl",
            "writes.jsonl is the input",
        ),
        ("batch report run.db --html run.db", "--html: run.db is the journal"),
        ("batch report run.db --failed run.db", "--failed: run.db is the journal"),
        ("batch report run.db --jsonl other.db", "--jsonl: other.db is a database"),
        (
            "batch report run.db --jsonl out --failed ./out",
            "--failed: out is the file of --jsonl",
        ),
        (
            "write webhooks.delete wh_1 --story other.db",
            "--story: other.db is a database",
        ),
        (
            "write --file writes.jsonl --story here --secrets-to here",
            "--story: here is the file of",
        ),
        (
            "write --file writes.jsonl --story writes.jsonl",
            "--story: writes.jsonl is the input",
        ),
        (
            "settle writes.jsonl --story writes.jsonl",
            "--story: writes.jsonl is the intent",
        ),
        (
            "resume writes.jsonl --story ./writes.jsonl",
            "--story: writes.jsonl is the intent",
        ),
        (
            "listen --replay writes.jsonl --store other.db",
            "--store: other.db is a database",
        ),
        (
            "outbox work app.db --secrets-to app.db",
            "--secrets-to: app.db is the outbox",
        ),
    ],
)
def test_output_to_a_file_in_use(invsvc, served, here, words, refused):
    """It is refused before anything is done, and each file stays as it is."""
    (here / "writes.jsonl").write_text(json.dumps(LINE) + "\n")
    for name in ("run.db", "other.db"):
        with sqlite3.connect(here / name) as connection:
            connection.execute("CREATE TABLE entries (key TEXT)")
        connection.close()
    before = hooks_of(served), {each.name: each.read_bytes() for each in here.iterdir()}

    ran = invsvc(*words.split())

    assert (ran.code, ran.out) == (2, "")
    assert refused in ran.err
    assert (
        hooks_of(served),
        {each.name: each.read_bytes() for each in here.iterdir()},
    ) == before


@pytest.mark.parametrize("device", ["/dev/null", "-"])
def test_two_outputs_to_a_stream(invsvc, here, device):
    """A device, or standard output, may be used twice."""
    (here / "writes.jsonl").write_text(json.dumps(LINE) + "\n")
    invsvc("batch", "writes.jsonl", "--journal", "run.db", "--secrets-to", "secrets")

    assert (
        invsvc("batch", "report", "run.db", "--jsonl", device, "--failed", device).code
        == 0
    )


def test_outbox_that_does_not_exist(invsvc, here):
    """A misspelt path is an error: nothing would ever be sent from a new file."""
    ran = invsvc("outbox", "work", "nope.db", "--no-secrets")

    assert (ran.code, list(here.iterdir())) == (1, [])
    assert "nope.db: the file does not exist" in ran.err


@pytest.mark.parametrize("option", ["--html", "--jsonl", "--failed"])
def test_report_on_a_full_disk(invsvc, here, option):
    """The error names the file."""
    (here / "full").symlink_to("/dev/full")
    (here / "writes.jsonl").write_text(
        json.dumps(LINE) + "\n" + json.dumps(REFUSED) + "\n"
    )
    invsvc("batch", "writes.jsonl", "--journal", "run.db", "--secrets-to", "secrets")

    ran = invsvc("batch", "report", "run.db", option, "full")

    assert (ran.code, "full: No space left on device" in ran.err) == (1, True)


def test_list_to_a_full_disk(invsvc, monkeypatch, capsys, full):
    """The error names stdout."""
    monkeypatch.setattr(sys, "stdout", full)

    assert run(["list", "webhooks", "--json"]) == 1
    assert "stdout: No space left on device" in capsys.readouterr().err


def test_lock_on_a_full_disk(here, monkeypatch):
    """It is held, although its file does not name the owner."""

    def write(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", write)
    lock = FileLock(here / "run.db", "journal", "Stop it.")
    lock.acquire()
    with pytest.raises(JournalError, match="in use"):
        FileLock(here / "run.db", "journal", "Stop it.").acquire()
    lock.release()
