"""
Each option of each command changes what is asked of the service, what a store has, or what is printed.

The options are read from the application, so that one without a case here fails the test.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
import time
import urllib.error
import urllib.request
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pyarrow.parquet
import pytest
import typer.main

from invsvc_async import ApiKey, events
from invsvc_async.api.operations import BY_NAME, OperationKind
from invsvc_async.cli.app import COMMANDS, app, run
from invsvc_async.conformance import workload
from invsvc_async.events.stores import open_store
from invsvc_async.outbox import Outbox
from invsvc_async.simulator.validate import EVENTS
from invsvc_async.testing import serving
from tests.batch.conftest import client_of
from tests.batch.test_restored import copied, restore
from tests.batch.writing import run_all
from tests.cli.every_option import Case, Ran, Receiver, World, lines
from tests.cli.test_events import fill
from tests.durable.stores import go_to_another_timeline
from tests.events.bodies import SECRET, SHARED, encoded, signature, signed_body, v2
from tests.outbox.conftest import enqueue, finished, outbox_at
from tests.reconcile.test_receipt import OURS, THEIR_PUBLIC
from tests.support.database import database
from tests.support.inside import store_beneath
from tests.support.waiting import block_until, cancel, until

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [pytest.mark.one_python, pytest.mark.no_secret_scan]

LONG = 120.0  # s that nothing here takes
MOMENT = 3.0  # s in which what is not expected would come

OWN_OF_TYPER = {"--install-completion", "--show-completion", "--help"}


@pytest.fixture
def service():
    with serving(seed=7) as running:
        yield running


@pytest.fixture(scope="module")
def receiver():
    made = Receiver()
    yield made
    made.close()


@pytest.fixture
def world(service, receiver, tmp_path, monkeypatch):
    service.scripts.clear()
    receiver.statuses.clear()
    return World(service, receiver, tmp_path, monkeypatch)


# --- what shows


def is_json(ran: Ran) -> bool:
    """Return whether what was printed is JSON: a value, or one a line."""
    try:
        json.loads(ran.out)
    except ValueError:
        try:
            return bool([json.loads(line) for line in ran.out.splitlines()])
        except ValueError:
            return False
    return True


def prints(*texts: str):
    return lambda ran: all(text in ran.out + ran.err for text in texts)


def ends(code: int):
    return lambda ran: ran.code == code


def writes_file(name: str, text: str = ""):
    return lambda ran: (ran.folder / name).exists() and text in ran.text(name)


def of_other_team(ran: Ran) -> bool:
    return "team_2" in {(each.query or {}).get("team") for each in ran.asked}


def at_port(ran: Ran) -> bool:
    return f":{ran.values['port']}/" in ran.out + ran.err


def asks(operation: str):
    return lambda ran: any(each.operation == operation for each in ran.asked)


def counts(count: int, name: str):
    return lambda ran: f"{count} {name}" in ran.out


# --- cases that many commands have

JSON = {"--json": {"given": "--json", "shows": is_json}}
TEAM = {"--team": {"given": "--team team_2", "shows": of_other_team}}
PROFILE = {
    "--profile": {"given": "--profile nowhere", "shows": prints("profile 'nowhere'")}
}
CALLING = JSON | TEAM | PROFILE


def cases(line: str, *shared: dict[str, Any], **settings: Any):
    """Return a function that makes the cases of a command, whose options have *settings* of their own."""

    def made(**options: dict[str, Any]) -> dict[str, Case]:
        all_of: dict[str, dict[str, Any]] = {}
        for each in shared:
            all_of |= each
        all_of |= {
            f"--{name.rstrip('_').replace('_', '-')}": each
            for name, each in options.items()
        }
        return {
            name: Case(**{"line": line, **settings, **each})
            for name, each in all_of.items()
        }

    return made


def option(given: str, shows: Any, **settings: Any) -> dict[str, Any]:
    return {"given": given, "shows": shows, **settings}


# --- what is there before a command

HOOKS = [
    {
        "operation": "webhooks.create", "key": f"row-{number}",
        "arguments": {"url": f"https://me.example/{number}", "events": ["invoice.created"]},
    }
    for number in range(3)
]  # fmt: skip
RENAME = {
    "operation": "journeys.update",
    "key": "one",
    "arguments": {"journey": "jrn_1", "name": "of the file"},
}
UNKEYED = {name: value for name, value in RENAME.items() if name != "key"}
TABLE = "hook,url\n7,https://me.example/table\n"


def ask(
    world: World,
    address: str,
    key: str | None = None,
    body: bytes | None = None,
    **headers: str,
) -> tuple[int, str]:
    """Return the status and the text of an answer."""
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    given |= {} if key is None else {"Authorization": f"Bearer {key}"}
    try:
        request = urllib.request.Request(address, body, given)  # noqa: S310
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()


def facts_of(printed: str) -> dict[str, str]:
    """Return what ``serve`` has printed, in either form."""
    if printed.lstrip().startswith("{"):
        found: dict[str, str] = json.loads(printed)
        return found
    words = [line.split() for line in printed.splitlines()]
    return {each[0]: each[1] for each in words if len(each) == 2}


def asked_of(path: str):
    """Return what asks the service that ``serve`` runs for *path*."""

    def meanwhile(world: World, printed: str) -> tuple[int, str]:
        facts = facts_of(printed)
        return ask(world, facts["base_url"] + path, facts["api_key"])

    return meanwhile


def ledger_of(world: World, printed: str) -> tuple[int, str]:
    facts = facts_of(printed)
    return ask(
        world,
        f"{facts['base_url'].removesuffix('/v2')}/_simulator/ledger",
        facts["api_key"],
    )


def quickest(many: int):
    """Return what measures the seconds of *many* reads at once, and tells the least of some tries."""
    from concurrent.futures import ThreadPoolExecutor

    def meanwhile(world: World, printed: str) -> float:
        least = float("inf")
        with ThreadPoolExecutor(many) as pool:
            for _ in range(5):
                begun = time.monotonic()
                [
                    *pool.map(
                        lambda _: asked_of("/users/usr_1")(world, printed), range(many)
                    )
                ]
                least = min(least, time.monotonic() - begun)
        return least

    return meanwhile


def some_posts(many: int):
    def meanwhile(world: World, _: str) -> None:
        block_until(lambda: len(world.receiver.posts) >= many, within=LONG)

    return meanwhile


def shows_in_all(is_so):
    """Return whether something is so in all posts."""
    return lambda ran: (
        bool(ran.posts) and all(is_so(headers, body) for headers, body in ran.posts)
    )


def wait_or_none(is_there: Callable[[], object], *, is_expected: bool) -> None:
    """Wait as long as it takes for what is expected, and a moment for what is not."""
    within = LONG if is_expected else MOMENT
    with contextlib.suppress(TimeoutError):
        block_until(is_there, within=within)


def posts_or_none(world: World, _: str) -> None:
    """Wait until the receiver got something, or a moment if nothing is expected."""
    wait_or_none(lambda: world.receiver.posts, is_expected=world.is_with)


# the first invoice of the usual seed
FIRST_OF_7 = "D48FE6E4-E7C8-476E-97C3-D5A1C30CA075"
SERVE = "serve --deliver-to {url} --deliver-every 0.01"


def is_signed(headers: dict[str, str], body: bytes) -> bool:
    return headers.get("x-service-signature") in signature(body, SECRET).values()


SERVED = {
    **cases("serve", JSON)(
        port=option("--port {port}", at_port),
        host=option("--host 127.0.0.2", prints("http://127.0.0.2:")),
        seed=option("--seed 8", lambda ran: ran.seen[0] == 200 and FIRST_OF_7 not in ran.seen[1], meanwhile=asked_of("/invoices/egress?limit=1")),
        faults=option("--faults rate=1,reads=1,kinds=500", lambda ran: ran.seen[0] == 500, meanwhile=asked_of("/users/usr_1")),
        stores=option("--stores words=nfc", prints("nfc")),
        latency=option("--latency 0.3", lambda ran: ran.seen >= 0.3, meanwhile=quickest(1)),
        at_once=option("--at-once 1", lambda ran: ran.seen >= 0.6, line="serve --latency 0.3", meanwhile=quickest(2)),
        admin=option("--admin", lambda ran: ran.seen[0] == 200, meanwhile=ledger_of),
        inspect=option("--inspect", prints("inspect_url")),
        deliver_to=option("--deliver-to {url}", lambda ran: "/in" in ran.seen[1], meanwhile=asked_of("/webhooks")),
        deliver_every=option("--deliver-every 0.01", lambda ran: ran.posts, line="serve --deliver-to {url}", meanwhile=posts_or_none),
        deliver_version=option("--deliver-version v1", shows_in_all(lambda _, body: b'"event"' in body), line=SERVE, meanwhile=some_posts(5)),
        secret_file=option(
            # Not all: the service signs two of its events.
            "--secret-file secret.txt", lambda ran: any(is_signed(*each) for each in ran.posts),
            line=SERVE, files={"secret.txt": SECRET}, meanwhile=some_posts(40),
        ),
        shared_header_file=option(
            "--shared-header-file header.txt", shows_in_all(lambda head, _: head.get("x-key") == "v"),
            line=SERVE, files={"header.txt": "X-Key=v"}, meanwhile=some_posts(5),
        ),
        allow_insecure_http=option("--allow-insecure-http", ends(0), line="serve --deliver-to http://receiver.invalid/in"),
        openapi=option("--openapi", prints('"openapi": "3.1')),
    ),
}  # fmt: skip

SIGNED, RESOURCE = (
    encoded(signed_body("sat.invoice.synced")),
    encoded(v2("invoice.created")),
)


def delivered(body: bytes, headers: dict[str, str]):
    """Return what sends a delivery to ``listen``, and tells the status of the answer."""

    def meanwhile(world: World, printed: str) -> int:
        address = next(
            word for word in printed.split() if word.startswith("http")
        ).rstrip(";")
        request = urllib.request.Request(  # noqa: S310
            address, body, {"Content-Type": "application/json", **headers}
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
                return answer.status
        except urllib.error.HTTPError as refused:
            return refused.code

    return meanwhile


LISTEN = f"listen --port 0 --secret {SECRET}"
HEARD = {"line": LISTEN, "meanwhile": delivered(SIGNED, signature(SIGNED))}
RECORD = json.dumps({"body": SIGNED.decode(), "type": "sat.invoice.synced"}) + "\n"
LISTENED = cases(LISTEN)(
    port=option("--port {port}", at_port, line=f"listen --secret {SECRET}", instead="--port 0"),
    host=option("--host 127.0.0.2", prints("http://127.0.0.2:")),
    secret=option(f"--secret {SECRET}", lambda ran: ran.seen == 200, instead="--secret whsec_other", line="listen --port 0", meanwhile=HEARD["meanwhile"]),
    secret_file=option("--secret-file secrets.txt", lambda ran: ran.seen == 200, line="listen --port 0 --secret whsec_other", files={"secrets.txt": f"{SECRET}\n"}, meanwhile=HEARD["meanwhile"]),
    shared_header_file=option("--shared-header-file header.txt", lambda ran: ran.seen == 200, files={"header.txt": "=".join(SHARED)}, meanwhile=delivered(RESOURCE, dict([SHARED]))),
    shared_header=option(f"--shared-header {'='.join(SHARED)}", lambda ran: ran.seen == 200, meanwhile=delivered(RESOURCE, dict([SHARED]))),
    accept_unsigned=option("--accept-unsigned", lambda ran: ran.seen == 200, meanwhile=delivered(RESOURCE, {})),
    store=option("--store events.jsonl", writes_file("events.jsonl", "sat.invoice.synced"), **HEARD),
    forward=option("--forward {url}", lambda ran: [body for _, body in ran.posts] == [SIGNED], **HEARD),
    allow_insecure_http=option("--allow-insecure-http", ends(0), line=f"{LISTEN} --forward http://receiver.invalid/in"),
    replay=option("--replay events.jsonl", prints("sat.invoice.synced"), files={"events.jsonl": RECORD}),
    print_json=option("--print-json", is_json, **HEARD),
    json=option("--json", is_json, **HEARD),
)  # fmt: skip


def posted(test):
    return lambda ran: any(
        test(headers, json.loads(body)) for headers, body in ran.posts
    )


def type_of(body: dict[str, Any]) -> str:
    return str(body.get("type") or body.get("event"))


TRIGGER = "trigger invoice.created --to {url}"
TRIGGERED = cases(TRIGGER, JSON)(
    to=option("--to {url}", lambda ran: ran.posts, line="trigger invoice.created"),
    version=option("--version v1", posted(lambda _, body: body.get("event") == "invoice.created")),
    signed=option("--signed", posted(lambda headers, _: "x-service-signature" in headers), variables={"INVSVC_WEBHOOK_SECRET": SECRET}),
    set=option("--set data.object.total=5", posted(lambda _, body: body["data"]["object"].get("total") == 5)),
    test=option("--test", posted(lambda headers, _: headers.get("x-service-test") == "true")),
    count=option("--count 3", lambda ran: len({body for _, body in ran.posts}) == 3),
    duplicates=option("--duplicates 2", lambda ran: len(ran.posts) == 3 and len({body for _, body in ran.posts}) == 1),
    reorder=option(
        "--reorder", lambda ran: [type_of(json.loads(body)) for _, body in ran.posts] != [*EVENTS],
        line="trigger all --seed 3 --to {url}",
    ),
    retries=option("--retries --backoff 0", lambda ran: len(ran.posts) == 2, prepare=lambda world: world.receiver.statuses.append(500), instead="--backoff 0"),
    backoff=option(
        "--backoff 3", lambda ran: ran.seconds >= 2.9, instead="--backoff 0", line=f"{TRIGGER} --retries",
        prepare=lambda world: world.receiver.statuses.append(500),
    ),
    seed=option("--seed 5", lambda ran: len({json.loads(body)["id"] for _, body in ran.posts}) == 1, then=f"{TRIGGER} --seed 5"),
    secret_file=option(
        "--secret-file secret.txt", posted(lambda headers, _: "x-service-signature" in headers),
        line="trigger sat.invoice.synced --to {url}", files={"secret.txt": SECRET},
    ),
    shared_header_file=option("--shared-header-file header.txt", posted(lambda headers, _: headers.get("x-key") == "v"), files={"header.txt": "X-Key=v"}),
    allow_insecure_http=option("--allow-insecure-http", lambda ran: ran.posts, line="trigger invoice.created --to http://0.0.0.0:{receiver_port}{receiver_path}"),
)  # fmt: skip


# --- reads


def with_formula(world: World) -> None:
    world.service.seed_webhook(url="https://formula.example/", description="=1+1")


def with_token(world: World) -> None:
    ran = world.called("list invoices.egress limit=5 --json")
    world.values["token"] = ran.err.split("--resume ")[1].split()[0]
    world.values["first"] = ran.json[0]["uuid"]


READ = {
    "get": cases("get users usr_1", CALLING)(),
    "list": cases("list invoices.egress", CALLING)(
        all=option("--all", lambda ran: len(ran.out.splitlines()) == 13),
        columns=option("--columns uuid", lambda ran: ran.out.splitlines()[0] == "uuid"),
        wide=option("--wide", lambda ran: max(map(len, ran.out.splitlines())) > 60, answers="", variables={"COLUMNS": "50"}),
        jsonl=option("--jsonl", lambda ran: len([json.loads(line) for line in ran.out.splitlines() if line[0] == "{"]) == 10),
        csv=option("--csv", lambda ran: ran.out.splitlines()[0].startswith("uuid,")),
        escape_formulas=option("--escape-formulas", prints("'=1+1"), line="list webhooks limit=100 --csv", prepare=with_formula),
        resume=option("--resume {token}", lambda ran: ran.code == 0 and ran.values["first"] not in ran.out, line="list invoices.egress limit=5", prepare=with_token),
    ),
    "doctor": cases("doctor", CALLING)(
        journey=option("--journey jrn_1", lambda ran: any(each.path_id == "jrn_1" for each in ran.asked)),
        write=option("--write live", writes_file("invsvc.toml", "[profiles.live]")),
    ),
}  # fmt: skip
READ["list"]["--columns/--fields"] = READ["list"].pop("--columns")


def of_parquet(kind: str):
    return lambda ran: (
        str(pyarrow.parquet.read_schema(ran.folder / "x.parquet").field("total").type)
        == kind
    )


EXPORT = "export invoices -o x.csv"
FINISHED = {"x.csv": "uuid\n"}
READ["export"] = cases(EXPORT, CALLING)(
    format=option("--format csv", writes_file("x.txt", "uuid,"), line="export invoices -o x.txt", instead="--format jsonl"),
    output=option("--output y.csv", writes_file("y.csv"), line="export invoices --format csv"),
    resume=option("--resume", ends(0), files=FINISHED),
    overwrite=option("--overwrite", ends(0), files=FINISHED),
    precision=option("--precision 25", of_parquet("decimal128(25, 12)"), line="export invoices -o x.parquet"),
    scale=option("--scale 14", of_parquet("decimal128(38, 14)"), line="export invoices -o x.parquet"),
    escape_formulas=option("--escape-formulas", writes_file("x.csv", "'=1+1"), prepare=lambda world: world.service.seed_invoice(status="=1+1")),
)  # fmt: skip
READ["export"]["--output/-o"] = READ["export"].pop("--output")


def with_rows(
    change: Any = lambda rows: rows, columns: str = "uuid,total", name: str = "mine.csv"
):
    """Return what writes the invoices of the service to a file of one's own rows."""

    def prepare(world: World) -> None:
        ran = world.called(f"list invoices.egress limit=100 --csv --columns {columns}")
        (world.folder / name).write_text(change(ran.out))

    return prepare


