"""``replace-lost``, and the commands that reports print: each can be run as it is printed."""

from __future__ import annotations

import json
import re
import shlex

import pytest

from invsvc_async import Batch, Outbox, SecretLostError
from invsvc_async.batch.entries import name_of
from invsvc_async.cli.app import run
from invsvc_async.cli.store_options import JOURNAL
from tests.batch.conftest import client_of
from tests.batch.writing import all_of
from tests.cli.test_stores import KIND, KINDS, Stored, empty, invsvc  # noqa: F401 - pytest finds them by name
from tests.outbox.conftest import enqueue, finished, verdict_of
from tests.resources.replacing import POLICY
from tests.resources.test_lost_secrets import HOOK, LOST, Kept, living

pytestmark = pytest.mark.one_python
_TAG = re.compile(r"<[^<>]*>")  # of HTML


def ignore(_key, _webhook):
    """Be an ``on_secret`` of a create whose secret is lost."""


async def lose(service, stored, key="row-1"):
    """Create a webhook in *stored* whose secret is lost; return its id."""
    service.script("webhooks.create", LOST)
    settings = {"on_secret": ignore, "reconcile": POLICY}
    if stored.kind == "journal":
        settings["journal"] = stored.place
    async with client_of(service, **settings) as client:
        write = client.webhooks.create(**HOOK).keyed(key)
        if stored.kind == "batch":
            async with Batch.open(stored.place, client, on_secret=ignore) as batch:
                await all_of(batch, [write])
        elif stored.kind == "outbox":
            async with Outbox.open(stored.place, client, on_secret=ignore) as outbox:
                await finished(outbox, write)
        else:
            with pytest.raises(SecretLostError):
                await write
    [made] = living(service)
    return made


