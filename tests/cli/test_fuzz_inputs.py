"""What people hand in, of any kind: lines, stories, profiles, tokens, arguments."""

from __future__ import annotations

import io
import json
from contextlib import suppress
from decimal import Decimal

import pytest
from hypothesis import given, strategies as st

from invsvc_async import Client, ConfigurationError, Intent, InvalidRequestError
from invsvc_async.batch.file_check import BadLine, Line, check_line, read_lines
from invsvc_async.cli.app import run
from invsvc_async.reconcile.history import Attempt, End, Reading
from invsvc_async.reconcile.intent import Scope
from tests.support.fuzzing import (
    OFFLINE,
    WRITES,
    as_wire,
    changed,
    damaged,
    fuzzed,
    plain,
    spoilt,
    texts,
)
from tests.support.stories import story_of

pytestmark = [
    pytest.mark.fuzz,
    pytest.mark.untraced,
    # of arguments that are valid, and surely a mistake
    pytest.mark.filterwarnings("ignore::UserWarning"),
]

DELETE = Intent(
    key="k",
    operation="webhooks.delete",
    **WRITES["webhooks.delete"],
    scope=Scope(base_url="https://host.example/v2"),
)
LOST = Attempt(started=1.0, ended=1.1, end=End.LOST, timeout=30.0)
GONE = Reading(started=99.0, ended=99.1, status=404, own_envelope=True)
STORY = json.loads(story_of(DELETE, (LOST, GONE), "applied"))
PROFILES = {
    "default_profile": "test",
    "profiles": {
        "test": {
            "base_url": "http://127.0.0.1:1/v2",
            "team": "team_1",
            "allow_insecure_http": True,
            "names": {"limit": "size", "page": ""},
            "reconcile": {"deadline": 60.0, "max_resends": 2, "resend": "never"},
        }
    },
}
TOO_MUCH = [
    b"a = " + b"9" * 5000,
    b"a = " + b"[" * 5000 + b"]" * 5000,
    b"a = 0000-00-00",
]
LINE = {
    "operation": "webhooks.create",
    "arguments": {
        "url": "https://me.example/in",
        "events": ["invoice.created"],
        "description": "d",
    },
    "key": "row-17",
}


@fuzzed
@given(lines=st.lists(spoilt(LINE), max_size=4))
def test_lines_of_any_bytes(lines):
    """Each line of an input is a write, or it is named with what is wrong; nothing is raised."""
    for line in read_lines(io.BytesIO(b"\n".join(lines))):
        if isinstance(line, Line):
            found = check_line(OFFLINE, line)
            assert found is None or str(found).startswith(f"line {line.number}: ")
        else:
            assert isinstance(line, BadLine)


@pytest.mark.parametrize(
    "key", ["", "a\nb", "k" * 201], ids=["empty", "of two lines", "long"]
)
def test_line_of_a_bad_key(key):
    """Its line is named, and no write is left behind that nobody awaits."""
    found = check_line(OFFLINE, Line(3, LINE["operation"], LINE["arguments"], key))

    assert (
        str(found)
        == "line 3: webhooks.create: key: must have 1 to 200 printable characters"
    )


@fuzzed
@given(token=texts | st.binary(max_size=60).map(lambda raw: raw.decode("latin-1")))
def test_resume_token_of_any_text(token):
    """A damaged token of a list is an InvalidRequestError."""
    with pytest.raises(InvalidRequestError):
        OFFLINE.invoices.egress().resume(token)


@fuzzed
@given(
    arguments=st.dictionaries(
        st.sampled_from(["url", "events", "description", "status", "tag"]), plain
    )
)
def test_arguments_of_any_kind(arguments):
    """Arguments of any kind make a write, or they are refused together; the write's intent can be kept."""
    arguments = {
        "url": "https://me.example/in",
        "events": ["invoice.created"],
        **arguments,
    }
    with suppress(InvalidRequestError):
        write = OFFLINE.webhooks.create(**arguments)
        try:
            as_wire(Intent.from_json(write.intent.to_json()))
        finally:
            write.close()


@fuzzed
@given(content=spoilt(STORY))
def test_file_that_is_explained(content, capsys, tmp_path_factory):
    """`invsvc explain` ends with one of its exit codes, whatever stands in the file."""
    file = tmp_path_factory.getbasetemp() / "story.json"
    file.write_bytes(content)

    code = run(["explain", str(file)])

    out, err = capsys.readouterr()
    assert code in (0, 1, 2)
    assert out or err
    # which is offered where something of Python's own came out
    assert "--debug" not in err


@fuzzed
@given(lines=st.lists(spoilt(LINE), min_size=1, max_size=4))
def test_file_of_a_batch_that_is_checked(lines, capsys, tmp_path_factory):
    """`invsvc batch --dry-run` ends with one of its exit codes, whatever stands in the file."""
    file = tmp_path_factory.getbasetemp() / "lines.jsonl"
    file.write_bytes(b"\n".join(lines))
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("INVSVC_BASE_URL", "http://127.0.0.1:1/v2")
        environment.setenv("INVSVC_API_KEY", "never-sent")
        code = run(
            ["batch", str(file), "--journal", str(file.with_suffix(".db")), "--dry-run"]
        )

    out, err = capsys.readouterr()
    assert code in (0, 2)
    assert out or err
    assert "--debug" not in err


@fuzzed
@given(seen=st.data())
def test_profile_of_any_kind(seen, tmp_path_factory):
    """A file of profiles makes a client, or it is a ConfigurationError; nothing else comes out."""
    file = tmp_path_factory.getbasetemp() / "invsvc.toml"
    content = tomls(seen.draw(changed(PROFILES))).encode()
    file.write_bytes(
        seen.draw(st.just(content) | damaged(content) | st.sampled_from(TOO_MUCH))
    )
    environment = {"INVSVC_CONFIG": str(file), "INVSVC_API_KEY": "never-sent"}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        with suppress(ConfigurationError):
            Client.from_env()


def tomls(value):
    """Write plain data as TOML: tables inline, null as an empty text."""
    if isinstance(value, dict):
        return "\n".join(
            f"{json.dumps(name)} = {_inline(each)}" for name, each in value.items()
        )
    return _inline(value)


def _inline(value):
    if isinstance(value, dict):
        return (
            "{"
            + ", ".join(
                f"{json.dumps(name)} = {_inline(each)}" for name, each in value.items()
            )
            + "}"
        )
    if isinstance(value, list):
        return "[" + ", ".join(map(_inline, value)) + "]"
    return (
        json.dumps("" if value is None else value)
        if not isinstance(value, Decimal)
        else str(value)
    )
