"""Frames written by Spark itself, local[2], while a worker is killed."""

from __future__ import annotations

import os
import re
import shutil
import time

import pytest

from tests.engines import tables
from tests.engines.programs import output_of

pytest.importorskip("pyspark", reason="pyspark is not installed")
if shutil.which("java") is None:
    pytest.skip("Spark needs Java, which is not installed", allow_module_level=True)

from pyspark.sql import SparkSession

from invsvc_async.engines.spark import register, send_frame

pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture(scope="module")
def service(patch):
    with tables.service_for("spark", patch) as running:
        yield running


@pytest.fixture(scope="module")
def spark(service):
    """Yield a session, whose workers have the environment of the service."""
    builder = SparkSession.builder.master("local[2,8]").config(
        "spark.ui.enabled", "false"
    )
    session = builder.config("spark.sql.shuffle.partitions", "4").getOrCreate()
    yield session
    session.stop()


def workers():
    """Return the Python workers of this program's Spark, without their daemon."""
    return tables.descendants(os.getpid(), "pyspark.daemon")[:-1]


def by_key(rows):
    return {row["key"]: row.asDict() for row in rows}


def test_frame_whose_worker_is_killed(service, spark):
    """Each row has one effect, in the order of its thing, and a true result; computed again, it replays."""
    rows = tables.table(service)
    frame = (
        spark.createDataFrame(rows).repartition(4, "thing").sortWithinPartitions("at")
    )
    results = send_frame(frame, tables.write_of, key="order", client=tables.made)
    killer = tables.Killer(service, workers)
    killer.start()
    began = time.monotonic()
    found = by_key(results.collect())
    ended = time.monotonic()

    assert killer.killed is not None
    counts = tables.judge(service, rows, found)
    tables.told("Spark local[2]", began, ended, killer.killed, counts)
    assert counts["applied"] >= 0.9 * tables.ROWS
    again = by_key(results.collect())
    applied = {key for key, each in found.items() if each["verdict"] == "applied"}
    assert all(again[key]["replayed"] for key in applied)
    tables.judge(service, rows, again)


def test_frame_without_the_column_of_keys(spark):
    """It is said at once, with the columns that there are."""
    frame = spark.createDataFrame([("a", 1)], "order string, at int")
    with pytest.raises(
        Exception, match="the rows have no column 'ordr', but order, at"
    ):
        send_frame(frame, tables.write_of, key="ordr")


def test_format(service, spark):
    """Columns are the arguments; what is not applied is raised with the counts."""
    register(spark)
    journey = service.seed_journey()["id"]
    rows = [(f"format-{number}", journey, f"Name {number}") for number in range(5)]
    frame = spark.createDataFrame(rows, "order string, journey string, name string")
    options = {"operation": "journeys.update", "key": "order"}
    frame.write.format("invsvc").options(**options).mode("append").save()
    shown = [
        entry.body["name"]
        for entry in service.ledger.effects("journeys.update")
        if entry.target == journey
    ]
    assert sorted(shown) == [f"Name {number}" for number in range(5)]

    bad = spark.createDataFrame(
        [("bad-1", journey, "Yes"), ("bad-2", "jrn_gone", "No")],
        "order string, journey string, name string",
    )
    with pytest.raises(Exception, match="2 rows: 1 applied, 1 refused"):
        bad.write.format("invsvc").options(**options).mode("append").save()
    with pytest.raises(Exception, match="operation: is missing"):
        bad.write.format("invsvc").option("key", "order").mode("append").save()
    with pytest.raises(Exception, match="writes cannot be overwritten"):
        bad.write.format("invsvc").options(**options).mode("overwrite").save()
    for name, wrong in {"concurrency": "many", "rate": "slow"}.items():
        with pytest.raises(Exception, match=f"{name}: takes .* not '{wrong}'"):
            bad.write.format("invsvc").options(**options, **{name: wrong}).mode(
                "append"
            ).save()
    with pytest.raises(Exception, match="rat: is no option of the format invsvc"):
        bad.write.format("invsvc").options(**options, rat="9").mode("append").save()


def test_program_of_the_docstring(patch, tmp_path):
    """It runs as it stands: a hundred rows are applied."""
    with tables.service_for("spark_program", patch, faults=None):
        assert re.search(r"\|applied\|\s+100\|", output_of("spark", tmp_path))
