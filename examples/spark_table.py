"""
Write a frame of Spark, and count the verdicts of its rows.

``INVSVC_BASE_URL=… INVSVC_API_KEY=… INVSVC_JOURNAL=postgresql://… python spark_table.py``
"""

from pyspark.sql import SparkSession

from invsvc_async.engines.spark import send_frame

spark = SparkSession.builder.getOrCreate()
orders = spark.createDataFrame(
    [(f"order-{n}", f"https://me.example/{n}") for n in range(100)],
    "order string, url string",
)


def write_of(client, row):
    """Return the write of a row."""
    return client.webhooks.create(url=row["url"], events=["invoice.created"])


results = send_frame(orders, write_of, key="order").cache()
results.groupBy("verdict").count().show()
