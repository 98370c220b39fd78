"""A client for code without ``async``: one loop in a thread, which any number of threads call."""

from __future__ import annotations

import asyncio
import contextvars
import ctypes
import os
import signal
import subprocess
import sys
import threading
import traceback
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

import pytest

from invsvc_async import (
    AmbiguousWriteError,
    ApiKey,
    Batch,
    Client,
    ConfigurationError,
    NotFoundError,
    Portal,
    ReadRetries,
    ReconcilePolicy,
    Verdict,
)
from invsvc_async.testing import serving
from tests.support.waiting import block_until, forever

pytestmark = pytest.mark.filterwarnings("error")

HOOK = {"url": "https://me.example/in", "events": ["invoice.created"]}
signals = pytest.mark.skipif(
    not hasattr(signal, "SIGUSR1"), reason="Windows has no such signals"
)
forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows cannot fork")


@pytest.fixture(scope="module", autouse=True)
def running():
    with serving() as service:
        yield service


@pytest.fixture
def service(running):
    """Return the service, with no effects of earlier tests among those that this one counts."""
    running.begun = len(running.ledger.effects())
    return running


def made(service, **settings):
    policy = ReconcilePolicy(
        settle_after_error=0.05, settle_after_loss=0.2, deadline=30.0, reads_lag=0.05
    )
    return lambda: Client(
        service.base_url, ApiKey(service.api_key), reconcile=policy, **settings
    )


@pytest.fixture
def portal(service):
    with Portal(made(service)) as opened:
        yield opened


def effects(service):
    return service.ledger.effects()[service.begun :]


def threads_of_portals():
    found = [
        thread for thread in threading.enumerate() if thread.name == "invsvc portal"
    ]
    return found[1:]  # the first one runs the service


# --- what it is for


def test_read_write_and_list(portal, service):
    """Reads, writes, outcomes and lists work as with async, and have the results of their methods."""
    client = portal.client
    journey = portal.call(client.journeys.get("jrn_1"))
    renamed = portal.call(client.journeys.update(journey, name="May"))
    outcome = portal.call(client.webhooks.create(**HOOK).outcome())
    page = portal.call(client.invoices.egress(limit=2))
    listed = [
        invoice.uuid for invoice in portal.iterate(client.invoices.egress(limit=2))
    ]

    assert (journey.id, renamed.name, outcome.verdict, len(page)) == (
        "jrn_1",
        "May",
        Verdict.APPLIED,
        2,
    )
    assert len(listed) == len(set(listed)) > 2
    assert [entry.operation for entry in effects(service)] == [
        "journeys.update",
        "webhooks.create",
    ]


def test_error_of_a_call(portal):
    """It is raised in the calling thread, with the line that called."""
    with pytest.raises(NotFoundError) as caught:
        portal.call(portal.client.journeys.get("nowhere"))
    assert "portal.call(portal.client.journeys.get" in "".join(
        traceback.format_exception(caught.value)
    )


def test_many_threads(portal, service):
    """Writes of twenty threads go through one client: each once, and those to one journey in turn."""
    journeys = [service.seed_journey()["id"] for _ in range(5)]

    def rename(number):
        return portal.call(
            portal.client.journeys.update(
                journeys[number % 5], name=f"Name {number}"
            ).outcome()
        )

    with ThreadPoolExecutor(20) as pool:
        outcomes = list(pool.map(rename, range(40)))

    assert {outcome.verdict for outcome in outcomes} == {Verdict.APPLIED}
    assert len(effects(service)) == 40
    last = {entry.target: entry.body["name"] for entry in effects(service)}
    assert {
        each: portal.call(portal.client.journeys.get(each)).name for each in journeys
    } == last
    assert len(threads_of_portals()) == 1


def test_lost_answer(portal, service):
    """The calling thread waits until the write is settled, and gets the verdict of the ledger."""
    service.script("journeys.update", "apply, then reset")
    outcome = portal.call(portal.client.journeys.update("jrn_1", name="Lost").outcome())
    assert (outcome.verdict, len(effects(service))) == (Verdict.APPLIED, 1)


