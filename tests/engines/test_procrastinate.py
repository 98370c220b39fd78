"""Jobs on real workers of procrastinate, one of which is killed."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from invsvc_async import Client, ReconcilePolicy, Timeouts
from tests.engines.programs import ROOT, program_of
from tests.support.database import database
from tests.support.waiting import until

pytest.importorskip("procrastinate", reason="procrastinate is not installed")

from procrastinate import App, RetryDecision
from procrastinate.exceptions import ConnectorException
from procrastinate.jobs import Status
from procrastinate.testing import InMemoryConnector

from invsvc_async.engines.procrastinate import AGAIN, KeyedJobs

pytestmark = pytest.mark.filterwarnings("default")

URL = "https://jobs.example/17"
EVENTS = ["invoice.created"]


@pytest.fixture
def service(service_in_environment, monkeypatch):
    monkeypatch.setenv("DATABASE", database().address)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return service_in_environment


def made():
    policy = ReconcilePolicy(settle_after_error=0.1, settle_after_loss=0.3)
    return Client.from_env(reconcile=policy, timeout=Timeouts(attempt=2.0), on_secret=lambda *_: None)  # fmt: skip


def targets(service):
    return [entry.target for entry in service.ledger.effects("webhooks.create")]


async def database_ready(app):
    try:
        await app.schema_manager.apply_schema_async()
    except ConnectorException:  # it has it from another test
        await app.connector.execute_query_async("TRUNCATE procrastinate_jobs CASCADE")


async def test_job_that_was_deferred_by_import_and_its_worker_killed(service):
    """The program of the example finds the task by its name; another worker goes on, with one effect."""
    from examples import procrastinate_tasks as example

    service.script("webhooks.create", "apply, then hang")
    async with example.app.open_async() as app:
        await database_ready(app)
        job = await example.register.defer_async(url=URL)
        program = [sys.executable, "-m", "examples.procrastinate_tasks"]
        with subprocess.Popen(program, cwd=ROOT) as worker:  # noqa: S603, ASYNC220 - it is quick
            try:
                await until(lambda: targets(service) or worker.poll() is not None)
                assert worker.poll() is None
            finally:
                worker.kill()
        # as the minute's job does, later
        [stored] = await app.job_manager.list_jobs_async(id=job)
        await app.job_manager.retry_job(stored)
        await app.run_worker_async(wait=False, install_signal_handlers=False)
        status = await app.job_manager.get_job_status_async(job)

    # its secret was lost with the answer, which no further run changes
    assert (status, len(targets(service))) == (Status.FAILED, 1)
    assert service.arrivals("webhooks.create") == 1


@pytest.fixture
def app():
    return App(connector=InMemoryConnector())


@pytest.fixture
def register(app):
    keyed = KeyedJobs(app, made, stalled=None)

    @app.task(name="register", pass_context=True, retry=Soon())
    async def task(context, url, name=""):
        write = keyed.client.webhooks.create(url=url, events=EVENTS)
        return (await keyed.send(context, write, name=name)).id

    return task


class Soon(type(AGAIN)):
    """As AGAIN, at once."""

    def get_retry_decision(self, *, exception, job):
        found = super().get_retry_decision(exception=exception, job=job)
        return found and RetryDecision(retry_in={"seconds": 0})


async def done(app):
    """Run a worker until no job is left; return the states of jobs."""
    await app.run_worker_async(wait=False, install_signal_handlers=False)
    return [job["status"] for job in app.connector.jobs.values()]


async def test_job_that_runs_again(service, app, register):
    """After a 429 that says when, and a lost answer, it has one effect; each job its own."""
    service.script("webhooks.create", "429 after 1", "reset")
    async with app.open_async():
        for number in range(2):
            await register.defer_async(url=f"{URL}-{number}")
        assert await done(app) == ["succeeded"] * 2
        runs = [job["attempts"] for job in app.connector.jobs.values()]
        # its worker was killed before it could say that it was done
        app.connector.jobs[1]["status"] = "todo"
        assert await done(app) == ["succeeded"] * 2
    assert sum(runs) >= 3
    assert len(targets(service)) == 2


async def test_job_whose_write_is_overtaken(service, app):
    """It fails at once: no further run would send its write."""
    keyed = KeyedJobs(app, made, stalled=None)

    @app.task(name="rename", pass_context=True, retry=Soon())
    async def rename(context, name):
        await keyed.send(context, keyed.client.journeys.update("jrn_1", name=name))

    service.script("journeys.update", "400")
    async with app.open_async():
        for name in ("older", "newer"):
            await rename.defer_async(name=name)
            await done(app)
        older = app.connector.jobs[1]
        older["status"] = "todo"  # somebody has it run again
        before = older["attempts"]
        assert await done(app) == ["failed", "succeeded"]
        assert older["attempts"] - before <= 1
    names = [each.body["name"] for each in service.ledger.effects("journeys.update")]
    assert names == ["newer"]


async def test_two_writes_of_a_job(service, app):
    """The second needs a name; without one, its key has another write, and the job fails at once."""
    keyed = KeyedJobs(app, made, stalled=None)

    @app.task(name="both", pass_context=True, retry=AGAIN)
    async def both(context, name):
        for given, url in (("", f"{URL}/a"), (name, f"{URL}/b")):
            write = keyed.client.webhooks.create(url=url, events=EVENTS)
            await keyed.send(context, write, name=given)

    async with app.open_async():
        await both.defer_async(name="")
        await both.defer_async(name="b")
        assert await done(app) == ["failed", "succeeded"]
    assert len(targets(service)) == 3


async def test_stalled_jobs(app):
    """A job that runs each minute gives them to others, under a name that every module has."""
    KeyedJobs(app, made)
    [periodic] = app.periodic_registry.periodic_tasks.values()
    assert (periodic.task.name, periodic.cron) == (
        "invsvc.run_stalled_jobs",
        "* * * * *",
    )
    async with app.open_async():
        await app.configure_task("register").defer_async(url=URL)
        [job] = app.connector.jobs.values()
        job["status"] = "doing"  # by a worker that is not there any more
        await periodic.task.func(0)
        assert job["status"] == "todo"


async def test_file_as_journal(service, app, register, monkeypatch, tmp_path):
    """Workers cannot share it: the job fails at once, and nothing is sent."""
    monkeypatch.setenv("INVSVC_JOURNAL", str(tmp_path / "calls.db"))
    async with app.open_async():
        await register.defer_async(url=URL)
        assert await done(app) == ["failed"]
    assert not targets(service)


def test_program_of_the_docstring(service, tmp_path):
    """It is a module that a worker can be started with."""
    (tmp_path / "jobs.py").write_text(program_of("procrastinate"), encoding="utf-8")
    say = "from jobs import app; app.perform_import_paths(); print(*app.tasks)"
    ran = subprocess.run(  # noqa: S603 - the project's own program
        [sys.executable, "-c", say], cwd=tmp_path, capture_output=True, text=True, check=False,
        env={**os.environ, "INVSVC_JOURNAL": database().address},
    )  # fmt: skip
    assert "register" in ran.stdout, ran.stderr
