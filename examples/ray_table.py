"""
Write a dataset of Ray, and count the verdicts of its rows.

``INVSVC_BASE_URL=… INVSVC_API_KEY=… INVSVC_JOURNAL=postgresql://… python ray_table.py``
"""

import ray

from invsvc_async.engines.ray import WriteRows

orders = ray.data.from_items(
    [{"order": f"order-{n}", "url": f"https://me.example/{n}"} for n in range(100)]
)


def write_of(client, row):
    """Return the write of a row."""
    return client.webhooks.create(url=row["url"], events=["invoice.created"])


results = orders.map_batches(
    WriteRows,
    fn_constructor_args=(write_of,),
    fn_constructor_kwargs={"key": "order"},
    batch_size=None,
    concurrency=2,
).materialize()
print(results.groupby("verdict").count().take_all())
