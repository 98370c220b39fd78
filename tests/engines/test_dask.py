"""Frames written by Dask itself, two worker processes, while one is killed."""

from __future__ import annotations

import os
import re
import time

import pytest

from invsvc_async import ConfigurationError
from tests.engines import tables
from tests.engines.programs import output_of

pytest.importorskip("distributed", reason="dask and distributed are not installed")
pytest.importorskip("dask.dataframe", reason="dask[dataframe] is not installed")

import dask.dataframe as dd
import pandas as pd
from distributed import Client as Cluster

from invsvc_async.engines.dask import send_frame

pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture(scope="module")
def service(patch):
    with tables.service_for("dask", patch) as running:
        yield running


@pytest.fixture(scope="module")
def cluster(service):
    """Yield two processes of one thread each, which are started again when they are killed."""
    with Cluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as running:
        yield running


def by_key(frame):
    return {row["key"]: row for row in frame.to_dict("records")}


def test_frame_whose_worker_is_killed(service, cluster):
    """Each row has one effect, in the order of its thing, and a true result; computed again, it replays."""
    rows = tables.table(service)
    frame = dd.from_pandas(pd.DataFrame(rows), npartitions=4).shuffle(
        "thing", npartitions=4
    )
    frame = frame.map_partitions(tables.sorted_frame)
    results = send_frame(frame, tables.write_of, key="order", client=tables.made)
    pids = [*cluster.run(os.getpid).values()]
    killer = tables.Killer(service, lambda: pids)
    killer.start()
    began = time.monotonic()
    # the database may be away for a while on a busy machine
    found = by_key(cluster.compute(results, retries=8).result())
    ended = time.monotonic()

    assert killer.killed is not None
    counts = tables.judge(service, rows, found)
    tables.told("Dask, 2 processes", began, ended, killer.killed, counts)
    assert counts["applied"] >= 0.9 * tables.ROWS
    again = by_key(cluster.compute(results, retries=8).result())
    applied = {key for key, each in found.items() if each["verdict"] == "applied"}
    assert all(again[key]["replayed"] for key in applied)
    tables.judge(service, rows, again)


def test_threads_of_one_process(service):
    """They share a client; what is missing is None in a row."""
    journey = service.seed_journey()["id"]
    rows = [
        {"order": f"threads-{number}", "journey": journey, "note": None}
        for number in range(8)
    ]

    def write_of(client, row):
        assert row["note"] is None
        return client.journeys.update(row["journey"], name=row["order"])

    frame = dd.from_pandas(pd.DataFrame(rows), npartitions=4)
    sent = send_frame(frame, write_of, key="order", client=tables.made)
    found = by_key(sent.compute(scheduler="threads"))
    assert {each["verdict"] for each in found.values()} == {"applied"}


def test_frame_without_the_column_of_keys():
    """It is said at once, with the columns that there are."""
    frame = dd.from_pandas(pd.DataFrame({"order": ["a"]}), npartitions=1)
    with pytest.raises(ConfigurationError, match="no column 'ordr', but order"):
        send_frame(frame, tables.write_of, key="ordr")


def test_program_of_the_docstring(patch, tmp_path):
    """It runs as it stands: a hundred rows are applied."""
    with tables.service_for("dask_program", patch, faults=None):
        assert re.search(r"applied\s+100", output_of("dask", tmp_path))
