"""The transport of one process of a walk, and what the program says of its requests."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any, ClassVar

from multidict import CIMultiDict, CIMultiDictProxy

from invsvc_async import readers
from invsvc_async.reconcile.compare import url_key
from tests.interleavings.actions import EVENTS
from tests.interleavings.service import WRITER, thing_of as request_thing
from tests.interleavings.wire import Wire
from tests.walk.program import MAPPINGS
from tests.walk.service import MAPPING, RETRY_AFTER, fate_within

if TYPE_CHECKING:
    from collections.abc import Sequence

    from invsvc_async import Client
    from invsvc_async.transport.exchange import Exchange
    from tests.interleavings.service import Sent
    from tests.walk.program import Program, Write
    from tests.walk.service import WalkService
    from tests.walk.stage import WalkStage


TEAM = "team_1"  # whose API key the processes have
THINGS = 3  # of each kind
HTTP_CLIENT, TOO_MANY, HTTP_SERVER = 400, 429, 500
_LIMITED = CIMultiDictProxy(
    CIMultiDict({"Content-Type": "application/json", "Retry-After": str(RETRY_AFTER)})
)
# What services store in other words.
RICH = " A\u0308rger &amp; <b>co</b> \U0001f600 x\u200by abcd1234efgh5678 "
# What lengthens a text: it is there before, and more is sent. Others show that longer ones are kept.
BEFORE, MORE = "first", "and second"
LONG = "a text that is long enough"


class Fates:
    """What the program says becomes of each request, in the form of a schedule."""

    READS: ClassVar = ("ok", "slow", "failed", "denied")

    def __init__(self, program: Program) -> None:
        self._program = program
        self._sends: Counter[str] = Counter()
        self._reads = 0

    def next_of(self, writer: str) -> str:
        """Return what becomes of the next send of *writer*."""
        number, fates = self._sends[writer], self._program.fates.get(writer, ())
        self._sends[writer] += 1
        return fates[number] if number < len(fates) else "ok"

    def choose(self, kind: str, ways: Sequence[str], **_: object) -> int:
        """Return which of *ways* is taken: of a send, the one that was chosen last."""
        if kind != "read":
            return len(ways) - 1
        number, self._reads = self._reads, self._reads + 1
        return ways.index(self._program.reads.get(str(number), "ok"))


class WalkWire(Wire):
    """The transport of one process: what a request writes shows whose it is."""

    stage: WalkStage

    def _answer(
        self, exchange: Exchange, status: int, data: Any, stamp: int | None = None
    ) -> None:
        if isinstance(data, list):
            data = self.stage.service.listed(data)
        super()._answer(exchange, status, data, stamp)
        if status == TOO_MANY:
            exchange.answer_headers = _LIMITED
            exchange.answer = exchange.answer.replace(
                b"resource_not_found", b"rate_limit_exceeded"
            )

    def _value(self, number: int) -> Any:
        value, sent = super()._value(number), self.service.sends[number]
        if sent.thing == MAPPING:
            return {"connection": value}
        if self.stage.service.stores.echoes and sent.method in ("PUT", "POST"):
            return {**value, **sent.body}
        return value

    async def _write(self, exchange: Exchange) -> None:
        stage, service = self.stage, self.service
        body = json.loads(exchange.content) if exchange.content else None
        path = exchange.url.path.removeprefix("/v2")
        writer = stage.removers[path] if body is None else writer_of(body)
        WRITER.set(writer)
        fate = stage.schedule.next_of(writer)  # type: ignore[attr-defined]
        windows = service.windows.get(self.client, 1.0)
        service.fates[writer] = (fate_within(fate, windows),)
        stage.note_number(writer)
        if fate != "unsent":
            stage.judge_send(
                writer, self.client, request_thing(exchange.method, path, body)
            )
        await super()._write(exchange)


def writer_of(body: dict[str, Any]) -> str:
    """Return the key of the write with this *body*."""
    if "fields" in body:
        return str(body["fields"]["amount"])
    return str(body.get("name") or body["description"]).split()[0]


def is_refused(sent: Sent) -> bool:
    """Return whether the service has refused *sent*, so that it has no effect."""
    status = sent.status
    return status is not None and HTTP_CLIENT <= status < HTTP_SERVER


def hook_id(thing: int) -> str:
    """Return the id of a webhook that is there from the start."""
    return f"wh_{900 + thing:026d}"


def thing_of(write: Write) -> str:
    """Return what *write* is about, as the service has it."""
    match write.kind:
        case "rename":
            return f"/journeys/{journey_id(write.thing)}"
        case "create" | "untagged":
            return f"url {url_key(url_of(write.thing))}"
        case "mapping" | "raw mapping":
            return MAPPING
    return f"/webhooks/{hook_id(write.thing)}"


def journey_id(thing: int) -> str:
    """Return the id of a journey that is there from the start."""
    return f"j{thing + 1}0"


def url_of(thing: int) -> str:
    """Return the URL of new webhooks."""
    return f"https://a.example/{thing}"


def seed(service: WalkService, program: Program) -> None:
    """Store what programs write to, as the service stores it."""
    firsts = {
        (write.kind, write.thing): f"{write.key} {BEFORE}"
        for write in reversed(program.writes)
    }
    for thing in range(THINGS):
        texts = "old", "old"
        if program.grows:
            texts = tuple(
                firsts.get((kind, thing), LONG) for kind in ("rename", "change")
            )
        service.seed_journey(service.kept("name", texts[0]))
        service.seed_hook(service.kept("description", texts[1]))
        journey, hook = service.journeys.pop("j1"), service.hooks.pop(f"wh_{0:026d}")
        service.journeys[journey_id(thing)] = {**journey, "id": journey_id(thing)}
        service.hooks[hook_id(thing)] = {**hook, "id": hook_id(thing)}
    service.states.clear()


# Any: of any operation
def made_by(client: Client, program: Program, write: Write) -> Any:
    """
    Return *write*, as *client* makes it.

    Where the service stores in its own way, it has texts of which that makes others, and several fields.
    """
    if write.kind in MAPPINGS:
        return _mapping(client, write)
    text = write.key
    is_rich = bool(program.stores) and not program.grows
    if is_rich:
        text += RICH
    elif program.grows:
        text = f"{text} {BEFORE} {MORE}"
    fields: dict[str, Any] = {}
    match write.kind:
        case "rename":
            if is_rich:
                fields = {"description": f"of {text}"}
            return client.journeys.update(journey_id(write.thing), name=text, **fields)
        case "change":
            if is_rich:
                fields = {"url": f"https://a.example/{write.key}?b=1&a=2"}
            return client.webhooks.update(
                hook_id(write.thing), description=text, **fields
            )
        case "create" | "untagged":
            return client.webhooks.create(
                url=url_of(write.thing),
                events=EVENTS,
                description=text,
                **_tagging(program, write),
            )
        case "remove":
            return client.webhooks.delete(hook_id(write.thing))


# Any: as in made_by
def _mapping(client: Client, write: Write) -> Any:
    """Return *write*, which saves a mapping, by its method or by its path."""
    fields, reader = {"amount": write.key}, reader_of(write)
    if write.kind == "mapping":
        return client.sheets.save_mapping(fields, reader=reader)
    return client.write("PUT", MAPPING, json={"fields": fields}, reader=reader)


def reader_of(write: Write) -> Any:
    """Return the reader of *write*; ``None`` if the package has one of its own."""
    if write.kind not in MAPPINGS:
        return None
    return readers.get(MAPPING, matches=lambda shown: write.key in shown["saved"])


def _tagging(program: Program, write: Write) -> dict[str, bool]:
    """Return whether the create *write* has a tag, where that is not as usual."""
    if write.kind == "untagged":
        return {"tag": False}
    return {"tag": True} if program.edits else {}  # else, one without a key has none
