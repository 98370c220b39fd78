"""
Write a frame of Dask, and count the verdicts of its rows.

``INVSVC_BASE_URL=… INVSVC_API_KEY=… INVSVC_JOURNAL=postgresql://… python dask_table.py``
"""

import dask.dataframe as dd
import pandas as pd
from distributed import Client as Cluster

from invsvc_async.engines.dask import send_frame


def write_of(client, row):
    """Return the write of a row."""
    return client.webhooks.create(url=row["url"], events=["invoice.created"])


if __name__ == "__main__":
    rows = [
        {"order": f"order-{n}", "url": f"https://me.example/{n}"} for n in range(100)
    ]
    orders = dd.from_pandas(pd.DataFrame(rows), npartitions=4)
    with Cluster(n_workers=2, threads_per_worker=1):
        results = send_frame(orders, write_of, key="order").compute()
    print(results.verdict.value_counts())
