"""Servers that hosts start: killed in mid-call, left alone, interrupted; compared with the service's ledger."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from contextlib import suppress

import pytest

from invsvc_async.agents.stdio import LONGEST, InputLines, LineEnd
from tests.agents.conftest import HOOK, facts
from tests.agents.processes import Host
from tests.batch.conftest import silence_of
from tests.support.database import database

pytestmark = [
    pytest.mark.one_python,
    pytest.mark.skipif(sys.platform == "win32", reason="kills by signals of POSIX"),
]
CALL = {**HOOK, "key": "order-1"}


async def of_next_server(host):
    """Connect *host* to another server, and return what that says of the same call."""
    await host.disconnect()
    await host.connect()
    return facts(await host.agent.call_tool("webhooks_create", CALL))


def assert_applied_once(said, service):
    """Assert that the agent is told of an effect, and that the ledger has one."""
    assert said["verdict"] == "applied"
    assert len(service.ledger.effects("webhooks.create")) == 1


@pytest.mark.parametrize(
    "step", [pytest.param("hang 30", marks=pytest.mark.slow), "apply, then hang 30"]
)
async def test_killed_in_mid_call(service, tmp_path, step):
    """Killed while its request is under way, and asked again: one effect, and the agent is told so."""
    service.script("webhooks.create", step)
    async with Host(tmp_path, service) as host:
        calling = asyncio.create_task(host.agent.call_tool("webhooks_create", CALL))
        await service.arrived("webhooks.create")
        host.kill()
        with pytest.raises(Exception):  # noqa: B017, PT011 - what the SDK raises is its own
            await asyncio.wait_for(calling, 60)
        said = await of_next_server(host)
    assert_applied_once(said, service)


@pytest.mark.slow
async def test_lost_connection(service, tmp_path):
    """A host that closes the connection in mid-call gets the truth from the next server."""
    service.script("webhooks.create", "apply, then hang 30")
    async with Host(tmp_path, service) as host:
        calling = asyncio.create_task(host.agent.call_tool("webhooks_create", CALL))
        await service.arrived("webhooks.create")
        calling.cancel()
        with suppress(asyncio.CancelledError):
            await calling
        said = await of_next_server(host)
    assert_applied_once(said, service)


@pytest.mark.slow
async def test_call_that_the_agent_gives_up(service, tmp_path):
    """A call that the agent cancels, with the server alive, is settled by the next one of its key."""
    service.script("webhooks.create", "apply, then hang 30")
    async with Host(tmp_path, service) as host:
        calling = asyncio.create_task(host.agent.call_tool("webhooks_create", CALL))
        await service.arrived("webhooks.create")
        calling.cancel()
        with suppress(asyncio.CancelledError):
            await calling
        said = facts(await host.agent.call_tool("webhooks_create", CALL))
    assert_applied_once(said, service)


async def test_no_token_anywhere(service, tmp_path):
    """The credential is in no answer, and in nothing that the server prints or stores."""
    service.script("users.get", "401 raw")
    async with Host(tmp_path, service) as host:
        tools = await host.agent.list_tools()
        said = [tools, await host.agent.call_tool("webhooks_create", CALL)]
        said.append(await host.agent.call_tool("users_get", {"user_id": "usr_1"}))
        said.append(await host.agent.call_tool("users_get", {"user_id": 7}))
    texts = " ".join(map(str, said)) + host.errors.read_text()
    assert service.api_key not in texts
    secret = json.loads((tmp_path / "secrets.jsonl").read_text())["secret"]
    assert secret not in texts
    for file in tmp_path.glob("calls.db*"):
        assert service.api_key.encode() not in file.read_bytes()
        assert secret.encode() not in file.read_bytes()
    assert "Traceback" not in host.errors.read_text()


@pytest.mark.slow
async def test_second_server(service, tmp_path):
    """A journal in a file has one server at a time; the other says so."""
    async with Host(tmp_path, service) as host:
        other = Host(tmp_path, service)
        number = host.number
        with pytest.raises(Exception):  # noqa: B017, PT011 - what the SDK raises is its own
            await other.connect()
        await other.disconnect()
        (tmp_path / "number").write_text(str(number))
        said = facts(await host.agent.call_tool("webhooks_create", CALL))
        assert said["verdict"] == "applied"
    assert "calls.db" in host.errors.read_text()


@pytest.fixture
async def hosts(service, tmp_path, request):
    """Yield two hosts, whose servers share a journal in PostgreSQL, with the ``silence`` that the test is marked with."""
    address = database().at(
        journal=f"a{abs(hash(request.node.nodeid))}", silence=silence_of(request)
    )
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        folder.mkdir()
    one, two = (Host(folder, service, journal=address) for folder in folders)
    async with one, two:
        yield one, two


@pytest.mark.slow
async def test_servers_that_share_a_database(service, hosts):
    """The agents of both call one key at the same time: there is one effect, and both are told of it."""
    calls = [host.agent.call_tool("webhooks_create", CALL) for host in hosts]
    said = [facts(each) for each in await asyncio.gather(*calls)]
    assert len({each["value"]["id"] for each in said}) == 1
    for each in said:
        assert_applied_once(each, service)
    assert service.ledger.arrivals("webhooks.create") == 1


@pytest.mark.slow
@pytest.mark.silence(1)
@pytest.mark.parametrize("step", ["hang 30", "apply, then hang 30"])
async def test_server_that_dies_beside_another(service, hosts, step):
    """One is killed in mid-call, and the agent of the other calls the same key: one effect, and it is told so."""
    service.script("webhooks.create", step)
    killed, other = hosts
    calling = asyncio.create_task(killed.agent.call_tool("webhooks_create", CALL))
    await service.arrived("webhooks.create")
    killed.kill()
    with pytest.raises(Exception):  # noqa: B017, PT011 - what the SDK raises is its own
        await asyncio.wait_for(calling, 60)
    said = facts(await other.agent.call_tool("webhooks_create", CALL))
    assert_applied_once(said, service)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_signals_end_it(service, tmp_path, number):
    """Ctrl-C and SIGTERM end the server, although its input is open."""
    environment = {
        **os.environ,
        "INVSVC_BASE_URL": service.base_url,
        "INVSVC_API_KEY": service.api_key,
    }
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "invsvc_async.cli", "mcp", "--read-only",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=tmp_path,
        env=environment,
    )  # fmt: skip
    assert b"tools on standard input" in await child.stderr.readline()
    child.send_signal(number)
    out, errors = await asyncio.wait_for(child.communicate(), 60)
    assert child.returncode == 0
    assert out == b""
    assert b"Traceback" not in errors


@pytest.mark.slow
async def test_lines_that_are_no_messages(service, tmp_path):
    """InputLines that are no JSON, or are too long, are dropped; the next message is answered."""
    environment = {
        **os.environ,
        "INVSVC_BASE_URL": service.base_url,
        "INVSVC_API_KEY": service.api_key,
    }
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "invsvc_async.cli", "mcp", "--read-only",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        limit=2**20,
        cwd=tmp_path,
        env=environment,
    )  # fmt: skip
    hello = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"},
    }
    first = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
    child.stdin.write(b"no json\n" + b"x" * 9_000_000 + b"\n" + b"\xff\xfe\n[]\n")
    child.stdin.write(json.dumps(first).encode() + b"\n")
    await child.stdin.drain()
    async with asyncio.timeout(60):
        while json.loads(line := await child.stdout.readline()).get("id") != 1:
            pass
    assert json.loads(line)["result"]["serverInfo"]["name"] == "invsvc"
    child.stdin.close()
    _, errors = await asyncio.wait_for(child.communicate(), 60)
    assert child.returncode == 0
    assert b"Traceback" not in errors


@pytest.mark.slow
def test_line_that_is_too_long():
    """It becomes one that is no message, and the lines around it stay, however they come in parts."""
    line = LineEnd()
    assert line.after(b"a\nb") == [b"a"]
    assert line.after(b"c\n\nd\n") == [b"bc", b"", b"d"]
    assert line.after(b"x" * LONGEST) == []
    assert line.after(b"x") == []
    assert line.after(b"x" * LONGEST) == []
    assert line.after(b"\ne\n") == [b"too long", b"e"]


async def test_input_that_cannot_be_read(caplog):
    """It ends the input, and so the server: a terminal that is hung up, for example."""
    reading, writing = os.pipe()
    lines = InputLines(writing)
    async with asyncio.timeout(30):
        assert [line async for line in lines] == []
    os.close(reading)
    os.close(writing)
    assert "Standard input cannot be read" in caplog.text