def test_results_of_a_batch(portal, service, tmp_path):
    """A batch is entered beside the client, and its results are iterated over."""
    batch = portal.enter(Batch.open(tmp_path / "run.db", portal.client))
    writes = [
        portal.client.journeys.update("jrn_1", name=f"N {n}").keyed(f"row-{n}")
        for n in range(5)
    ]
    results = list(portal.iterate(batch.run(writes)))
    assert sorted(result.key for result in results if result.applied) == [
        f"row-{n}" for n in range(5)
    ]
    assert len(effects(service)) == 5


CALLER = contextvars.ContextVar("CALLER", default="nobody")


async def who():
    return CALLER.get()


async def whose():
    token = CALLER.set(f"{CALLER.get()}, inside")
    try:
        for _ in range(2):
            yield CALLER.get()
    finally:
        CALLER.reset(token)


def test_context_of_the_caller(portal):
    """A call, an iteration and what is entered see the context variables of the thread that calls."""

    @asynccontextmanager
    async def manager():
        yield CALLER.get()

    CALLER.set("main")
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(lambda: portal.call(who())).result() == "nobody"
    assert portal.call(who()) == "main"
    assert (
        list(portal.iterate(whose())) == ["main, inside"] * 2
    )  # its token fits the context that it is reset in
    assert portal.enter(manager()) == "main"


def test_each_item_is_asked_for(portal):
    """Asking for the next result of a batch or an outbox acknowledges the one before: none is read ahead."""
    asked = []

    async def items():
        for number in range(3):
            asked.append(number)
            yield number

    found = portal.iterate(items())
    assert (next(found), asked, next(found), asked) == (0, [0, 1], 1, [0, 1])


def test_iteration_that_is_left(portal):
    """The generator behind it is closed in the loop."""
    closed = threading.Event()

    async def items():
        try:
            yield 1
            yield 2
        finally:
            await asyncio.sleep(0)
            closed.set()

    for _ in portal.iterate(items()):
        break
    assert closed.wait(60)


# --- what is entered


def noting(notes, name, *, failing=None):
    @asynccontextmanager
    async def manager():
        task = asyncio.current_task()
        notes.append(f"{name} in")
        try:
            yield name
        except BaseException as error:
            notes.append(f"{name} got {type(error).__name__}")
            raise
        finally:
            await asyncio.sleep(0)
            assert asyncio.current_task() is task, (
                "task groups and time limits need that"
            )
            notes.append(f"{name} out")
            if failing is not None:
                raise failing

    return manager()


def test_what_is_entered_is_left_in_reverse(service):
    """The last one first, and the client, which they use, last."""
    notes = []
    with Portal(made(service)) as portal:
        assert [portal.enter(noting(notes, name)) for name in "ab"] == ["a", "b"]
        assert notes == ["a in", "b in"]
    assert notes == ["a in", "b in", "b out", "a out"]
    assert threads_of_portals() == []


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_what_is_entered_learns_of_the_error(service, error):
    """A transaction that is entered is not committed after an error of the block, which is raised on."""
    notes, raised = [], error()
    with pytest.raises(error) as caught, Portal(made(service)) as portal:
        portal.enter(noting(notes, "a"))
        raise raised
    assert caught.value is raised
    assert notes == ["a in", f"a got {error.__name__}", "a out"]


def test_error_of_what_is_left(service):
    """It is raised at the end, after all others were left, which learn of it."""
    notes = []
    with pytest.raises(ValueError, match="full"), Portal(made(service)) as portal:
        portal.enter(noting(notes, "a"))
        portal.enter(noting(notes, "b", failing=ValueError("full")))
    assert notes == ["a in", "b in", "b out", "a got ValueError", "a out"]


def test_error_of_what_is_entered(portal):
    """It is raised, and the portal goes on."""

    @asynccontextmanager
    async def broken():
        raise ValueError("no such database")
        yield

    with pytest.raises(ValueError, match="no such database"):
        portal.enter(broken())
    assert portal.call(who()) == CALLER.get()


def test_client_that_cannot_be_made_or_opened(service, tmp_path):
    """The error is that of the client, and no thread stays."""
    with (
        pytest.raises(ConfigurationError, match="base_url"),
        Portal(lambda: Client("nonsense", ApiKey("k"))),
    ):
        pass
    (tmp_path / "calls.db").write_text("this is no journal" * 100)
    with (
        pytest.raises(Exception, match=r"calls\.db"),
        Portal(made(service, journal=tmp_path / "calls.db")),
    ):
        pass
    assert threads_of_portals() == []


