"""Rows in files: each form, and every way in which a file can be wrong, told by name and line."""

from __future__ import annotations

import csv
import io
import json
import stat
import sys
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path

import pytest

from invsvc_async import ConfigurationError, InvalidRequestError, export
from invsvc_async.drift import Comparison, FieldDifference
from invsvc_async.drift.table import Table

HEAD = "uuid,total,status\n"
needs_pyarrow = pytest.mark.skipif(
    find_spec("pyarrow") is None, reason="pyarrow is an extra"
)


@pytest.mark.parametrize(
    "form", ["csv", "jsonl", pytest.param("parquet", marks=needs_pyarrow)]
)
async def test_what_was_exported_is_the_same(
    compare, client, service, put, tmp_path, form
):
    """Each simple field of an exported file equals the service's; a change there is named."""
    target = tmp_path / f"mine.{form}"
    await export.invoices(client.invoices.egress(), target)
    comparison, found = await compare(target)
    assert found == []
    assert {
        "total",
        "exchange_rate",
        "created_at",
        "livemode",
        "folio_number",
        "status",
    } < {*comparison.columns.values()}

    uuid = next(iter(service.book().invoices.items))
    put(uuid, livemode=False, folio_number=70, date=1_790_000_000_000)
    _, (found,) = await compare(target)

    assert [each.field for each in found.fields] == ["date", "folio_number", "livemode"]


async def test_csv_of_a_spreadsheet(compare, rows, tmp_path):
    """A byte order mark, semicolons, quotes, CRLF and blank lines are fine; lines are those of the file."""
    path = tmp_path / "mine.csv"
    text = io.StringIO()
    writer = csv.writer(
        text, delimiter=";", lineterminator="\r\n", quoting=csv.QUOTE_ALL
    )
    writer.writerows(
        [
            ["uuid", "total", "note", "", ""],
            *([row["uuid"], row["total"], "two\nlines", "", ""] for row in rows),
        ]
    )
    path.write_bytes(b"\xef\xbb\xbf" + text.getvalue().encode() + b"\r\nMINE;5;;;\r\n")

    _, (found,) = await compare(path, delimiter=";")

    assert (found.key, found.line) == ("MINE", 1 + 2 * 12 + 2)


async def test_empty_cells(compare, rows, put, tmp_path):
    """In CSV an empty cell is a null or an empty text, but not a zero."""
    path = tmp_path / "mine.csv"
    lines = [f"{row['uuid']},,," for row in rows]
    path.write_text("uuid,idempotency_key,series,discount\n" + "\n".join(lines))
    for each in rows:
        put(each["uuid"], series="", discount=None)
    assert (await compare(path))[1] == []

    put(rows[0]["uuid"], discount=0)
    _, (found,) = await compare(path)

    assert found.fields == (FieldDifference("discount", None, 0),)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.csv", b"", "a.csv: is empty"),
        ("a.jsonl", b"", "a.jsonl: is empty"),
        ("a.csv", HEAD.encode("utf-16"), "line 1: is not UTF-8"),
        ("a.csv", (HEAD + "Ñ,1,v\n").encode("latin-1"), "line 2: is not UTF-8"),
        ("a.csv", (HEAD + "A,1\n").encode(), "line 2: has 2 cells, but the first line has 3"),
        ("a.csv", b"uuid;total\nA;1,5\n", r"line 2: has 2 cells, .* has 1, 'uuid;total'\..*--delimiter"),
        ("a.csv", (HEAD + "A,1,v,\n").encode(), "line 2: has 4 cells"),
        ("a.csv", b"uuid,total,total\n", "line 1: has two columns with the name 'total'"),
        ("a.csv", (HEAD + 'A,"1,v\n').encode(), "line 2: a quote is not closed"),
        ("a.csv", (HEAD + f'A,"{"x" * 200_000}",v\n').encode(), "line 2: is not CSV .field larger than field limit"),
        ("a.csv", HEAD.encode() + b"A" * 2**20 + b"\n", "line 2: the row has more than 1,048,576 bytes"),
        ("a.csv", b"uuid;total\nA;1\n", "uuid: no row has this column. There are uuid;total"),
        ("a.csv", ",".join(["uuid", *map(str, range(1000))]).encode() + b"\n" + b"," * 1000, "has more than 1,000 columns"),
        ("a.csv", (HEAD + "A,uno,v\nB,1 000,v\nC,1_0,v\n").encode(), "line 2: total: 'uno' is not a number: .*; line 3: total: '1 000'.*; line 4: "),
        ("a.csv", (HEAD + "A,nan,v\nB,Infinity,v").encode(), "line 2: total: 'nan' is not a number: .*; line 3: total: 'Inf"),
        ("a.csv", (HEAD + '"A\nB",uno,v\n').encode(), "line 2: total: 'uno' is not a number"),
        ("a.csv", b"uuid,livemode\nA,yes\n", "line 2: livemode: 'yes' is neither true nor false"),
        ("a.jsonl", b'{"uuid": "A"}\n\n{"uuid": \n', "line 3: is not JSON"),
        ("a.csv", HEAD.encode() + b'A,"1\n' + b'","1\n' * 2**18, "line 2: the row has more than 1,048,576 bytes"),
        ("a.jsonl", b"[" + b"1" * 2**20, "line 1: is longer than 1,048,576 bytes"),
        ("a.jsonl", b'{"uuid": "\xff"}', "line 1: is not UTF-8"),
        ("a.jsonl", b'["A"]\n', "line 1: is no mapping"),
        ("a.jsonl", b'{"uuid": 1.5}\n', "line 1: uuid: Decimal.'1.5'. is not text"),
        ("a.jsonl", b'{"uuid": "A", "total": true}\n', "line 1: total: True is not a number"),
        ("a.jsonl", b'{"uuid": "A", "status": true}\n', "line 1: status: True is not text"),
        ("a.jsonl", b'{"uuid": "A", "total": {}}\n', "line 1: total: {} is not a number"),
        pytest.param("a.parquet", b"PAR2" * 9, "a.parquet: .*Parquet", marks=needs_pyarrow),
    ],
)  # fmt: skip
async def test_files_that_are_wrong(compare, service, tmp_path, name, content, words):
    """What is wrong is told with file and line, and nothing is asked of the service."""
    path = tmp_path / name
    path.write_bytes(content)

    with pytest.raises(InvalidRequestError, match=words):
        await compare(path)

    assert service.arrivals() == 0


