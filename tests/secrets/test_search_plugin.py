"""The search for secrets is not blind: a leak that is planted in each place is found, and none where there is none."""

from __future__ import annotations

import json
import logging
import pickle
import sqlite3
import subprocess
import sys

import pytest

from invsvc_async import ApiKey, Client, Intent, InvsvcError, Outcome, Verdict
from invsvc_async.api.operations import BY_NAME
from invsvc_async.batch import Batch
from invsvc_async.codec import envelope
from invsvc_async.codec.envelope import Shape
from invsvc_async.events import Receiver, SharedHeader
from invsvc_async.models import Webhook
from invsvc_async.reconcile.facts import Known
from invsvc_async.reconcile.history import Evidence, Reading
from invsvc_async.reconcile.intent import Scope
from invsvc_async.reconcile.stored_intent import stored
from invsvc_async.simulator import Simulator
from tests.secrets.search_plugin import marking

pytestmark = [pytest.mark.no_secret_scan, pytest.mark.untraced]

TOKEN = "head-of-it.body-of-it.signature-of-it"
SCOPE = Scope(base_url="https://host.example/v2")


def intent_of(name):
    return Intent(
        key="k", operation="webhooks.delete", path={"id": name}, body=None, scope=SCOPE
    )


def outcome_of(**facts):
    facts = {"value": None, "message": "m", **facts}
    return Outcome(
        verdict=Verdict.APPLIED,
        evidence=Evidence(basis="b"),
        started_as=intent_of("wh_1"),
        **facts,
    )


def logged(_marks, _folder):
    logging.getLogger("invsvc_async").debug(
        "a request with %s", {"Authorization": TOKEN}
    )


def logged_with_its_error(_marks, _folder):
    logging.getLogger("aiohttp.client").error("it failed", exc_info=ValueError(TOKEN))


def in_an_error(_marks, _folder):
    InvsvcError(f"refused {TOKEN}")


def in_the_cause_of_an_error(_marks, _folder):
    InvsvcError("refused").__cause__ = ValueError(TOKEN)


def in_an_attribute_of_an_error(_marks, _folder):
    InvsvcError("refused").left = TOKEN  # which a pickle carries


def in_an_intent(_marks, _folder):
    intent_of(TOKEN)


def in_an_intent_that_is_revised(_marks, _folder):
    before = Reading(started=0.0, ended=1.0, status=200, seen={"description": TOKEN})
    stored(Known(BY_NAME["webhooks.delete"], intent_of("wh_1"), (before,)))


def in_an_answer(_marks, _folder):
    body = json.dumps({"success": True, "data": {}, "message": TOKEN}).encode()
    envelope.read_success(
        body, status=200, headers={}, shape=Shape.STANDARD, operation="webhooks.get"
    )


def in_an_outcome(_marks, _folder):
    outcome_of(message=TOKEN)


def in_the_value_of_an_outcome(_marks, _folder):
    outcome_of(value=Webhook(id=TOKEN))


def in_a_repr(marks, _folder):
    marks.things.append([TOKEN])


def half_of_it(marks, _folder):
    marks.say("output", "…signature-of-it…")


def in_a_file_of_a_journal(_marks, folder):
    db = sqlite3.connect(folder / "journal.db")
    db.execute("CREATE TABLE entries (intent TEXT)")
    db.execute("INSERT INTO entries VALUES (?)", [json.dumps({"a": TOKEN})])
    db.commit()
    db.close()


def in_a_report(_marks, folder):
    (folder / "report.html").write_text(f"<td>{TOKEN}</td>")


def in_a_table_of_columns(_marks, folder):
    parquet = pytest.importorskip("pyarrow.parquet")
    table = pytest.importorskip("pyarrow").table({"secret": [TOKEN] * 3})
    parquet.write_table(
        table, folder / "export.parquet", compression="zstd", use_dictionary=True
    )


def in_a_pickle(_marks, folder):
    (folder / "kept.pickle").write_bytes(pickle.dumps(ValueError(TOKEN)))


def on_the_output_of_a_program(_marks, _folder):
    subprocess.run(  # noqa: S603
        [sys.executable, "-c", f"print('{TOKEN}')"],
        capture_output=True,
        text=True,
        check=True,
    )


def in_a_span(_marks, _folder):
    sdk = pytest.importorskip("opentelemetry.sdk.trace")
    sdk.TracerProvider(shutdown_on_exit=False).get_tracer("t").start_span(
        "s", attributes={"a": TOKEN}
    ).end()


PLACES = [
    half_of_it, in_a_file_of_a_journal, in_a_pickle, in_a_report, in_a_repr, in_a_span, in_a_table_of_columns,
    in_an_answer, in_an_attribute_of_an_error, in_an_error, in_an_intent, in_an_intent_that_is_revised,
    in_an_outcome, in_the_cause_of_an_error, in_the_value_of_an_outcome, logged, logged_with_its_error, on_the_output_of_a_program,
]  # fmt: skip


@pytest.mark.parametrize("leak", PLACES, ids=lambda leak: leak.__name__)
def test_leak_in_a_place(leak, tmp_path):
    """It is found, though nobody told the search where to look."""
    with marking() as marks:
        ApiKey(TOKEN)
        leak(marks, tmp_path)

        assert marks.hits() or marks.files(tmp_path)


def test_secret_that_is_taken():
    """Credentials, shared headers and webhook secrets are known as secrets from where they come in."""
    with marking() as marks:
        ApiKey("token-of-a-client")
        SharedHeader("X-Mine", "value-of-a-header")
        Receiver(secrets=b"secret-of-a-webhook")

        assert marks.secrets == {
            "token-of-a-client",
            "value-of-a-header",
            "secret-of-a-webhook",
        }


async def test_secret_of_a_service_that_is_whole(tmp_path):
    """Of a whole batch nothing shows a secret; a row that is changed to hold one does."""
    path = tmp_path / "run.db"
    with marking() as marks:
        async with (
            Simulator() as service,
            Client(service.base_url, ApiKey(service.api_key)) as client,
        ):
            hook = client.webhooks.create(
                url="https://me.example/in", events=["invoice.created"]
            )
            async with Batch.open(path, client, on_secret=lambda *_: None) as batch:
                results = [each async for each in batch.run([hook])]
            assert (len(results), len(marks.secrets) >= 2) == (1, True)
            assert (marks.hits(), marks.files(tmp_path)) == ([], [])
            db = sqlite3.connect(path)
            db.execute("CREATE TABLE leak (text TEXT)")
            db.execute("INSERT INTO leak VALUES (?)", [service.api_key])
            db.commit()
            db.close()

        assert marks.files(tmp_path)