# --- what is refused


def test_portal_before_and_after(service):
    """It is refused in words before it is entered, after its end, and when it is entered again."""
    portal = Portal(made(service))
    with pytest.raises(
        ConfigurationError, match=r"portal: it was not entered\. Use it as `with Portal"
    ):
        portal.call(who())
    with pytest.raises(ConfigurationError, match="it was not entered"):
        _ = portal.client
    with portal:
        with (
            pytest.raises(
                ConfigurationError, match=r"it was entered before\. Share it"
            ),
            portal,
        ):
            pass
        assert portal.call(who()) == CALLER.get()  # it goes on
    with pytest.raises(ConfigurationError, match=r"it has ended\. Make another one"):
        portal.call(who())
    with pytest.raises(ConfigurationError, match="it has ended"):
        portal.enter(noting([], "a"))
    with pytest.raises(ConfigurationError, match="it has ended"):
        next(portal.iterate(portal.client.invoices.egress()))
    with pytest.raises(ConfigurationError, match="it was entered before"), portal:
        pass


@pytest.mark.parametrize(
    "make",
    [None, "https://host.example/v2", Client("http://127.0.0.1:1/v2", ApiKey("k"))],
)
def test_portal_of_no_function(make):
    """What is given instead of a function is refused at once."""
    with pytest.raises(
        ConfigurationError,
        match=r"portal: it takes a function .* Pass Client\.from_env",
    ):
        Portal(make)


@pytest.mark.parametrize(
    ("given", "advice"),
    [
        (None, "Pass what an async method returns"),
        ("text", "Pass what an async method returns"),
        (who, "Call it, and pass what it returns"),
        (whose(), r"Pass it to portal\.iterate"),
        (asyncio.Lock(), r"Pass it to portal\.enter"),
    ],
    ids=["none", "text", "function", "generator", "manager"],
)
def test_call_of_what_cannot_be_awaited(portal, given, advice):
    """It is refused in words, in the calling thread, which say how it is used."""
    for call in (portal.call, portal.submit):
        with pytest.raises(ConfigurationError, match=rf"is not awaitable\. {advice}"):
            call(given)


def test_iteration_over_what_is_no_list(portal):
    """It is refused in words; a coroutine is for ``call``."""
    with pytest.raises(ConfigurationError, match=r"Pass it to portal\.call"):
        next(portal.iterate(who()))
    with pytest.raises(ConfigurationError, match="Pass a list of the client's"):
        next(portal.iterate([1, 2]))


def test_call_from_its_own_loop(portal):
    """It would wait for itself, so it is refused."""

    async def inside():
        return portal.call(who())

    with pytest.raises(
        ConfigurationError, match=r"called from its own loop, .*\. Use await there"
    ):
        portal.call(inside())


def test_call_from_a_thread_of_its_loop(portal):
    """A function that runs in a thread beside the loop may call it."""

    async def beside():
        return await asyncio.to_thread(lambda: portal.call(who()))

    assert portal.call(beside()) == CALLER.get()


async def test_call_from_another_loop(service):
    """A notebook has a loop in its thread; the portal's is another one."""
    with Portal(made(service)) as portal:
        assert portal.call(portal.client.journeys.get("jrn_1")).id == "jrn_1"


def said_in_a_child(say):
    """Return what *say* returns in a process that is forked from this one."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            said = say()
        except BaseException as error:  # noqa: BLE001 - it must not reach pytest
            said = repr(error)
        os.write(writing, said.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        said = pipe.read()
    assert os.waitpid(child, 0)[1] == 0
    return said


@forks
@pytest.mark.filterwarnings("default::DeprecationWarning")  # of a fork with threads
def test_forked_process(portal):
    """It is refused in words there, ends nothing of the parent's, and both go on."""

    def say():
        with pytest.raises(ConfigurationError) as caught:
            portal.call(who())
        assert portal.__exit__(None, None, None) is False
        # reaches: as the end of the process does
        portal._end()
        return str(caught.value)

    assert said_in_a_child(say) == (
        "portal: its thread stayed in the process from which this one was forked. Make a portal here."
    )
    assert portal.call(portal.client.journeys.get("jrn_1")).id == "jrn_1"