RECONCILE = "reconcile invoices mine.csv"


def renamed(old: str, new: str):
    return lambda rows: rows.replace(old, new, 1)


def without_offset(rows: str) -> str:
    return rows.replace("Z", "")


READ["reconcile"] = cases(RECONCILE, CALLING, prepare=with_rows())(
    key=option("--key folio", ends(0), prepare=with_rows(renamed("uuid", "folio"))),
    map=option("--map total=amount", prints("Compared: total, uuid"), prepare=with_rows(renamed("total", "amount"))),
    from_=option("--from 2020-01-01T00:00:00Z", lambda ran: any("created_after" in str(each.query) for each in ran.asked)),
    to=option("--to 2020-01-01T00:00:00Z", lambda ran: any("created_before" in str(each.query) for each in ran.asked)),
    zone=option("--zone America/Mexico_City", prints("different"), prepare=with_rows(without_offset, "uuid,created_at")),
    ignore_case=option("--ignore-case", ends(0), prepare=with_rows(str.lower)),
    format=option("--format csv", ends(0), line="reconcile invoices mine.txt", prepare=with_rows(name="mine.txt")),
    delimiter=option("--delimiter ;", ends(0), prepare=with_rows(lambda rows: rows.replace(",", ";"))),
    report=option("--report page.html", writes_file("page.html", "<html")),
)  # fmt: skip


