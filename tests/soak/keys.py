"""
Let processes race for the same keys, kill and stop them, lose answers, and compare their verdicts with the ledger.

Now and then commits wait for a standby that is away, and most connections are cut meanwhile.

    python -m tests.soak.keys [KEYS [PROCESSES [SEED [SEEDS]]]]

Each process runs every key's write until it has a final verdict, and is cancelled now and then in the middle.
The judge is the ledger of the service: at most one effect for each key, exactly one where anybody was told
APPLIED, never two different final verdicts, and no reason that the ledger contradicts.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections import Counter, defaultdict
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import attrs

from invsvc_async import ApiKey, Client, InvsvcError, ReconcilePolicy, Timeouts
from invsvc_async.durable.entry import State
from invsvc_async.simulator import Faults, Simulator
from tests.soak.reasons import BeingSent, Things, plain_of, told_in
from tests.support.children import Crew
from tests.support.database import connected, schema_of
from tests.support.slow_commits import set_standby, slow_commits
from tests.support.waiting import cancel, until

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from invsvc_async.conformance.reasons import Told
    from invsvc_async.simulator import Entry
    from tests.support.slow_commits import SlowCommits

FAULTS = Faults(rate=0.08, reads=0.02, late_up_to=0.15, hang=0.3)
POLICY = ReconcilePolicy(
    settle_after_error=0.3, settle_after_loss=0.4, deadline=30.0, reads_lag=0.0
)
JOURNEYS, HOOKS = 120, 8
CREATES = 12  # every so many keys: a list shows 100 webhooks at most
FINAL = ("applied", "superseded")
UNTELLABLE = ("changed since", "not visible")
TOLD = ("applied", "not applied", "refused", "unknown")
HEAD = (
    "seed", "keys", "kills", "stops", "requests that arrived", *(f"told {each}" for each in TOLD),
    "keys with two effects", "wrong verdicts", "time",
)  # fmt: skip
AT_ONCE = 16
MOST_HITS = 60
BETWEEN = (1.0, 5.0)  # s between two outages of the standby
SHORT, LONG = (
    1.0,
    12.0,
)  # s that one lasts at most; the long ones outlast the patience of a write
CUT = 0.8  # of them cut the connections
TRIES = 3
# What the database itself says of the writes that may have left, also of a process that was killed or stopped then.
NOTE = """
CREATE TABLE {schema}.being_sent (key text, at double precision);
CREATE FUNCTION {schema}.note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO {schema}.being_sent VALUES (NEW.key, extract(epoch FROM clock_timestamp()));
    RETURN NULL;
END $$;
CREATE TRIGGER note AFTER INSERT OR UPDATE OF state ON {schema}.entries
    FOR EACH ROW WHEN (NEW.state = {sending}) EXECUTE FUNCTION {schema}.note();
"""


def write_of(client: Client, number: int, journeys: list[str], hooks: list[str]):
    """Make the write of the key *number*: a create, or an update of a thing that several keys change."""
    key = f"key-{number}"
    if number % CREATES == 0:
        return client.webhooks.create(
            url=f"https://k.example/{key}", events=["invoice.created"]
        ).keyed(key)
    if number % CREATES == 1:
        return client.webhooks.update(hooks[number % HOOKS], description=key).keyed(key)
    return client.journeys.update(journeys[number % JOURNEYS], name=key).keyed(key)


async def race(
    url: str, token: str, journal: str, things: str, keys: int, seed: int
) -> None:
    """Run every key's write until its verdict is final; print each verdict."""
    chance = random.Random(seed)
    journeys, hooks = (each.split(",") for each in things.split(" "))
    numbers = list(range(keys))
    chance.shuffle(numbers)
    open_ones = asyncio.Queue[int]()
    untellable = Counter[int]()
    for number in numbers:
        open_ones.put_nowait(number)

    async def work(client: Client) -> None:
        while not open_ones.empty():
            number = open_ones.get_nowait()
            asked = time.monotonic()
            print(json.dumps([number, asked]), flush=True)  # noqa: T201 - read by the parent
            running = asyncio.ensure_future(
                write_of(client, number, journeys, hooks).outcome()
            )
            if chance.random() < 0.05:  # a soft time limit
                await asyncio.wait([running], timeout=chance.uniform(0.0, 0.3))
                running.cancel()
            try:
                outcome = await running
            except (InvsvcError, asyncio.CancelledError):
                open_ones.put_nowait(number)
                continue
            print(  # noqa: T201 - read by the parent
                json.dumps([number, plain_of(outcome, asked=asked)]),
                flush=True,
            )
            # No read can tell any more of a webhook that a later write has changed, nor of a name that the
            # service may have made of the one sent.
            untellable[number] += outcome.evidence.cause in UNTELLABLE
            over = (
                outcome.evidence.cause in ("overtaken", "perhaps overtaken")
                or untellable[number] > TRIES
            )
            if outcome.verdict not in FINAL and not over:
                open_ones.put_nowait(number)

    client = Client(
        url,
        ApiKey(token),
        journal=journal,
        reconcile=POLICY,
        timeout=Timeouts(attempt=2.0),
        on_secret=lambda *_: None,
    )
    async with client:
        await asyncio.gather(*(work(client) for _ in range(AT_ONCE)))


