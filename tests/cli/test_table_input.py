"""`invsvc batch TABLE.csv`: rows as writes, wrong tables, and a run that is killed and resumed."""

from __future__ import annotations

import csv
import io
import json
import signal
from collections import Counter

import pytest

from invsvc_async import InvalidRequestError
from invsvc_async.batch.file_check import MAX_LINE, BadLine
from invsvc_async.cli.table_input import InputTable
from tests.batch.conftest import client_of
from tests.cli.test_batch import child, here, invsvc

__all__ = ["here", "invsvc"]

pytestmark = pytest.mark.one_python

UPDATE = (
    "--operation",
    "webhooks.update",
    "--map",
    "webhook=hook_id",
    "--map",
    "description=note",
)
KEYED = (*UPDATE, "--key", "order_id")


async def lines_of(
    service, content, operation="webhooks.update", maps=("webhook=hook_id",), key=None
):
    async with client_of(service) as client:
        file = io.BytesIO(content if isinstance(content, bytes) else content.encode())
        table = InputTable(file, client, operation, maps, key)
        file.seek(0)
        return [
            str(each)
            if isinstance(each, BadLine)
            else (each.number, each.arguments, each.key)
            for each in table.lines(file, 0)
        ]


async def test_quotes_lines_and_empty_cells(service):
    """A byte order mark, quotes, line feeds in cells, blank lines and empty cells are what they are in CSV."""
    text = '\ufefforder_id,hook_id,note\r\n1,wh_1,"Hi, ""you"""\r\n\r\n2,wh_2,\r\n3,wh_3,"two\r\nlines é"\r\n4,wh_4,x'
    found = await lines_of(
        service, text, maps=("webhook=hook_id", "description=note"), key="order_id"
    )
    assert found == [
        (2, {"webhook": "wh_1", "description": 'Hi, "you"'}, "1"),
        (4, {"webhook": "wh_2"}, "2"),
        (5, {"webhook": "wh_3", "description": "two\r\nlines é"}, "3"),
        (7, {"webhook": "wh_4", "description": "x"}, "4"),
    ]


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
async def test_delimiters_and_columns_named_as_arguments(service, delimiter):
    """The header tells the delimiter; without a map, its names are those of arguments."""
    text = "id,url,events\na,https://a.example,invoice.created\n".replace(
        ",", delimiter
    )
    found = await lines_of(service, text, "webhooks.create", maps=(), key="id")
    assert found == [
        (2, {"url": "https://a.example", "events": ["invoice.created"]}, "a")
    ]


async def test_types_of_arguments(service):
    """A cell has the type of its argument: numbers keep their digits, and := makes it JSON, such as null."""
    maps = [
        "legal_name=a",
        "credit_limit=b",
        "generate_onboarding_url=c",
        "address=d",
        "metadata.row=e",
        "tax_id:=f",
    ]
    text = 'a,b,c,d,e,f\n007,1.50,true,"{""zip"": ""01000""}",17,null\n'
    ((_, found, _),) = await lines_of(service, text, "teams.create", maps)
    assert str(found.pop("credit_limit")) == "1.50"
    assert found == {
        "legal_name": "007", "generate_onboarding_url": True, "address": {"zip": "01000"},
        "metadata": {"row": "17"}, "tax_id": None,
    }  # fmt: skip


@pytest.mark.parametrize("sign", ["=", ":="])
async def test_cells_of_a_list(service, sign):
    """They have JSON; without := also one item as it is, or several with commas."""
    text = 'a,"[""invoice.created"", ""receipt.created""]"\n'
    if sign == "=":
        text += 'b,invoice.created\nc,"invoice.created,receipt.created"\n'
    text += 'd,"[""invoice.created"""\n'
    maps = ("url=u", f"events{sign}e")
    *good, wrong = await lines_of(service, f"u,e\n{text}", "webhooks.create", maps)
    both = ["invoice.created", "receipt.created"]
    found = [arguments["events"] for _, arguments, _ in good]
    assert found == ([both, both[:1], both] if sign == "=" else [both])
    assert "is not a valid" in wrong


async def test_rows_that_are_wrong(service):
    """Each is named by its line, and the rows around it are read."""
    text = b"hook_id,status\nwh_1\nwh_2,\xff\nwh_4,activ\nwh_5,active\n,active\n"
    found = await lines_of(
        service, text, maps=("webhook=hook_id", "status=status"), key="hook_id"
    )
    assert found[:2] == [
        "line 2: has 1 cells, but the header has 2",
        "line 3: is not UTF-8. Save the file as UTF-8",
    ]
    assert found[2] == "line 4: status: 'activ' is not one of active, inactive"
    assert found[3] == (5, {"webhook": "wh_5", "status": "active"}, "wh_5")
    assert found[4:] == ["line 6: has an empty key"]


