"""A hundred thousand invoices with fifty duplicates: all of them, no other as certain, in little memory."""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

pytestmark = pytest.mark.untraced

INVOICES, NEWEST = 100_000, 1_790_000_000_000
PLANTED = 50
MOST = 60  # MB
PROGRAM = """
import json, resource, sys
from invsvc_async.cli.app import run

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 if sys.platform == "linux" else 2**20)

before = peak()
code = run(["audit", "invoices", "--json"])
print(json.dumps([code, before, peak()]))
"""


def planted():
    """Return the numbers of invoices that repeat another one: by the key of that, or by its contents alone."""
    chosen = random.Random(7).sample(range(10, INVOICES, 4), 2 * PLANTED)
    by_key = dict(zip(chosen[:PLANTED:2], chosen[1:PLANTED:2], strict=True))
    by_key |= {
        number + 1: number for number in chosen[PLANTED : PLANTED + PLANTED // 2]
    }
    return by_key, {number + 1: number for number in chosen[-20:]}


BY_KEY, BY_CONTENT = planted()


def uuid(number):
    return f"{number:08X}-0000-4000-8000-000000000000"


def invoice(number):
    """Return the wire form of an invoice; each is a minute older than the one before."""
    created = NEWEST - number * 60_000
    key = BY_KEY.get(number, number)
    same = BY_CONTENT.get(number, key)
    items = (
        f'[{{"id":"item_{number}","description":"Return","quantity":1,"unit_price":{same}.5,"product_key":"84111506",'
        f'"unit_key":"ACT"}}]'
    )
    return (
        f'{{"uuid":"{uuid(number)}","created_at":{created},"date":{created},"currency":"MXN","invoice_type":"E",'
        f'"total":{same}.5,"status":"valid","series":"E","folio_number":{number},"idempotency_key":"order-{key}",'
        f'"client":{{"id":"cli_{same}"}},"items":{items},"related_documents":[]}}'
    )


async def listed(request):
    """Answer as the service does: newest first, in pages with a cursor; two pages overlap, as new ones are made."""
    query = request.query
    first = int(query.get("next", 0))
    numbers = range(first, min(first + int(query["limit"]), INVOICES))
    following = f'"{numbers.stop - 3}"' if numbers.stop < INVOICES else "null"
    body = f'{{"success":true,"data":[{",".join(map(invoice, numbers))}],"next":{following},"timestamp":{NEWEST}}}'
    return web.Response(text=body, content_type="application/json")


async def test_hundred_thousand_invoices(tmp_path):
    """Fifty duplicates are found, no other is certain, and the whole process takes less than 60 MB."""
    app = web.Application()
    app.router.add_get("/v2/invoices/egress", listed)
    async with TestServer(app, host="127.0.0.1") as server:
        running = await asyncio.create_subprocess_exec(
            "sh", "-c", '"$@"; exit $?', "sh",  # forks, as a program inherits the peak of the one that started it
            sys.executable, "-c", PROGRAM, stdout=asyncio.subprocess.PIPE, cwd=tmp_path,
            env={
                **os.environ, "PYTHONPATH": str(Path(__file__).parents[2]),
                "INVSVC_BASE_URL": str(server.make_url("/v2")), "INVSVC_API_KEY": "eyJ.a.b",
            },
        )  # fmt: skip
        out, _ = await running.communicate()
    *lines, summary, measured = map(json.loads, out.splitlines())
    code, before, after = measured
    found = {
        sure: sorted(
            sorted(item["uuid"] for item in each["items"])
            for each in lines
            if each["certainty"] == sure
        )
        for sure in ("certain", "likely")
    }

    assert len(BY_KEY) == PLANTED
    assert found["certain"] == sorted(
        sorted(map(uuid, pair)) for pair in BY_KEY.items()
    )
    assert found["likely"] == sorted(
        sorted(map(uuid, pair)) for pair in BY_CONTENT.items()
    )
    assert (code, summary["complete"], summary["certain"]) == (1, True, PLANTED)
    sys.stdout.write(f"peak: {before:.1f} MB before, {after:.1f} MB after\n")
    assert after < MOST