def with_twins(minutes: float = 1, **fields: Any):
    """Return what makes two invoices that are alike, so many minutes apart."""

    def prepare(world: World) -> None:
        client = {"id": world.unique()}
        for created in (0, int(minutes * 60_000)):
            world.service.seed_invoice(
                client=client, items=[], total=1, status="valid", created_at=1_500_000_000_000 + created, **fields
            )  # fmt: skip

    return prepare


READ["audit"] = cases("audit invoices", CALLING, prepare=with_twins())(
    within=option("--within 90", prints("at most 90 min apart"), prepare=with_twins(80)),
    from_=option("--from 2020-01-01T00:00:00Z", lambda ran: any("created_after" in str(each.query) for each in ran.asked)),
    to=option("--to 2020-01-01T00:00:00Z", lambda ran: any("created_before" in str(each.query) for each in ran.asked)),
    report=option("--report page.html", writes_file("page.html", "<html")),
)  # fmt: skip


# --- single writes


def with_hook(world: World) -> None:
    world.values["hook"] = world.service.seed_webhook().id


def with_intent(write: Any, **settings: Any):
    """Return what stores the intent of a write that was cancelled in flight, and had no effect."""

    def prepare(world: World) -> None:
        async def made() -> str:
            service = world.service
            for each in ("webhooks.create", "journeys.update"):
                service.script(each, "hang")
            async with client_of(service, **settings_of(world, settings)) as client:
                before = len(service.ledger.entries)
                running = asyncio.create_task(write(client).outcome())
                await until(lambda: len(service.ledger.entries) != before)
                await cancel(running)
                [intent] = client.unsettled
            service.scripts.clear()
            return intent.to_json()

        (world.folder / "intent.json").write_text(asyncio.run(made()))

    return prepare


