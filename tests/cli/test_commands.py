"""The commands, run against the embedded service in another process."""

from __future__ import annotations

import asyncio
import csv
import errno
import io
import json
import os
import re
import shlex
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from invsvc_async import ConfigurationError
from invsvc_async.cli.app import _report, run
from invsvc_async.cli.secrets_file import SecretsFile
from invsvc_async.testing import serving
from tests.cli.conftest import ENVIRONMENT, child, screened
from tests.support.waiting import block_until

pytestmark = [pytest.mark.one_python, pytest.mark.usefixtures("here")]
SIGNALS = [
    signal.SIGINT,
    pytest.param(signal.SIGTERM, marks=pytest.mark.untraced),
    pytest.param(signal.SIGHUP, marks=pytest.mark.untraced),
]


# --- get and list


def test_get_by_resource_and_id(invsvc):
    """A resource's name and an id print the thing, a field a line, off a terminal with tabs."""
    ran = invsvc("get", "users", "usr_1")

    assert ran.code == 0
    assert ran.out.splitlines()[:2] == ["field\tvalue", "id\tusr_1"]


def test_get_of_an_unlisted_path(invsvc):
    """A path reads anything else, with its query."""
    told = invsvc("get", "/webhooks", "limit=1", "--json").json

    assert isinstance(told, list)


def test_get_as_json(invsvc):
    """JSON is the service's own form."""
    told = invsvc("get", "journeys.get", "jrn_1", "--json").json

    assert told["triggerType"] == "invoice.created"
    assert isinstance(told["created_at"], int)


@pytest.mark.parametrize(
    "words", ["get users usr_1", "list webhooks", "write journeys.update jrn_1 name=A"]
)
def test_answer_of_something_else(invsvc, monkeypatch, words):
    """How it begins is said, not where a program finds the whole."""
    operation = {
        "get": "users.get",
        "list": "webhooks.list",
        "write": "journeys.update",
    }[words.split()[0]]
    Path("invsvc.toml").write_text(
        'default_profile = "d"\n[profiles.d.reconcile]\nsettle_after_loss = 0\nsettle_after_error = 0\n'
    )
    # of its own: not all of these answers are asked for
    with serving(seed=7) as service:
        monkeypatch.setenv("INVSVC_BASE_URL", service.base_url)
        monkeypatch.setenv("INVSVC_API_KEY", service.api_key)
        service.script(operation, *["html"] * 9)
        ran = invsvc(*words.split())

    assert ran.code != 0
    assert ".raw" not in ran.out + ran.err
    assert "It begins with" in ran.out + ran.err


def test_get_that_is_not_there(invsvc):
    """What is not there fails in one line, with no traceback."""
    ran = invsvc("get", "users", "nobody")

    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith("invsvc: users.get: HTTP 404 resource_not_found")
    assert len(ran.err.splitlines()) == 1


def test_list_of_one_page(invsvc):
    """Without --all one page is printed, and stderr says how to go on; going on gives the rest."""
    first = invsvc("list", "invoices.egress", "--fields", "uuid,total")
    token = first.err.split("--resume ")[1].strip()
    rest = invsvc(
        "list", "invoices.egress", "--fields", "uuid,total", "--resume", token
    )

    assert len(first.out.splitlines()) == 11
    assert len(rest.out.splitlines()) == 3
    assert rest.err == ""
    assert "1234567890.123456789" in first.out


def test_list_of_all_pages_as_csv(invsvc):
    """CSV has every field of the model, decimals and times whole, nested values as JSON."""
    ran = invsvc("list", "invoices.egress", "limit=5", "--all", "--csv")
    rows = list(csv.DictReader(io.StringIO(ran.out)))

    assert len(rows) == 12
    assert rows[0]["total"] == "1234567890.123456789"
    assert rows[0]["created_at"].endswith("Z")
    assert json.loads(rows[0]["client"])["legal_name"]


def test_list_as_csv_for_a_spreadsheet(invsvc):
    """Text that would run as a formula is escaped if asked for; numbers stay numbers."""
    words = "webhooks.create url=https://a.example/formula description==1+1 events=invoice.created"
    invsvc("write", *words.split())
    options = ("list", "webhooks", "limit=100", "--csv", "--fields", "url,description")
    found = [
        invsvc(*options, *more).out.splitlines()
        for more in ((), ("--escape-formulas",))
    ]

    assert "https://a.example/formula,=1+1" in found[0]
    assert "https://a.example/formula,'=1+1" in found[1]
    assert invsvc("list", "invoices.egress", "--escape-formulas").code == 2