@forks
@pytest.mark.filterwarnings("default::DeprecationWarning")
def test_portal_that_is_entered_after_a_fork(service):
    """A module makes it, and each worker process enters it."""
    portal = Portal(made(service))

    def say():
        with portal:
            return portal.call(portal.client.journeys.get("jrn_1")).id

    assert [said_in_a_child(say), said_in_a_child(say)] == ["jrn_1", "jrn_1"]


# --- interrupts


class TimeLimitError(Exception):
    """As a worker of a task queue raises it in its main thread."""


class Interrupting:
    """Interrupts the main thread by signals, once the service has a request."""

    def __init__(self, service, number, error, times=1):
        self.service, self.number, self.error, self.times = (
            service,
            number,
            error,
            times,
        )
        self.before = None

    def __enter__(self):
        self.before = signal.signal(self.number, self.handle)
        return self

    def __exit__(self, *_):
        signal.signal(self.number, self.before)

    def handle(self, *_):
        raise self.error

    def when(self, arrived):
        def interrupt():
            block_until(arrived)
            signal.pthread_kill(threading.main_thread().ident, self.number)

        threading.Thread(target=interrupt, daemon=True).start()


@signals
@pytest.mark.parametrize(
    ("number", "error"),
    [(signal.SIGINT, KeyboardInterrupt), (signal.SIGUSR1, TimeLimitError)],
)
def test_interrupted_write(portal, service, number, error):
    """It is cancelled, and its intent is there when the interrupt is raised; the next write does not wait for it."""
    service.script("journeys.update", "hang")
    before = service.arrivals("journeys.update")
    with Interrupting(service, number, error) as interrupting:
        interrupting.when(lambda: service.arrivals("journeys.update") > before)
        with pytest.raises(error):
            portal.call(portal.client.journeys.update("jrn_1", name="Interrupted"))
        (intent,) = portal.client.unsettled  # at once

    assert intent.body == {"name": "Interrupted"}
    assert portal.call(portal.client.settle(intent)).verdict is Verdict.NOT_APPLIED
    assert (
        portal.call(portal.client.journeys.update("jrn_1", name="Next")).name == "Next"
    )
    assert [entry.body["name"] for entry in effects(service)] == ["Next"]


def test_time_limit_of_a_call(portal, service):
    """A write that takes longer is cancelled, and its intent is there; a call that is quick is not changed."""
    limits = {0.2: r"0\.2", 3.0: "3", 60.0: "60"}
    service.script("journeys.update", *["hang"] * len(limits))
    client = portal.client
    for seconds, words in limits.items():
        write = client.journeys.update("jrn_1", name="Too late")
        said = rf"longer than {words} s.*client\.unsettled"
        with pytest.raises(TimeoutError, match=said):
            portal.call(write, timeout=seconds)
        if client.unsettled:  # otherwise nothing of it was sent within that time
            break
    (intent,) = client.unsettled

    assert intent.body == {"name": "Too late"}
    assert portal.call(client.settle(intent)).verdict is Verdict.NOT_APPLIED
    assert portal.call(client.journeys.get("jrn_1"), timeout=30.0).id == "jrn_1"
    assert effects(service) == []


def test_time_limit_of_the_awaitable(portal):
    """Its own error is passed on as it is."""

    async def ours():
        raise TimeoutError("ours")

    with pytest.raises(TimeoutError, match=r"^ours$"):
        portal.call(ours(), timeout=30.0)


def test_interrupt_that_another_thread_raises(portal, service):
    """A worker with threads raises its time limit in the waiting thread, which notices it while it waits."""
    service.script("journeys.update", "hang")
    before, ended = service.arrivals("journeys.update"), []

    def work():
        try:
            portal.call(portal.client.journeys.update("jrn_1", name="Limited"))
        except TimeLimitError:
            ended.extend(portal.client.unsettled)

    worker = threading.Thread(target=work)
    worker.start()
    block_until(lambda: service.arrivals("journeys.update") != before)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(worker.ident), ctypes.py_object(TimeLimitError)
    )
    worker.join(60)
    assert [intent.body for intent in ended] == [{"name": "Limited"}]