def settings_of(world: World, settings: dict[str, Any]) -> dict[str, Any]:
    return {name: value(world) for name, value in settings.items()}


def of_other_key(world: World) -> ApiKey:
    return ApiKey(world.service.issue_key())


def rename(client: Any) -> Any:
    return client.journeys.update("jrn_1", name="mine")


def hook(client: Any) -> Any:
    return client.webhooks.create(
        url="https://me.example/of-an-intent", events=["invoice.created"]
    )


def with_story(world: World) -> None:
    world.called(f"{WRITE} --story story.json")
    (world.folder / "ours.pem").write_bytes(OURS)
    (world.folder / "theirs.pub").write_bytes(THEIR_PUBLIC)


def with_receipt(world: World) -> None:
    with_story(world)
    world.called("explain story.json --receipt receipt.json --key ours.pem")


STORY = {
    "--story": option("--story story.json", writes_file("story.json", '"history"'))
}
REFUSED_TEAM = {
    "--team": option("--team team_2", lambda ran: ran.code == 2 and "team" in ran.err)
}
WRITE = "write journeys.update jrn_1 name=mine"
INTENT = {"prepare": with_intent(rename)}
WRITTEN = {
    "write": cases(WRITE, CALLING, STORY)(
        file=option("--file one.json", lambda ran: ran.writes[0].body == {"name": "of the file"}, line="write", instead="journeys.update jrn_1 name=mine", files={"one.json": lines(UNKEYED)}),
        secrets_to=option(
            "--secrets-to mine.jsonl", writes_file("mine.jsonl", "whsec_"),
            line="write webhooks.create url=https://me.example/in events=invoice.created",
        ),
        yes=option("--yes", asks("webhooks.delete"), line="write webhooks.delete {hook}", prepare=with_hook, answers="n\n"),
    ),
    "settle": cases("settle intent.json", JSON, PROFILE, STORY, REFUSED_TEAM, **INTENT)(
        same_mode=option("--same-mode", lambda ran: ran.asked, prepare=with_intent(rename, credential=of_other_key)),
    ),
    "resume": cases("resume intent.json", JSON, PROFILE, STORY, REFUSED_TEAM, **INTENT)(
        same_mode=option("--same-mode", ends(0), prepare=with_intent(rename, credential=of_other_key)),
        secrets_to=option("--secrets-to mine.jsonl", writes_file("mine.jsonl", "whsec_"), prepare=with_intent(hook)),
    ),
    "explain": cases("explain story.json", JSON, prepare=with_story)(
        receipt=option("--receipt receipt.json", writes_file("receipt.json", "invsvc receipt")),
        key=option(
            "--receipt receipt.json --key ours.pem", lambda ran: '"signature":null' not in ran.text("receipt.json"),
            instead="--receipt receipt.json",
        ),
    ),
    "verify": cases("verify receipt.json", JSON, prepare=with_receipt)(
        public_key=option("--public-key theirs.pub", prints("signed by another key")),
    ),
}  # fmt: skip
WRITTEN["write"]["--yes/-y"] = WRITTEN["write"].pop("--yes")


# --- batches and outboxes


def overlap(ran: Ran) -> int:
    """Return how many writes were under way at once at most."""
    sent = [each for each in ran.asked if each.operation == "webhooks.create"]
    return max(
        sum(one.received_at <= each.received_at < (one.ended_at or 0.0) for one in sent)
        for each in sent
    )


def shortest_gap(ran: Ran) -> float:
    times = sorted(
        each.received_at for each in ran.asked if each.operation == "webhooks.create"
    )
    assert len(times) == len(HOOKS)
    return min(later - earlier for earlier, later in pairwise(times))


def slow(world: World) -> None:
    world.service.script("webhooks.create", *["slow 0.5"] * 3)


def all_arrive(world: World, _: str) -> None:
    """Wait until the writes of the store were answered."""

    def is_over() -> bool:
        sent = [each for each in world.asked() if each.operation == "webhooks.create"]
        return len(sent) >= len(HOOKS) and all(each.ended_at for each in sent)

    block_until(is_over, within=LONG)


def arrive_or_not(world: World, _: str) -> None:
    """Wait until the service was asked for all, or a moment in the run in which it is not."""
    wait_or_none(lambda: len(world.asked()) >= len(HOOKS), is_expected=world.is_with)
    time.sleep(0.3)  # sleeps: in which one too many would arrive


def writes_of(client: Any, many: int = 3) -> list[Any]:
    return [client.write_from(json.dumps(each)) for each in HOOKS[:many]]


def in_journal(world: World, many: int = 3, **settings: Any) -> None:
    """Run the first writes of the batch, of whose journal a copy was made after the first one."""

    async def done() -> None:
        path = world.folder / "run.db"
        async with client_of(world.service, **settings_of(world, settings)) as client:
            await run_all(path, client, writes_of(client, 1), on_secret=print)
            world.values["copy"] = copied(path, world.folder / "backup")
            await run_all(path, client, writes_of(client, many), on_secret=print)

    asyncio.run(done())


def with_other_credential(world: World) -> None:
    in_journal(world, 1, credential=of_other_key)


def with_restored(world: World) -> None:
    in_journal(world)
    restore(world.values["copy"], world.folder / "run.db")


def with_moved(world: World) -> None:
    in_journal(world, 1)
    (world.folder / "run.db").unlink()
    for name in ("run.db-wal", "run.db-shm", "run.db.epoch"):
        (world.folder / name).unlink(missing_ok=True)
    restore(world.values["copy"], world.folder / "run.db")


