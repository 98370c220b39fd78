"""
What is played in a scene: who writes, who takes up what was left, and what happens from outside.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from invsvc_async.reconcile.history import Verdict
from tests.interleavings.execution import Heard
from tests.interleavings.journal import MemoryJournal, Stored
from tests.interleavings.service import WRITER
from tests.support.naming import named

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from invsvc_async.reconcile.intent import Intent
    from tests.interleavings.execution import Member, Stage

URL = "https://a.example/new"
EVENTS = ["invoice.created"]
HOOK = f"wh_{0:026d}"


def create(member: Member, _text: str) -> Any:
    """Return a create; all are equal."""
    return member.client.webhooks.create(url=URL, events=EVENTS)


def rename(member: Member, text: str) -> Any:
    """Return an update of the journey."""
    return member.client.journeys.update("j1", name=text)


def change(member: Member, text: str) -> Any:
    """Return an update of the webhook."""
    return member.client.webhooks.update(HOOK, description=text)


def remove(member: Member, _text: str) -> Any:
    """Return a delete of the webhook."""
    return member.client.webhooks.delete(HOOK)


def create_elsewhere(member: Member, _text: str) -> Any:
    """Return a create of another URL."""
    return member.client.webhooks.create(url="https://b.example/new", events=EVENTS)


def create_spelt(member: Member, _text: str) -> Any:
    """Return a create of the same URL, as others write it."""
    return member.client.webhooks.create(url="HTTPS://A.example:443/new", events=EVENTS)


def create_awkward(member: Member, _text: str) -> Any:
    """Return a create of what the service stores in other words."""
    return member.client.webhooks.create(
        url=f"{URL}?a=1&b=2", events=EVENTS, description="R&D"
    )


def rename_all(member: Member, text: str) -> Any:
    """Return an update of two fields of the journey, which the service stores in other words."""
    return member.client.journeys.update(
        "j1", name=f"{text} & Co", description=f"R&D of {text}"
    )


def change_all(member: Member, text: str) -> Any:
    """Return an update of two fields of the webhook, one of which the service stores in other words."""
    return member.client.webhooks.update(
        HOOK, description=f"{text} & Co", status="inactive"
    )


KINDS: dict[str, Callable[[Member, str], Any]] = {
    "create": create,
    "rename": rename,
    "change": change,
    "remove": remove,
    "create elsewhere": create_elsewhere,
    "create spelt": create_spelt,
    "create awkward": create_awkward,
    "rename all": rename_all,
    "change all": change_all,
}


def _seed(stage: Stage) -> None:
    stage.service.seed_journey("old")
    stage.service.seed_hook("old")


def together(
    *kinds: str, moments: tuple[float, ...]
) -> Callable[[Stage], Coroutine[Any, Any, None]]:
    """Return a scene of live writes, each of which begins at one of *moments* after the first."""

    async def scene(stage: Stage) -> None:
        _seed(stage)
        member = stage.client("one")

        async def run(writer: str, kind: str, first: bool) -> None:
            if not first:
                await stage.at(*moments, what=f"begins {writer}")
            await stage.live(writer, member, KINDS[kind](member, writer))

        for writer, kind in zip("ABC", kinds, strict=False):
            stage.start(f"one/{writer}", run(writer, kind, writer == "A"))

    return scene


def taken_up(
    kind: str,
    other: str,
    how: str,
    *,
    moments: tuple[float, ...],
    waits: tuple[float, ...] = (0.0, 4.45, 8.0),
) -> Callable[[Stage], Coroutine[Any, Any, None]]:
    """Return a scene where A is cancelled in flight and taken up by its own client, beside B."""

    async def scene(stage: Stage) -> None:
        _seed(stage)
        member = stage.client("one")

        async def first() -> None:
            await stage.live("A", member, KINDS[kind](member, "A"))
            intent = stage.unsettled("A", member)
            if intent is not None:
                await stage.at(*waits, what=f"begins {how}")
                await getattr(stage, how)("A", member, intent)

        async def second() -> None:
            await stage.at(*moments, what="begins B")
            await stage.live("B", member, KINDS[other](member, "B"))

        stage.start("one/A", first())
        if other:
            stage.start("one/B", second())

    return scene


def left_elsewhere(
    kind: str,
    other: str,
    how: str,
    *,
    moments: tuple[float, ...],
    waits: tuple[float, ...],
) -> Callable[[Stage], Coroutine[Any, Any, None]]:
    """Return a scene where another client of the program left A open, and one that writes B takes it up."""

    async def scene(stage: Stage) -> None:
        _seed(stage)
        zero, one = stage.client("zero"), stage.client("one")

        async def first() -> None:
            await stage.live("A", zero, KINDS[kind](zero, "A"))
            intent = stage.unsettled("A", zero)
            if intent is not None:
                stage.start("one/A", again(intent))

        async def again(intent: Intent) -> None:
            await stage.at(*waits, what=f"begins {how}")
            await getattr(stage, how)("A", one, intent)

        async def second() -> None:
            await stage.at(*moments, what="begins B")
            await stage.live("B", one, KINDS[other](one, "B"))

        stage.start("zero/A", first())
        stage.start("one/B", second())

    return scene


def taken_up_twice(
    kind: str,
    other: str,
    *,
    first: str,
    second: str,
    apart: tuple[float, ...],
    clients: int = 1,
) -> Callable[[Stage], Coroutine[Any, Any, None]]:
    """Return a scene where A is cancelled and taken up twice with the same intent, by one client or by two."""

    async def scene(stage: Stage) -> None:
        _seed(stage)
        one = stage.client("one")
        two = stage.client("two") if clients == 2 else one

        async def begin() -> None:
            await stage.live("A", one, KINDS[kind](one, "A"))
            intent = stage.unsettled("A", one)
            if intent is None:
                return
            stage.start("one/A1", again(first, one, intent))
            await stage.at(*apart, what="begins again")
            stage.start(f"{two.name}/A2", again(second, two, intent))

        async def again(how: str, member: Member, intent: Intent) -> None:
            await getattr(stage, how)("A", member, intent)

        async def beside() -> None:
            await stage.at(0.1, 6.0, what="begins B")
            await stage.live("B", one, KINDS[other](one, "B"))

        stage.start("one/A", begin())
        if other:
            stage.start("one/B", beside())

    return scene


def awaited_twice(
    kind: str, other: str
) -> Callable[[Stage], Coroutine[Any, Any, None]]:
    """Return a scene where two tasks await one write, of which the first is cancelled."""

    async def scene(stage: Stage) -> None:
        _seed(stage)
        one = stage.client("one")
        write = named(KINDS[kind](one, "A"), "A")
        stage.keys["A"] = "A"

        async def waiter() -> None:
            await stage.hear("A", "live", one, write.outcome(), "A")

        async def second() -> None:
            await stage.at(0.05, 4.0, what="begins B")
            await stage.live("B", one, KINDS[other](one, "B"))

        first = stage.start("one/A1", waiter())
        stage.start("one/A2", waiter())
        stage.offer("cancel A1", first.cancel, frozenset(("one/A1",)))
        stage.start("one/B", second())

    return scene


def unknown_then(
    kind: str, other: str, how: str
) -> Callable[[Stage], Coroutine[Any, Any, None]]:
    """Return a scene where A ends as unknown, and is taken up beside B."""

    async def scene(stage: Stage) -> None:
        _seed(stage)
        one = stage.client("one")

        async def first() -> None:
            outcome = await stage.live(
                "A", one, KINDS[kind](one, "A").with_policy(deadline=1.0)
            )
            if outcome is not None and outcome.verdict is Verdict.UNKNOWN:
                await stage.at(0.0, 1.0, 8.0, what=f"begins {how}")
                await getattr(stage, how)("A", one, outcome.intent)

        async def second() -> None:
            await stage.at(0.05, 4.0, what="begins B")
            await stage.live("B", one, KINDS[other](one, "B"))

        stage.start("one/A", first())
        stage.start("one/B", second())

    return scene


def closed(kind: str, other: str) -> Callable[[Stage], Coroutine[Any, Any, None]]:
    """Return a scene where the client is closed in the middle, and what is open is settled by another."""

    async def scene(stage: Stage) -> None:
        _seed(stage)
        one = stage.client("one", program="p")

        async def run(writer: str, make: str) -> None:
            if writer == "B":
                await stage.at(0.05, 4.0, what="begins B")
            await stage.live(writer, one, KINDS[make](one, writer))

        async def close() -> None:
            await one.client.aclose()
            two = stage.client("two", program="p")
            for intent in one.client.unsettled:
                stage.start(f"two/{intent.key}", again(two, intent))

        async def again(two: Member, intent: Intent) -> None:
            await stage.settle(stage.keys[intent.key], two, intent)

        stage.start("one/A", run("A", kind))
        stage.start("one/B", run("B", other))
        runs = frozenset(("one/A", "one/B"))
        stage.offer("close", lambda: void(stage.start("one/close", close())), runs)

    return scene


def killed(
    *kinds: str, after: str, recovers: bool = True, cancelled: bool = False
) -> Callable[[Stage], Coroutine[Any, Any, None]]:
    """
    Return a scene where a process with a journal is killed, and the next recovers beside a write of its own.

    If A is *cancelled*, it is open in the journal while the writes after it go on.
    """

    async def scene(stage: Stage) -> None:
        _seed(stage)
        stored = Stored()
        one = stage.client("one", journal=MemoryJournal(stored), program="p")
        await one.client.__aenter__()

        async def run(writer: str, make: str) -> None:
            task = asyncio.current_task()
            assert task is not None
            if cancelled and writer == "A":
                stage.loop.call_later(0.1, task.cancel)
            await stage.live(writer, one, KINDS[make](one, writer))

        async def recover(two: Member) -> None:
            WRITER.set("recover")
            begun = stage.loop.now
            for outcome in await two.client.recover(same_mode=True):
                writer = stage.keys[outcome.started_as.key]
                stage.heard.append(
                    Heard(writer, "recover", "two", begun, stage.loop.now, outcome)
                )

        async def live(two: Member) -> None:
            await stage.at(0.0, 0.5, what="begins N")
            await stage.live("N", two, KINDS[after](two, "N"))

        def kill() -> None:
            stage.kill(one)
            two = stage.client("two", journal=MemoryJournal(stored), program="p")
            if recovers:
                stage.start("two/recover", recover(two))
            stage.start("two/N", live(two))

        runs = []
        for writer, kind in zip("ABC", kinds, strict=False):
            runs.append(f"one/{writer}")
            stage.start(runs[-1], run(writer, kind))
        stage.offer("kill", kill, frozenset(runs))

    return scene


def not_sent(
    kind: str, other: str, how: str, *, elsewhere: bool
) -> Callable[[Stage], Coroutine[Any, Any, None]]:
    """
    Return a scene where A is cancelled and taken up after B, which may end before a byte of it has left.

    B is cancelled, cannot connect, or the journal fails to store it.  A is of the same client, or was left
    *elsewhere*.
    """

    async def scene(stage: Stage) -> None:
        _seed(stage)
        journal = MemoryJournal(Stored())
        one = stage.client("one", journal=journal, program="p")
        await one.client.__aenter__()
        zero = stage.client("zero", program="p") if elsewhere else one

        async def first() -> None:
            task = asyncio.current_task()
            assert task is not None
            stage.loop.call_later(0.1, task.cancel)
            await stage.live("A", zero, KINDS[kind](zero, "A"))

        async def second() -> None:
            await asyncio.sleep(4.7 if elsewhere else 0.2)
            await stage.live("B", one, KINDS[other](one, "B"))

        async def again() -> None:
            await asyncio.sleep(9.0)
            intent = stage.unsettled("A", zero)
            if intent is not None:
                await getattr(stage, how)("A", one, intent)

        stage.start("zero/A", first())
        stage.start("one/B", second())
        stage.start("one/A", again())
        stage.offer(
            "the journal fails", lambda: journal.fail("B"), frozenset(("one/B",))
        )

    return scene


def beside_a_stranger(
    *kinds: str, changes: dict[str, Any] | None
) -> Callable[[Stage], Coroutine[Any, Any, None]]:
    """Return a scene of live writes beside which a stranger changes the thing once."""
    plain = together(*kinds, moments=(0.05, 4.0))
    thing = "/journeys/j1" if kinds[0] == "rename" else f"/webhooks/{HOOK}"

    async def scene(stage: Stage) -> None:
        await plain(stage)
        runs = frozenset(f"one/{writer}" for writer in "ABC"[: len(kinds)])
        stage.offer("a stranger", lambda: stage.service.act(thing, changes), runs)

    return scene


async def guessed(stage: Stage) -> None:
    """
    Play two equal creates of two clients, the first of which lands late and is left open.

    Which webhook is whose cannot be told: the second client may take it for its own, and it is a guess.
    """
    _seed(stage)
    zero, one = stage.client("zero"), stage.client("one")

    async def first() -> None:
        task = asyncio.current_task()
        assert task is not None
        stage.loop.call_later(0.2, task.cancel)
        await stage.live("B", zero, create(zero, "B"))
        intent = stage.unsettled("B", zero)
        if intent is not None:
            await stage.at(2.5, 0.5, what="begins resume")
            stage.start("one/B", again(intent))

    async def again(intent: Intent) -> None:
        await stage.resume("B", one, intent)

    async def second() -> None:
        await stage.at(2.0, 0.05, what="begins A")
        await stage.live("A", one, create(one, "A"))

    stage.start("zero/B", first())
    stage.start("one/A", second())


def void(_value: object) -> None:
    """Return nothing."""