@attrs.frozen(kw_only=True)
class Raced:
    """What came of the keys."""

    kills: int
    stops: int
    sends: int
    seconds: float
    verdicts: Counter[str]  # as they were told
    twice: int  # keys with two effects
    wrong: list[str]

    def cells(self) -> list[str]:
        """Return the cells of its row in the table, after the first two."""
        told = [self.verdicts[verdict] for verdict in TOLD]
        counts = self.kills, self.stops, self.sends, *told, self.twice, len(self.wrong)
        return [*(f"{count:,}" for count in counts), f"{self.seconds:.0f} s"]


async def run(
    keys: int, processes: int, seed: int, *, every: float = 0.7, patience: float = 300.0
) -> Raced:
    """Run it until each process has a final verdict for each key; *every* so many seconds, hit one."""
    chance, begun = random.Random(seed), time.monotonic()
    said: dict[int, list[Told]] = defaultdict(list)
    begun_at: dict[str, float] = {}

    def take(line: bytes) -> None:
        with suppress(ValueError):  # cut by a kill
            number, what = json.loads(line)
            if isinstance(what, float):  # a run of it begins
                begun_at[f"key-{number}"] = min(
                    what, begun_at.get(f"key-{number}", what)
                )
            else:
                said[number].append(told_in(what))

    name = f"race{seed}_{time.time_ns() % 10**9}"
    async with (
        slow_commits() as proxy,
        Simulator(seed=seed, faults=FAULTS, latency=0.005) as service,
    ):
        journal = f"{proxy.address}&journal={name}&silence=1"
        journeys = ",".join(service.seed_journey().id for _ in range(JOURNEYS))
        things = (
            f"{journeys} {','.join(service.seed_webhook().id for _ in range(HOOKS))}"
        )
        child = (
            "tests.soak.keys",
            "child",
            service.base_url,
            service.api_key,
            journal,
            things,
            keys,
        )
        crew = Crew(
            processes,
            chance,
            lambda number, turn: (*child, seed * 1000 + number * 100 + turn),
            take,
        )
        hits: list[asyncio.Task[None]] = []
        async with crew:
            await _note_sends(name)
            away = asyncio.create_task(_standby_away(proxy, chance))
            while not crew.is_done and time.monotonic() < begun + patience:
                await asyncio.sleep(every)
                if len(hits) < MOST_HITS:
                    hits.append(asyncio.create_task(crew.hit()))
            await cancel(away)
            await proxy.let_go()
            await asyncio.gather(*hits)
        await service.settled()
        shelves = journeys.split(","), things.partition(" ")[2].split(",")
        thing_of = partial(_thing_of, journeys=shelves[0], hooks=shelves[1])
        wrong = _judged(
            service, said, keys, begun_at, thing_of, await _being_sent(name, thing_of)
        )
        sends = sum(
            map(
                service.arrivals,
                ("webhooks.create", "webhooks.update", "journeys.update"),
            )
        )
    counts = Counter(str(told.verdict) for each in said.values() for told in each)
    twice = sum("effects: " in each for each in wrong)
    return Raced(
        kills=crew.kills, stops=crew.stops, sends=sends, seconds=time.monotonic() - begun, verdicts=counts,
        twice=twice, wrong=wrong,
    )  # fmt: skip


