"""Run the job of ``examples/spark_job.py`` on a Spark of its own, with a naive one beside, and wait for them."""

from __future__ import annotations

import os
import sys
from concurrent.futures import ThreadPoolExecutor

from pyspark.sql import SparkSession

from examples.spark_job import register
from tests.engines.naive import create


def naive(rows) -> None:
    """Do the naive thing."""
    for row in rows:
        create(row["order"])


if __name__ == "__main__":
    tasks = int(sys.argv[1])
    os.environ["PYSPARK_PYTHON"] = sys.executable  # of the workers
    # In local mode the second number stands for spark.task.maxFailures.
    spark = (
        SparkSession.builder.master("local[6,20]")
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )
    orders = [
        (f"order-{number}", f"https://k.example/order-{number}")
        for number in range(tasks)
    ]
    frame = (
        spark.createDataFrame(orders, "order string, url string")
        .repartition(max(1, tasks // 4))
        .cache()
    )
    frame.count()
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(frame.foreachPartition, (register, naive)))
    spark.stop()
