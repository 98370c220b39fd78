"""Tasks of Celery that are run again, in this process: no broker is needed for what the base class does."""

from __future__ import annotations

import pytest

from invsvc_async import (
    Client,
    ConfigurationError,
    KeyConflictError,
    ReconcilePolicy,
    ValidationFailedError,
    WriteNotAppliedError,
)
from invsvc_async.testing import serving
from tests.support.database import database
from tests.support.free_port import free_port

pytest.importorskip("celery", reason="celery is not installed")

from celery import Celery
from celery.exceptions import Retry

from invsvc_async.engines.celery import KeyedTask

pytestmark = pytest.mark.filterwarnings("default")

URL = "https://tasks.example/17"


class Quick(KeyedTask):
    abstract = True
    retry_backoff = False
    default_retry_delay = 0

    @staticmethod
    def make_client():
        policy = ReconcilePolicy(settle_after_error=0.1, settle_after_loss=0.3)
        return Client.from_env(reconcile=policy, on_secret=lambda *_: None)


@pytest.fixture(autouse=True)
def service(monkeypatch, request):
    with serving() as running:
        monkeypatch.setenv("INVSVC_BASE_URL", running.base_url)
        monkeypatch.setenv("INVSVC_API_KEY", running.api_key)
        place = database().at(namespace=request.node.name[:60], silence=1)
        monkeypatch.setenv("INVSVC_JOURNAL", place)
        yield running


@pytest.fixture
def register():
    app = Celery("tasks", broker="memory://", set_as_current=False)

    @app.task(base=Quick, bind=True, name="register")
    def task(task, url, name=""):
        write = task.client.webhooks.create(url=url, events=["invoice.created"])
        return task.send(write, name=name).id

    return task


def test_task_that_is_delivered_twice(service, register):
    """It has one effect, and both runs return the same."""
    first, again = (
        register.apply((URL,), task_id="order-17", throw=True).get() for _ in range(2)
    )
    other = register.apply((URL,), task_id="order-18", throw=True).get()
    assert first == again != other
    assert len(service.ledger.effects("webhooks.create")) == 2


def test_task_whose_answer_is_lost(service, register):
    """It is settled in its run."""
    service.script("webhooks.create", "reset")
    # a database that is late on a busy machine has it run again
    made = register.apply((URL,), task_id="order-17").get()
    assert [each.target for each in service.ledger.effects("webhooks.create")] == [made]


def test_task_that_is_limited(service, register):
    """It runs again, also after a 429 that says when."""
    service.script("webhooks.create", "429 after 1", "503", "503")
    made = register.apply((URL,), task_id="order-17").get()
    assert [each.target for each in service.ledger.effects("webhooks.create")] == [made]


def test_service_that_says_when_to_come_back(service, register):
    """Celery runs the task again then, and not before by its own backoff."""
    service.script("webhooks.create", "429 after 60")
    register.push_request(id="order-17", args=(URL,), called_directly=False)
    with pytest.raises(Retry) as caught:
        register.run(URL)
    register.pop_request()
    assert caught.value.when == 60
    assert not service.ledger.effects()


def test_task_whose_write_is_overtaken(service):
    """It fails in its first run: no further one would send its write."""
    app = Celery("tasks", broker="memory://", set_as_current=False)
    runs = []

    @app.task(base=Quick, bind=True, name="rename")
    def rename(task, name):
        runs.append(name)
        return task.send(task.client.journeys.update("jrn_1", name=name)).id

    service.script("journeys.update", "400")
    with pytest.raises(ValidationFailedError):
        rename.apply(("older",), task_id="older", throw=True)
    rename.apply(("newer",), task_id="newer", throw=True)
    with pytest.raises(WriteNotAppliedError):
        rename.apply(("older",), task_id="older", throw=True)
    assert runs == ["older", "newer", "older"]
    names = [each.body["name"] for each in service.ledger.effects("journeys.update")]
    assert names == ["newer"]


def test_two_writes_of_a_task(service, register):
    """The second needs a name; without one, its key has another write."""
    register.apply((URL,), task_id="order-17", throw=True)
    with pytest.raises(KeyConflictError) as caught:
        register.apply((f"{URL}/b",), task_id="order-17", throw=True)
    assert "send(write, name=…)" in caught.value.__notes__[0]
    register.apply((f"{URL}/b", "b"), task_id="order-17", throw=True)
    assert len(service.ledger.effects("webhooks.create")) == 2


def test_ids_with_a_slash(service, register):
    """A second write of one task is no write of another task, whose id looks like both."""
    register.apply((URL, "17"), task_id="customer", throw=True)
    register.apply((f"{URL}/b",), task_id="customer/17", throw=True)
    assert len(service.ledger.effects("webhooks.create")) == 2


def test_database_that_is_away_at_the_first_task(service):
    """The task runs again, as after any other error of the journal."""
    app = Celery("tasks", broker="memory://", set_as_current=False)
    runs = []

    class Away(Quick):
        abstract = True

        @staticmethod
        def make_client():
            gone = f"postgresql://postgres@127.0.0.1:{free_port()}/gone"
            return Client.from_env(journal=gone) if len(runs) < 2 else Quick.make_client()  # fmt: skip

    @app.task(base=Away, bind=True, name="rename")
    def rename(task):
        runs.append(task.request.retries)
        return task.send(task.client.journeys.update("jrn_1", name="May")).id

    assert rename.apply((), task_id="order-17").get() == "jrn_1"
    assert runs == [0, 1]
    assert len(service.ledger.effects("journeys.update")) == 1


def test_task_that_is_called_as_a_function(service, register):
    """It has no id, which is said in words; nothing is sent."""
    with pytest.raises(ConfigurationError, match="the task has no id"):
        register(URL)
    assert not service.ledger.effects()


def test_file_as_journal(service, register, monkeypatch, tmp_path):
    """Workers cannot share it, which is said in words."""
    monkeypatch.setenv("INVSVC_JOURNAL", str(tmp_path / "calls.db"))
    with pytest.raises(ConfigurationError, match="a file belongs to one process"):
        register.apply((URL,), task_id="order-17", throw=True)
    assert not service.ledger.effects()


def test_read_in_a_task(service):
    """``call`` returns its result; a write without a key is refused, and nothing is sent."""
    app = Celery("tasks", broker="memory://", set_as_current=False)

    @app.task(base=Quick, bind=True, name="read")
    def read(task):
        return task.call(task.client.users.get("usr_1")).id

    @app.task(base=Quick, bind=True, name="unkeyed")
    def unkeyed(task):
        return task.call(task.client.journeys.update("jrn_1", name="May"))

    assert read.apply((), task_id="read-1", throw=True).get() == "usr_1"
    with pytest.raises(ConfigurationError, match="call: the write has no key"):
        unkeyed.apply((), task_id="unkeyed-1", throw=True)
    assert not service.ledger.effects()