def secrets_in(path):
    """Return the lines of a file of secrets, by their keys."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return {each["key"]: (each["id"], each["secret"]) for each in lines}


async def replaced(invsvc, stored, *words):  # noqa: F811 - the fixture
    """Run the command, with a journal where it needs one; return the exit code and what it printed as JSON."""
    journal = () if stored.kind == "journal" else ("--journal", "calls.db")
    command = (
        stored.kind,
        "replace-lost",
        stored.place,
        "--secrets-to",
        "secrets.jsonl",
    )
    code, out, err = await invsvc(*command, *journal, *words, "--json")
    return code, json.loads(out) if out else err


@pytest.mark.parametrize("words", [("row-1",), ("--all",)])
async def test_replace_lost(service, empty, invsvc, tmp_path, words):  # noqa: F811 - the fixtures
    """One webhook is left, whose secret is in the file; what is shown says so, and to repeat it sends nothing."""
    old = await lose(service, empty)
    code, told = await replaced(invsvc, empty, *words)
    [new] = living(service)
    assert (code, told) == (
        0,
        {
            "replaced": [{"key": "row-1", "webhook": old, "replaced_by": new}],
            "kept": [],
        },
    )
    assert secrets_in(tmp_path / "secrets.jsonl") == {
        "row-1": (new, service.secret_of(new))
    }
    sent = len(service.ledger.entries)
    assert (await replaced(invsvc, empty, "row-1"))[1] == told
    assert (await replaced(invsvc, empty, "--all")) == (0, {"replaced": [], "kept": []})
    assert len(service.ledger.entries) == sent

    _, out, _ = await invsvc(empty.kind, "show", empty.place, "row-1", "--json")
    shown = json.loads(out)
    assert (shown["verdict"], shown["secret"], shown["replaced_by"]) == (
        "applied",
        "lost",
        new,
    )
    _, out, _ = await invsvc(
        empty.kind, "report", empty.place, "--json", "--html", "page.html"
    )
    report = json.loads(out)
    assert (report["secrets_lost"], report["lost_secrets"]) == (0, [])
    assert report["replaced_secrets"] == [
        {"key": "row-1", "webhook": old, "replaced_by": new}
    ]
    _, out, _ = await invsvc(empty.kind, "report", empty.place)
    page = (tmp_path / "page.html").read_text()
    for text in (out, page):
        assert f"{old}, now {new}" in text
        assert "replace-lost" not in text


@pytest.mark.parametrize("form", ["file", "database"])
async def test_secret_that_was_lost_again(service, invsvc, tmp_path, form):  # noqa: F811 - the fixture
    """Webhooks that were made and deleted meanwhile are no more losses: the command of the report replaces all."""
    stored = Stored("journal", form, tmp_path, f"lost again {form}")
    old = await lose(service, stored)
    service.script("webhooks.create", LOST, LOST, LOST)
    settings = {"on_secret": ignore, "reconcile": POLICY, "journal": stored.place}
    async with client_of(service, **settings) as client:
        with pytest.raises(SecretLostError):
            await client.webhooks.replace_lost(await client.outcome_of("row-1"))
    _, out, _ = await invsvc("journal", "report", stored.place, "--json")
    report = json.loads(out)
    assert report["secrets_lost"] == 1
    assert [each["key"] for each in report["lost_secrets"]] == ["row-1"]

    words = ("row-1", f"row-1, instead of {old}")
    code, told = await replaced(invsvc, stored, *words)
    [new] = living(service)
    assert (code, told["kept"], len(told["replaced"])) == (0, [], 1)
    assert told["replaced"][0]["replaced_by"] == new
    _, out, _ = await invsvc("journal", "report", stored.place, "--json")
    report = json.loads(out)
    assert report["secrets_lost"] == 0
    assert [each["key"] for each in report["replaced_secrets"]] == ["row-1"]


async def test_report_before_it_is_replaced(service, empty, invsvc, tmp_path):  # noqa: F811 - the fixtures
    """It gives the command, which is safe to follow, and names both places where the secret may be."""
    old = await lose(service, empty)
    _, out, _ = await invsvc(empty.kind, "report", empty.place, "--html", "page.html")
    _, out, _ = await invsvc(empty.kind, "report", empty.place)
    for text in (out, (tmp_path / "page.html").read_text()):
        told = " ".join(_TAG.sub("", text).split())
        assert old in told
        assert "on_secret or the file of --secrets-to has had it" in told
        assert f"invsvc {empty.kind} replace-lost " in told


async def test_what_is_not_replaced(service, empty, invsvc):  # noqa: F811 - the fixtures
    """Nothing is sent for what is not there, was changed, or has its secret; the exit code says so."""
    old = await lose(service, empty)
    async with client_of(service) as client:
        await client.webhooks.update(old, status="inactive")
    sent = len(service.ledger.entries)
    code, told = await replaced(invsvc, empty, "row-1", "none")
    assert (code, told) == (1, {"replaced": [], "kept": ["row-1", "none"]})
    assert len(service.ledger.entries) == sent


@pytest.mark.parametrize("kind", KINDS)
async def test_misuse(service, invsvc, tmp_path, kind):  # noqa: F811 - the fixture
    """Without a journal that is the same each time there may be two webhooks; both or no choice is none."""
    stored = Stored(kind, "file", tmp_path, kind)
    await lose(service, stored)
    command = (kind, "replace-lost", stored.place, "--secrets-to", "s.jsonl")
    assert (await invsvc(*command))[0] == 2
    assert (await invsvc(*command, "row-1", "--all"))[0] == 2
    if KIND[kind] is not JOURNAL:
        code, _, err = await invsvc(*command, "row-1")
        assert (code, "--journal" in err) == (2, True)
        assert (await invsvc(*command, "row-1", "--journal", "ADDRESS"))[0] == 2


async def test_outbox_tells_what_stands_in_its_place(service, tmp_path):
    """The verdict and the value stay those of the create; the message and the next result name the other one."""
    kept = Kept()
    service.script("webhooks.create", LOST)
    settings = {
        "journal": tmp_path / "calls.db",
        "reconcile": POLICY,
        "on_secret": kept,
    }
    async with (
        client_of(service, **settings) as client,
        Outbox.open(tmp_path / "app.db", client, on_secret=kept) as outbox,
    ):
        [key] = await enqueue(outbox, client.webhooks.create(**HOOK).keyed("row-1"))
        async with outbox.dispatching():
            first = await verdict_of(outbox, key)
        hook = await client.webhooks.replace_lost(first)
        later = await outbox.wait(key)
        results = outbox.results()
        result = await anext(results)
        await results.aclose()
        again = await client.webhooks.replace_lost(result)

    assert (later.verdict, later.value.id, later.secret) == (
        first.verdict,
        first.value.id,
        "lost",
    )
    assert hook.id in later.message
    assert (result.replaced_by, again.id) == (hook.id, hook.id)
    assert living(service) == [hook.id]


# --- every command that is printed


# what a person puts in the place of the words in capitals; what names nothing leaves the store as it is
FILLED = {
    "KEY": "none",
    "ID": "wh_none",
    "TEXT": "looked",
    "FILE": "out.file",
    "ADDRESS": "calls.db",
}


def commands_in(text):
    """Return the commands in what was printed, as lists of words with the placeholders filled in."""
    found = re.findall(r"(?:\$ |`|<pre>|: )(invsvc [^`<\n]*)", text)
    without_ends = [
        re.sub(r" (has|lists) them all.*", "", each).rstrip(".") for each in found
    ]
    return [
        [FILLED.get(word, word) for word in shlex.split(each)] for each in without_ends
    ]


async def test_every_command_of_a_report(service, empty, invsvc, tmp_path):  # noqa: F811 - the fixtures
    """Those of the terminal, JSON and the page are run as they are printed; none is misused."""
    service.script("webhooks.update", "403", "404", "pass")
    service.script("sheets.save_mapping", "reset")
    await lose(service, empty)
    async with empty.client_of(service) as client:
        hook = service.seed_webhook().id
        writes = [
            client.webhooks.update(hook, description="x").keyed(f"a {number}")
            for number in range(2)
        ]
        unknown = client.sheets.save_mapping({"a": "b"}).keyed("-unknown")
        await empty.write(client, *writes, unknown)
    _, out, _ = await invsvc(empty.kind, "report", empty.place, "--html", "page.html")
    _, out, _ = await invsvc(empty.kind, "report", empty.place)
    _, told, _ = await invsvc(empty.kind, "report", empty.place, "--json")
    printed = {tuple(each) for each in commands_in(out)}
    groups = [
        each["command"] for each in json.loads(told)["not_applied"] if each["command"]
    ]
    assert printed >= {
        tuple(each) for text in groups for each in commands_in(f"$ {text}")
    }
    names = {words[2] for words in printed}
    assert names >= {"resolve", "replace-lost"}
    for words in sorted(printed):
        assert words[3] == name_of(empty.place)
        code, _, err = await invsvc(*words[1:])
        assert code != 2, (words, err)


@pytest.mark.parametrize(
    "place", ["-a file.db", "postgresql://ann@db/x?sslmode=require"]
)
def test_place_in_a_command(place):
    """A path is no option, and an address keeps its user."""
    from invsvc_async.batch.reports.not_applied import where_of

    [shown] = shlex.split(where_of(name_of(place.replace("ann@", "ann:hunter2@"))))
    assert shown.removeprefix("./") == place


def test_placeholders_do_nothing(capsys, tmp_path):
    """A command that is copied before it is filled in stores no finding."""
    words = ("batch", "resolve", str(tmp_path / "run.db"), "k")
    assert run([*words, "--applied", "ID", "--because", "looked"]) == 2
    assert run([*words, "--applied", "wh_1", "--because", "TEXT"]) == 2
    assert "placeholder" in capsys.readouterr().err
