"""Exports to files: exact, stopped anywhere, and gone on with."""

from __future__ import annotations

import asyncio
import csv
import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from decimal import Decimal
from importlib.util import find_spec
from pathlib import Path
from unittest.mock import Mock

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from invsvc_async import (
    ApiKey,
    Client,
    ConfigurationError,
    ServerError,
    ValidationFailedError,
    export,
)
from invsvc_async.export.files import TextSink, escaped_formula
from invsvc_async.export.walk import is_finished
from invsvc_async.models import Invoice

pytestmark = pytest.mark.one_python

needs_pyarrow = pytest.mark.skipif(
    find_spec("pyarrow") is None, reason="pyarrow is an extra"
)
FORMS = ["jsonl", "csv", pytest.param("parquet", marks=needs_pyarrow)]
EXACT = "1234567890.123456789"


def ids(path):
    match path.suffix:
        case ".jsonl":
            return [json.loads(line)["uuid"] for line in path.read_text().splitlines()]
        case ".csv":
            with path.open(newline="") as file:
                return [row["uuid"] for row in csv.DictReader(file)]
        case _:
            import pyarrow.parquet as pq

            return pq.read_table(path)["uuid"].to_pylist()


@pytest.fixture(params=FORMS)
def target(request, tmp_path):
    """Return the path of an export of each form."""
    return tmp_path / f"out.{request.param}"


async def exported(client, target, limit=4, **options):
    return await export.invoices(client.invoices.egress(limit=limit), target, **options)


async def check_that_whole(target, client):
    """Every invoice is in the file once, in the list's order, and nothing else is left beside it."""
    assert ids(target) == [item.uuid async for item in client.invoices.egress()]
    assert list(target.parent.iterdir()) == [target]


@asynccontextmanager
async def lists_of(answer):
    """Yield a client of a service whose list of invoices is *answer*."""
    app = web.Application()
    app.router.add_get("/v2/invoices/egress", answer)
    server = TestServer(app, host="127.0.0.1")
    async with server, Client(str(server.make_url("/v2")), ApiKey("eyJ.a.b")) as client:
        yield client


async def stopped(service, client, target, *, pages, limit=3):
    """Export to *target* until the list fails behind some of its pages."""
    service.script("invoices.egress", *["pass"] * pages, *["500"] * 4)
    with pytest.raises(ServerError):
        await exported(client, target, limit)


async def test_whole_list(client, target):
    """Every invoice is in the file once, in the list's order, and nothing else is left beside it."""
    done = await exported(client, target, 5)

    await check_that_whole(target, client)
    assert (done.rows, done.resumed) == (12, False)


async def test_stopped_by_an_error_and_gone_on_with(service, client, target):
    """After an error the same call with resume=True writes the rest: no invoice twice, none missing."""
    await stopped(service, client, target, pages=2)
    before = service.arrivals("invoices.egress")

    done = await exported(client, target, 3, resume=True)

    assert service.arrivals("invoices.egress") - before == 2
    await check_that_whole(target, client)
    assert (done.rows, done.resumed) == (12, True)


async def test_resumed_twice_by_a_list_without_arguments(service, client, target):
    """It has those of the interrupted export, however often that is interrupted."""
    whole = client.invoices.egress(status="valid", limit=3)
    for pages, options in ((whole, {}), (client.invoices.egress(), {"resume": True})):
        service.script("invoices.egress", "pass", *["500"] * 4)
        with pytest.raises(ServerError):
            await export.invoices(pages, target, **options)

    await export.invoices(client.invoices.egress(), target, resume=True)

    assert ids(target) == [item.uuid async for item in whole]


async def test_stopped_before_the_first_page(service, client, target):
    """Its file is not taken for a finished one: the same call with resume=True begins anew."""
    await stopped(service, client, target, pages=0)
    assert not is_finished(target)

    done = await exported(client, target, 3, resume=True)

    await check_that_whole(target, client)
    assert (done.rows, done.resumed, is_finished(target)) == (12, False, True)