def refusing(world: World) -> None:
    world.service.script("webhooks.create", "422", "422")


BATCH = "batch run writes.jsonl --journal run.db --no-secrets"
OF_TABLE = (
    "batch run rows.csv --journal run.db --no-secrets --operation webhooks.create"
)
FILES = {
    "writes.jsonl": lines(*HOOKS),
    "rows.csv": TABLE,
    "bad.jsonl": lines(*HOOKS) + "not json\n",
}
EVENTS_MAP = "--map url=url --map events:=events"
TABLE_FILES = {
    "rows.csv": 'id,url,name,events\n7,https://me.example/t,some␣name,"[""invoice.created""]"\n'.replace(
        "␣", " "
    )
}
RUN = cases(BATCH, CALLING, files=FILES | TABLE_FILES)(
    journal=option("--journal run.db", writes_file("run.db"), line="batch run writes.jsonl --no-secrets"),
    dry_run=option("--dry-run", lambda ran: ran.code == 0 and not ran.writes),
    skip_bad=option("--skip-bad", lambda ran: ran.writes, line="batch run bad.jsonl --journal run.db --no-secrets"),
    operation=option(f"--operation webhooks.create {EVENTS_MAP}", lambda ran: ran.writes, line="batch run rows.csv --journal run.db --no-secrets" ),
    map=option("--map description=name --map url=url --map events:=events", lambda ran: "some name" in ran.writes[0].body["description"], line=OF_TABLE, instead="--map url=url --map events:=events"),
    key=option("--key id", lambda ran: '"key": "7"' in ran.out or '"key":"7"' in ran.out, line=f"{OF_TABLE} {EVENTS_MAP} --dry-run"),
    rate=option("--rate 0.5", lambda ran: shortest_gap(ran) >= 1.0),
    per_team=option("--per-team 1", lambda ran: overlap(ran) == 1, prepare=slow),
    secrets_to=option("--secrets-to mine.jsonl", writes_file("mine.jsonl", "whsec_"), line=BATCH.removesuffix(" --no-secrets"), instead="--no-secrets"),
    no_secrets=option("--no-secrets", lambda ran: ran.writes, line=BATCH.removesuffix(" --no-secrets")),
    same_mode=option("--same-mode", ends(0), prepare=with_other_credential),
    restored=option("--restored", ends(0), prepare=with_restored),
    moved=option("--moved", ends(0), prepare=with_moved),
    concurrency=option("--concurrency 1", lambda ran: overlap(ran) == 1, prepare=slow),
    tag=option("--no-tag", lambda ran: not any(each.body.get("description") for each in ran.writes), instead="--tag"),
    stop_after=option("--stop-after 1", prints("stop_after"), prepare=refusing, line=f"{BATCH} --concurrency 1"),
)  # fmt: skip
RUN["--tag/--no-tag"] = RUN.pop("--tag")


def of_worker(*, elsewhere: bool = False, **settings: Any):
    """
    Return what puts the writes of the batch into a database, whose worker then finds them to do.

    If it is *elsewhere*, the server is not that of its tables, as after a restore.
    """

    def prepare(world: World) -> None:
        world.values["db"] = database().journal(f"every{world.unique()}", silence=60)

        async def stored() -> None:
            from invsvc_async.batch import Batch

            async with client_of(
                world.service, **settings_of(world, settings)
            ) as client:
                world.service.script("webhooks.create", *["403"] * 3)
                async with Batch.open(
                    world.values["db"], client, on_secret=print, concurrency=1
                ) as batch:
                    async for _ in batch.run(writes_of(client)):
                        pass
                    await batch.retry(verdict="refused")
                    if elsewhere:
                        await go_to_another_timeline(batch.entries.store)

        asyncio.run(stored())

    return prepare


def of_outbox(*, elsewhere: bool = False, **settings: Any):
    """Return what enqueues the writes of the batch in an outbox, as :func:`of_worker` does."""

    def prepare(world: World) -> None:
        world.values["db"] = outbox_at(f"every{world.unique()}", silence=60)

        async def stored() -> None:
            async with (
                client_of(world.service, **settings_of(world, settings)) as client,
                Outbox.open(world.values["db"], client) as outbox,
            ):
                if elsewhere:
                    await finished(
                        outbox, client.journeys.update("jrn_1", name="before")
                    )
                await enqueue(outbox, *writes_of(client))
                if elsewhere:
                    await go_to_another_timeline(store_beneath(outbox))

        asyncio.run(stored())

    return prepare


def then(*steps: Any):
    def prepare(world: World) -> None:
        for each in steps:
            each(world)

    return prepare


def of_senders(line: str, prepare: Any) -> dict[str, Case]:
    """Return the cases that ``batch worker`` and ``outbox work`` have in common."""
    bare = line.removesuffix(" --no-secrets")
    return cases(line, JSON, PROFILE, prepare=prepare(), meanwhile=all_arrive)(
        concurrency=option("--concurrency 1", lambda ran: overlap(ran) == 1, prepare=then(prepare(), slow)),
        rate=option("--rate 0.5", lambda ran: shortest_gap(ran) >= 1.0),
        per_team=option("--per-team 1", lambda ran: overlap(ran) == 1, prepare=then(prepare(), slow)),
        secrets_to=option("--secrets-to mine.jsonl", writes_file("mine.jsonl", "whsec_"), line=bare, instead="--no-secrets"),
        no_secrets=option("--no-secrets", lambda ran: ran.code == 0 and len(ran.writes) == 3, line=bare),
        same_mode=option("--same-mode", lambda ran: ran.writes, prepare=prepare(credential=of_other_key), meanwhile=arrive_or_not),
        restored=option("--restored", lambda ran: ran.asked, prepare=prepare(elsewhere=True), meanwhile=arrive_or_not),
        moved=option("--moved", lambda ran: ran.writes, prepare=prepare(elsewhere=True), meanwhile=arrive_or_not),
    )  # fmt: skip


SENT = {
    "batch run": RUN,
    "batch worker": of_senders("batch worker {db} --no-secrets", of_worker),
    "outbox work": of_senders("outbox work {db} --no-secrets", of_outbox),
}


# --- stores

AGAIN = {
    "batch": "batch run more.jsonl --journal app.db --no-secrets",
    "outbox": "outbox work app.db --no-secrets",
}


def sent_over_newer(ran: Ran) -> bool:
    """Return whether the write that was refused was sent again, although a newer one was applied."""
    return any(
        (each.body or {}).get("description") == "refused"
        for each in ran.asked
        if each.operation == "webhooks.update"
    )


