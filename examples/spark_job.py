"""
A Spark job whose writes have one effect, however often Spark runs its partitions.

``INVSVC_BASE_URL=… INVSVC_API_KEY=… INVSVC_JOURNAL=postgresql://… spark-submit job.py``

The job calls ``frame.foreachPartition(register)``.  The key of a write comes from a column: a partition
that Spark runs again has the same rows.  An error has it run again, ``spark.task.maxFailures`` times: a
secret that was lost with the answer must not be one, because it is lost in each run.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from invsvc_async import Client, Portal, SecretLostError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import Row


def register(rows: Iterable[Row]) -> None:
    """Create a webhook for each row, which has the columns ``order`` and ``url``."""
    with Portal(Client.from_env) as portal:
        for row in rows:
            key, url = f"register-{row['order']}", row["url"]
            write = portal.client.webhooks.create(url=url, events=["invoice.created"])
            with suppress(SecretLostError):  # the webhook exists
                portal.call(write.keyed(key))