async def test_stopped_by_cancellation(service, client, target):
    """A cancelled export keeps the pages that it had, and goes on behind them."""
    service.script("invoices.egress", "pass", "pass", "hang")
    task = asyncio.create_task(exported(client, target))
    await service.arrived("invoices.egress", 3)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    noted = json.loads(target.with_name(f"{target.name}.resume").read_text())
    await exported(client, target, resume=True)

    assert noted["rows"] == 8
    await check_that_whole(target, client)


@pytest.mark.parametrize("how", ["resume", "overwrite"])
async def test_two_exports_to_one_file(how, service, client, target):
    """The second is refused while the first one runs, in another process too, and changes nothing."""
    service.script("invoices.egress", "pass", "hang")
    first = asyncio.create_task(exported(client, target))
    await service.arrived("invoices.egress", 2)
    with pytest.raises(ConfigurationError, match="another export"):
        await exported(client, target, **{how: True})
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first

    done = await exported(client, target, **{how: True})

    assert (done.rows, done.resumed) == (12, how == "resume")
    await check_that_whole(target, client)


async def test_killed_at_the_end(service, client, target, monkeypatch):
    """The file was complete, but not yet noted as such: no row is lost or comes twice."""
    note = target.with_name(f"{target.name}.resume")
    await stopped(service, client, target, pages=1, limit=4)
    with monkeypatch.context() as killed:
        # reaches: a kill at this step
        killed.setattr(type(note), "unlink", Mock(side_effect=OSError("killed")))
        with pytest.raises(OSError, match="killed"):
            await exported(client, target, resume=True)
    assert note.exists()

    await exported(client, target, resume=True)

    await check_that_whole(target, client)


async def test_disk_that_fails_at_the_end(client, target, monkeypatch):
    """A file is finished only when the disk has it: otherwise a power cut could leave half of a finished one."""
    with monkeypatch.context() as failing:
        failing.setattr(os, "fsync", Mock(side_effect=OSError(5, "disk fails")))
        with pytest.raises(OSError, match="disk fails"):
            await exported(client, target, 5)
    assert not is_finished(target)

    await exported(client, target, 5, resume=True)

    await check_that_whole(target, client)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has it")
@pytest.mark.parametrize("form", FORMS[:2])
async def test_disk_that_is_full(form, client, tmp_path):
    """The error names the file."""
    path = tmp_path / f"out.{form}"
    path.symlink_to("/dev/full")

    with pytest.raises(OSError, match="No space left") as full:
        await export.invoices(client.invoices.egress(limit=5), path, overwrite=True)

    assert full.value.filename == str(path)


async def test_list_whose_last_cursor_is_its_own(target, tmp_path):
    """The last page is empty, and its cursor is the one it was requested with: no row is missing."""
    page = {
        "success": True,
        "data": [],
        "next": "end",
        "has_more": False,
        "timestamp": 1,
    }

    async def listed(request: web.Request) -> web.Response:
        rows = [] if "next" in request.query else [{"uuid": "A"}, {"uuid": "B"}]
        return web.json_response({**page, "data": rows, "has_more": bool(rows)})

    async with lists_of(listed) as client:
        done = await export.invoices(client.invoices.egress(), target)

    assert (done.rows, ids(target)) == (2, ["A", "B"])
    assert list(tmp_path.iterdir()) == [target]


async def test_pages_without_numbers(target):
    """A stopped export of a list without cursors and page numbers goes on behind its last page."""
    fails = True

    async def listed(request: web.Request) -> web.Response:
        number = int(request.query.get("page", 1))
        if fails and number == 4:
            return web.json_response({}, status=400)
        rows = [{"uuid": f"U{number}", "metadata": {"a": "b"}}]
        return web.json_response(
            {"success": True, "data": rows, "has_more": number < 5, "timestamp": 1}
        )

    async with lists_of(listed) as client:
        pages = client.invoices.egress(metadata={"a": "b"})
        with pytest.raises(ValidationFailedError):
            await export.invoices(pages, target)
        fails = False
        done = await export.invoices(pages, target, resume=True)

    assert (done.rows, ids(target)) == (5, ["U1", "U2", "U3", "U4", "U5"])


