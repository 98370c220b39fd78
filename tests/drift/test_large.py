"""A hundred thousand rows with fifty differences: all of them, no other, in little memory."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

pytestmark = pytest.mark.untraced

ROWS, NEWEST = 100_000, 1_790_000_000_000
MOST = 60  # MB
PROGRAM = """
import asyncio, json, resource, sys
from invsvc_async import ApiKey, Client
from invsvc_async.drift import Comparison

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 if sys.platform == "linux" else 1024)

async def main(url, path):
    async with Client(url, ApiKey("eyJ.a.b")) as client:
        await client.invoices.egress(limit=100)
        before = peak()
        comparison = Comparison(client, "invoices.egress", path, fields={"total": "amount"})
        found = [(str(each.kind), each.key, [part.field for part in each.fields]) async for each in comparison]
        print(json.dumps([found, comparison.rows_read, comparison.items_read, before, peak()]))

asyncio.run(main(*sys.argv[1:]))
"""


def uuid(number):
    return f"{number:08X}-0000-4000-8000-000000000000"


def invoice(number):
    """Return the wire form of an invoice; each is a minute older than the one before."""
    created = NEWEST - number * 60_000
    return (
        f'{{"uuid":"{uuid(number)}","created_at":{created},"date":{created},"currency":"MXN","invoice_type":"E",'
        f'"total":{number}.{number % 100:02},"status":"valid","series":"E","folio_number":{number}}}'
    )


async def listed(request):
    """Answer as the service does: newest first, in pages with a cursor."""
    query = request.query
    after, before = (
        int(query.get("created_after", 0)),
        int(query.get("created_before", NEWEST)),
    )
    first = max(int(query.get("next", 0)), -(-(NEWEST - before) // 60_000))
    end = min(ROWS, (NEWEST - after) // 60_000 + 1)
    numbers = range(first, min(first + int(query["limit"]), end))
    following = f'"{numbers.stop}"' if numbers.stop < end else "null"
    body = f'{{"success":true,"data":[{",".join(map(invoice, numbers))}],"next":{following},"timestamp":{NEWEST}}}'
    return web.Response(text=body, content_type="application/json")


def write_rows(path):
    """Write rows with fifty differences, and return these as the comparison names them."""
    planted = {}
    with path.open("w") as file:
        file.write("uuid,amount,status,created_at\n")
        for number in range(ROWS):
            amount, status, created = (
                f"{number}.{number % 100:02}0",
                "valid",
                NEWEST - number * 60_000,
            )
            match number % 2000:
                case 1999 if number < 80_000:
                    planted[uuid(number)] = ["not in rows", []]
                    continue
                case 1000 if number > 90_000:
                    amount = f"{number}.{number % 100:02}1"
                    planted[uuid(number)] = ["different", ["total"]]
            file.write(f"{uuid(number)},{amount},{status},{created}\n")
        for number in range(ROWS, ROWS + 50 - len(planted)):
            planted[uuid(number)] = ["not in service", []]
            file.write(f"{uuid(number)},1,valid,{NEWEST}\n")
    return planted


async def test_hundred_thousand_rows(tmp_path):
    """Fifty differences are found, no other is named, and memory grows by less than 60 MB."""
    planted = write_rows(tmp_path / "mine.csv")
    app = web.Application()
    app.router.add_get("/v2/invoices/egress", listed)
    async with TestServer(app, host="127.0.0.1") as server:
        running = await asyncio.create_subprocess_exec(
            "sh", "-c", '"$@"; exit $?', "sh",  # forks, as a program inherits the peak of the one that started it
            sys.executable, "-c", PROGRAM, str(server.make_url("/v2")), str(tmp_path / "mine.csv"),
            stdout=asyncio.subprocess.PIPE, cwd=Path(__file__).parents[2],
        )  # fmt: skip
        out, _ = await running.communicate()
    found, rows, items, before, after = json.loads(out)

    assert len(planted) == len(found) == 50
    assert {key: [kind, fields] for kind, key, fields in found} == planted
    assert (rows, items) == (ROWS - 40 + 5, ROWS)
    sys.stdout.write(
        f"peak: {before / 1024:.1f} MB before, {after / 1024:.1f} MB after\n"
    )
    assert (after - before) / 1024 < MOST
