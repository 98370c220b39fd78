"""``invsvc audit``: what it prints, its exit codes, its report, what it asks, and how it is interrupted."""

from __future__ import annotations

import json
import os
import pty
import signal
import stat
import subprocess
import sys
from itertools import chain
from pathlib import Path

import pytest

from invsvc_async.cli.app import run
from invsvc_async.testing import serving
from tests.audit.scenes import NOON, seed
from tests.cli.conftest import (  # the last two are fixtures
    ENVIRONMENT,
    called,
    child,
    hang_up_is_not_inherited,  # noqa: F401
    here,  # noqa: F401
    printed,
)
from tests.support.waiting import block_until

LOGIN = "https://ana:s3cret@receiver.example/in?token=t0ken"


@pytest.fixture
def service():
    with serving(seed=7) as running:
        yield running


@pytest.fixture
def invsvc(here, monkeypatch, service, capsys):  # noqa: F811 - a fixture
    """Run one command line against the service."""
    monkeypatch.setenv("INVSVC_BASE_URL", service.base_url)
    monkeypatch.setenv("INVSVC_API_KEY", service.api_key)
    return lambda *arguments: called(capsys, *arguments)


@pytest.fixture
def planted(service):
    """Plant a certain duplicate, a likely one, one that is closed, and one of webhooks; return their ids."""
    return [
        [seed(service, idempotency_key="order-1"), seed(service, 5000, idempotency_key="order-1")],
        [service.seed_webhook(url=LOGIN).id, service.seed_webhook(url=LOGIN).id],
        [seed(service, 20_000, idempotency_key=key) for key in ("order-2", "order-3")],
        [seed(service, number, idempotency_key="order-4", status="canceled") for number in (7000, 8000)],
    ]  # fmt: skip


def test_nothing(invsvc, service):
    """The exit code is 0, and stdout is empty."""
    code, out, err = invsvc("audit")

    assert (code, out) == (0, "")
    assert err == "items: 15, certain: 0, likely: 0, closed: 0. No duplicate\n"


def test_table(invsvc, planted):
    """Each item is a line: first what is certain, then what is likely, and last what is closed."""
    code, out, err = invsvc("audit")
    titles, *lines = [line.split("\t") for line in out.splitlines()]

    assert code == 1
    assert titles == [
        "duplicate", "number", "list", "id", "created_at", "status", "what", "why",
    ]  # fmt: skip
    assert [line[:2] for line in lines] == [
        ["certain", "1"], ["certain", "1"], ["certain", "2"], ["certain", "2"], ["likely", "3"], ["likely", "3"],
        ["certain, closed", "4"], ["certain, closed", "4"],
    ]  # fmt: skip
    assert sorted(line[3] for line in lines) == sorted(chain(*planted))
    assert lines[0][2:] == [
        "invoices.egress", planted[0][0], "2026-09-21T14:13:20.000Z", "valid", "42.00 MXN, client cli_1, key order-1",
        "one idempotency key, 2 invoices",
    ]  # fmt: skip
    assert lines[2][-1] == "equal URL and events: each event is sent there 2 times"
    assert lines[4][-1] == (
        "equal client, total and items, at most 10 min apart, with different idempotency keys, and they relate to "
        "different documents"
    )
    assert err == "items: 23, certain: 2, likely: 1, closed: 1\n"


def test_terminal(invsvc, planted, service):
    """On a terminal, duplicates with one reason stand together, with what to do."""
    shown = printed(run, ["audit"]).split("\n\n")

    first, second = planted[1]
    assert " ".join(shown[1].split()).startswith(
        "certain: equal URL and events: each event is sent there 2 times (webhooks.list): 1 "
        "to do: look at them, and delete those that nobody needs: invsvc write webhooks.delete ID "
        f"- {first} (duplicate 2): "
    )
    assert shown[1].count(f"active, {LOGIN}") == 2
    assert second in shown[1]
    assert [each.lstrip().partition(":")[0] for each in shown[1:]] == [
        "certain", "likely", "certain, closed",
    ]  # fmt: skip


