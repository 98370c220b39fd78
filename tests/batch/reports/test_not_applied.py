"""Writes that are not applied: grouped by cause, and written as lines that can be fed back."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
from types import SimpleNamespace
from typing import get_args

import pytest

from invsvc_async import Absent, CallOptions, PersonToken
from invsvc_async.batch import Batch
from invsvc_async.batch.reports.live import Watch
from invsvc_async.batch.reports.not_applied import (
    _ADVICE,
    _REFUSED,
    Group,
    Groups,
    command_for,
    groups_of,
)
from invsvc_async.batch.reports.summary import report_of
from invsvc_async.batch.result import Result
from invsvc_async.batch.sending import content_of
from invsvc_async.cli.app import run
from invsvc_async.cli.commands.stores import BATCH, JOURNAL, OUTBOX
from invsvc_async.reconcile.history import Cause, Verdict
from invsvc_async.resources.by_name import as_write
from invsvc_async.writes.as_data import arguments_of
from tests.batch.conftest import HOOK, client_of
from tests.batch.writing import all_of, line_of, opened, run_all
from tests.support.database import database

pytestmark = pytest.mark.one_python

WRITES = {
    "journeys.update": {
        "journey": "jrn_1", "name": "n", "description": None, "graph": {"nodes": [], "edges": []},
        "trigger_type": "t", "replaces_defaults": True,
    },
    "teams.create": {
        "legal_name": "L", "address": {"country": "MEX"}, "add_members": [{"id": "u", "role": "admin"}],
        "credit_limit": 5, "extra_body": {"color": "red"},
    },
    "users.update_preferences": {"team_id": "team_1", "testmode": True},
    "sheets.save_mapping": {"fields": {"a": "b"}, "extra_body": {"more": [1.5]}},
    "webhooks.create": {**HOOK, "description": "d", "status": "inactive"},
    "webhooks.update": {"webhook": "wh_1", "url": "https://me.example/", "extra_body": {"more": None}},
    "webhooks.delete": {"webhook": "wh_1"},
    "client.write": {"method": "PATCH", "path": "/a b/%25c", "params": {"x": "1"}, "json": {"y": 2}},
}  # fmt: skip


async def invsvc(*arguments):
    return await asyncio.to_thread(run, ["batch", *map(str, arguments)])


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("team", [{}, {"team": "team_9"}])
@pytest.mark.parametrize(
    ("operation", "more"),
    [
        *((name, {}) for name in WRITES),
        *(("webhooks.create", {"tag": tag}) for tag in ("ours", True)),
    ],
)
async def test_arguments_of_each_operation(service, operation, more, team):
    """The arguments taken from an intent make the same write again."""
    given, is_of_person = (
        WRITES[operation] | more | team,
        operation == "users.update_preferences",
    )
    credential = (
        {"credential": PersonToken(service.person_token)} if is_of_person else {}
    )
    async with client_of(service, **credential) as client:
        first = as_write(client, operation, given)
        back = arguments_of(first.intent)
        second = as_write(client, operation, json.loads(json.dumps(back, default=str)))
        digests = [
            content_of(each._spec) for each in (first, second)
        ]  # reaches: what is compared with a stored one
        first.close()
        second.close()
    assert digests[0] == digests[1]
    assert "reader" not in back


@pytest.mark.parametrize(
    ("operation", "given"),
    [
        ("client.write", {"method": "DELETE", "path": "/a"}),
        (
            "webhooks.create",
            {"url": HOOK["url"], "events": HOOK["events"], "tag": "ours"},
        ),
        ("webhooks.create", {"url": HOOK["url"], "events": HOOK["events"]}),
    ],
)
async def test_arguments_that_were_left_out(client, operation, given):
    """They are not made up."""
    write = as_write(client, operation, given)
    assert arguments_of(write.intent) == given
    write.close()


def test_many_writes_of_many_causes():
    """A group lists a bounded number of writes, and rare causes beyond a bound are one group; all are counted."""
    groups = Groups()
    for number in range(600):
        code = "one" if number < 300 else f"code {number}"
        result = Result(
            key=f"{number}",
            operation="webhooks.update",
            verdict=Verdict.REFUSED,
            code=code,
        )
        groups.add(result)
    found = groups.sorted("run.db")
    assert sum(each.count for each in found) == 600
    assert max(len(each.results) for each in found) < 300
    assert len(found) < 300


@pytest.fixture
async def journal(service, client, path):
    """Return the journal of a batch with refused, not applied, superseded, overtaken and unknown writes."""
    hooks = [service.seed_webhook() for _ in range(2)]
    journey = service.seed_journey()
    service.script("webhooks.update", "422", "403")
    service.script("journeys.update", "403")
    service.script("sheets.save_mapping", "reset")
    writes = [
        client.webhooks.update(hooks[0].id, description="one").keyed("refused"),
        client.webhooks.update(hooks[1].id, description="two").keyed("forbidden"),
        client.journeys.update(journey.id, name="old").keyed("overtaken"),
        client.journeys.update(journey.id, name="new").keyed("newest"),
        client.sheets.save_mapping({"a": "personal"}).keyed("unknown"),
    ]
    async with Batch.open(path, client, concurrency=1) as batch:
        await all_of(batch, writes)
        await batch.retry(keys=["overtaken"])
        await all_of(batch)
    return path


async def test_groups_of_a_journal(journal):
    """Each write that is not applied is in the group of its verdict and cause, which has an advice."""
    async with opened(journal, reading=True) as entries:
        groups = await groups_of(entries, journal.name)

    found = {
        (str(each.verdict), each.cause): [result.key for result in each.results]
        for each in groups
    }
    assert {
        cause: keys
        for (_, cause), keys in found.items()
        if not cause.startswith("HTTP")
    } == {
        "overtaken": ["overtaken"],
        "no read": ["unknown"],
    }
    refused = {
        cause[:8]: keys
        for (verdict, cause), keys in found.items()
        if verdict == "refused"
    }
    assert refused == {"HTTP 422": ["refused"], "HTTP 403": ["forbidden"]}
    assert all(each.advice for each in groups)


@pytest.mark.parametrize("place", ["file", "database"])
async def test_write_that_a_newer_one_has_overtaken_since(service, client, path, place):
    """To retry it would not send it: the advice says so, in the report and on the page that is watched."""
    journal = (
        path if place == "file" else database().journal("overtaken_since", silence=60)
    )
    hook = service.seed_webhook().id
    service.script("webhooks.update", "403", "403")
    async with Batch.open(journal, client, concurrency=1) as batch:
        writes = [
            client.webhooks.update(hook, description=text).keyed(text)
            for text in ("old", "new")
        ]
        alone = client.webhooks.update(
            service.seed_webhook().id, description="alone"
        ).keyed("alone")
        await all_of(batch, [writes[0], alone])
        await all_of(batch, [writes[1]])
        found = await groups_of(batch.entries, "run.db")
        reported = (await report_of(batch.entries, "run.db")).groups
        watched = (await Watch(batch.entries, str(journal)).read())["groups"]
        assert await batch.retry(keys=["old"]) == 1
        [again] = [each for each in await all_of(batch) if each.key == "old"]
    assert (again.verdict, again.overtaken) == (Verdict.NOT_APPLIED, True)
    told = {each.cause: (each.advice, each.command) for each in found}
    assert told.keys() == {"HTTP 403 forbidden", "HTTP 403 forbidden, then overtaken"}
    advice, command = told["HTTP 403 forbidden, then overtaken"]
    assert advice == _ADVICE["overtaken"]
    assert command == "invsvc batch retry run.db --force old"
    assert (
        told["HTTP 403 forbidden"][1] == "invsvc batch retry run.db --verdict refused"
    )
    assert [(each.cause, each.advice) for each in reported] == [
        (each.cause, each.advice) for each in found
    ]
    assert {each["cause"] for each in watched} == {each.cause for each in found}


def group(verdict, advice, *keys, count=0):
    results = [SimpleNamespace(key=key) for key in keys]
    return Group(
        verdict=verdict,
        cause="cause",
        advice=advice,
        count=count or len(results),
        results=results,
    )


@pytest.mark.parametrize(
    ("what", "groups", "commands"),
    [
        ("batch", [group(Verdict.REFUSED, "Change that, then retry.", "a")], ["retry J --verdict refused"]),
        ("batch", [group(Verdict.NOT_APPLIED, "It happened not. Retry.", "a")], ["retry J --verdict not-applied"]),
        ("batch", [group(Verdict.REFUSED, "Correct the ids.", "a")], ["report J --failed out.jsonl"]),
        ("batch", [group(Verdict.UNKNOWN, "Check the dashboard.", "a")], [None]),
        (
            "batch",
            [group(Verdict.NOT_APPLIED, "Leave these, or retry --force.", "-a", "b c"),
             group(Verdict.NOT_APPLIED, "Retry.", "d")],
            ["retry J --force -- -a 'b c'", "retry J --verdict not-applied"],
        ),
        (
            "batch",
            [group(Verdict.SUPERSEDED, "If yours is to win, retry.", "a", count=6),
             group(Verdict.SUPERSEDED, "Retry.", "d")],
            [None, "retry J d"],
        ),
        (  # what was found has to be filled in, so that it does nothing as it is
            "batch",
            [group(Verdict.UNKNOWN, "Check, then resolve each with what you find, or retry.", "-a"),
             group(Verdict.UNKNOWN, "Compare them, then resolve each with what you find.", "b", "c")],
            ["resolve J --because TEXT --applied ID -- -a", "resolve J --because TEXT --applied ID KEY"],
        ),
        (  # a journal's writes are not run by verdict
            "journal",
            [group(Verdict.SUPERSEDED, "Retry.", "a b", "c d"),
             group(Verdict.REFUSED, "Correct the ids.", "e")],
            ["retry J 'a b' 'c d'", None],
        ),
    ],
)  # fmt: skip
def test_command_of_a_group(what, groups, commands):
    """It does what the advice says, and chooses no writes of other groups that it could harm."""
    expected = [each and f"invsvc {what} {each}" for each in commands]
    assert [command_for(each, groups, "J", what) for each in groups] == expected


@pytest.mark.parametrize("kind", [BATCH, OUTBOX, JOURNAL], ids=lambda each: each.name)
def test_advice_names_no_option_that_is_not_there(kind):
    """Of each cause and each refusal, the advice and the command have only options of this kind's commands."""
    groups = Groups()
    for cause in _ADVICE:
        verdict = (
            Verdict.NOT_APPLIED
            if cause in ("overtaken", "never left", "absent")
            else Verdict.UNKNOWN
        )
        groups.add(
            Result(key=cause, operation="webhooks.update", verdict=verdict, cause=cause)
        )
    for status in (*_REFUSED, 422):
        groups.add(
            Result(
                key=f"{status}",
                operation="webhooks.update",
                verdict=Verdict.REFUSED,
                status=status,
            )
        )
    for each in groups.sorted("J", kind.name):
        told = re.findall("--([a-z-]+)", f"{each.advice} {each.command or ''}")
        filled = {"because", "applied", "not-applied"}
        assert {*told} <= {"verdict", "force", "failed", *filled} - {
            *kind.lacks.split()
        }, each.advice