def test_list_as_lines_of_json(invsvc):
    """Each item is a line of its own, as JSON is an array of them."""
    lines = invsvc("list", "invoices.payment_complements", "--jsonl").out.splitlines()
    array = invsvc("list", "invoices.payment_complements", "--json").json

    assert [json.loads(line) for line in lines] == array
    assert len(array) == 3


def test_list_with_filters(invsvc):
    """Filters take the forms of the arguments: dates, metadata, whole numbers."""
    ran = invsvc(
        "list",
        "invoices.egress",
        "metadata.order=A-3",
        "created_after=2020-01-01",
        "--json",
    )

    assert [item["metadata"] for item in ran.json] == [{"order": "A-3"}]


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("created_after=20991231", 0),
        ("created_before=20000101", 0),
        ("created_before=20991231", 12),
        ("created_after=0", 12),
        ("created_after=4102444800000", 0),
    ],
)
def test_date_without_hyphens(invsvc, words, shown):
    """It is a date, as ISO 8601 has it, and not a time within the first two days of 1970; other digits are ms."""
    assert (
        len(invsvc("list", "invoices.egress", words, "--all", "--json").json) == shown
    )


def test_list_without_rows_as_csv(invsvc):
    """The head of a CSV is there even where no row is."""
    out = invsvc(
        "list", "invoices.egress", "series=none", "--csv", "--fields", "uuid,total"
    ).out

    assert out == "uuid,total\n"


def test_list_that_is_full(invsvc):
    """A list of webhooks as long as asked for may hide more, and says so."""
    for n in (1, 2):
        invsvc(
            "write",
            "webhooks.create",
            f"url=https://full.example/{n}",
            "events=invoice.created",
        )

    assert "may be incomplete" in invsvc("list", "webhooks", "limit=2").err


def test_list_of_all_webhooks(invsvc):
    """It asks for as many as the service lists, not for its default of 10."""
    for n in range(12):
        invsvc(
            "write",
            "webhooks.create",
            f"url=https://all.example/{n}",
            "events=invoice.created",
        )

    ran = invsvc("list", "webhooks", "--all", "--jsonl")
    assert sum("https://all.example/" in line for line in ran.out.splitlines()) == 12
    assert "may be incomplete" not in ran.err


def test_list_whose_second_page_fails(invsvc, served):
    """What came before a failure is printed, with the token that goes on behind it."""
    served.script("invoices.egress", "pass", "404")

    ran = invsvc("list", "invoices.egress", "limit=5", "--all", "--json")

    assert ran.code == 1
    assert len(ran.json) == 5
    assert "continue with --resume " in ran.err


def test_list_with_a_broken_field(invsvc, served):
    """A field that breaks its type costs itself, and is counted."""
    served.script("invoices.egress", "bad item")

    ran = invsvc("list", "invoices.egress", "--fields", "total", "limit=1")

    assert ran.out == "total\n!\n"
    assert "1 malformed fields" in ran.err


def test_settings_that_are_missing(offline):
    """Without an address it says what to set."""
    ran = offline("list", "webhooks")

    assert ran.code == 2
    assert "INVSVC_BASE_URL" in ran.err


# --- write, settle, explain


def test_write_from_arguments(invsvc, here):
    """A write prints its verdict, its story and its value; the secret, which comes once, goes to a file."""
    ran = invsvc(
        "write",
        "webhooks.create",
        "url=https://w.example/1",
        "events=invoice.created,invoice.canceled",
    )

    assert ran.code == 0
    assert ran.out.startswith(
        "APPLIED  the service answered so\nwebhooks.create, intent "
    )
    assert '\nevents\t["invoice.created","invoice.canceled"]\n' in ran.out
    assert "secret" not in ran.out
    assert "invsvc-secrets.jsonl" in ran.err
    (kept,) = map(json.loads, (here / "invsvc-secrets.jsonl").read_text().splitlines())
    assert kept["url"] == "https://w.example/1"
    assert kept["secret"].startswith("whsec_")
    assert stat.S_IMODE((here / "invsvc-secrets.jsonl").stat().st_mode) == 0o600