async def test_cancelled_again_and_again(client, tmp_path):
    """An export that is cancelled repeatedly, as anyio does, ends after the thread that writes a page."""
    target, gate, queued = tmp_path / "out.jsonl", threading.Event(), asyncio.Event()

    class Threads(ThreadPoolExecutor):
        def submit(self, *call):
            if first_page.done():
                queued.set()
            return super().submit(*call)

    def page_written(_rows: int) -> None:
        threads.submit(gate.wait)  # the next page has to wait for the thread
        first_page.set_result(None)

    threads, first_page = Threads(1), asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().set_default_executor(threads)
    pages = client.invoices.egress(limit=5)
    task = asyncio.create_task(export.invoices(pages, target, on_page=page_written))
    await queued.wait()
    for _ in range(10):
        task.cancel()
        await asyncio.sleep(0)
    ended_early = task.done()
    gate.set()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert not ended_early
    assert (
        json.loads((tmp_path / "out.jsonl.resume").read_text())["rows"]
        == len(ids(target))
        == 10
    )


async def test_line_breaks_in_csv(tmp_path):
    """A cell with any line break is read again as one cell."""
    texts = ["a\rb", "a\nb", "a\r\nb", "\r", 'a"b', ""]

    async def listed(_: web.Request) -> web.Response:
        rows = [{"uuid": str(at), "series": text} for at, text in enumerate(texts)]
        return web.json_response({"success": True, "data": rows, "timestamp": 1})

    async with lists_of(listed) as client:
        await export.invoices(client.invoices.egress(), tmp_path / "out.csv")

    with (tmp_path / "out.csv").open(newline="") as file:
        assert [row["series"] for row in csv.DictReader(file)] == texts


@pytest.mark.parametrize("form", FORMS[1:])
async def test_columns_of_another_version(form, service, client, tmp_path):
    """An export that was begun with other columns is not gone on with: its rows would be under wrong names."""
    target = tmp_path / f"out.{form}"
    await stopped(service, client, target, pages=1, limit=4)
    if form == "csv":
        target.write_text(target.read_text().replace(",series,", ",serial,", 1))
    else:
        import pyarrow.parquet as pq

        (part,) = (tmp_path / "out.parquet.parts").glob("part-*")
        pq.write_table(pq.read_table(part).drop_columns("series"), part)
    before = service.arrivals()

    with pytest.raises(export.ExportError, match="columns"):
        await exported(client, target, resume=True)

    assert service.arrivals() == before


@pytest.mark.parametrize("form", ["jsonl", "csv"])
async def test_killed_within_a_page(form, service, client, tmp_path):
    """What a killed process had written behind its last note is cut off, so that no row comes twice."""
    target = tmp_path / f"out.{form}"
    await stopped(service, client, target, pages=1, limit=4)
    with target.open("ab") as file:
        file.write(b'{"half": ' + b"x" * 100_000)

    await exported(client, target, resume=True)

    await check_that_whole(target, client)


async def test_digits_of_text_formats(client, tmp_path):
    """A decimal keeps its digits in JSON and CSV."""
    for form in ("jsonl", "csv"):
        await export.invoices(client.invoices.egress(), tmp_path / f"out.{form}")

    assert f'"total":{EXACT}' in (tmp_path / "out.jsonl").read_text()
    assert f",{EXACT}," in (tmp_path / "out.csv").read_text()


async def test_files_are_private(service, client, target, tmp_path):
    """Only the owner may read an export and what is beside it, whatever the umask."""
    before = os.umask(0)
    try:
        await stopped(service, client, target, pages=2)
        unfinished = [path for path in tmp_path.rglob("*") if path.is_file()]
        assert unfinished
        await exported(client, target, 3, resume=True)
    finally:
        os.umask(before)

    assert {
        path.stat().st_mode & 0o777
        for path in [*filter(Path.exists, unfinished), target]
    } == {0o600}