@signals
def test_interrupt_waits_for_the_end(portal):
    """What is cancelled may still need a while; the interrupt is raised after it."""
    begun, ended = threading.Event(), threading.Event()

    async def slow():
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.3)  # sleeps: it still needs a while
            ended.set()

    with Interrupting(None, signal.SIGUSR1, TimeLimitError) as interrupting:
        interrupting.when(begun.is_set)
        with pytest.raises(TimeLimitError):
            portal.call(slow())
        assert ended.is_set()


@signals
def test_second_interrupt_is_raised_at_once(portal):
    """Somebody who presses Ctrl-C again gets out of an end that hangs."""
    begun, cancelled, end = threading.Event(), threading.Event(), threading.Event()

    async def stubborn():
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
            await asyncio.to_thread(end.wait)

    with Interrupting(None, signal.SIGUSR1, TimeLimitError) as interrupting:
        interrupting.when(begun.is_set)
        interrupting.when(cancelled.is_set)
        with pytest.raises(TimeLimitError) as caught:
            portal.call(stubborn())
    end.set()
    assert isinstance(caught.value.__context__, TimeLimitError)


@signals
def test_interrupt_before_the_loop_has_begun(portal, service, monkeypatch):
    """Wherever it comes, the write does not go on without a waiter."""
    # reaches: a signal at the moment at which a call begins
    soon, before = portal._running.soon, service.arrivals("journeys.update")

    def interrupted(step):
        # reaches: the same
        monkeypatch.setattr(portal._running, "soon", soon)
        soon(step)
        block_until(lambda: service.arrivals("journeys.update") != before)
        raise TimeLimitError

    service.script("journeys.update", "hang")
    # reaches: the same
    monkeypatch.setattr(portal._running, "soon", interrupted)
    with pytest.raises(TimeLimitError):
        portal.call(portal.client.journeys.update("jrn_1", name="Begun"))
    assert [intent.body for intent in portal.client.unsettled] == [{"name": "Begun"}]


@signals
def test_interrupted_iteration(portal):
    """The generator gets the cancellation where it waits, and ends."""
    begun, ended = threading.Event(), threading.Event()

    async def items():
        yield 1
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        yield 2

    with Interrupting(None, signal.SIGUSR1, TimeLimitError) as interrupting:
        interrupting.when(begun.is_set)
        with pytest.raises(TimeLimitError):
            list(portal.iterate(items()))
    assert ended.is_set()


@signals
def test_interrupted_while_entering(portal):
    """What was half entered is left, in the task that entered it, and not again at the end."""
    begun, notes = threading.Event(), []

    @asynccontextmanager
    async def slow():
        async with asyncio.TaskGroup():
            begun.set()
            try:
                await asyncio.Event().wait()
                yield
            finally:
                notes.append("left")

    with Interrupting(None, signal.SIGUSR1, TimeLimitError) as interrupting:
        interrupting.when(begun.is_set)
        with pytest.raises(TimeLimitError):
            portal.enter(slow())
    assert notes == ["left"]


@signals
@pytest.mark.untraced
def test_interrupt_of_a_script(service):
    """Ctrl-C ends a script with its KeyboardInterrupt, its client closed, and the intent of its write known."""
    code = (
        "import signal, threading, time\n"
        "from invsvc_async import ApiKey, Client, Portal\n"
        f"make = lambda: Client({service.base_url!r}, ApiKey({service.api_key!r}))\n"
        "with Portal(make) as portal:\n"
        "    try:\n"
        "        print('ready', flush=True)\n"
        "        portal.call(portal.client.journeys.update('jrn_1', name='Script'))\n"
        "    finally:\n"
        "        print([intent.body for intent in portal.client.unsettled], flush=True)\n"
    )
    service.script("journeys.update", "hang")
    before = service.arrivals("journeys.update")
    with subprocess.Popen(  # noqa: S603 - our own code
        [sys.executable, "-W", "error", "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        block_until(
            lambda: (
                service.arrivals("journeys.update") != before
                or child.poll() is not None
            )
        )
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=300)
    assert out.splitlines() == ["ready", "[{'name': 'Script'}]"]
    assert err.splitlines()[-1] == "KeyboardInterrupt"


