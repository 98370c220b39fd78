"""Datasets written by Ray itself, while an actor's process is killed."""

from __future__ import annotations

import os
import time

import pytest

from tests.engines import tables
from tests.engines.programs import output_of

pytest.importorskip("ray.data", reason="ray[data] is not installed")

import ray

from invsvc_async.engines.ray import InvsvcDatasink, WriteRows

pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture(scope="module")
def service(patch):
    # Ray's workers have niceness 15 otherwise, and stand still on a machine that does other things, too.
    patch.setenv("RAY_worker_niceness", "0")
    with tables.service_for("ray", patch) as running:
        yield running


@pytest.fixture(scope="module", autouse=True)
def cluster(service):
    settings = {"include_dashboard": False, "object_store_memory": 100_000_000}
    try:
        ray.init(num_cpus=6, **settings)
    except Exception as error:  # noqa: BLE001 - a node has 30 s to start, of whatever machine
        pytest.skip(f"Ray did not start: {error}")
    yield
    ray.shutdown()


def workers():
    """Return the processes of actors that send."""
    return tables.descendants(os.getpid(), "ray::MapWorker")


def test_dataset_whose_worker_is_killed(service):
    """Each row has one effect, in the order of its thing, and a true result; sent again, it replays."""
    rows = tables.table(service)
    # those of one thing in one batch
    together = sorted(rows, key=lambda row: (row["thing"], row["at"]))
    dataset = ray.data.from_items(together).repartition(keys=["thing"], num_blocks=4)
    # in memory: the shuffle has places of its own in the cluster
    dataset = dataset.map_batches(
        tables.sorted_table, batch_size=None, batch_format="pyarrow"
    ).materialize()

    def send():
        return dataset.map_batches(
            WriteRows, fn_constructor_args=(tables.write_of,),
            fn_constructor_kwargs={"key": "order", "client": tables.made}, batch_size=None, concurrency=2,
        ).take_all()  # fmt: skip

    killer = tables.Killer(service, workers)
    killer.start()
    began = time.monotonic()
    found = {row["key"]: row for row in send()}
    ended = time.monotonic()

    assert killer.killed is not None
    counts = tables.judge(service, rows, found)
    tables.told("Ray, 2 actors", began, ended, killer.killed, counts)
    assert counts["applied"] >= 0.9 * tables.ROWS
    again = {row["key"]: row for row in send()}
    applied = {key for key, each in found.items() if each["verdict"] == "applied"}
    assert all(again[key]["replayed"] for key in applied)
    tables.judge(service, rows, again)


def test_sink(service):
    """It counts verdicts, and raises if a row was not applied."""
    journey = service.seed_journey()["id"]
    rows = [
        {"order": f"sink-{number}", "journey": journey, "thing": ""}
        for number in range(5)
    ]
    sink = InvsvcDatasink(tables.write_of, key="order", client=tables.made)
    ray.data.from_items(rows).write_datasink(sink)
    assert (sink.counts.rows, sink.counts["applied"]) == (5, 5)

    rows[0] = {"order": "sink-bad", "journey": "jrn_gone", "thing": ""}
    bad = ray.data.from_items(rows)
    with pytest.raises(
        Exception, match="5 rows: 4 applied, 1 refused, 4 of them replayed"
    ):
        bad.write_datasink(
            InvsvcDatasink(tables.write_of, key="order", client=tables.made)
        )
    logs = InvsvcDatasink(
        tables.write_of, key="order", client=tables.made, incomplete="log"
    )
    bad.write_datasink(logs)
    assert logs.counts["refused"] == 1


def test_dataset_without_the_column_of_keys():
    """It is said with the columns that there are."""
    sink = InvsvcDatasink(tables.write_of, key="ordr", client=tables.made)
    with pytest.raises(Exception, match="the rows have no column 'ordr', but order"):
        ray.data.from_items([{"order": "a"}]).write_datasink(sink)


def test_program_of_the_docstring(patch, tmp_path):
    """It runs as it stands: a hundred rows are applied."""
    with tables.service_for("ray_program", patch, faults=None):
        try:
            output = output_of("ray", tmp_path)
        except AssertionError as error:
            if "timed out during startup" in str(error):
                pytest.skip("Ray did not start: a node has 30 s, of whatever machine")
            raise
    assert "'verdict': 'applied', 'count()': 100" in output
