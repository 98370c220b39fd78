"""``invsvc trigger``: send events to a receiver, as the service would."""

from __future__ import annotations

import os
import random
from pathlib import Path
from secrets import randbits
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import attrs

from invsvc_async.cli.arguments import complete_event
from invsvc_async.cli.files import existing_file, text_of_secret
from invsvc_async.cli.options import (
    InsecureHttp,
    argument,
    check_url,
    misuse,
    number,
    option,
)
from invsvc_async.cli.output import Exit, fail, tell
from invsvc_async.codec.exact_json import WireObject, loads
from invsvc_async.codec.nesting import NestingError
from invsvc_async.errors import UnreadableResponseError
from invsvc_async.resources.by_name import did_you_mean
from invsvc_async.storage.address import without_login

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from invsvc_async.simulator import Simulator
    from invsvc_async.simulator.deliveries import EventDelivery

PayloadVersion = Annotated[
    Literal["v1", "v1.1", "v2"], option("The payload version of resource events.")
]
_SECRET = "A file with the webhook's secret (- is stdin); or set INVSVC_WEBHOOK_SECRET."
_UNAUTHORIZED = 401
_HEADER = "A file with the shared header, NAME=VALUE (- is stdin); or set INVSVC_SHARED_HEADER."


@attrs.frozen
class Credentials:
    """The options for what authenticates events, which is never given on the command line."""

    secret_file: Annotated[
        Path | None, option(_SECRET, "FILE", callback=existing_file)
    ] = None
    shared_header_file: Annotated[
        Path | None, option(_HEADER, "FILE", callback=existing_file)
    ] = None
    allow_insecure_http: InsecureHttp = False

    def secret(self) -> str | None:
        """Return the webhook's secret from a file or the environment."""
        return next(
            iter(_text_in(self.secret_file, "INVSVC_WEBHOOK_SECRET").split()), None
        )

    def header(self) -> Mapping[str, str]:
        """Return the shared header from a file or the environment; empty if there is none."""
        text = _text_in(self.shared_header_file, "INVSVC_SHARED_HEADER").strip()
        if not text:
            return {}
        name, _, value = text.partition("=")
        if name and value:
            return {name: value}
        del text, name, value
        raise misuse("must be NAME=VALUE", "--shared-header-file")


def _text_in(file: Path | None, variable: str) -> str:
    if file is None:
        return os.environ.get(variable, "")
    return text_of_secret(file)


T = TypeVar("T")

_TYPE = "invoice.created, for example, or `all`."
_SET = "Set data.object.total=5, for example; repeatable."
_SEED = "Seed of ids, contents and order; the same ids are duplicates."


async def trigger(  # noqa: PLR0913 - each is an option of its own
    type_: Annotated[str, argument(_TYPE, "TYPE", autocompletion=complete_event)],
    *,
    to: Annotated[str, option("The receiver.", "URL")],
    version: PayloadVersion = "v2",
    signed: Annotated[
        bool, option("Sign resource events too, which the service does not.")
    ] = False,
    set_: Annotated[list[str] | None, option(_SET, "PATH=VALUE")] = None,
    test: Annotated[bool, option("A test, as the dashboard sends it.")] = False,
    count: Annotated[int, number(int, "How many events of each type.", least=1)] = 1,
    duplicates: Annotated[
        int, number(int, "How many further copies of each event.", least=0)
    ] = 0,
    reorder: Annotated[bool, option("Send events and copies in random order.")] = False,
    retries: Annotated[
        bool, option("Send unsigned events up to 16 times, as the service does.")
    ] = False,
    backoff: Annotated[
        float, number(float, "Before the second attempt.", least=0, metavar="SECONDS")
    ] = 1.0,
    seed: Annotated[int | None, number(int, _SEED)] = None,
    credentials: Credentials,
) -> int:
    """
    Send events: `invsvc trigger invoice.created --to http://127.0.0.1:8000/events`.

    Signed types are signed with the secret, and resource events have the shared header.

    Exits with 1 if a delivery was not answered 2xx.
    """
    from invsvc_async.simulator import Simulator
    from invsvc_async.simulator.validate import EVENTS

    known = ("all", *EVENTS)
    if type_ not in known:
        advice = did_you_mean(type_, known) or f"Use one of {', '.join(known)}"
        raise misuse(f"unknown type {type_!r}. {advice}")
    types = EVENTS if type_ == "all" else [type_]
    check_url(to, "--to", insecure=credentials.allow_insecure_http)
    secret = credentials.secret()
    headers = credentials.header()
    if secret is None and signed:
        raise misuse("--signed needs INVSVC_WEBHOOK_SECRET or --secret-file")
    again: WireObject = {
        "url": to,
        "signed": signed,
        "secret": secret,
        "headers": headers,
    }
    again["attempts"] = 16 if retries else 1
    first = {**again, "version": version, "test": test, "changes": _changes(set_ or ())}
    events = _repeated(types, count)
    turns = _repeated(range(len(events)), 1 + duplicates)
    seed = randbits(32) if seed is None else seed
    if reorder:
        random.Random(seed).shuffle(turns)
    async with Simulator(seed=seed, delivery_backoff=backoff) as service:
        sent = await _send(service, events, turns, first, again)
    return _report(sent, again)


