"""The doctor, against services whose answers to its questions are known."""

from __future__ import annotations

import asyncio
import json
import time
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest

from invsvc_async import (
    ApiKey,
    Client,
    OAuthToken,
    PersonToken,
    ReadRetries,
    Timeouts,
    TokenProvider,
)
from invsvc_async.cli.app import run
from invsvc_async.cli.commands.doctor import _settings
from invsvc_async.client import options_of
from invsvc_async.doctor import Checkup, checkup, examine
from invsvc_async.doctor.parameter_names import ReadResult, find_names
from invsvc_async.reconcile.server_clock import ServerClock
from invsvc_async.simulator import Simulator
from invsvc_async.testing import quick_client, serving
from tests.support.waiting import cancel

pytestmark = pytest.mark.one_python

OTHERS = {
    "limit": "page_size", "cursor": "starting_after", "order_by": "sort_by", "order": "direction",
    "created_after": "from", "created_before": "to", "client_id": "clientId", "client_tax_id": "rfc",
    "page": "page_number",
}  # fmt: skip


# a busy machine is no finding
PATIENT = Timeouts(attempt=30.0, connect=30.0, call=60.0)


async def examined(service, *, journey=None, **settings):
    async with quick_client(service, **{"timeout": PATIENT, **settings}) as client:
        return await examine(client, journey=journey)


async def examined_with(names):
    """Examine a service whose parameters have these names."""
    async with Simulator(names=names) as service:
        return await examined(service)


def answer(found, question):
    return next(each for each in found.findings if each.question == question)


@pytest.mark.parametrize("names", [{}, OTHERS], ids=["assumed", "others"])
async def test_names_that_the_service_honours(names):
    """Each parameter is found under the name that the service has for it, whichever of the known that is."""
    found = await examined_with(names)

    assert {each.role: each.name for each in found.names} == {
        **{role: role for role in OTHERS},
        "cursor": "next",
        **names,
    }
    assert all(each.certain for each in found.names)


BRACKETS = {
    "created_after": "created[gte]",
    "created_before": "created[lte]",
    "order_by": "sort",
}