def test_secrets_of_writes_where_they_are_wanted(invsvc, here):
    """Each new webhook's secret is added to the file that is named, and is in no output."""
    for url in ("https://w.example/3", "https://w.example/4"):
        words = ("url=" + url, "events=invoice.created")
        told = invsvc(
            "write", "webhooks.create", *words, "--secrets-to", "secrets", "--json"
        ).json
        assert "secret" not in told["value"]

    kept = [json.loads(line) for line in (here / "secrets").read_text().splitlines()]
    assert [each["url"] for each in kept] == [
        "https://w.example/3",
        "https://w.example/4",
    ]
    assert not (here / "invsvc-secrets.jsonl").exists()


def test_secrets_that_cannot_be_kept(invsvc, served):
    """Where the file cannot be written, nothing is sent."""
    before = served.ask("/_simulator/arrivals?operation=webhooks.create")
    words = (
        "url=https://w.example/5",
        "events=invoice.created",
        "--secrets-to",
        "nowhere/secrets",
    )

    ran = invsvc("write", "webhooks.create", *words)

    assert ran.code == 1
    assert "nowhere/secrets: cannot store secrets" in ran.err
    assert served.ask("/_simulator/arrivals?operation=webhooks.create") == before


# bytes: what a disk takes before it is full, or not even that
@pytest.mark.parametrize("room", [10, 0])
def test_secret_on_a_full_disk(invsvc, monkeypatch, room):
    """The verdict is told all the same, and that the secret is lost; the exit code is that of a failure."""
    write = os.write

    def full(number, content):
        if b'"secret"' not in content:
            return write(number, content)
        if not room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(number, content[:room])

    monkeypatch.setattr(os, "write", full)

    ran = invsvc(
        "write", "webhooks.create", "url=https://w.example/7", "events=invoice.created"
    )

    assert ran.code == 1
    assert "APPLIED" in ran.out
    assert "its secret is lost" in ran.out
    assert (
        "invsvc-secrets.jsonl: cannot store secrets (No space left on device)"
        in ran.err
    )


def test_interruption_while_the_secret_is_stored(invsvc, monkeypatch):
    """The verdict is known, and printed: the write must not be sent again."""

    async def interrupted(*_):
        raise asyncio.CancelledError

    # reaches: Ctrl-C at the one moment at which the secret is in memory alone
    monkeypatch.setattr(SecretsFile, "take", interrupted)
    ran = invsvc(
        "write", "webhooks.create", "url=https://w.example/3", "events=invoice.created"
    )

    assert (ran.code in (1, 130), ran.out) == (True, "")  # older typer: 1
    assert "interrupted; webhooks.create: applied" in ran.err
    assert "no write is in flight" not in ran.err


@pytest.mark.parametrize(
    ("hook", "kept"),
    [
        (
            {"id": "wh_1", "secret": "whsec_1"},
            {"id": "wh_1", "url": None, "secret": "whsec_1"},
        ),
        (
            {"url": "https://w.example/", "secret": "s"},
            {"id": None, "url": "https://w.example/", "secret": "s"},
        ),
        ({"id": "wh_1", "url": "https://w.example/", "secret": 5}, None),
    ],
)
async def test_new_webhook_with_a_field_missing(hook, kept, here, monkeypatch, capsys):
    """It costs that field, not the secret or the verdict: whoever sees none would write again."""

    async def answer(request):
        return web.json_response(
            {
                "success": True,
                "data": hook if request.method == "POST" else [],
                "timestamp": 1,
            }
        )

    app = web.Application()
    app.router.add_route("*", "/v2/webhooks", answer)
    async with TestServer(app, host="127.0.0.1") as server:
        monkeypatch.setenv("INVSVC_BASE_URL", str(server.make_url("/v2")))
        monkeypatch.setenv("INVSVC_API_KEY", "eyJ.a.b")
        words = [
            "write",
            "webhooks.create",
            "url=https://w.example/",
            "events=invoice.created",
        ]
        code = await asyncio.to_thread(run, words)

    lines = (here / "invsvc-secrets.jsonl").read_text().splitlines()
    assert (code, capsys.readouterr().out.splitlines()[0]) == (
        0,
        "APPLIED  the service answered so",
    )
    assert [{name: json.loads(line)[name] for name in kept} for line in lines] == (
        [kept] if kept else []
    )


def test_file_without_a_secret(invsvc, served, here):
    """A create that is refused adds nothing to the file, and leaves it there: another command may be using it."""
    served.script("webhooks.create", "422")

    ran = invsvc(
        "write", "webhooks.create", "url=https://w.example/6", "events=invoice.created"
    )

    assert ran.code == 1
    assert [(each.name, each.read_bytes()) for each in here.iterdir()] == [
        ("invsvc-secrets.jsonl", b"")
    ]