def test_command_quotes_the_journal():
    """An address has characters that a shell would read."""
    groups = Groups()
    groups.add(
        Result(
            key="a", operation="webhooks.update", verdict=Verdict.REFUSED, status=403
        )
    )
    [found] = groups.sorted("postgresql://db/data?batch=june&x")
    assert (
        found.command
        == "invsvc batch retry 'postgresql://db/data?batch=june&x' --verdict refused"
    )


async def test_command_for_a_shared_journal(service, client, capsys):
    """It can be run as it is printed, with the user of the address."""
    address = database().journal("command", silence=60)
    missing = client.webhooks.update("wh_missing", description="x").keyed("row-1")
    assert [result.verdict for result in await run_all(address, client, [missing])] == [
        Verdict.REFUSED
    ]
    assert await invsvc("report", address) == 0
    [command] = [
        line.removeprefix("  $ ")
        for line in capsys.readouterr().out.splitlines()
        if line.startswith("  $ ")
    ]
    assert command.startswith("invsvc batch report ")
    assert await invsvc(*shlex.split(command.replace("out.jsonl", "-"))[2:]) == 0
    assert [
        json.loads(line)["key"] for line in capsys.readouterr().out.splitlines()
    ] == ["row-1"]


async def test_groups_are_shown_everywhere(journal, capsys, tmp_path):
    """The terminal, JSON and HTML show the same groups, with every write of them."""
    page = tmp_path / "page.html"
    assert await invsvc("report", journal, "--html", page, "--json") == 0
    told = json.loads(capsys.readouterr().out)["not_applied"]
    assert await invsvc("report", journal) == 0
    terminal, html = capsys.readouterr().out, page.read_text()
    assert sorted(write["key"] for group in told for write in group["writes"]) == [
        "forbidden", "overtaken", "refused", "unknown",
    ]  # fmt: skip
    for group in told:
        assert f"{group['verdict']}: {group['cause']}: {group['count']}" in terminal
        assert f"<b>{group['verdict']}: {group['cause']}</b> " in html
        assert f"  $ {group['command']}\n" in terminal
        assert f">{group['command']}</pre>" in html
        for write in group["writes"]:
            assert f"  - {write['key']} (" in terminal
            assert f"<td>{write['key']} " in html