def update_or_none(world: World, _: str) -> None:
    """Wait until an update has arrived, or a moment in the run in which none is expected."""
    wait_or_none(
        lambda: any(each.operation == "webhooks.update" for each in world.asked()),
        is_expected=world.is_with,
    )
    time.sleep(0.5)  # sleeps: in which one too many would arrive


def untold(world: World) -> None:
    """Let nobody have acknowledged a verdict, as a process that was killed just then leaves it."""
    with contextlib.closing(sqlite3.connect(world.folder / "app.db")) as made, made:
        made.execute(
            "INSERT INTO unheard (seq, taker) SELECT seq, 'dead.1' FROM entries WHERE key LIKE '%applied'"
        )


def of_journal(world: World) -> None:
    """Do a write of a client whose journal is in a database."""
    address = database().at(journal=f"every{world.unique()}")
    world.values["db"] = address

    async def stored() -> None:
        async with client_of(world.service, journal=address) as client:
            await client.journeys.update("jrn_1", name="x").keyed("k")

    asyncio.run(stored())


def of_workers(kind: str):
    """Return what makes the cases of the list of processes, which only a database has."""
    place = {"batch": of_worker(), "outbox": of_outbox(), "journal": of_journal}[kind]
    profile = {} if kind == "batch" else PROFILE
    return cases(f"{kind} workers {{db}}", JSON, profile, prepare=place)


def with_lost_secret(kind: str):
    """Return what makes a webhook in the store, under the key "lost", whose secret is lost."""

    async def made(world: World) -> None:
        world.service.script("webhooks.create", "apply, then reset")
        path = world.folder / "app.db"
        own = {"journal": path} if kind == "journal" else {}
        take = {"on_secret": lambda _key, _hook: None}
        async with client_of(world.service, **own, **take) as client:
            write = client.webhooks.create(**HOOKS[0]["arguments"]).keyed("lost")
            if kind == "batch":
                await run_all(path, client, [write], **take)
            elif kind == "outbox":
                async with Outbox.open(path, client, **take) as outbox:
                    await finished(outbox, write)
            else:
                assert (await write.outcome()).secret_lost

    return lambda world: asyncio.run(made(world))


def replacing(kind: str) -> dict[str, Case]:
    """Return the cases of the command that replaces lost secrets."""
    command = f"{kind} replace-lost app.db"
    journal = "" if kind == "journal" else " --journal calls.db"
    secrets = " --secrets-to s.jsonl"
    shared = {"store": kind, "prepare": with_lost_secret(kind)}
    replaced = prints("1 webhook replaced")
    found = cases(f"{command} lost{secrets}{journal}", JSON, PROFILE, **shared)(
        all=option("--all", replaced, line=f"{command}{secrets}{journal}"),
        secrets_to=option("--secrets-to s.jsonl", writes_file("s.jsonl", '"lost"'), line=f"{command} lost{journal}"),
        journal=option("--journal calls.db", replaced, line=f"{command} lost{secrets}"),
    )  # fmt: skip
    if kind == "journal":
        del found["--journal"]
    return found


def views(kind: str) -> dict[str, dict[str, Case]]:
    """Return the cases of the commands that show and change the writes in a store of *kind*."""
    shared = (
        [JSON]
        if kind == "batch"
        else [
            JSON,
            {
                "--profile": {
                    **PROFILE["--profile"],
                    **({"line": None} if kind == "journal" else {}),
                }
            },
        ]
    )

    def of(command: str, more: str = "", **settings: Any):
        profile = dict(shared[-1]) if len(shared) > 1 else {}
        if profile and kind == "journal":  # a file is no service's
            address = "postgresql://127.0.0.1:1/nowhere?journal=j"
            profile = {
                "--profile": {
                    **PROFILE["--profile"],
                    "line": f"{kind} {command} {address}{more}",
                    "store": "",
                }
            }
        return cases(
            f"{kind} {command} app.db{more}", JSON, profile, store=kind, **settings
        )

    watched = of("watch", " --no-open")
    found = {
        "list": of("list")(
            state=option("--state applied", lambda ran: "refused" not in ran.out),
            limit=option("--limit 1", lambda ran: len(ran.out.splitlines()) == 2),
            label=option("--label no=one", prints("0 in all")),
        ),
        "show": of("show", " applied")(),
        "report": of("report")(
            html=option("--html page.html", writes_file("page.html", "<html")),
            jsonl=option("--jsonl all.jsonl", writes_file("all.jsonl", '"applied"')),
            failed=option("--failed failed.jsonl", writes_file("failed.jsonl", '"refused"')),
        ),
        "watch": watched(
            port=option("--port {port}", at_port),
            open=option("--open", lambda ran: ran.opened, line=f"{kind} watch app.db", instead="--no-open", variables={"DISPLAY": ":0"}),
        ),
        "workers": of_workers(kind)(),
        "retry": of("retry", " refused")(
            verdict=option("--verdict refused", prints("1 write to be done again"), line=f"{kind} retry app.db"),
            force=option("--force", sent_over_newer, then=AGAIN.get(kind, ""), files={"more.jsonl": lines(RENAME)}, meanwhile=update_or_none),
        ),
        "drop": of("drop", " forbidden")(
            yes=option("--yes", prints("1 write dropped"), answers="n\n"),
        ),
        "resolve": of("resolve", " refused --because seen --applied -")(
            applied=option("--applied -", ends(0), line=f"{kind} resolve app.db refused --because seen"),
            not_applied=option("--not-applied", ends(1), instead="--applied -", line=f"{kind} resolve app.db refused --because seen"),
            because=option("--because seen", ends(0), line=f"{kind} resolve app.db refused --applied -"),
            by=option("--by ann", prints("ann"), then=f"{kind} show app.db refused"),
        ),
        "replace-lost": replacing(kind),
        "prune": of("prune", " --days 0")(
            days=option("--days 0", prints("pruned"), line=f"{kind} prune app.db"),
            unacknowledged=option("--unacknowledged", prints("2 writes pruned"), prepare=untold if kind == "journal" else None),
        ),
    }  # fmt: skip
    if kind == "batch":
        del found["prune"]["--unacknowledged"]
    if kind == "journal":
        del (
            found["report"]["--failed"],
            found["retry"]["--verdict"],
            found["retry"]["--force"],
        )
    found["watch"]["--open/--no-open"] = found["watch"].pop("--open")
    found["drop"]["--yes/-y"] = found["drop"].pop("--yes")
    return {f"{kind} {command}": each for command, each in found.items()}


SCHEMA = cases("outbox schema postgresql://127.0.0.1:1/shop", JSON, PROFILE)(
    role=option("--role shop", prints('TO "shop"')),
    from_=option("--from 1", prints("ALTER TABLE")),
)


# --- events