def test_write_from_a_file(invsvc, here):
    """A file holds one write as data."""
    one = {
        "operation": "journeys.update",
        "arguments": {"journey": "jrn_1", "description": None},
    }
    (here / "one.json").write_text(json.dumps(one))

    told = invsvc("write", "--file", "one.json", "--json").json

    assert (told["verdict"], told["applied"]) == ("applied", True)


@pytest.mark.parametrize("words", [("get", "webhooks.health"), ("write", "webhooks.create", "url=https://a.example",
                                   "events=invoice.created", "--secrets-to", "secret"), ("doctor",)])  # fmt: skip
def test_journal_of_the_application(invsvc, here, monkeypatch, words):
    """Commands leave it alone: another process may have it, and they have no use for it."""
    monkeypatch.setenv("INVSVC_JOURNAL", str(here / "calls.db"))
    ran = invsvc(*words)
    assert (ran.code, "calls.db" in ran.err) == (0, False), ran
    assert not [*here.glob("calls.db*")]


def test_key_of_a_single_write(invsvc, served, here):
    """It would have no meaning, so it is refused before anything is sent, and the batch is named."""
    one = {
        "operation": "journeys.update",
        "arguments": {"journey": "jrn_1", "name": "x"},
        "key": "row-1",
    }
    (here / "one.json").write_text(json.dumps(one))
    before = served.ask("/_simulator/arrivals")

    ran = invsvc("write", "--file", "one.json")

    assert (ran.code, ran.out) == (2, "")
    assert "the key 'row-1' means something only where it is stored" in ran.err
    assert "a batch or an outbox" in ran.err
    assert served.ask("/_simulator/arrivals") == before


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "it has no write"),
        ('{"operation": "teams.create"}\n' * 2, "2 writes"),
        ("{", "line: is not JSON"),
    ],
)
def test_write_from_a_file_that_holds_none(invsvc, here, text, words):
    """A file with no write, a bad one, or several is refused."""
    (here / "one.json").write_text(text)

    ran = invsvc("write", "--file", "one.json")

    assert ran.code == 2
    assert words in ran.err


def test_write_with_null_as_json(invsvc):
    """What name=value cannot say, name:=JSON does."""
    told = invsvc(
        "write", "journeys.update", "jrn_1", "description:=null", "--json"
    ).json

    assert told["value"]["description"] is None


def test_write_whose_answer_is_lost(invsvc, served):
    """A delete in doubt is found out by reading, and done."""
    hook = invsvc(
        "write",
        "webhooks.create",
        "url=https://w.example/2",
        "events=invoice.created",
        "--json",
    ).json
    served.script("webhooks.delete", "apply, then reset")

    ran = invsvc("write", "webhooks.delete", hook["value"]["id"])

    assert ran.code == 0
    assert "answer lost" in ran.out


def test_write_that_is_refused(invsvc):
    """A definite no ends with 1 and the service's words."""
    ran = invsvc("write", "journeys.update", "jrn_none", "name=May")

    assert ran.code == 1
    assert ran.out.startswith("REFUSED")
    assert "HTTP 404" in ran.out


def test_secret_that_was_lost(invsvc, served):
    """A webhook found by reading is applied, and its secret is said to be gone."""
    served.script("webhooks.create", "apply, then 500")

    ran = invsvc(
        "write",
        "webhooks.create",
        "url=https://w.example/lost",
        "events=invoice.created",
        "tag:=true",
    )

    assert ran.code == 0
    assert "its secret is lost" in ran.out


def test_write_whose_fate_is_open(invsvc, served, here):
    """Unknown ends with 3; the intent is kept in a file, and settling it only reads."""
    served.script("sheets.save_mapping", "apply, then reset")

    ran = invsvc("write", "sheets.save_mapping", 'fields={"amount": "Monto"}', "--json")
    (kept,) = here.glob("invsvc-intent-*.json")

    assert ran.code == 3
    assert ran.json["verdict"] == "unknown"
    assert kept.name in ran.err

    arrivals = served.ask("/_simulator/arrivals?operation=sheets.save_mapping")
    settled = invsvc("settle", kept.name)

    assert settled.code == 3
    assert settled.out.startswith("UNKNOWN")
    assert served.ask("/_simulator/arrivals?operation=sheets.save_mapping") == arrivals