@pytest.mark.usefixtures("credential_in_environment")
async def test_end_of_a_run_says_why(service, client, tmp_path, capsys, path):
    """What a run prints at its end has the causes, and what to do."""
    service.script("webhooks.create", "422")
    file = tmp_path / "writes.jsonl"
    file.write_text(line_of("webhooks.create", "row-1", **HOOK))
    assert await invsvc(file, "--journal", path, "--no-secrets") == 1
    out = capsys.readouterr().out
    assert "refused: HTTP 422" in out
    assert "  - row-1 (webhooks.create): " in out
    assert f"  $ invsvc batch report {tmp_path / 'run.db'} --failed out.jsonl\n" in out


@pytest.mark.usefixtures("credential_in_environment")
async def test_failed_writes_round_trip(service, journal, tmp_path, capsys):
    """The file is refused until its doubts are resolved; then a new journal applies each line once."""
    out = tmp_path / "out.jsonl"
    assert await invsvc("report", journal, "--failed", out) == 0
    assert (
        "not applied: 4 writes, 2 of them to check before a run"
        in capsys.readouterr().err
    )
    lines = lines_of(out)
    assert [line["key"] for line in lines] == [
        "refused",
        "forbidden",
        "overtaken",
        "unknown",
    ]
    assert [line["key"] for line in lines if "check" in line] == [
        "overtaken",
        "unknown",
    ]

    before = service.arrivals()
    assert (
        await invsvc(out, "--journal", tmp_path / "new.db", "--no-secrets") == 2
    )  # nothing is sent in doubt
    assert capsys.readouterr().err.count("delete the member to send the write") == 2
    assert service.arrivals() == before

    lines[0]["arguments"]["description"] = "corrected"
    out.write_text(
        "".join(json.dumps(line) + "\n" for line in lines if "check" not in line)
    )
    assert await invsvc(out, "--journal", tmp_path / "new.db", "--no-secrets") == 0
    effects = [entry.body for entry in service.ledger.effects("webhooks.update")]
    assert sorted(body["description"] for body in effects) == ["corrected", "two"]