@needs_pyarrow
async def test_types_of_parquet(client, tmp_path):
    """Amounts are decimal128 with their own digits, times are UTC, items are structs."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    target = tmp_path / "out.parquet"
    await export.invoices(client.invoices.egress(), target)
    table = pq.read_table(target)

    assert table.schema.field("total").type == pa.decimal128(38, 12)
    assert Decimal(EXACT) in table["total"].to_pylist()
    assert table.schema.field("created_at").type == pa.timestamp("ms", tz="UTC")
    assert table.schema.field("items").type.value_type.field(
        "unit_price"
    ).type == pa.decimal128(38, 12)


@needs_pyarrow
async def test_decimal_that_does_not_fit(client, tmp_path):
    """A number with more digits than its column is named with its invoice, and the way out is said."""
    target = tmp_path / "out.parquet"

    with pytest.raises(
        export.ExportError, match=rf"total: {EXACT} does not fit decimal128\(38, 2\)"
    ):
        await export.invoices(client.invoices.egress(), target, scale=2)

    assert not target.exists()


@needs_pyarrow
@pytest.mark.parametrize(
    ("text", "precision", "scale", "fits"),
    [
        ("1.10", 3, 1, True), ("1.11", 3, 1, False), ("100", 3, 0, True), ("1E+2", 3, 0, True),
        ("1000", 3, 0, False), ("0.000", 2, 1, True), ("0E+9", 2, 1, True), ("-99.9", 3, 1, True),
        ("-100.0", 3, 1, False), ("0.01", 3, 1, False), ("1E+9", 38, 30, False),
    ],
)  # fmt: skip
def test_fit_of_a_decimal(text, precision, scale, fits):
    """A number fits if, and only if, Arrow holds it without rounding."""
    from invsvc_async import models
    from invsvc_async.codec import structure
    from invsvc_async.export.parquet import Columns

    item = structure(models.Invoice, {"uuid": "A", "total": Decimal(text)})
    columns = Columns(models.Invoice, precision, scale)
    if fits:
        assert columns.table([item])["total"].to_pylist() == [Decimal(text)]
    else:
        with pytest.raises(export.ExportError, match=r"A\.total"):
            columns.table([item])


@needs_pyarrow
async def test_parts_of_parquet(client, tmp_path):
    """A long list is written in parts, which are joined in their order."""
    from invsvc_async import models
    from invsvc_async.export.parquet import Columns, ParquetSink

    sink = ParquetSink(tmp_path / "out.parquet", Columns(models.Invoice), rows=4)
    items = await client.invoices.egress().collect()
    sink.open(None)
    marks = [sink.write(items[at : at + 3], last=at == 9) for at in (0, 3, 6, 9)]
    sink.close(whole=True)

    assert marks == [None, 1, None, 2]
    assert ids(tmp_path / "out.parquet") == [item.uuid for item in items]


async def test_field_that_breaks_its_type(service, client, target):
    """A field that is broken is named in its row; JSON has it as it came."""
    service.script("invoices.egress", "bad item")

    done = await export.invoices(client.invoices.egress(limit=100), target)

    assert done.rows == 12
    if target.suffix == ".csv":
        with target.open(newline="") as file:
            assert sum(bool(row["problems"]) for row in csv.DictReader(file)) == 1
    elif target.suffix == ".parquet":
        import pyarrow.parquet as pq

        assert (
            sum(bool(each) for each in pq.read_table(target)["problems"].to_pylist())
            == 1
        )


@pytest.mark.parametrize("on_page", [asyncio.sleep, "print"])
async def test_hook_that_is_never_called(on_page, client, tmp_path):
    """A hook that is async, or no function, is refused before there is a file."""
    with pytest.raises(ConfigurationError, match="on_page"):
        await export.invoices(
            client.invoices.egress(), tmp_path / "out.jsonl", on_page=on_page
        )

    assert list(tmp_path.iterdir()) == []


async def test_target_that_is_there(client, tmp_path):
    """A file that is there is never overwritten unasked."""
    target = tmp_path / "out.jsonl"
    target.write_text("precious")

    with pytest.raises(ConfigurationError, match="Use another path"):
        await export.invoices(client.invoices.egress(), target)
    assert target.read_text() == "precious"

    await export.invoices(client.invoices.egress(), target, overwrite=True)
    assert len(ids(target)) == 12


async def test_unfinished_export_that_is_there(service, client, tmp_path):
    """An unfinished export is neither begun anew nor gone on with unasked, nor in another shape."""
    target = tmp_path / "out.jsonl"
    await stopped(service, client, target, pages=1, limit=4)

    with pytest.raises(ConfigurationError, match="unfinished export"):
        await exported(client, target)
    with pytest.raises(ConfigurationError, match="Use the same settings"):
        await exported(client, target, format="csv", resume=True)


@pytest.mark.parametrize(
    "note",
    [
        "[" * 100_000 + "]" * 100_000,
        '{"token": 17, "mark": 0, "rows": 0, "shape": {}}',
        '{"token": "t", "mark": "0", "rows": 0, "shape": {}}',
        '{"token": "t", "mark": -1, "rows": 0, "shape": {"form": "jsonl", "precision": 38, "scale": 12}}',
        "{}",
        "\udcff",
    ],
    ids=["deep", "token", "mark", "negative", "empty", "not UTF-8"],
)
async def test_note_that_cannot_be_read(note, client, tmp_path):
    """The export is not continued, whatever is in the note, and its rows stay as they are."""
    target = tmp_path / "out.jsonl"
    target.write_text("rows\n")
    (tmp_path / "out.jsonl.resume").write_bytes(note.encode(errors="surrogateescape"))

    with pytest.raises(export.ExportError, match="Start over"):
        await export.invoices(client.invoices.egress(), target, resume=True)

    assert target.read_text() == "rows\n"


FORMULAS = [
    "=cmd()",
    "+1+1",
    "-1+1",
    "@SUM(A1)",
    "\t=1",
    "\r=1",
    "-",
    "=",
    "+52 55 1234",
    " =1",
    "  @a",
    "\uff1dcmd()",
    "\u3000\uff0b1",
    "\uff20a",
    "\uff0d1+1",
]
PLAIN = [
    "",
    "-5",
    "-1234567890.123456789",
    "1E+3",
    "-0.5e-7",
    "a=b",
    "a@b.example",
    " a",
    "2026-01-01",
]


@pytest.mark.parametrize("cell", FORMULAS + PLAIN)
def test_text_that_a_spreadsheet_may_run(cell):
    """A formula begins with an apostrophe; other text stays as it is, and money stays a number."""
    assert escaped_formula(cell) == (f"'{cell}" if cell in FORMULAS else cell)


async def test_formulas_in_csv(client, tmp_path):
    """They are escaped if asked for, also after an interruption; other formats refuse the option."""
    item = Invoice(uuid="=1+1", total=Decimal("-1.50"))
    plain, escaped = tmp_path / "plain.csv", tmp_path / "escaped.csv"
    for path, asked in ((plain, False), (escaped, True)):
        sink = TextSink(path, "csv", asked)
        sink.open(None)
        sink.write([item], last=True)
        sink.close(whole=True)

    assert ids(plain) == ["=1+1"]
    assert ids(escaped) == ["'=1+1"]
    assert ",-1.50," in escaped.read_text()
    await export.invoices(
        client.invoices.egress(), tmp_path / "out.csv", escape_formulas=True
    )
    assert len(ids(tmp_path / "out.csv")) == 12
    with pytest.raises(ConfigurationError, match="escape_formulas"):
        await export.invoices(
            client.invoices.egress(), tmp_path / "out.jsonl", escape_formulas=True
        )