def open_write(served, here):
    """Script a write whose answer is lost and that has no read, in a file."""
    served.script("sheets.save_mapping", "apply, then reset")
    one = {
        "operation": "sheets.save_mapping",
        "arguments": {"fields": {"amount": "Monto"}},
    }
    (here / "one.json").write_text(json.dumps(one))
    return "write", "--file", "one.json"


def test_intent_whose_key_is_no_file_name(invsvc, served, here):
    """It is kept under a name that any key has, for its owner alone."""
    assert invsvc(*open_write(served, here)).code == 3
    (kept,) = here.glob("invsvc-intent-*.json")
    (here / "one.json").write_text(
        json.dumps(json.loads(kept.read_text()) | {"key": "customer 7/row 17"})
    )
    kept.unlink()

    ran = invsvc("resume", "one.json", "--same-mode", "--json")
    (kept,) = here.glob("invsvc-intent-*.json")

    assert (ran.code, ran.json["verdict"]) == (3, "unknown")
    assert json.loads(kept.read_text())["key"] == "customer 7/row 17"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert kept.name in ran.err


def test_intent_that_cannot_be_kept(invsvc, served, here, monkeypatch):
    """It is printed, and verdict and exit code are told all the same."""
    words = open_write(served, here)
    real = os.open

    def full(path, *arguments):
        if str(path).startswith("invsvc-intent-"):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
        return real(path, *arguments)

    monkeypatch.setattr(os, "open", full)
    ran = invsvc(*words, "--json")

    assert (ran.code, ran.json["verdict"]) == (3, "unknown")
    error, intent = [
        json.loads(each) for each in ran.err.splitlines() if each.startswith("{")
    ]
    assert intent["operation"] == "sheets.save_mapping"
    assert "Read-only file system" in error["error"]["message"]
    assert "Read-only file system" in ran.err


@pytest.mark.parametrize("profile", [(), ("--profile", "live data")])
def test_what_to_do_about_a_write_with_a_read(invsvc, served, here, profile):
    """The command that finds out is named, with the profile and the file; it works as it is."""
    (here / "invsvc.toml").write_text('[profiles."live data"]\n')
    served.script("webhooks.delete", "apply, then reset")
    served.script("webhooks.get", *["403"] * 9)

    ran = invsvc("write", "webhooks.delete", "wh_1", *profile)
    for _ in range(9):  # the rest of the script is not for other tests
        invsvc("get", "webhooks", "wh_1")

    assert ran.code == 3
    command = shlex.split(ran.err.rpartition("run: ")[2])
    assert command[:-1] == ["invsvc", "settle", *profile]
    assert (here / command[-1]).is_file()


def test_what_to_do_about_a_write_without_a_read(invsvc, served, here):
    """It is not sent to a command that cannot find out: a reader of one's own can, from Python."""
    ran = invsvc(*open_write(served, here))

    assert "client.settle(intent, reader=" in ran.err
    assert "invsvc settle" not in ran.err


@pytest.mark.parametrize(
    ("word", "ends"), [("true", "]"), ("false", "in"), ("mine", "mine")]
)
def test_tag_in_words(invsvc, word, ends):
    """Words like true and false are flags, as in JSON; anything else is a tag of one's own."""
    words = f"webhooks.create url=https://tag.example/{word} events=invoice.created description=in tag={word}"

    assert (
        invsvc("write", *words.split(), "--json")
        .json["value"]["description"]
        .endswith(ends)
    )


def test_extra_body_in_words(invsvc):
    """It is JSON, as the words of an object are."""
    words = (
        "webhooks.create",
        "url=https://extra.example/",
        "events=invoice.created",
        'extra_body={"x": 1}',
    )
    told = invsvc("write", *words, "--json").json

    assert told["intent"]["body"]["x"] == 1


def test_settle_of_what_happened(invsvc, served, here):
    """An intent whose write happened is settled as applied, and its story can be kept."""
    hook = invsvc(
        "write",
        "webhooks.create",
        "url=https://w.example/3",
        "events=invoice.created",
        "--json",
    ).json
    intent = invsvc("write", "webhooks.delete", hook["value"]["id"], "--json").json[
        "intent"
    ]
    (here / "intent.json").write_text(json.dumps(intent))

    assert invsvc("settle", "intent.json", "--story", "story.json").code == 0
    assert (here / "story.json").stat().st_mode & 0o777 == 0o600
    assert invsvc("explain", "story.json").code == 0