@pytest.mark.usefixtures("credential_in_environment")
async def test_failed_writes_fed_into_the_same_journal(
    service, journal, tmp_path, capsys
):
    """An unchanged line is skipped, because its write is finished; a changed one is refused in words."""
    out = tmp_path / "out.jsonl"
    await invsvc("report", journal, "--failed", out)
    line = lines_of(out)[0]
    before = service.arrivals("webhooks.update")
    out.write_text(json.dumps(line) + "\n")
    # as before: one is unknown
    assert await invsvc(out, "--journal", journal, "--no-secrets") == 3
    line["arguments"]["description"] = "corrected"
    out.write_text(json.dumps(line) + "\n")
    assert await invsvc(out, "--journal", journal, "--no-secrets") == 2
    assert (
        "the journal has another write under the key 'refused'"
        in capsys.readouterr().err
    )
    assert service.arrivals("webhooks.update") == before


async def test_pruned_writes_are_named(journal, tmp_path, capsys):
    """A write whose arguments were pruned is not in the file, and is named."""
    assert await invsvc("prune", journal, "--days", "0") == 0
    out = tmp_path / "out.jsonl"
    assert await invsvc("report", journal, "--failed", out) == 0
    # whose content is needed to settle it
    assert [line["key"] for line in lines_of(out)] == ["unknown"]
    err = capsys.readouterr().err
    for key in ("refused", "forbidden", "overtaken"):
        assert f"{key}: its arguments were pruned" in err
    async with opened(journal, reading=True) as entries:
        groups = await groups_of(entries, journal.name)
    assert {str(each.verdict) for each in groups} == {
        Verdict.REFUSED, Verdict.NOT_APPLIED, Verdict.UNKNOWN,
    }  # fmt: skip


def test_every_cause_has_advice():
    """No cause that the rules can give is without words for the operator."""
    assert set(get_args(Cause)) == set(_ADVICE)


async def test_what_a_line_cannot_have(service, client, tmp_path, capsys, path):
    """Headers, a user-supplied reader and what was noted are not written out, and the command says so."""

    async def reader(_client, _intent):
        return Absent()

    service.script("webhooks.create", "422")
    traced = CallOptions(headers={"X-Trace": "t-1"})
    write = client.write(
        "POST", "/webhooks", json=HOOK, reader=reader, options=traced
    ).keyed("row-1", labels={"customer": "c-1"})
    labelled, plain = (
        client.webhooks.update("wh_missing", description="x").keyed(key, labels=labels)
        for key, labels in (("row-2", {"customer": "c-2"}), ("row-3", None))
    )
    results = await run_all(path, client, [write, labelled, plain])
    assert {each.verdict for each in results} == {Verdict.REFUSED}
    out = tmp_path / "out.jsonl"
    assert await invsvc("report", path, "--failed", out) == 0
    assert [line["key"] for line in lines_of(out)] == ["row-1", "row-2", "row-3"]
    err = capsys.readouterr().err
    assert "row-1: the file lacks its reader" in err
    assert "and the headers of its call and its labels" in err
    assert "row-2: the file lacks its labels" in err
    assert "row-3" not in err