# --- its end


def test_calls_at_the_end(service):
    """A write under way gets its verdict from the client that is closed, anything else a refusal in words."""
    service.script("journeys.update", "hang")
    before, ends = service.arrivals("journeys.update"), {}

    def work(name, awaitable):
        try:
            portal.call(awaitable)
        except Exception as error:  # noqa: BLE001 - looked at below
            ends[name] = error

    with Portal(made(service, reads=ReadRetries(attempts=1))) as portal:
        write = portal.client.journeys.update("jrn_1", name="At the end")
        workers = [
            threading.Thread(target=work, args=each)
            for each in [("write", write), ("wait", forever())]
        ]
        for worker in workers:
            worker.start()
        block_until(lambda: service.arrivals("journeys.update") != before)
    for worker in workers:
        worker.join(60)

    assert isinstance(ends["write"], AmbiguousWriteError)
    assert [intent.body for intent in portal.client.unsettled] == [
        {"name": "At the end"}
    ]
    assert isinstance(ends["wait"], ConfigurationError)
    assert (
        "portal: it ended during this call. What may have been sent is in client.unsettled."
        in str(ends["wait"])
    )
    assert threads_of_portals() == []


@pytest.mark.parametrize("way", ["call", "submit"])
def test_call_that_comes_after_the_last_one(service, monkeypatch, way):
    """What would begin while the loop cancels its rest does not begin: nobody would cancel it any more."""
    is_cancelled, has_come = threading.Event(), threading.Event()
    begun, errors = [], []

    async def late():
        begun.append(way)
        await forever()

    async def rest():
        try:
            await forever()
        finally:
            is_cancelled.set()
            while not has_come.is_set():  # noqa: ASYNC110 - another thread sets it, not the loop
                await asyncio.sleep(0)

    def work():
        try:
            if way == "call":
                portal.call(late())
            else:
                portal.submit(late()).result(60)
        except ConfigurationError as error:
            errors.append(error)

    with Portal(made(service)) as portal:
        portal.submit(rest())
        portal.call(asyncio.sleep(0))  # so that the rest has begun
        soon, is_held = portal._running.soon, threading.Event()  # reaches: see below

        def delayed(step):
            if threading.current_thread() is worker:
                is_held.set()
                is_cancelled.wait(60)
            soon(step)
            if threading.current_thread() is worker:
                has_come.set()

        # reaches: a thread that is interrupted where it begins a call
        monkeypatch.setattr(portal._running, "soon", delayed)
        worker = threading.Thread(target=work)
        worker.start()
        assert is_held.wait(60)
    worker.join(60)
    assert begun == []
    assert len(errors) == 1


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_exit_inside_a_call(portal, error):
    """It is raised in the caller, and does not end the loop of the others."""

    async def leave():
        raise error("inside")

    with pytest.raises(error, match="inside"):
        portal.call(leave())
    assert portal.call(who()) == CALLER.get()


def test_loop_that_died(service):
    """Callers are not left waiting if a task of their own has ended the loop."""

    async def die():
        asyncio.get_running_loop().stop()
        await forever()

    portal = Portal(made(service)).__enter__()
    with pytest.raises(ConfigurationError, match="it ended during this call"):
        portal.call(die())
    with pytest.raises(ConfigurationError, match="it ended during this call"):
        portal.__exit__(None, None, None)


@pytest.mark.untraced
def test_process_that_does_not_leave_it(service, tmp_path):
    """The end of the process closes the client and its journal, and is not waited for."""
    code = (
        "import atexit\n"
        "from invsvc_async import ApiKey, Client, Portal\n"
        "atexit.register(lambda: print(portal._running.loop.is_closed()))\n"  # runs last
        f"make = lambda: Client({service.base_url!r}, ApiKey({service.api_key!r}), journal={str(tmp_path / 'calls.db')!r})\n"
        "portal = Portal(make).__enter__()\n"
        "print(portal.call(portal.client.journeys.update('jrn_1', name='Left')).name)\n"
    )
    ended = subprocess.run(  # noqa: S603 - our own code
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "Left\nTrue\n", "")