def test_explain_of_a_story(invsvc, offline):
    """A story replays offline to the verdict that was said, decision by decision."""
    invsvc(
        "write", "journeys.update", "jrn_1", "name=Once more", "--story", "story.json"
    )

    ran = offline("explain", "story.json")
    told = json.loads(offline("explain", "story.json", "--json").out)

    assert ran.code == 0
    assert "attempt: done (applied: the service answered so)" in ran.out
    assert (told["said"], told["verdict"], told["same"]) == ("applied", "applied", True)
    assert "is a story, not an intent" in invsvc("settle", "story.json").err


def test_explain_of_another_verdict(invsvc, here):
    """A story that says what the rules do not fails, and names both."""
    invsvc(
        "write", "journeys.update", "jrn_1", "name=Once again", "--story", "story.json"
    )
    text = (here / "story.json").read_text()
    (here / "story.json").write_text(
        text.replace('"verdict":"applied"', '"verdict":"unknown"')
    )

    ran = invsvc("explain", "story.json")

    assert ran.code == 1
    assert "verdict 'unknown', but the rules of this version reach 'applied'" in ran.err


@pytest.mark.parametrize(
    "content", ["{}", "x", "", '{"schema": 1}', '{"schema": 1, "history": []}']
)
def test_what_is_no_story_and_no_intent(invsvc, here, content):
    """The file is named, and what it should be."""
    (here / "other.json").write_text(content)

    explained, settled = invsvc("explain", "other.json"), invsvc("settle", "other.json")

    assert (explained.code, settled.code) == (2, 2)
    assert explained.err.startswith("invsvc: other.json: not a story")
    assert "--story FILE" in explained.err
    assert settled.err.startswith("invsvc: other.json: not an intent")
    assert "invsvc-intent-" in settled.err


@pytest.mark.filterwarnings("default")
def test_warning_about_an_argument(invsvc):
    """It is a note, without the place in the package's code."""
    ran = invsvc(
        "write", "webhooks.create", "url=https://me.example/none", "events:=[]"
    )

    assert (ran.code, "UserWarning" in ran.err) == (0, False)
    assert ran.err.startswith("events: is empty")


# --- export


def exported(path):
    return [json.loads(line)["uuid"] for line in Path(path).read_text().splitlines()]


def test_export(invsvc):
    """The command writes the file that is asked for, with its filters, and says how many rows."""
    ran = invsvc("export", "invoices", "status=valid", "--format", "csv")

    rows = len(Path("invoices.csv").read_text().splitlines()) - 1
    assert (ran.code, ran.out, 0 < rows < 12) == (
        0,
        f"invoices.csv\t{rows} rows\n",
        True,
    )


def test_export_without_a_page_size(invsvc):
    """A deployment without a parameter for it is read in its own pages, and a wrong argument is still named."""
    Path("invsvc.toml").write_text("[profiles.a]\n[profiles.a.names]\nlimit = ''\n")

    assert invsvc("export", "invoices", "--profile", "a").code == 0
    assert len(exported("invoices.jsonl")) == 12
    ran = invsvc("export", "invoices", "statsu=valid", "--overwrite")
    assert (ran.code, "status" in ran.err) == (2, True)


def test_resume_of_a_finished_export(invsvc):
    """There is nothing to do: it ends with 0, and reads nothing; the first one told how many rows it wrote."""
    told = {"path": "invoices.jsonl", "rows": 12, "resumed": False}
    assert invsvc("export", "invoices", "--json").json == told
    before = Path("invoices.jsonl").read_bytes()

    first, second = (
        invsvc("export", "invoices", "--resume", *words) for words in ([], ["--json"])
    )

    assert (first.code, second.code, second.json) == (0, 0, told | {"rows": None})
    assert "not an interrupted export" in first.err
    assert Path("invoices.jsonl").read_bytes() == before


# --- on a terminal


@pytest.fixture
def screen(monkeypatch):
    """Run one command line on a terminal of 100 columns, and give what it shows."""
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    return lambda *arguments: screened(run, arguments)


def test_list_on_a_terminal(invsvc, screen):
    """A terminal gets a table with a rule under its head, and a bar while all pages are walked."""
    text = screen("list", "invoices.egress", "--all", "--fields", "uuid,total")

    assert "12/?" in text
    assert "─" * 20 in text
    assert "\t" not in text


