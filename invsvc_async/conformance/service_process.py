"""
The simulator in a process of its own, so that service and client each have a core.

Parent and child exchange lines of JSON over the child's standard streams.  The plan goes in, and the
connection details come out; ``tell`` goes in, and the ledger and the final state come out.  The child exits
when its input is closed.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import sys
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

import attrs

from invsvc_async.codec import envelope
from invsvc_async.concurrency.event_loop import until_done
from invsvc_async.simulator import Entry, Faults, Simulator, Stores

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

_LONGEST_LINE = 2**28  # bytes
_NEW_PROCESS_GROUP: Final = 0x200  # a name of it is only on Windows
# Ctrl-C on the terminal is for the client: the service still has to tell what it did.
_APART: Final[dict[str, Any]] = (
    {"creationflags": _NEW_PROCESS_GROUP}
    if sys.platform == "win32"
    else {"start_new_session": True}
)
_TIMES = ("received_at", "applied_at", "ended_at")


@attrs.frozen(kw_only=True)
class Plan:
    """
    Initial state of the service: seed, fault plan, how it stores, teams of the account, things in them.

    Each thing is its id and its team.
    """

    seed: int
    faults: str
    stores: str = "none"
    teams: tuple[str, ...] = ()
    webhooks: tuple[tuple[str, str], ...] = ()
    journeys: tuple[tuple[str, str], ...] = ()
    # path of a file with it and its key, to serve over TLS
    certificate: str | None = None


@attrs.frozen(kw_only=True)
class ServiceRecord:
    """
    What happened, once no more late effects can land.

    ``before`` and ``state`` are the webhooks and journeys by id, at the start and at the end.
    """

    ledger: list[Entry]
    reads: int
    state: dict[str, Any]
    before: dict[str, Any]

    @property
    def left(self) -> int:
        """How many webhooks are there at the end that were not there at the start."""
        return sum(
            "url" in thing and key not in self.before
            for key, thing in self.state.items()
        )


@attrs.frozen
class Embedded:
    """The running service: its connection details, and `tell`."""

    _ask: asyncio.StreamWriter
    _answers: asyncio.StreamReader
    base_url: str
    api_key: str
    team: str
    _before: dict[str, Any]

    async def tell(self) -> ServiceRecord:
        """Wait until no more late effects can land, and return the ledger and the state."""
        self._ask.write(b"tell\n")
        told = await self._answers.readline()
        if not told:
            raise EOFError("the embedded service exited before it sent the ledger")
        plain = envelope.loads(told)
        ledger = [_entry(each) for each in plain["ledger"]]
        return ServiceRecord(
            ledger=ledger,
            reads=plain["reads"],
            state=plain["state"],
            before=self._before,
        )


# Any: JSON, in which each number with a point is a Decimal
def _entry(plain: dict[str, Any]) -> Entry:
    """Return the entry of the ledger that *plain* describes."""
    entry = Entry(**plain)
    for name in _TIMES:
        if plain[name] is not None:
            setattr(entry, name, float(plain[name]))
    return entry


@asynccontextmanager
async def embedded(plan: Plan) -> AsyncGenerator[Embedded]:
    """Run the service with *plan* on a free port of the loopback interface until the block ends."""
    child = await asyncio.create_subprocess_exec(
        *(
            sys.executable,
            "-c",
            "from invsvc_async.conformance.service_process import serve; serve()",
        ),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=_LONGEST_LINE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        **_APART,
    )
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        child.stdin.write(envelope.dumps(attrs.asdict(plan)) + b"\n")
        about = envelope.loads(await child.stdout.readline())
        yield Embedded(child.stdin, child.stdout, **about)
    finally:
        child.stdin.close()
        await child.wait()


def seeded(plan: dict[str, Any]) -> Simulator:
    """Return the service that *plan* (in wire form) describes."""
    tls = None
    if plan["certificate"] is not None:
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(plan["certificate"])
    faults = Faults.parse(plan["faults"])
    stores = Stores.parse(plan["stores"])
    service = Simulator(
        seed=plan["seed"],
        faults=faults,
        stores=stores,
        ssl=tls,
    )
    for team in plan["teams"]:
        service.seed_team(id=team)
    for webhook, team in plan["webhooks"]:
        service.seed_webhook(
            team=team,
            url=f"https://before.example/{webhook}",
            id=webhook,
        )
    for journey, team in plan["journeys"]:
        service.seed_journey(team=team, id=journey)
    return service


def serve() -> None:
    """Run the service in this process until its standard input is closed."""
    until_done(_serve())


async def _serve() -> None:
    service = seeded(envelope.loads(sys.stdin.buffer.readline()))
    async with service:
        about = {
            "base_url": service.base_url,
            "api_key": service.api_key,
            "team": service.team,
        }
        _print_line({**about, "before": _state(service)})
        while await asyncio.to_thread(sys.stdin.buffer.readline):
            await service.settled()
            ledger = [asdict(entry) for entry in service.ledger.entries]
            reads = len(service.ledger.reads)
            _print_line({"ledger": ledger, "reads": reads, "state": _state(service)})


def _print_line(plain: object) -> None:
    sys.stdout.buffer.write(envelope.dumps(plain) + b"\n")
    sys.stdout.buffer.flush()


def _state(service: Simulator) -> dict[str, Any]:
    state: dict[str, Any] = {}
    for team in service.teams:
        book = service.book(team=team)
        state |= book.webhooks.items | book.journeys.items
    return state