def with_events(world: World) -> None:
    """Fill a store with a dead letter, handled events, and one that waits."""
    asyncio.run(fill(open_store(str(world.folder / "events.db"))))


def with_table(world: World) -> None:
    """Fill a table of the database, of which the command has to know the name."""
    world.values["table"] = f"every_{world.unique()}"
    world.values["events"] = database().address
    asyncio.run(
        fill(events.PostgresStore(database().address, table=world.values["table"]))
    )


def of_events(command: str, more: str = "", show: Any = None):
    """Return what makes the cases of a command; *show* is what shows that it found the events."""
    line = f"events {command}{more}"
    at = {
        "--store": option(
            "--store events.db", lambda ran: ran.code != 2 and show(ran), line=line
        ),
        "--table": option(
            "--table {table}",
            show,
            line=f"{line} --store {{events}}",
            prepare=with_table,
        ),
    }
    return cases(f"{line} --store events.db", JSON, at, prepare=with_events)


def chosen(done: str):
    """Return the options that choose events, by what each leaves of them."""
    return {
        "type": option("--type invoice.created", counts(1, f"event {done}")),
        "handler": option("--handler other", counts(0, f"events {done}")),
        "since": option("--since 2100-01-01", counts(0, f"events {done}")),
        "until": option("--until 2020-01-01", counts(0, f"events {done}")),
    }


def has_some(ran: Ran) -> bool:
    return "invoice.created" in ran.out


OF_EVENTS = {
    "events list": of_events("list", show=has_some)(
        state=option("--state all", prints("waits")),
        type=option("--type invoice.canceled", lambda ran: not has_some(ran)),
        handler=option("--handler other", lambda ran: not has_some(ran)),
        since=option("--since 2100-01-01", lambda ran: not has_some(ran)),
        until=option("--until 2020-01-01", lambda ran: not has_some(ran)),
        after=option("--after 1", lambda ran: not has_some(ran)),
        limit=option("--limit 1", prints("continue with --after 1")),
    ),
    "events show": of_events("show", " 1", show=has_some)(),
    "events revive": of_events("revive", " --all", show=counts(2, "events revived"))(
        **chosen("revived"), all=option("--all", counts(2, "events revived"), line="events revive --store events.db"),
    ),
    "events drop": of_events("drop", " --all", show=counts(2, "events dropped"))(
        **chosen("dropped"), all=option("--all", counts(2, "events dropped"), line="events drop --store events.db"),
        state=option("--state open", counts(1, "event dropped")),
        yes=option("--yes", counts(2, "events dropped"), answers="n\n"),
    ),
    "events replay": of_events("replay", " --all", show=counts(1, "event replayed"))(
        **{**chosen("replayed"), "type": option("--type invoice.canceled", counts(0, "events replayed"))},
        all=option("--all", counts(1, "event replayed"), line="events replay --store events.db"),
    ),
    "events catch-up": of_events("catch-up", " --since 9h", show=prints("Events handed over: 9;"))(
        **{name.strip("-"): each for name, each in (TEAM | PROFILE).items()},
        since=option("--since 90m", prints("Events handed over: 1;"), line="events catch-up --store events.db", instead="--since 9h"),
        until=option("--until 90m", prints("Events handed over: 8;")),
    ),
    "events stats": of_events("stats", show=prints("handled\t2"))(),
    "events prune": of_events("prune", " --older-than 0s", show=counts(2, "events pruned"))(
        older_than=option("--older-than 0s", counts(2, "events pruned"), line="events prune --store events.db"),
        bodies=option("--bodies 0s", prints("(deleted)"), line="events prune --store events.db", then="events show 2 --store events.db"),
        dead=option("--dead 0s", prints("dead\t0")),
    ),
}  # fmt: skip
OF_EVENTS["events replay"]["--handler"] = Case(
    line="events replay --all --type invoice.created --store events.db", given="--handler other",
    shows=counts(2, "events replayed"), prepare=with_events,
)  # fmt: skip
OF_EVENTS["events drop"]["--yes/-y"] = OF_EVENTS["events drop"].pop("--yes")


# --- the console


def console_data(world: World, printed: str) -> tuple[int, str]:
    """Return what the page of a console says of its store, and its list."""
    address = facts_of(printed)["console_url"]
    texts = [ask(world, f"{address}data?view={view}")[1] for view in ("about", "list")]
    return 200, "".join(texts)


def console_shows(*texts: str):
    return lambda ran: all(text in str(ran.seen) for text in texts)


CONSOLE = cases("console app.db", JSON, store="journal")(
    kind=option("--kind batch", prints("not a batch")),
    table=option(
        "--table {table}", console_shows("invoice.created"), line="console {events} --kind events", prepare=with_table,
        store="", meanwhile=console_data,
    ),
    port=option("--port {port}", at_port),
    open=option("--open", lambda ran: ran.opened, instead="--no-open", variables={"DISPLAY": ":0"}),
    profile={
        **PROFILE["--profile"], "line": "console postgresql://127.0.0.1:1/nowhere?journal=j", "store": "",
    },
)  # fmt: skip
CONSOLE["--open/--no-open"] = CONSOLE.pop("--open")


# --- judging clients

CLIENT = """
import json, os, shutil, sys, time, urllib.request, urllib.error
shutil.copy(os.environ["INVSVC_WRITES"], "writes.jsonl")
open("environment.json", "w").write(json.dumps(dict(os.environ)))
request = urllib.request.Request(os.environ["INVSVC_BASE_URL"] + "/users/usr_1")
request.add_header("Authorization", "Bearer " + os.environ["INVSVC_API_KEY"])
try:
    status = urllib.request.urlopen(request).status
except urllib.error.HTTPError as error:
    status = error.code
open("status.txt", "w").write(str(status))
if len(sys.argv) > 1:
    time.sleep(float(sys.argv[1]))
"""


def has_writes_of(seed: int):
    """Return what tells whether a client was given the writes of a seed."""
    steps = [step for unit in workload.made_up(5, seed) for step in unit]
    texts = {
        each
        for step in steps
        for each in step.arguments.values()
        if isinstance(each, str)
    }
    return lambda ran: all(each in ran.text("writes.jsonl") for each in texts)