def _repeated(items: Iterable[T], times: int) -> list[T]:
    return [each for each in items for _ in range(times)]


async def _send(
    service: Simulator,
    events: Sequence[str],
    turns: Sequence[int],
    first: WireObject,
    again: WireObject,
) -> list[EventDelivery]:
    """Deliver the events whose numbers are in *turns*; at a later turn, the same body again."""
    sent: list[EventDelivery] = []
    bodies: dict[int, WireObject] = {}
    for turn in turns:
        if turn in bodies:
            delivery = service.deliver(bodies[turn], **again)
        else:
            delivery = service.deliver(events[turn], **first)
        try:
            sent.append(await delivery)
        except ValueError as error:
            raise misuse(str(error), "--set") from None
        bodies.setdefault(turn, loads(sent[-1].body))
    return sent


def _unset(sent: Sequence[EventDelivery], settings: WireObject) -> str:
    """Return which variables to set, if deliveries were answered 401 that had no signature or header."""
    from invsvc_async.simulator.deliveries import SIGNED

    refused = {each.event for each in sent if each.attempts[-1].status == _UNAUTHORIZED}
    unset: list[str] = []
    if settings["secret"] is None and refused & SIGNED:
        unset.append("INVSVC_WEBHOOK_SECRET, which signs the signed types")
    has_neither = not settings["headers"] and not settings["signed"]
    if has_neither and refused - SIGNED:
        unset.append("INVSVC_SHARED_HEADER, the header of resource events")
    if unset:
        return f"Set {', and '.join(unset)}"
    return ""


def _advice(sent: Sequence[EventDelivery], settings: WireObject) -> str:
    """Return what to do about deliveries that were not accepted."""
    was_answered = any(
        attempt.status for delivery in sent for attempt in delivery.attempts
    )
    if was_answered:
        return _unset(sent, settings) or "The receiver's log says why"
    place = without_login(sent[0].url) or "that address"
    return f"nothing answers at {place}. Start the receiver, or correct --to"


def _report(sent: Sequence[EventDelivery], settings: WireObject) -> int:
    for delivery in sent:
        answers = [attempt.status or attempt.error for attempt in delivery.attempts]
        plain = {
            "type": delivery.event,
            "answers": answers,
            "body": delivery.body.decode(),
        }
        tell(plain, f"{delivery.event}\t{', '.join(map(str, answers))}")
    failed = sum(not delivery.delivered for delivery in sent)
    if not failed:
        return Exit.DONE
    advice = _advice(sent, settings)
    fail(f"{failed} of {len(sent)} deliveries were not accepted. {advice}")
    return Exit.FAILED


def _changes(texts: Sequence[str]) -> WireObject:
    """Parse PATH=VALUE: a JSON value, or else text."""
    found: dict[str, Any] = {}
    for text in texts:
        path, equals, value = text.partition("=")
        if not equals or not path:
            raise misuse("must be PATH=VALUE", "--set")
        try:
            found[path] = loads(value.encode())
        except UnreadableResponseError as error:
            if isinstance(error.__cause__, NestingError):
                raise misuse(str(error.__cause__), f"--set {path}") from None
            found[path] = value
    return found
