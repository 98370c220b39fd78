"""Pipelines of dlt that are run again after errors of the service."""

from __future__ import annotations

from collections import Counter

import pytest

from invsvc_async import Client, ConfigurationError, ReconcilePolicy
from invsvc_async.testing import serving
from tests.engines.programs import output_of

pytest.importorskip("dlt", reason="dlt is not installed")

import dlt
from dlt.pipeline.exceptions import PipelineStepFailed

from invsvc_async.engines.dlt import writes

pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture
def service(monkeypatch, tmp_path):
    with serving() as running:
        monkeypatch.setenv("INVSVC_BASE_URL", running.base_url)
        monkeypatch.setenv("INVSVC_API_KEY", running.api_key)
        monkeypatch.setenv("INVSVC_JOURNAL", str(tmp_path / "calls.db"))
        monkeypatch.setenv("DLT_DATA_DIR", str(tmp_path / "dlt"))
        monkeypatch.setenv("RUNTIME__DLTHUB_TELEMETRY", "false")
        yield running


def made(deadline=30.0):
    policy = ReconcilePolicy(settle_after_error=0.1, settle_after_loss=0.3, deadline=deadline)  # fmt: skip
    return Client.from_env(reconcile=policy, on_secret=lambda *_: None)


def write_of(client, row):
    return client.journeys.update(row["journey"], name=row["order"])


def rows_of(service, *more, many=30):
    """Return rows that rename three journeys in turn, and *more* journeys."""
    journeys = [service.seed_journey()["id"] for _ in range(3)]
    return [
        {"order": f"order-{number:03}", "journey": journey}
        for number, journey in enumerate([*(journeys * many)[:many], *more])
    ]


def pipeline(tmp_path, **settings):
    destination = writes(write_of, key="order", client=made, **settings)
    return dlt.pipeline("orders", pipelines_dir=str(tmp_path / "p"), destination=destination)  # fmt: skip


def names(service):
    return Counter(each.body["name"] for each in service.ledger.effects())


def test_pipeline_whose_answers_are_lost(service, tmp_path):
    """Each row has one effect, in the order of its thing; run again, it replays."""
    service.script("journeys.update", "reset", "apply, then reset", "503")
    rows = rows_of(service)
    pipeline(tmp_path, batch_size=7).run(rows, table_name="orders")
    assert names(service) == {row["order"]: 1 for row in rows}
    shown = {}
    for entry in service.ledger.effects():
        assert entry.body["name"] > shown.get(entry.target, "")
        shown[entry.target] = entry.body["name"]

    pipeline(tmp_path).run(rows, table_name="orders")
    assert names(service) == {row["order"]: 1 for row in rows}


def test_rows_that_are_refused(service, tmp_path):
    """The load fails at once, with the counts; what was applied stays; with ``log`` it goes on."""
    rows = rows_of(service, "jrn_gone")
    with pytest.raises(PipelineStepFailed, match="30 applied, 1 refused"):
        pipeline(tmp_path).run(rows, table_name="orders")
    assert service.arrivals("journeys.update") == 31
    logs = pipeline(tmp_path / "b", incomplete="log")
    logs.run(rows, table_name="orders")
    assert names(service) == {row["order"]: 1 for row in rows[:-1]}


def test_rows_that_may_be_applied_later(service, tmp_path):
    """The load is run again by dlt, until each row has its effect."""
    service.script("journeys.update", *["429"] * 2)
    rows = rows_of(service, many=3)
    pipeline(tmp_path).run(rows, table_name="orders")
    assert names(service) == {row["order"]: 1 for row in rows}


def test_row_that_is_overtaken(service, tmp_path):
    """The load fails at once: no further run would send its write."""
    service.script("journeys.update", "400")
    older, newer = rows_of(service, many=4)[::3]
    with pytest.raises(PipelineStepFailed, match="1 refused"):
        pipeline(tmp_path / "a").run([older], table_name="orders")
    pipeline(tmp_path / "b").run([newer], table_name="orders")
    runs = []

    def counted(client, row):
        runs.append(row)
        return write_of(client, row)

    destination = writes(counted, key="order", client=made)
    again = dlt.pipeline("orders", pipelines_dir=str(tmp_path / "c"), destination=destination)  # fmt: skip
    with pytest.raises(PipelineStepFailed, match="1 not applied"):
        again.run([older], table_name="orders")
    assert len(runs) == 1
    assert names(service) == {newer["order"]: 1}


def test_column_that_is_not_there(service, tmp_path):
    """It is said in words, and the load is not run again."""
    destination = writes(write_of, key="ordr", client=made)
    wrong = dlt.pipeline("orders", pipelines_dir=str(tmp_path / "p"), destination=destination)  # fmt: skip
    with pytest.raises(
        PipelineStepFailed, match="no column 'ordr', but order, journey"
    ):
        wrong.run(rows_of(service), table_name="orders")
    with pytest.raises(ConfigurationError, match="concurrency"):
        writes(write_of, key="order", concurrency=0)


def test_secrets_that_nobody_would_get(service, tmp_path):
    """The load fails in words before a webhook is made, and is not run again."""
    url = "https://k.example/1"
    destination = writes(
        lambda client, row: client.webhooks.create(
            url=row["url"], events=["invoice.created"]
        ),
        key="order",
    )
    creates = dlt.pipeline("hooks", pipelines_dir=str(tmp_path / "p"), destination=destination)  # fmt: skip
    with pytest.raises(PipelineStepFailed, match="on_secret: is not set"):
        creates.run([{"order": "a", "url": url}], table_name="hooks")
    assert service.arrivals("webhooks.create") == 0


def test_program_of_the_docstring(service, tmp_path):
    """It runs as it stands: a journey is renamed a hundred times."""
    output_of("dlt", tmp_path)
    assert len(service.ledger.effects("journeys.update")) == 100
