"""
Write the rows of a pipeline of dlt.

``INVSVC_BASE_URL=… INVSVC_API_KEY=… INVSVC_JOURNAL=calls.db python dlt_table.py``
"""

import dlt

from invsvc_async.engines.dlt import writes

ORDERS = [{"order": f"order-{n}", "name": f"Dunning {n}"} for n in range(100)]


def write_of(client, row):
    """Return the write of a row."""
    return client.journeys.update("jrn_1", name=row["name"])


pipeline = dlt.pipeline("orders", destination=writes(write_of, key="order"))
print(pipeline.run(ORDERS, table_name="orders"))