def test_json(invsvc, planted):
    """Each duplicate is a line of JSON, with exact numbers, and the counts are the last one."""
    code, out, _ = invsvc("audit", "invoices", "--json")
    *lines, counts = map(json.loads, out.splitlines())

    assert code == 1
    assert '"total":42.00,' in out
    assert [(each["certainty"], each["open"], each["count"]) for each in lines] == [
        ("certain", True, 2), ("certain", False, 2), ("likely", True, 2),
    ]  # fmt: skip
    assert [item["uuid"] for item in lines[0]["items"]] == planted[0]
    assert lines[0]["items"][0]["created_at"] == NOON
    assert counts == {
        "complete": True, "items": 18, "certain": 1, "likely": 1, "closed": 1, "gaps": [],
    }  # fmt: skip


def test_only_reads(invsvc, planted, service):
    """It asks for the lists, with GET, and changes nothing."""
    book = service.book()
    before = dict(book.invoices.items), dict(book.webhooks.items)

    assert invsvc("audit").code == 1

    assert service.ledger.entries == []
    assert {(each.operation, each.body) for each in service.ledger.reads} == {
        ("invoices.egress", None), ("invoices.payment_complements", None), ("webhooks.list", None),
    }  # fmt: skip
    assert (dict(book.invoices.items), dict(book.webhooks.items)) == before


def test_only_closed(invsvc, service):
    """If nothing is left to do, the exit code is 0, and the duplicate is told all the same."""
    for minutes, status in ((0, "valid"), (5000, "canceled")):
        seed(service, minutes, idempotency_key="order-1", status=status)

    code, out, err = invsvc("audit", "invoices")

    assert code == 0
    assert [line.split("\t")[0] for line in out.splitlines()[1:]] == [
        "certain, closed"
    ] * 2
    assert err == "items: 14, certain: 0, likely: 0, closed: 1\n"


def test_within(invsvc, service):
    """Minutes between two invoices that are alike can be chosen."""
    for minutes in (0, 90):
        seed(service, minutes)

    assert invsvc("audit").code == 0
    code, out, _ = invsvc("audit", "--within", "90")
    assert (code, out.count("at most 90 min apart")) == (1, 2)


def test_window(invsvc, service, planted):
    """Invoices of a window are read, and the report names the window."""
    window = ("--from", "2026-09-20", "--to", "2026-09-23T00:00:00-06:00")

    code, out, err = invsvc("audit", "invoices", *window, "--report", "out.html")

    assert (code, out) == (0, "")
    assert err == "items: 1, certain: 0, likely: 0, closed: 0. No duplicate\n"
    assert (
        "invoices.egress, from 2026-09-20, to 2026-09-23T00:00:00-06:00</h1>"
        in Path("out.html").read_text()
    )
    [asked] = [each.query for each in service.ledger.reads]
    assert asked["created_after"] == "1789862400000"
    assert asked["created_before"] == "1790143199999"  # it includes that time


def test_report(invsvc, service, planted):
    """It is a page of its owner's only, in which texts of the service are text."""
    seed(service, 90_000, idempotency_key="<script>\u202e")
    seed(service, 95_000, idempotency_key="<script>\u202e")

    code, _, err = invsvc("audit", "--report", "out.html")
    page = Path("out.html").read_text()

    assert code == 1
    assert (
        "<h1>Duplicates: invoices.egress, invoices.payment_complements, webhooks.list</h1>"
        in page
    )
    assert "key &lt;script&gt;\\u202e</td>" in page
    assert "\u202e" not in page
    assert page.count("<details>") == 4
    assert page.count("<tr>") == 2 * 5
    assert (
        page.index("<b>certain: ")
        < page.index("<b>likely: ")
        < page.index("<b>certain, closed: ")
    )
    assert page.index("delete those that nobody needs") < page.index(
        "nothing, because at most one of them is in effect"
    )
    assert all(each in page for each in chain(*planted))
    assert stat.S_IMODE(Path("out.html").stat().st_mode) == 0o600
    assert err.strip() in page


def test_no_secret(invsvc, service, planted):
    """No token and no secret of a webhook is printed, even if the service shows it; URLs are as `list` shows them."""
    for each in planted[1]:
        service.book().webhooks.change(
            each, {"secret": "whsec_never", "signing_secret": "whsec_never"}
        )
    listed = invsvc("list", "webhooks").out

    shown = "".join(
        "".join(invsvc("audit", *more)[1:]) for more in ((), ("--json",), ("--report", "out.html"))
    ) + Path("out.html").read_text()  # fmt: skip

    assert "whsec" not in shown
    assert service.api_key not in shown
    assert service.secret_of(planted[1][0]) not in shown
    assert LOGIN in listed
    assert LOGIN in shown


