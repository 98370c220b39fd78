"""
A process that sends a table, and prints each result as a line; tests kill it.

    python -m tests.engines.rows_child BASE_URL API_KEY JOURNAL ROWS [UPDATES]

Rows create webhooks; the first *UPDATES* rename one of four journeys instead.
"""

from __future__ import annotations

import json
import sys
from functools import partial

from invsvc_async import ApiKey, Client, ReconcilePolicy, Timeouts
from invsvc_async.engines.rows import send_rows

JOURNEYS = 4


def made(base_url, api_key, journal):
    policy = ReconcilePolicy(
        settle_after_error=0.2, settle_after_loss=0.5, reads_lag=0.05, deadline=30.0
    )
    return Client(
        base_url, ApiKey(api_key), journal=journal, reconcile=policy,
        timeout=Timeouts(attempt=2.0, connect=2.0), on_secret=lambda key, webhook: None,
    )  # fmt: skip


def write_of(client, row):
    if row["journey"] is not None:
        return client.journeys.update(row["journey"], name=row["order"])
    url = f"https://rows.example/{row['order']}"
    return client.webhooks.create(url=url, events=["invoice.created"])


def rows_of(many, updates, journeys):
    return [
        {
            "order": f"row-{number}",
            "journey": journeys[number % JOURNEYS] if number < updates else None,
        }
        for number in range(many)
    ]


if __name__ == "__main__":
    base_url, api_key, journal, many, *more = sys.argv[1:]
    rows = rows_of(int(many), int(more[0]) if more else 0, more[1:])
    client = partial(made, base_url, api_key, journal)
    for result in send_rows(rows, write_of, key="order", client=client, concurrency=8):
        print(json.dumps(result.to_dict()), flush=True)  # noqa: T201 - the output