@pytest.mark.parametrize(
    ("text", "settings", "words"),
    [
        ("", {}, "hook_id: is no column; the table has none"),
        ('hook_id\nwh_1\n"wh_2"x\n', {}, "line 3: is not CSV"),
        (
            "hook_id\n",
            {"maps": ["webhook=hook_id", "webhook=hook_id"]},
            "webhook: is mapped twice",
        ),
        ("hook_id,note\n", {"maps": ["webhook=hok_id"]}, "Did you mean hook_id?"),
        ("hook_id,note\n", {"maps": ["webhok=hook_id"]}, "Did you mean webhook?"),
        ("hook_id,note\n", {"maps": []}, "hook_id: is not an argument"),
        (
            "hook_id,note\n",
            {"key": "kye"},
            "kye: is no column; the table has hook_id, note",
        ),
        ("hook_id,hook_id\n", {}, "2 columns have this name"),
        ("hook_id\n", {"operation": "webhook.update"}, "Did you mean webhooks.update"),
        ('hook_id\nwh_1\n"wh_2\nwh_3\n', {}, "line 3: a quote is not closed"),
        (
            "hook_id\n" + "x" * MAX_LINE + "\n",
            {},
            "line 2: the row has more than 1,048,576 bytes",
        ),
        (
            'hook_id\n"' + ("x" * 1000 + "\n") * 140,
            {},
            "line 2: is not CSV (field larger than",
        ),
        (
            "hook_id\n" + ('"' + "x\n" * 1000 + '",') * 600,
            {},
            "line 2: the row has more than 1,048,576 bytes",
        ),
    ],
)
async def test_table_that_cannot_be_read(service, text, settings, words):
    """The nearest name is suggested; where no row can be told from the next one, nothing is read."""
    with pytest.raises(InvalidRequestError) as caught:
        await lines_of(service, text, **settings)
    assert words in str(caught.value)


async def test_dry_run_shows_the_first_writes(service, invsvc, here):
    """They are shown as lines of input, which a batch could read; nothing is sent."""
    rows = "".join(f"A-{n},wh_{n},n{n}\n" for n in range(5))
    (here / "orders.csv").write_text(f"order_id,hook_id,note\n{rows}")
    code, out, err = await invsvc(
        "orders.csv", "--journal", "run.db", *KEYED, "--dry-run"
    )
    assert (code, service.arrivals()) == (0, 0)
    assert "5 valid writes, 0 invalid lines; nothing was sent" in err
    first = {
        "operation": "webhooks.update",
        "arguments": {"webhook": "wh_0", "description": "n0"},
        "key": "A-0",
    }
    shown = [json.loads(text) for text in out.splitlines()]
    assert (shown[0], len(shown)) == (first, 3)
    _, out, _ = await invsvc(
        "orders.csv", "--journal", "run.db", *KEYED, "--dry-run", "--json"
    )
    assert json.loads(out)["first"][0] == first


async def test_bad_rows_send_nothing(service, invsvc, here):
    """Unless they are skipped; options of a table without an operation are a mistake."""
    hook = service.seed_webhook()
    (here / "orders.csv").write_text(
        f"order_id,hook_id,note\n1,{hook.id}\n2,{hook.id},x\n2,{hook.id},y\n"
    )
    code, _, err = await invsvc("orders.csv", "--journal", "run.db", *KEYED)
    assert (code, service.arrivals()) == (2, 0)
    assert "line 2: has 2 cells" in err
    assert "line 4: has the key '2', as line 3" in err
    assert (await invsvc("orders.csv", "--journal", "run.db", "--key", "order_id"))[
        0
    ] == 2
    assert "--operation" in (await invsvc("orders.csv", "--journal", "run.db"))[2]
    code, _, _ = await invsvc("orders.csv", "--journal", "run.db", *KEYED, "--skip-bad")
    assert (code, service.arrivals("webhooks.update")) == (5, 1)
    assert service.ledger.entries[-1].body["description"] == "x"


@pytest.mark.untraced
async def test_kill_and_resume(service, here):
    """Of 90 rows, some over two lines, each takes effect once, though the run is killed twice, and rows are added."""
    notes = ("", "line 1\nline 2", "a, b")
    rows = [
        (f"row-{n}", f"https://me.example/{n}", notes[n % 3], "invoice.created")
        for n in range(90)
    ]

    def store(some):
        with (here / "hooks.csv").open("w", encoding="utf-8-sig", newline="") as file:
            csv.writer(file).writerows([("id", "address", "note", "kind"), *some])

    command = [
        "hooks.csv", "--journal", "run.db", "--operation", "webhooks.create", "--key", "id", "--rate", "60",
        "--no-secrets", "--map", "url=address", "--map", "description=note", "--map", "events=kind",
    ]  # fmt: skip
    store(rows[:70])
    for many in (20, 50):
        running = await child(*command)
        await service.arrived("webhooks.create", many)
        running.send_signal(signal.SIGKILL)
        await running.wait()
    store(rows)
    running = await child(*command, "--json")
    out, err = await running.communicate()
    assert running.returncode == 0, err
    told = json.loads(out)
    assert (told["verdicts"], told["total"]) == ({"applied": 90}, 90)
    await service.settled()
    made = Counter(
        entry.body["url"]
        for entry in service.ledger.entries
        if entry.operation == "webhooks.create"
    )
    assert made == Counter(row[1] for row in rows)


async def test_another_map_of_the_same_file(service, invsvc, here):
    """Rows that were taken in count as other writes if a column is used for another argument."""
    hooks = [service.seed_webhook() for _ in range(3)]
    text = "".join(
        f"k{n},{hook.id},a{n},https://b.example/{n}\n" for n, hook in enumerate(hooks)
    )
    (here / "t.csv").write_text(f"key,hook,one,two\n{text}")
    words = "t.csv --journal run.db --operation webhooks.update --key key --map webhook=hook"
    first = words.split()
    assert (await invsvc(*first, "--map", "description=one"))[0] == 0
    assert (await invsvc(*first, "--map", "description=one"))[0] == 0
    assert service.arrivals("webhooks.update") == 3
    code, _, err = await invsvc(*first, "--map", "url=two")
    assert (code, service.arrivals("webhooks.update")) == (2, 3)
    assert "k0" in err
