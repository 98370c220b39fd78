"""
One process of an application with an outbox, which is there to be killed.

    python -m tests.outbox.child BASE_URL API_KEY ADDRESS DATABASE THINGS ORDERS

It makes orders in transactions, of which 30 % roll back, until the whole application has tried ORDERS; it sends what
is committed, and stores each verdict that it is given.  Each order changes one of THINGS, separated by commas.  Some are
not to be sent before a time.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import asyncpg

from invsvc_async import ApiKey, Client, Outbox, ReconcilePolicy, Timeouts
from tests.soak.reasons import plain_of

TABLES = """
CREATE SEQUENCE tries;
CREATE TABLE things (id text PRIMARY KEY, orders int NOT NULL DEFAULT 0);
CREATE TABLE orders (key text PRIMARY KEY, thing text NOT NULL, number int NOT NULL, due timestamptz);
CREATE TABLE verdicts (key text NOT NULL, verdict text NOT NULL, why text NOT NULL, reason text NOT NULL);
"""
# Late effects of the service land within 0.15 s: well inside the windows, on a busy machine too.
POLICY = ReconcilePolicy(settle_after_error=0.5, settle_after_loss=0.6, deadline=60.0)
WRITERS = 4
LATER = 0.15  # of the orders are not to be sent for up to
WAIT = 4.0  # s


class Undone(Exception):  # noqa: N818 - it is no error
    """Rolls an order back."""


async def order(pool, outbox, client, things, number):
    """Make one order: its row, and the write that goes with it."""
    thing = random.choice(things)
    with suppress(Undone):
        async with pool.acquire() as connection, connection.transaction():
            text = (
                "UPDATE things SET orders = orders + 1 WHERE id = $1 RETURNING orders"
            )
            place = await connection.fetchval(text, thing)
            key = f"order-{number}"
            wait = timedelta(seconds=random.uniform(0.0, WAIT))
            due = datetime.now(UTC) + wait if random.random() < LATER else None
            text = "INSERT INTO orders VALUES ($1, $2, $3, $4)"
            await connection.execute(text, key, thing, place, due)
            # the team of the credential, by its name or not: teams take turns, each thing keeps its order
            view = client.for_team("team_1") if random.random() < 0.3 else client
            write = view.webhooks.update(thing, description=key).keyed(key)
            await outbox.enqueue(connection, write, not_before=due)
            if random.random() < 0.3:
                raise Undone


async def main(url, key, address, database, things, orders):
    client = Client(
        url,
        ApiKey(key),
        reconcile=POLICY,
        timeout=Timeouts(attempt=1.0),
        max_concurrency=64,
    )
    names, ended = things.split(","), asyncio.Event()
    async with (
        client,
        Outbox.open(address, client) as outbox,
        asyncpg.create_pool(database, min_size=1, max_size=6) as pool,
    ):

        async def keep(result):
            text = "INSERT INTO verdicts VALUES ($1, $2, $3, $4)"
            reason = json.dumps(plain_of(result.outcome))
            await pool.execute(
                text, result.key, str(result.verdict), result.outcome.message, reason
            )

        async def work():
            while (number := await pool.fetchval("SELECT nextval('tries')")) <= int(
                orders
            ):
                await order(pool, outbox, client, names, number)

        async with outbox.dispatching(on_result=keep):
            await asyncio.gather(*(work() for _ in range(WRITERS)))
            await ended.wait()  # killed by whoever began it


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