async def test_header_alone(compare, tmp_path):
    """A file without rows is not wrong: everything is missing in it."""
    (tmp_path / "a.csv").write_text("uuid")

    assert len((await compare(tmp_path / "a.csv"))[1]) == 12


async def test_nested_field_that_is_not_json(compare, rows, tmp_path):
    """A field that is asked for by name and has parts is JSON in CSV."""
    path = tmp_path / "a.csv"
    path.write_text(
        f'uuid,emails\n{rows[0]["uuid"]},"[""pagos@cliente.example""]"\nB,x\n'
    )

    with pytest.raises(InvalidRequestError, match="line 3: emails: 'x' is not JSON"):
        await compare(path, fields={"emails": "emails"})


@pytest.mark.parametrize("name", ["a.txt", "-"])
def test_unknown_form(name):
    """The form must be given where no extension tells it."""
    with pytest.raises(
        ConfigurationError, match=r"is unknown\. Use one of jsonl, csv, parquet"
    ):
        Comparison(None, "webhooks.list", name)


async def test_parquet_without_its_extra(compare, tmp_path, monkeypatch):
    """What to install is told."""
    (tmp_path / "a.parquet").touch()
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)

    with pytest.raises(ConfigurationError, match=r"with its extra 'parquet'"):
        await compare(tmp_path / "a.parquet")


@needs_pyarrow
async def test_types_of_parquet(compare, rows, tmp_path):
    """Decimals, timestamps without a zone and floats are compared by value."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    times = [
        datetime.fromtimestamp(row["created_at"] / 1000, UTC).replace(tzinfo=None)
        for row in rows
    ]
    columns = {"uuid": [row["uuid"] for row in rows], "total": [row["total"] for row in rows], "created_at": times,
               "exchange_rate": [1.0 if n % 5 else 17.2345 for n in range(1, 13)]}  # fmt: skip
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")

    assert (await compare(tmp_path / "a.parquet", zone=UTC))[1] == []


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
def test_temporary_file_is_private():
    """It has no name and is its owner's only; closed, it is gone."""
    table = Table()
    for number in range(20_000):
        table.add(
            f"key {number}", number, {"total": number, "text": "x" * 200}, inside=True
        )
    held = {
        path: str(path.readlink())
        for path in [*Path("/proc/self/fd").iterdir()]
        if path.is_symlink()
    }
    files = [path for path, target in held.items() if "etilqs" in target]
    modes = [
        (held[path].endswith(" (deleted)"), stat.S_IMODE(path.stat().st_mode))
        for path in files
    ]
    table.close()

    assert modes == [(True, 0o600)]
    assert not files[0].is_symlink()


async def test_json_lines_with_other_members(compare, rows, tmp_path):
    """A row may lack a column, which is null then; numbers keep their digits."""
    path = tmp_path / "a.jsonl"
    lines = [
        f'{{"uuid": "{row["uuid"]}", "total": {row["total"]}, "mine": [1]}}'
        for row in rows
    ]
    lines[0] = json.dumps({"uuid": rows[0]["uuid"]})
    path.write_text("\n".join(lines))

    _, (found,) = await compare(path)

    assert found.fields == (FieldDifference("total", None, rows[0]["total"]),)