def test_write_that_takes_its_time(invsvc, screen, served):
    """On a terminal it is said, once, that an answer was lost and is being looked for; not where all is well."""
    served.script("journeys.update", "apply, then 500")
    lost, well = (
        screen("write", "journeys.update", "jrn_1", f"name={name}")
        for name in ("lost", "well")
    )

    assert (
        lost.count("the answer is ambiguous"),
        well.count("the answer is ambiguous"),
    ) == (1, 0)
    assert "APPLIED" in lost


def test_get_of_what_looks_like_markup(invsvc, screen):
    """Text of the service is shown as it is, whatever it looks like."""
    text = screen("write", "journeys.update", "jrn_1", "name=[bold]not bold[/]")

    assert "[bold]not bold[/]" in text


HOSTILE = "\x1b]0;title\x07\x1b[2J\u202egnp.\x9b31m\r"


@pytest.mark.parametrize("words", [(), ("--json",)])
def test_control_characters_on_a_terminal(invsvc, screen, words):
    """Escape sequences and bidirectional controls of the service's data do not reach the terminal."""
    written = screen("write", "journeys.update", "jrn_1", f"name={HOSTILE}", *words)
    read = screen("get", "journeys", "jrn_1", *words)

    for text in (written, read):
        assert not set("\x07\u202e\x9b\r") & set(text)
        assert "\x1b]" not in text
        assert "\x1b[2J" not in text
        assert "u202egnp." in text


def test_control_characters_in_a_pipe(invsvc):
    """Nor do they leave in the lines of a table; JSON has them, escaped."""
    invsvc("write", "journeys.update", "jrn_1", f"name={HOSTILE}")
    table = invsvc("get", "journeys", "jrn_1").out
    plain = invsvc("get", "journeys", "jrn_1", "--json").out

    assert not set("\x07\x1b\u202e\x9b\r") & set(table + plain)
    assert r"\x1b[2J\u202egnp." in table
    assert json.loads(plain)["name"] == HOSTILE


@pytest.mark.slow
def test_demo_on_a_terminal(offline, screen):
    """The demo's policies are folded under themselves, and what should be nothing is in colour."""
    text = screen("demo", "--writes", "8", "--faults", "none")

    assert "\x1b[1;32m0\x1b[0m" in text
    lines = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text).splitlines()
    assert any(re.match(r" {19}connections, like common SDKs", line) for line in lines)


def test_no_color(invsvc, screen, monkeypatch):
    """NO_COLOR takes the colours away."""
    monkeypatch.setenv("NO_COLOR", "1")
    text = screen("get", "users", "nobody")

    assert "\x1b[1;31m" not in text
    assert "HTTP 404" in text


def test_forced_color(invsvc, monkeypatch):
    """What is no terminal stays plain, even where colours are asked for."""
    monkeypatch.setenv("FORCE_COLOR", "1")

    assert invsvc("get", "users", "usr_1").out.startswith("field\tvalue\n")


# --- the whole program


@pytest.mark.parametrize("number", SIGNALS, ids=lambda each: each.name)
def test_interrupted_write(served, here, number):
    """Ctrl-C in the middle of a write keeps its intent and says how to find out, as do other signals."""

    def arrived():
        return served.ask("/_simulator/arrivals?operation=sheets.save_mapping")[
            "arrivals"
        ]

    before = arrived()
    served.script("sheets.save_mapping", "apply, then hang")
    keys = {"INVSVC_BASE_URL": served.base_url, "INVSVC_API_KEY": served.api_key}
    writing = child(
        "write", "sheets.save_mapping", "fields={}", env=ENVIRONMENT | keys, cwd=here
    )
    block_until(lambda: arrived() > before or writing.poll() is not None)
    assert writing.poll() is None
    writing.send_signal(number)
    out, err = writing.communicate(timeout=300)

    assert (writing.returncode in (1, 130), out) == (True, "")  # older typer: 1
    assert "; invsvc-intent-" in err
    assert "Traceback" not in err
    assert len(list(here.glob("invsvc-intent-*.json"))) == 1


_SIGNALLED_AT_ITS_VERDICT = """
import os
from invsvc_async.cli import main
from invsvc_async.cli.commands import write

shown = write._print_outcome

def signalled(*arguments, **options):
    os.kill(os.getpid(), int(os.environ["NUMBER"]))
    return shown(*arguments, **options)

write._print_outcome = signalled
main()
"""


