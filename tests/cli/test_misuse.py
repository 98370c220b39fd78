"""Wrong requests: helpful words, the exit code, and no traceback."""

from __future__ import annotations

import signal
import socket

import pytest

from tests.cli.conftest import ENVIRONMENT, child

pytestmark = [pytest.mark.one_python, pytest.mark.usefixtures("here")]

HOOK = ("webhooks.create", "url=https://me.example/in", "events=invoice.created")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ("frobnicate", 2, "No such command"),
        ("-- --get", 2, "No such option: --get"),
        ("get", 2, "Missing argument"),
        ("get nonsense x", 2, "nonsense: unknown. Use one of journeys.get"),
        (
            "get webhooks id=wh_1",
            2,
            "id: not an argument; webhooks.get takes webhook_id, team",
        ),
        ("get webhooks id=wh_1", 2, "webhook_id: missing"),
        ("get webhooks.create", 2, "webhooks.create: unknown. Use one of"),
        ("get users", 2, "users.get: user_id: missing"),
        ("get webhooks wh_1 wh_2", 2, "'wh_2': unexpected. Write name=value"),
        ("get webhooks wh_1 webhook_id=wh_2", 2, "webhook_id: is given twice"),
        ("get webhooks webhook_id=wh_2 wh_1", 2, "webhook_id: is given twice"),
        (
            "write webhooks.create url=https://a.b events=invoice.created events=invoice.canceled",
            2,
            "events: is given",
        ),
        (
            "list invoices.egress metadata.a=1 metadata.a=2",
            2,
            "metadata.a: is given twice",
        ),
        (
            "list invoices.egress metadata:=[] metadata.a=1",
            2,
            "metadata.a: is given twice",
        ),
        (
            "list invoices.egress metadata.a=1 metadata={}",
            2,
            "metadata: is given twice",
        ),
        ("get webhooks wh_nope", 1, "HTTP 404 resource_not_found"),
        ("get journeys ../../x", 2, "is not a valid id"),
        ("get /users/../x", 2, "must stay below the base URL"),
        ("get webhooks wh_1 --profile nope", 2, "invsvc.toml does not exist"),
        ("list nonsense", 2, "nonsense: unknown. Use one of invoices.egress"),
        ("list invoices.egress status=paid", 2, "status: 'paid' is not one of"),
        ("list invoices.egress limit=1000", 2, "not from 1 to 100"),
        (
            "list invoices.egress limit=few",
            2,
            "limit: 'few' is not a valid whole number",
        ),
        (
            "list invoices.egress created_after=yesterday",
            2,
            "created_after: 'yesterday' is not an ISO 8601",
        ),
        ("list invoices.egress --json --csv", 2, "use only one of"),
        (
            "list invoices.egress --fields uuid,nope",
            2,
            "nope: unknown. Invoice has uuid",
        ),
        ("list invoices.egress --resume zzz", 2, "is damaged"),
        ("list webhooks --resume zzz", 2, "has no pages"),
        ("write", 2, "give either an operation with arguments, or --file"),
        (
            'write webhooks.create url=https://a.b events:=["invoice.create"]',
            2,
            "mean invoice.created",
        ),
        (
            "write webhooks.create url=https://a.b events=[1]",
            2,
            "events: '1' is not an event type",
        ),
        ("write webhooks.make", 2, "webhooks.make: unknown. Use one of"),
        (
            "write journeys.update jrn_1 graph=[1",
            2,
            "graph: '[1' is not a valid journey graph",
        ),
        (
            "write journeys.update jrn_1 name:=nope",
            2,
            "name: 'nope' is not a valid JSON value",
        ),
        ("write webhooks.create", 2, "url: missing; events: missing"),
        (
            "write webhooks.delete wh_1 --story nowhere/story.json",
            2,
            "nowhere is not a directory",
        ),
        ("settle nofile.json", 2, "does not exist"),
        ("export webhooks", 2, "can be exported"),
        ("export invoices --format xml", 2, "'xml' is unknown"),
        ("export invoices -o -", 2, "an export writes a file"),
        (
            "export invoices -o nowhere/x.csv",
            1,
            "nowhere/x.csv: No such file or directory. Correct the path, or make its folder.\n",
        ),
        ("listen", 2, "--accept-unsigned"),
        ("listen --shared-header X-Ours", 2, "must be NAME=VALUE"),
        ("batch prune run.db", 2, "Missing option '--days'"),
        ("batch retry run.db", 2, "give keys or --verdict"),
        ("journal retry run.db", 2, "give keys"),
        (
            "listen --accept-unsigned --forward 127.0.0.1:1",
            2,
            "--forward: must be an http(s) URL",
        ),
        ("serve --faults nonsense", 2, "is not among"),
        ("serve --at-once 0", 2, "--at-once': must be at least 1"),
        ("conformance -- no-such-command", 2, "no-such-command: No such file"),
    ],
)
def test_misuse(invsvc, words, code, said):
    """A wrong word is named, on stderr alone."""
    ran = invsvc(*words.split())

    assert (ran.code, ran.out) == (code, "")
    assert said in ran.err
    assert "Traceback" not in ran.err


def test_complaints_on_a_terminal_and_off(offline, monkeypatch):
    """Where nobody looks on, help and complaints are lines of text, without boxes."""
    told = (
        offline("list", "--help").out
        + offline("batch", "--help").out
        + offline("get").err
    )
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)

    assert not set("╭│╰") & set(told)
    assert "╭" in offline("list", "--help").out


def test_debug_at_the_end(offline):
    """--debug is taken wherever it stands, but for what is another program's."""
    with pytest.raises(Exception, match="INVSVC_BASE_URL"):
        offline("get", "webhooks", "wh_1", "--debug")

    assert offline("conformance", "--", "no-such-command", "--debug").code == 2


def test_story_that_cannot_be_kept(invsvc):
    """The verdict is told all the same, with its exit code."""
    ran = invsvc("write", *HOOK, "--story", "x" * 300)

    assert (ran.code, ran.out[:7]) == (0, "APPLIED")
    assert "cannot write the story" in ran.err


def test_interruption_before_anything_was_sent(here):
    """Ctrl-C in the read that goes before a write says that no write is in flight."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        keys = {
            "INVSVC_BASE_URL": f"http://127.0.0.1:{silent.getsockname()[1]}/v2",
            "INVSVC_API_KEY": "key",
        }
        writing = child("write", *HOOK, env=ENVIRONMENT | keys)
        with silent.accept()[0] as connection:
            assert connection.recv(3) == b"GET"
            writing.send_signal(signal.SIGINT)
            out, err = writing.communicate(timeout=300)

    assert (out, err) == ("", "interrupted; no write is in flight\n")
    assert writing.returncode in (1, 130)  # older typer: 1


def test_port_that_is_taken(offline):
    """A failure of the machine's is told in the machine's words."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        ran = offline("serve", "--port", str(taken.getsockname()[1]))

    assert ran.code == 1
    assert "in use" in ran.err
    assert "OSError" not in ran.err