def test_more_than_is_shown(invsvc, service):
    """The first 500 are in the table and the report; --json prints all."""
    for number in range(510):
        for minutes in (0, 5):
            seed(service, number * 100 + minutes, idempotency_key=f"order-{number}")

    _, out, err = invsvc("audit", "invoices", "--report", "out.html")

    assert len(out.splitlines()) == 1001
    assert "10 more are not shown: --json prints them all" in err
    assert "10 more are not shown" in Path("out.html").read_text()
    _, out, err = invsvc("audit", "invoices", "--json")
    assert len(out.splitlines()) == 511
    assert "not shown" not in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("users",), "lists: 'users' is unknown. Use one of invoices.egress"),
        (("--within", "-1"), "--within"),
        (("--from", "noon"), "--from: 'noon' is not an ISO 8601 date"),
        (("--to", "2026-05-01T12:30"), "'2026-05-01T12:30' has no offset from UTC. Add one: 2026-05-01T12:30Z"),
        (("--report", "run.db"), "run.db is a database"),
    ],
)  # fmt: skip
def test_usage_errors(invsvc, service, arguments, words):
    """They are told in words, with exit code 2, and nothing is sent."""
    Path("run.db").write_bytes(b"SQLite format 3\0")

    code, out, err = invsvc("audit", *arguments)

    assert (code, out) == (2, "")
    assert words in " ".join(err.replace("│", " ").split())
    assert service.ledger.arrivals() == 0


def test_others_may_exist(invsvc, service, planted):
    """If others may exist that were not listed, the exit code is 3, and the reason is told."""
    for number in range(98):
        service.seed_webhook(url=f"https://receiver.example/{number}")

    code, out, err = invsvc("audit", "--json")

    assert code == 3
    assert json.loads(out.splitlines()[-1])["gaps"] == [
        "more than 100 webhooks may exist"
    ]
    assert err.endswith(
        "closed: 1. There may be others: more than 100 webhooks may exist\n"
    )


def test_error_on_the_way(invsvc, service, planted):
    """What was found until then is printed; the error ends it as it ends other commands."""
    service.script("webhooks.list", "403")

    code, out, err = invsvc("audit", "--report", "out.html")

    assert code == 1
    assert out.count("one idempotency key") == 4
    assert "There may be others: the reading did not end" in err
    assert "HTTP 403" in err
    assert "the reading did not end" in Path("out.html").read_text()


def test_refused_credential(invsvc, monkeypatch):
    """If nothing was read, nothing is said about duplicates."""
    monkeypatch.setenv("INVSVC_API_KEY", "eyJ.a.b")

    code, out, err = invsvc("audit", "--report", "out.html")

    assert (code, out) == (1, "")
    assert "items" not in err
    assert not Path("out.html").exists()


def test_interrupted(invsvc, service, planted):
    """It prints what was found until then, and ends with 130, without a traceback."""
    service.script("webhooks.list", "hang 600")
    settings = {"INVSVC_BASE_URL": service.base_url, "INVSVC_API_KEY": service.api_key}
    running = child("audit", "--json", env=ENVIRONMENT | settings)
    block_until(lambda: service.ledger.arrivals("webhooks.list"), within=300)

    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=300)
    *lines, counts = map(json.loads, out.splitlines())

    assert running.returncode == 130
    assert [each["certainty"] for each in lines] == ["certain", "certain", "likely"]
    assert (counts["complete"], counts["gaps"]) == (False, ["the reading did not end"])
    assert "Traceback" not in err


def test_progress(invsvc, service):
    """On a terminal, a bar counts the items that were read."""
    service.script("webhooks.list", "hang 600")
    settings = {
        "INVSVC_BASE_URL": service.base_url,
        "INVSVC_API_KEY": service.api_key,
        "TERM": "xterm",
    }
    ours, theirs = pty.openpty()
    running = subprocess.Popen(
        [sys.executable, "-m", "invsvc_async.cli", "audit"],
        env=ENVIRONMENT | settings,
        stdout=subprocess.DEVNULL,
        stderr=theirs,
    )
    shown = bytearray()

    def is_shown():
        shown.extend(os.read(ours, 4096))
        return b"15/?" in shown

    block_until(is_shown, within=300)
    running.send_signal(signal.SIGINT)
    running.wait(timeout=300)
    os.close(ours)
    os.close(theirs)

    assert b"items read" in shown