async def test_names_with_brackets(tmp_path, monkeypatch, capsys):
    """README's first list, with the file that is printed, has what the service's own filter gives."""
    monkeypatch.chdir(tmp_path)
    async with Simulator(names=BRACKETS) as service:
        monkeypatch.setenv("INVSVC_BASE_URL", service.base_url)
        monkeypatch.setenv("INVSVC_API_KEY", service.api_key)
        assert await asyncio.to_thread(run, ["doctor", "--write", "default"]) == 0
        printed = capsys.readouterr().out.partition("# invsvc.toml\n")[2]
        async with Client.from_env() as client:
            everything = [each async for each in client.invoices.egress(status="valid")]
            since = sorted(each.created_at for each in everything)[len(everything) // 2]
            found = [
                each
                async for each in client.invoices.egress(
                    status="valid", created_after=since
                )
            ]

    assert (tmp_path / "invsvc.toml").read_text() == printed
    assert tomllib.loads(printed)["profiles"]["default"]["names"] == BRACKETS
    assert 0 < len(found) < len(everything)
    assert {each.uuid for each in found} == {
        each.uuid for each in everything if each.created_at >= since
    }


async def test_names_that_nobody_knows_are_not_disabled(tmp_path, monkeypatch, capsys):
    """Nothing is advised for them but to look their names up: a filter is not switched off unasked."""
    monkeypatch.chdir(tmp_path)
    async with Simulator(names=dict.fromkeys(OTHERS, "strange")) as service:
        monkeypatch.setenv("INVSVC_BASE_URL", service.base_url)
        monkeypatch.setenv("INVSVC_API_KEY", service.api_key)
        assert await asyncio.to_thread(run, ["doctor", "--write", "default"]) == 0

    assert (
        "names"
        not in tomllib.loads((tmp_path / "invsvc.toml").read_text())["profiles"][
            "default"
        ]
    )
    assert (
        "created_after\t!!\tnone of created_after, created[gte],"
        in capsys.readouterr().out
    )


@pytest.mark.parametrize("reaction", ["empty", "refused"])
async def test_name_that_does_not_filter(reaction):
    """A parameter that empties the list whatever its value, or only refuses an invalid one, is not advised."""

    async def ask(query):
        rows = [{"uuid": number} for number in range(3)]
        if "from" in query and reaction == "empty":  # the sender, for example
            rows.clear()
        refused = reaction == "refused" and not query.get("from", "0").isdecimal()
        return ReadResult(status=400 if refused else 200, items=rows)

    (told,) = await find_names(ask, {"created_after": ("created_after", "from")})

    assert (told.name if told.certain else None) is None


async def test_names_that_nobody_knows():
    """A parameter whose name is none of the known ones is said to be honoured under none, not guessed."""
    found = await examined_with(dict.fromkeys(OTHERS, "strange"))

    told = {each.role: each.name for each in found.names}
    assert (told["limit"], told["order"], told["created_after"]) == (None, None, None)


@pytest.mark.parametrize(
    "names",
    [{}, {"dbtable_limit": "pageSize", "dbtable_state": "status"}],
    ids=["assumed", "others"],
)
async def test_names_of_the_table_database_listing(names):
    """With a person's token, which may read that listing, its parameters are found as well."""
    async with Simulator(names=names) as service:
        found = await examined(service, credential=PersonToken(service.person_token))

    told = {each.role: each.name for each in found.names}
    assert (told["dbtable_limit"], told["dbtable_state"]) == tuple(
        names.values() or ("limit", "state")
    )


async def test_table_database_listing_that_cannot_be_read(service):
    """With an API key its parameters are not asked for, and that is said."""
    found = await examined(service)

    assert answer(found, "parameters of the table-database listing").good is None
    assert not any(each.role.startswith("dbtable") for each in found.names)


def asking(*, records=3, refuses_unknown=False):
    """Run a service that knows `limit`, `order` and `created_after`, checks no value, and has *records*."""
    known = {"limit", "order", "created_after"}

    async def ask(query):
        if refuses_unknown and set(query) - known:
            return ReadResult(status=400)
        rows = [{"uuid": number} for number in range(records)]
        if query.get("order") == "desc":
            rows.reverse()
        if query.get("created_after") == "4102444800000":
            rows.clear()
        size = query.get("limit", "")
        return ReadResult(
            status=200,
            items=rows[: int(size) if size.isdecimal() and int(size) else 10],
        )

    return ask


async def test_service_that_checks_no_value():
    """Where no senseless value is refused, the effect of a name shows it, or shows that it has none."""
    told = {each.role: each for each in await find_names(asking())}

    assert {role: each.name for role, each in told.items() if each.certain} == {
        "limit": "limit", "order": "order", "created_after": "created_after", "created_before": None,
        "client_id": None, "client_tax_id": None,
    }  # fmt: skip


async def test_service_with_one_record():
    """One record cannot show a size or an order: both are not told, rather than not honoured."""
    told = {each.role: each for each in await find_names(asking(records=1))}

    assert [(told[role].name, told[role].certain) for role in ("limit", "order")] == [
        (None, False)
    ] * 2
    assert told["created_after"].name == "created_after"


async def test_service_that_refuses_unknown_parameters():
    """There a refusal proves nothing of a name, and acceptance proves it."""
    told = {each.role: each for each in await find_names(asking(refuses_unknown=True))}

    assert (told["limit"].name, told["order"].name) == ("limit", "order")
    assert (told["client_id"].name, told["client_id"].certain) == (None, True)


@pytest.mark.parametrize("refuses_unknown", [True, False])
@pytest.mark.parametrize(
    "failing",
    [{"order": "asc"}, {"order": "desc"}, {"sort": "name"}, {"sort": "timestamp"}],
)
async def test_service_that_fails_meanwhile(failing, refuses_unknown):
    """A failed read shows neither that a name is honoured nor that it is not."""
    plain = asking(refuses_unknown=refuses_unknown)

    async def ask(query):
        fails = failing.items() <= query.items() or (
            refuses_unknown and {*failing} & {*query}
        )
        return ReadResult(status=None) if fails else await plain(query)

    (name,) = failing
    role = "order" if name == "order" else "order_by"
    (told,) = await find_names(ask, {role: (name,)})

    assert (told.name, told.certain) == (None, False)


async def test_service_without_invoices(service):
    """Without a record an effect cannot show: what is not refused is "not told", never "not honoured"."""
    team = service.seed_team()["id"]
    key = service.issue_key(team=team)
    found = await examined(service, credential=ApiKey(key))

    told = {each.role: each for each in found.names}
    assert told["limit"].name == "limit"  # a senseless value is refused
    assert (told["client_id"].name, told["client_id"].certain) == (None, False)


async def test_reads_alone(service):
    """The doctor writes nothing."""
    await examined(service)

    assert service.ledger.entries == []
    assert len(service.ledger.reads) < 60


@pytest.mark.parametrize(
    ("kind", "word"),
    [(OAuthToken, "an OAuth access token"), (PersonToken, "a person's token")],
)
async def test_kind_of_credential(kind, word, service):
    """A credential given as what it is passes, and its kind is told without its text."""
    token = service.oauth_token if kind is OAuthToken else service.person_token
    found = await examined(service, credential=kind(token))

    told = answer(found, "kind of credential")
    assert (told.good, word in told.answer, token in str(found)) == (True, True, False)


async def test_token_given_as_another_kind(service):
    """A person's token given as an API key is found out by what it may read."""
    found = await examined(service, credential=ApiKey(service.person_token))

    told = answer(found, "kind of credential")
    assert (told.good, "INVSVC_PERSON_TOKEN" in told.answer) == (False, True)


async def test_token_that_cannot_be_fetched(service):
    """The error is a finding, as those of reads are."""

    async def fail():
        raise RuntimeError

    found = await examined(service, credential=TokenProvider(fail, kind="api_key"))

    assert (found.usable, answer(found, "kind of credential").good) == (False, None)


@pytest.mark.loop_time
async def test_token_that_does_not_come(service):
    """A source that hangs is a finding, too: the checkup ends."""
    short = Timeouts(attempt=3.0, connect=3.0, call=3.0)
    hanging = TokenProvider(lambda: asyncio.Event().wait(), kind="api_key")
    found = await asyncio.wait_for(
        examined(service, credential=hanging, timeout=short), 30
    )

    assert (found.usable, answer(found, "kind of credential").good) == (False, None)


async def test_refused_credential(service):
    """A revoked key is named as refused, and no list is asked for names."""
    service.revoke(service.api_key)
    found = await examined(service)

    assert (found.usable, found.names) == (False, [])
    assert answer(found, "the credential is accepted").answer.startswith(
        ("HTTP 401", "HTTP 403")
    )


async def test_nobody_there():
    """Where nothing answers, that is the one finding."""
    async with Simulator() as service:
        url = service.base_url
    async with Client(url, OAuthToken("x")) as client:
        found = await examine(client)

    assert [each.good for each in found.findings] == [False]


@pytest.mark.parametrize(("reads", "expected"), [("draft", True), ("off", False)])
async def test_journey_that_exists(reads, expected):
    """With the id of a journey, its read is told for certain."""
    async with Simulator(journey_reads=reads) as service:
        found = await examined(service, journey="jrn_1")

    assert found.journey_reads is expected


@pytest.mark.parametrize(
    ("step", "word"),
    [("403", "HTTP 403"), ("gateway 502", "HTTP 502"), ("reset", "lost")],
)
async def test_journey_whose_read_fails(step, word, service):
    """A failure does not show that the read is missing, so that the settings do not disable it."""
    service.script("journeys.get", *[step] * 50)
    found = await examined(service, journey="jrn_1", reads=ReadRetries(attempts=1))

    told = answer(found, "GET /journeys/{id}")
    assert (found.journey_reads, told.good, word in told.answer) == (None, None, True)


async def test_journey_without_an_id(service):
    """Without one, a 404 unlike that of a path that is not there hints at the read, and is taken for no more."""
    found = await examined(service)

    assert found.journey_reads is None
    assert "probably exists" in answer(found, "GET /journeys/{id}").answer


async def test_clock_that_is_wrong(service):
    """A service an hour ahead is found to be an hour ahead."""
    service.clock.offset = 3600.0
    found = await examined(service)

    low, _, high, *_ = answer(found, "the service's clock").answer.split()
    slack = 0.1  # s by which the machine may set its clock meanwhile
    assert float(low) - slack <= 3600.0 <= float(high) + slack


async def test_time_that_passes_while_clocks_are_compared(service, monkeypatch):
    """It is no difference between them."""
    passed, bounds = [0.0], ServerClock.bounds

    def late(*given):
        passed[0] += 100.0
        return bounds(*given)

    later = SimpleNamespace(time=lambda: time.time() + passed[0])
    # reaches: what takes a moment between two looks at a clock
    monkeypatch.setattr(ServerClock, "bounds", late)
    # reaches: the clock that is looked at
    monkeypatch.setattr(checkup, "time", later)
    found = await examined(service)
    low, *_ = answer(found, "the service's clock").answer.split()
    assert -50.0 < float(low) + passed[0] - 100.0 < 50.0


@pytest.fixture
def settings(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("OAUTH_TOKEN", "PERSON_TOKEN", "TEAM", "PROFILE", "BASE_URL"):
        monkeypatch.delenv(f"INVSVC_{name}", raising=False)
    with serving(names=OTHERS, journey_reads="off") as service:
        monkeypatch.setenv("INVSVC_API_KEY", service.api_key)
        monkeypatch.setenv("INVSVC_BASE_URL", service.base_url)
        yield tmp_path, service


async def test_file_that_is_written(settings, monkeypatch):
    """The file that is written makes a client that walks the list by this service's names."""
    here, _ = settings
    code = await asyncio.to_thread(
        run, ["doctor", "--journey", "jrn_1", "--write", "default"]
    )
    monkeypatch.delenv("INVSVC_BASE_URL")
    async with Client.from_env(profile="default") as client:
        items = await client.invoices.egress(limit=5).collect()

    assert code == 0
    assert len({item.uuid for item in items}) == 12
    assert tomllib.loads((here / "invsvc.toml").read_text())["profiles"]["default"][
        "reconcile"
    ] == {"journey_reader": ""}


def test_table_and_json(settings, capsys):
    """
    Off a terminal the answers are lines with tabs; --json prints them as one object; neither contains a
    token.
    """
    _, service = settings
    assert run(["doctor"]) == 0
    told = capsys.readouterr().out
    assert run(["doctor", "--json"]) == 0
    plain = capsys.readouterr().out

    assert "parameter: limit\tok\tpage_size" in told
    assert "ParameterNames(limit='page_size'" in told
    assert json.loads(plain)["usable"] is True
    assert service.api_key not in told + plain


def test_exit_code_of_a_refusal(settings, capsys):
    """A deployment that refuses the credential makes the exit code 1."""
    _, service = settings
    service.revoke(service.api_key)

    assert run(["doctor"]) == 1
    capsys.readouterr()
    assert run(["doctor", "--write", "default"]) == 1
    assert "the credential is accepted\t!!\tHTTP 40" in capsys.readouterr().out
    assert not Path("invsvc.toml").exists()


async def test_names_of_a_list_that_cannot_be_read():
    """Of none can anything be told, and each says why."""

    async def refused(_query):
        return ReadResult(status=403, error="insufficient_permissions")

    told = await find_names(refused)
    assert {each.role for each in told} == set(OTHERS)
    assert {(each.name, each.certain, each.why) for each in told} == {
        (None, False, "the list answered 403: insufficient_permissions")
    }


async def test_address_of_something_else(service):
    """What answers the probe with an error is told, and the speed that nothing showed is left open."""
    for operation in (
        "webhooks.health",
        "invoices.egress",
        "journeys.get",
        "teams.dbtable_webhooks",
    ):
        service.script(operation, *["gateway 404"] * 9)
    found = await examined(service)

    assert answer(found, "the base URL answers").good is None
    assert "HTTP 404" in answer(found, "the base URL answers").answer
    assert answer(found, "speed of a read").answer == "no read succeeded"
    assert "aiohttp" in answer(found, "requests are sent").answer
    assert not found.usable


@pytest.mark.parametrize(
    ("url", "allowed"),
    [
        ("http://127.0.0.1:1/v2", False),
        ("http://staging.example/v2", True),
        ("https://live.example/v2", False),
    ],
)
def test_profile_of_a_plain_address(url, allowed):
    """What the profile had to allow stands in the one that is printed."""
    found = Checkup(findings=[], names=[], journey_reads=None, reads=0)
    client = Client(url, OAuthToken("x"), allow_insecure_http=True)

    assert _settings(found, options_of(client), "team_7") == {
        "base_url": url, "team": "team_7", "names": {}, "reconcile": {},
        **({"allow_insecure_http": True} if allowed else {}),
    }  # fmt: skip


async def test_profile_whose_names_are_wrong(settings, capsys):
    """It gets those that work, the assumed ones among them; all else in the file stays."""
    here, service = settings
    names = "".join(
        f'{role} = "{name}"\n' for role, name in {**OTHERS, "limit": "size"}.items()
    )
    before = f"""# of the team
[profiles.live]  # the deployment
base_url = "{service.base_url}"

[profiles.live.names]
{names}page = ""   # not used
""".replace('page = "page_number"\n', "")
    (here / "invsvc.toml").write_text(before)
    assert (
        await asyncio.to_thread(run, ["doctor", "--profile", "live", "--write", "live"])
        == 0
    )

    after = before.replace('"size"', '"page_size"').replace(
        'page = ""  ', 'page = "page_number"  '
    )
    assert (here / "invsvc.toml").read_text() == after
    assert "profile 'live' has these settings" in capsys.readouterr().err
    service._state.names["limit"] = "limit"  # the deployment changes
    assert (
        await asyncio.to_thread(run, ["doctor", "--profile", "live", "--write", "live"])
        == 0
    )
    assert (here / "invsvc.toml").read_text() == after.replace('"page_size"', '"limit"')


def test_profile_of_another_deployment(settings, capsys):
    """It is not changed, and the error says so."""
    here, _ = settings
    text = '[profiles.live]\nbase_url = "https://live.example/v2"\n'
    (here / "invsvc.toml").write_text(text)

    assert run(["doctor", "--write", "live"]) != 0
    assert (
        "profile 'live': is of https://live.example/v2. Choose another name."
        in capsys.readouterr().err
    )
    assert (here / "invsvc.toml").read_text() == text


async def test_checks_that_begin(service):
    """Each is told once, before its reads are answered, so a user sees what a slow service is asked."""
    told = []
    service.script("webhooks.health", "hang")
    async with quick_client(service, timeout=PATIENT) as client:
        checking = asyncio.create_task(examine(client, on_check=told.append))
        await service.arrived("webhooks.health")
        assert told == ["does the base URL answer"]
        await cancel(checking)
        found = await examine(client, on_check=told.append)

    questions = [each.question for each in found.findings]
    assert told[2:4] == ["is the credential accepted", "kind of credential"]
    assert told[4:-1] == [f"parameter: {each.role}" for each in found.names]
    assert told[-1] == "GET /journeys/{id}"
    assert told[-1] in questions


async def test_command_that_tells_of_each_check(service, monkeypatch, capsys):
    """On stderr, so that stdout has the answers alone; with JSON, nothing."""
    monkeypatch.setenv("INVSVC_BASE_URL", service.base_url)
    monkeypatch.setenv("INVSVC_API_KEY", service.api_key)

    assert await asyncio.to_thread(run, ["doctor"]) == 0
    told = capsys.readouterr()
    assert await asyncio.to_thread(run, ["doctor", "--json"]) == 0

    assert told.err.startswith("checking: does the base URL answer\n")
    assert told.err.count("checking: ") == 13
    assert "checking: " not in told.out
    assert capsys.readouterr().err == ""
