"""
Let scripted agents create, change and delete webhooks under faults and kills, and judge what they were told.

    python -m tests.agents.soak [--actions 200] [--faults 0.25] [--seed 1] [--at-once 8]

The agents have the official SDK's client, and follow ``SKILL.md``: the same key again after no answer and after a
verdict that is not final; a key of its own for another action.  They change their minds, lose the connection and
have their server killed in mid-call.  Each answer is judged by the service's ledger at the moment it came.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from invsvc_async.simulator import Faults, Simulator
from tests.agents.processes import Host

CHANGES_MIND = 0.15  # of the actions
FINAL = {"applied", "refused", "superseded"}
PATIENCE = 25  # calls of one action


class Judge:
    """Compares what was told with what happened."""

    def __init__(self, service):
        self._ledger = service.ledger
        self.wrong = []
        self.told = Counter()

    def effects(self, action):
        """Return how many effects an action has had."""
        return sum(
            each.operation == action.operation and action.matches(each)
            for each in self._ledger.effects()
        )

    def hear(self, action, said):
        """Judge one answer, now."""
        found = self.effects(action)
        verdict = said.get("verdict", "conflict" if said.get("conflict") else "error")
        self.told[verdict] += 1
        true = {
            "applied": found == 1,
            "refused": found == 0,
            "not applied": found == 0,
            "conflict": True,
            "unknown": True,
        }
        if not true.get(verdict, False):
            self.wrong.append(f"{action.key}: told {verdict}, {found} effects: {said}")

    def hear_conflict(self, action, said):
        """Judge what an agent was told that gave other arguments under the key of *action*."""
        self.told["conflict"] += 1
        says_applied = "is applied: it happened" in said.get("message", "")
        if not said.get("conflict"):
            self.wrong.append(f"{action.key}: other arguments were taken: {said}")
        elif says_applied and self.effects(action) != 1:
            self.wrong.append(f"{action.key}: the first was not applied: {said}")

    def close(self, actions):
        """Judge the end: one effect for each action that is done, and none that nobody asked for."""
        for action in actions:
            found = self.effects(action)
            if found != 1 or not action.is_done:
                self.wrong.append(
                    f"{action.key}: {found} effects, done: {action.is_done}: {action.last}"
                )
        asked = len(actions)
        had = len(self._ledger.effects())
        if had != asked:
            self.wrong.append(f"{had} effects for {asked} actions")


class Action:
    """One thing that an agent was asked to do."""

    def __init__(self, operation, key, arguments):
        self.operation = operation
        self.key = key
        self.arguments = arguments
        self.is_done = False
        self.last = None  # answer

    @property
    def tool(self):
        return self.operation.replace(".", "_")

    def matches(self, entry):
        """Whether an entry of the ledger is of this action."""
        match self.operation:
            case "webhooks.create":
                return entry.body["url"] == self.arguments["url"]
            case "webhooks.update":
                return entry.body.get("description") == self.arguments["description"]
            case _:
                return entry.path_id == self.arguments["webhook"]

    def changed(self):
        """Return other arguments, as of an agent that changed its mind."""
        if self.operation == "webhooks.delete":
            return {"webhook": "wh_another"}
        name = "url" if self.operation == "webhooks.create" else "description"
        return {**self.arguments, name: f"{self.arguments[name]}/other"}


class Office:
    """The agents, their server, and the troubles that they have."""

    def __init__(self, service, host, chance):
        self._service = service
        self._host = host
        self._chance = chance
        self._line = asyncio.Lock()
        self.judge = Judge(service)
        self.actions = []
        self.troubles = Counter()

    async def call(self, action, arguments):
        """Call the tool once; None stands for no answer."""
        agent = self._host.agent
        try:
            given = {**arguments, "key": action.key}
            result = await agent.call_tool(action.tool, given)
        except Exception:  # noqa: BLE001 - whatever it is, it is no answer
            self.troubles["no answer"] += 1
            await self._connect_again(agent)
            return None
        return result.structured_content

    async def _connect_again(self, lost):
        """Connect to a new server, unless another agent has done so."""
        async with self._line:
            if self._host.agent is lost:
                await self._host.disconnect()
                await self._host.connect()

    async def do(self, action):
        """Do one action as the page for agents says: the same key until the answer is final."""
        self.actions.append(action)
        wavers = self._chance.random() < CHANGES_MIND
        for _ in range(PATIENCE):
            said = await self.call(action, action.arguments)
            if said is None:
                continue
            action.last = said
            self.judge.hear(action, said)
            if wavers:
                wavers = False
                await self._waver(action)
            if said.get("verdict") in FINAL:
                action.is_done = said["verdict"] == "applied"
                return said
        return None

    async def _waver(self, action):
        """Ask for something else under the same key, which has to be refused."""
        self.troubles["changes of mind"] += 1
        said = await self.call(action, action.changed())
        if said is not None:
            self.judge.hear_conflict(action, said)

    async def chain(self, number, length):
        """Create a webhook, change it, and delete it: up to *length* actions."""
        url = f"https://me.example/{number}"
        arguments = {"url": url, "events": ["invoice.created"]}
        made = await self.do(Action("webhooks.create", f"order-{number}", arguments))
        if made is None or length < 2:
            return
        hook = made["value"]["id"]
        arguments = {"webhook": hook, "description": f"of order {number}"}
        await self.do(Action("webhooks.update", f"name-{number}", arguments))
        if length > 2:
            await self.do(Action("webhooks.delete", f"end-{number}", {"webhook": hook}))

    async def make_trouble(self):
        """Kill the server, or close the connection, again and again."""
        while True:
            # sleeps: trouble comes at any time
            await asyncio.sleep(self._chance.uniform(1.0, 5.0))
            if self._line.locked():
                continue
            if self._chance.random() < 0.6:
                self.troubles["kills"] += 1
                with suppress(ProcessLookupError):
                    self._host.kill()
            else:
                self.troubles["lost connections"] += 1
                await self._connect_again(self._host.agent)


async def soak(actions, faults, seed, at_once):
    """Run so many actions, and return the office; its judge has what was wrong."""
    chance = random.Random(seed)
    plan = Faults(rate=faults, reads=0.1, late_up_to=0.5, hang=2.0)
    with TemporaryDirectory() as folder:
        async with Simulator(seed=seed, faults=plan) as service:
            async with Host(folder, service, "--only", "webhooks.*") as host:
                office = Office(service, host, chance)
                await _work(office, actions, at_once)
            await service.settled()
            office.judge.close(office.actions)
            _check_errors(office.judge, host, service)
    return office


async def _work(office, actions, at_once):
    """Let the agents work, each at one chain at a time, while trouble is made."""
    whole, rest = divmod(actions, 3)
    chains = iter(enumerate([3] * whole + [rest] * bool(rest)))

    async def agent():
        for number, length in chains:
            await office.chain(number, length)

    trouble = asyncio.create_task(office.make_trouble())
    try:
        await asyncio.gather(*(agent() for _ in range(at_once)))
    finally:
        trouble.cancel()
        with suppress(asyncio.CancelledError):
            await trouble


def _check_errors(judge, host, service):
    """Look for the credential and for tracebacks in what the servers printed."""
    printed = Path(host.errors).read_text()
    if service.api_key in printed:
        judge.wrong.append("the credential is in what the server printed")
    if "Traceback" in printed:
        judge.wrong.append(f"a traceback: {printed[-2000:]}")


def main():
    """Run a soak from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--actions", type=int, default=200)
    parser.add_argument("--faults", type=float, default=0.25)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--at-once", type=int, default=8)
    asked = parser.parse_args()
    begun = time.monotonic()
    office = asyncio.run(soak(asked.actions, asked.faults, asked.seed, asked.at_once))
    seconds = time.monotonic() - begun
    lines = [
        f"{len(office.actions)} actions in {seconds:.0f} s",
        f"told: {dict(office.judge.told)}",
        f"troubles: {dict(office.troubles)}",
        *(f"WRONG {each}" for each in office.judge.wrong),
        "FAIL" if office.judge.wrong else "OK",
    ]
    print("\n".join(lines))  # noqa: T201 - a session's output
    return 1 if office.judge.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