async def _standby_away(proxy: SlowCommits, chance: random.Random) -> None:
    """Let commits wait for a standby now and then, and cut the connections meanwhile, or not."""
    while True:
        await asyncio.sleep(chance.uniform(*BETWEEN))
        await set_standby("absent")
        await asyncio.sleep(chance.uniform(0.05, 0.4))
        if chance.random() < CUT:
            proxy.break_off()
        longest = LONG if chance.random() < 0.15 else SHORT
        await asyncio.sleep(chance.uniform(0.0, longest))
        await proxy.let_go()


async def _note_sends(journal: str) -> None:
    """Let the database note each write of *journal* that it stores as being sent, once a process has made it."""
    async with connected() as connection:
        schema = await until(partial(schema_of, connection, "journal", journal))
        await connection.execute(
            NOTE.format(schema=schema, sending=State.SENDING.value)
        )


async def _being_sent(
    journal: str, thing_of: Callable[[int], str | None]
) -> list[BeingSent]:
    """Return the updates that the database noted, by the clock of the ledger."""
    ahead = time.time() - time.monotonic()
    async with connected() as connection:
        schema = await schema_of(connection, "journal", journal)
        noted = await connection.fetch(f"SELECT key, at FROM {schema}.being_sent")
    found = []
    for key, at in noted:
        thing = thing_of(int(key.rpartition("-")[2]))
        if thing is not None:
            found.append(BeingSent(key.rpartition(" ")[2], thing, at - ahead))
    return found


def _thing_of(number: int, journeys: list[str], hooks: list[str]) -> str | None:
    """Return the id of what the write of the key *number* changes; ``None`` for a create."""
    if number % CREATES == 0:
        return None
    return (
        hooks[number % HOOKS] if number % CREATES == 1 else journeys[number % JOURNEYS]
    )


def _key_of(entry: Entry) -> str:
    body = entry.body
    return str(
        body["url"].rpartition("/")[2]
        if "url" in body
        else body.get("name", body.get("description"))
    )


def _judged(
    service: Simulator,
    said: Mapping[int, list[Told]],
    keys: int,
    begun: Mapping[str, float],
    thing_of: Callable[[int], str | None],
    being_sent: list[BeingSent],
) -> list[str]:
    effects = Counter(map(_key_of, service.ledger.effects()))
    things = Things(
        service.ledger.entries,
        _key_of,
        begun=begun,
        window=POLICY.settle_after_error,
        being_sent=being_sent,
    )
    wrong = []
    for key in range(keys):
        heard, many = said.get(key, []), effects[f"key-{key}"]
        told = Counter((str(each.verdict), each.cause) for each in heard)
        verdicts = {verdict for verdict, _ in told}
        final = verdicts & {*FINAL}
        reasons = {
            things.contradiction(f"key-{key}", thing_of(key), each) for each in heard
        }
        wrong += [f"key-{key}: {why}" for why in reasons if why is not None]
        found = [
            (many > 1, f"{many} effects"),
            (len(final) > 1, "two final verdicts"),
            ("applied" in verdicts and not many, "told as applied, and is not"),
            ("superseded" in verdicts, "nobody else has changed anything"),
            (
                bool(many) and verdicts == {"not applied"},
                f"{many} effects, and told as not applied",
            ),
            (not verdicts, "nobody was told a verdict"),
        ]
        wrong += [f"key-{key}: {why}: {dict(told)}" for is_so, why in found if is_so]
    return wrong


async def main(
    keys: int = 1000, processes: int = 3, seed: int = 1, seeds: int = 1
) -> bool:
    """Run it, print what came of it, and return whether all is well."""
    print("  ".join(HEAD), flush=True)  # noqa: T201 - a session's output
    wrong = []
    for each in range(seed, seed + seeds):
        raced = await run(keys, processes, each, patience=1800.0)
        wrong += [f"seed {each}, {what}" for what in raced.wrong]
        print("  ".join([str(each), f"{keys:,}", *raced.cells()]), flush=True)  # noqa: T201 - the same
    print(  # noqa: T201
        "\n".join(
            wrong
            or [
                f"{processes} processes: one effect for each key, and one final verdict"
            ]
        )
    )
    return not wrong


if __name__ == "__main__":
    if sys.argv[1:2] == ["child"]:
        asyncio.run(race(*sys.argv[2:6], *map(int, sys.argv[6:])))
    else:
        sys.exit(not asyncio.run(main(*map(int, sys.argv[1:]))))