CONFORMANCE = "conformance --writes 5"
AFTER = " -- {python} client.py"
JUDGED = {
    "conformance": cases(CONFORMANCE, files={"client.py": CLIENT}, last=AFTER)(
        json=option("--json", is_json),
        writes=option("--writes 7", lambda ran: ran.text("writes.jsonl").count("\n") == 7, instead="--writes 5", line="conformance"),
        concurrency=option("--concurrency 3", lambda ran: json.loads(ran.text("environment.json"))["INVSVC_CONCURRENCY"] == "3"),
        seed=option("--seed 9", has_writes_of(9), instead="--seed 8"),
        faults=option("--faults rate=1,reads=1,kinds=500", lambda ran: ran.text("status.txt") == "500", instead="--faults none"),
        stores=option("--stores words=nothing", ends(2), instead="--stores none"),  # that it is read
        timeout=option("--timeout 3", prints("exceeded --timeout"), last=f"{AFTER} 6", instead="--timeout 300"),
    ),
    "demo": cases("demo --writes 6 --faults none")(
        json=option("--json", is_json),
        writes=option("--writes 8", prints("8 writes"), line="demo --faults none", instead="--writes 6"),
        concurrency=option("--concurrency 3", prints("3 in flight"), instead="--concurrency 2"),
        seed=option("--seed 2", prints("(seed 2)")),
        faults=option("--faults rate=0.5", prints("50% of writes"), line="demo --writes 6", instead="--faults none"),
        input=option("--input writes.jsonl", prints("3 writes"), line="demo --faults none", instead="--writes 6", files={"writes.jsonl": lines(*HOOKS)}),
    ),
}  # fmt: skip

ROOT = {
    "--debug": Case(
        line="get users nobody", given="--debug", shows=prints("Traceback")
    ),
    "--version": Case(line="", given="--version", shows=prints("0.")),
}

# --- tools for agents


def spoken(tool: str, **arguments: Any) -> str:
    """Return the messages with which an agent calls a tool."""
    hello = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "agent", "version": "1"},
    }
    messages = [
        {"id": 1, "method": "initialize", "params": hello},
        {"method": "notifications/initialized"},
        {
            "id": 2,
            "method": "tools/call",
            "params": {"name": tool, "arguments": arguments},
        },
    ]
    return lines(*({"jsonrpc": "2.0", **each} for each in messages))


def asked_without(world: World, _: str) -> None:
    """Wait until the service was asked for something, or a moment in the run with the option."""
    wait_or_none(world.asked, is_expected=not world.is_with)
    time.sleep(0.3)  # sleeps: until it is answered


def asked_in_both(world: World, _: str) -> None:
    """Wait until the service was asked for something."""
    wait_or_none(world.asked, is_expected=True)
    time.sleep(0.3)  # sleeps: until it is answered


MCP = "mcp --only webhooks.* --journal calls.db --no-secrets"
READS_OF_WEBHOOKS = sum(
    row.name.startswith("webhooks.") and row.kind is OperationKind.READ
    for row in BY_NAME.values()
)
SPOKEN = spoken("webhooks_create", **HOOKS[0]["arguments"], key="order-1")
OF_AGENTS = {
    "mcp": cases(MCP, {"--profile": PROFILE["--profile"]})(
        read_only=option("--read-only", prints(f"{READS_OF_WEBHOOKS} tools on")),
        only=option("--only users.get", prints("1 tool on"), line="mcp --read-only"),
        dry_run=option("--dry-run", lambda ran: not ran.writes, spoken=SPOKEN, meanwhile=asked_without),
        journal=option("--journal mine.db", writes_file("mine.db"), line="mcp --no-secrets"),
        secrets_to=option("--secrets-to mine.jsonl", lambda ran: (ran.folder / "mine.jsonl").exists(), line=MCP.removesuffix(" --no-secrets"), instead="--no-secrets"),
        no_secrets=option("--no-secrets", prints(" tools on"), line=MCP.removesuffix(" --no-secrets")),
        http=option("--http {port}", prints("url: http://127.0.0.1:")),
        skill=option("--skill", prints("The key is the business action")),
        json=option("--json", is_json, line="mcp --skill"),
        team=option("--team team_2", of_other_team, spoken=spoken("webhooks_list"), meanwhile=asked_in_both),
    )
}  # fmt: skip

CASES: dict[str, dict[str, Case]] = {
    "": ROOT, "serve": SERVED, "listen": LISTENED, "trigger": TRIGGERED, "outbox schema": SCHEMA, "console": CONSOLE,
    **READ, **WRITTEN, **SENT, **views("batch"), **views("outbox"), **views("journal"), **OF_EVENTS, **JUDGED, **OF_AGENTS,
}  # fmt: skip


def commands() -> dict[str, Any]:
    """Return each command of the application by its words."""
    root = typer.main.get_command(app)
    found: dict[str, Any] = {"": root}
    for name in COMMANDS:
        command = root.get_command(None, name)
        inner = getattr(command, "commands", None)
        found |= (
            {f"{name} {each}": one for each, one in inner.items()}
            if inner
            else {name: command}
        )
    return found


def options() -> set[tuple[str, str]]:
    """Return each option of each command, with the words of the command."""
    return {
        (words, "/".join((*one.opts, *one.secondary_opts)))
        for words, command in commands().items()
        for one in command.params
        if one.param_type_name == "option" and not OWN_OF_TYPER.intersection(one.opts)
    }


NAMED = {(words, name) for words, found in CASES.items() for name in found}


def test_each_option_has_a_case():
    """An option that was added, or renamed, is named in the table; nothing else is."""
    assert (options() - NAMED, NAMED - options()) == (set(), set())


# Of each command, the first option that is its own.
SAMPLED = {
    words: next((name for name in found if name not in CALLING), None)
    for words, found in CASES.items()
}


@pytest.mark.parametrize(
    ("words", "name"),
    [
        pytest.param(words, name, marks=() if SAMPLED[words] == name else pytest.mark.slow)
        for words, name in sorted(NAMED)
    ],
    ids=lambda each: each.replace(" ", "_") or "invsvc",
)  # fmt: skip
def test_option(world, words, name):
    """With it the command does what it does not do without it, in a world that is the same."""
    case = CASES[words][name]
    with_it = world.run(case, case.given)
    assert case.shows(with_it), (with_it.code, with_it.out, with_it.err)
    without = world.run(case, case.instead)
    assert not shown(case, without), (without.code, without.out, without.err)


def shown(case: Case, ran: Ran) -> bool:
    """Return whether what shows the option shows; a command that was refused may lack what that looks at."""
    try:
        return bool(case.shows(ran))
    except (LookupError, ValueError, AssertionError, OSError, TypeError):
        return False


@pytest.mark.parametrize("command", ["batch worker", "outbox work"])
def test_nothing_is_sent_without_a_place_for_secrets(world, command):
    """Secrets are thrown away only if that is asked for."""
    case = CASES[command]["--no-secrets"]
    ran = world.run(case, "")
    assert (ran.code, ran.writes) == (2, [])
    assert "--secrets-to FILE" in ran.err


def test_run_is_that_of_the_command_line():
    """The cases run what the console script runs."""
    assert run(["--version"]) == 0