@pytest.mark.parametrize("number", SIGNALS, ids=lambda each: each.name)
def test_write_that_is_interrupted_after_its_verdict(served, here, number):
    """The verdict is printed: there is no intent any more to find it out by."""
    keys = {
        "INVSVC_BASE_URL": served.base_url,
        "INVSVC_API_KEY": served.api_key,
        "NUMBER": str(int(number)),
    }
    command = [sys.executable, "-c", _SIGNALLED_AT_ITS_VERDICT]
    command += [
        "write",
        "webhooks.create",
        "url=https://me.example/in",
        "events=invoice.created",
        "--json",
    ]
    done = subprocess.run(  # noqa: S603
        command,
        env=ENVIRONMENT | keys,
        cwd=here,
        capture_output=True,
        text=True,
        check=False,
    )

    assert json.loads(done.stdout)["verdict"] == "applied"
    assert "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        ("get", "users", "usr_1", "--json"),
        ("list", "invoices.egress", "--all", "--jsonl"),
    ],
    ids=["shorter than a buffer", "longer"],
)
def test_reader_that_has_left(served, arguments):
    """A reader of the output that stops early is no failure to talk about."""
    keys = {"INVSVC_BASE_URL": served.base_url, "INVSVC_API_KEY": served.api_key}
    with child(*arguments, env=ENVIRONMENT | keys) as listing:
        listing.stdout.close()
        said = listing.stderr.read()

    assert (said, listing.returncode) == ("", 1)


def test_failure_of_tasks_side_by_side(capsys):
    """Of several failures at once the first is told, in one line."""
    assert (
        _report(
            ExceptionGroup("x", [ConfigurationError("set this"), ValueError("that")])
        )
        == 2
    )
    assert capsys.readouterr().err == "invsvc: set this\n"


def test_without_the_extra(here):
    """Without typer the program names the extra to install, and no traceback."""
    (here / "typer.py").write_text(
        "raise ModuleNotFoundError('No module named typer', name='typer')"
    )
    path = f"{here}:{ENVIRONMENT['PYTHONPATH']}"
    ran = child("--help", env={**ENVIRONMENT, "PYTHONPATH": path})
    out, err = ran.communicate(timeout=300)

    assert (ran.returncode, out) == (2, "")
    assert err == "invsvc: needs typer. Install invsvc-async with its extra 'cli'.\n"


def test_failure_of_the_program_itself(offline, here):
    """An error that the service did not cause is one line, unless --debug asks for more."""
    (here / "invsvc.toml").write_bytes(b"\xff")

    ran = offline("list", "webhooks")

    assert ran.code in (1, 2)
    assert len(ran.err.splitlines()) == 1
    with pytest.raises(Exception):  # noqa: B017, PT011 - whatever it is, it comes through
        offline("--debug", "list", "webhooks")


def test_version(offline):
    """The version is the package's."""
    from invsvc_async import __version__

    assert offline("--version") == (0, f"{__version__}\n", "")


def test_serve_for_people(here):
    """Served for people, it prints what to paste, and ends at Ctrl-C."""
    serving = child("serve", "--admin", "--inspect", "--faults", "rate=0.5,kinds=500")
    lines = [serving.stdout.readline()]
    while "curl" not in lines[-1]:
        lines.append(serving.stdout.readline())
        assert lines[-1], lines
    serving.send_signal(signal.SIGINT)
    _, errors = serving.communicate(timeout=300)

    assert "press Ctrl-C to stop" in lines[0]
    assert any("export INVSVC_BASE_URL=http://127.0.0.1:" in line for line in lines)
    assert "  faults        rate=0.5,kinds=500\n" in lines
    assert any(
        re.match(r"  admin_url +http://127.0.0.1:\d+/_simulator/$", line)
        for line in lines
    )
    assert any(
        re.match(r"  inspect_url +http://127.0.0.1:\d+/_inspect/$", line)
        for line in lines
    )
    assert (serving.returncode, errors) == (0, "")


def test_help_on_a_stream_that_lacks_signs(here):
    """What latin-1 has no sign for is replaced."""
    asked = child("demo", "--help", env=ENVIRONMENT | {"PYTHONIOENCODING": "latin-1"})
    out, err = asked.communicate(timeout=300)

    assert (asked.returncode, err) == (0, "")
    assert "--faults" in out


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="no IPv6 here")
def test_serve_on_an_address_of_version_6(here):
    """Its URL has the address in brackets."""
    serving = child("serve", "--host", "::1", "--json")
    try:
        assert json.loads(serving.stdout.readline())["base_url"].startswith(
            "http://[::1]:"
        )
    finally:
        serving.send_signal(signal.SIGINT)
        serving.communicate(timeout=300)
