"""``invsvc serve``: run the embedded service until Ctrl-C."""

from __future__ import annotations

import asyncio
import itertools
import json
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Final

import typer

from invsvc_async.cli.commands.trigger import HeaderFile, PayloadVersion, SecretFile, header_of, secret_of
from invsvc_async.cli.options import FaultPlan, InsecureHttp, Port, check_url, fault_plan, number, option
from invsvc_async.cli.output import note

if TYPE_CHECKING:
    from collections.abc import Mapping

    from invsvc_async.simulator import Simulator

__all__ = ["serve"]

_KEPT: Final = 10_000  # deliveries: about 60 MB if the receiver is gone

Latency = Annotated[float, number(float, "Processing time of each request.", least=0, metavar="SECONDS")]
Inspect = Annotated[bool, option("Serve a page that shows what arrives; with --admin, script faults.")]
DeliverTo = Annotated[str | None, option("Deliver events to this receiver; see also --faults.", "URL")]
DeliverEvery = Annotated[
    float | None,
    number(float, "Deliver an event so often, one type after the other.", least=0.001, metavar="SECONDS"),
]


async def serve(  # noqa: PLR0913 - each is an option of its own
    *,
    port: Port = 0,
    host: Annotated[str, option("Address to listen on.", "ADDRESS")] = "127.0.0.1",
    seed: Annotated[int, number(int, "Seed of records, ids and faults.")] = 7,
    faults: FaultPlan = "none",
    latency: Latency = 0.0,
    at_once: Annotated[int | None, number(int, "Maximum requests processed at once.", least=1)] = None,
    admin: Annotated[bool, option("Enable /_simulator/: ledger, scripts, faults.")] = False,
    inspect: Inspect = False,
    deliver_to: DeliverTo = None,
    deliver_every: DeliverEvery = None,
    deliver_version: PayloadVersion = "v2",
    secret_file: SecretFile = None,
    shared_header_file: HeaderFile = None,
    allow_insecure_http: InsecureHttp = False,
    json_: Annotated[bool, option("Print the connection details as one line of JSON.")] = False,
    openapi: Annotated[bool, option("Print an OpenAPI 3.1 description of it as JSON, and end.")] = False,
) -> None:
    """
    Run the embedded service: `invsvc serve --faults rate=0.2`.

    It has all operations of the specification, in memory, with optional faults.  Prints the base URL and the
    keys.  Stop it with Ctrl-C.

    With --deliver-to, a webhook for all events exists, and events of the service's own writes are delivered
    to it, with the specification's retries.  `--faults duplicate_deliveries=0.2,reorder_deliveries=0.2`
    duplicates and reorders them.  They are signed with the secret in INVSVC_WEBHOOK_SECRET, and have the
    shared header in INVSVC_SHARED_HEADER.  If 10,000 deliveries are under way, because the receiver is gone,
    the oldest is given up for each new one.
    """
    if openapi:
        from invsvc_async.cli.commands.openapi import description

        typer.echo(json.dumps(description(), indent=2))
        return
    from invsvc_async.simulator import Simulator

    plan = fault_plan(faults)
    if deliver_every is not None and deliver_to is None:
        raise typer.BadParameter("--deliver-every needs --deliver-to")
    try:
        service = Simulator(
            seed=seed, faults=plan, latency=latency, at_once=at_once, host=host, port=port, admin=admin,
            inspect=inspect, deliver=deliver_to is not None, delivery_backoff=1.0, deliveries_kept=_KEPT,
        )  # fmt: skip
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error

    missing: list[str] = []
    if deliver_to is not None:
        check_url(deliver_to, "--deliver-to", insecure=allow_insecure_http)
        headers, secret = header_of(shared_header_file), secret_of(secret_file)
        missing = _add_receiver(service, deliver_to, deliver_version, headers, secret)
    await _serve(service, deliver_every, missing, as_json=json_)


def _add_receiver(
    service: Simulator, url: str, version: PayloadVersion, headers: Mapping[str, str], secret: str | None
) -> list[str]:
    """Deliver all events to *url*; return the variables of credentials that are not set."""
    from invsvc_async.simulator.validate import EVENTS

    hook = service.seed_webhook(url=url, events=EVENTS, secret=secret)
    service.set_delivery_version(hook.id, version)
    service.set_delivery_headers(hook.id, headers)
    given = {"INVSVC_SHARED_HEADER": headers, "INVSVC_WEBHOOK_SECRET": secret}
    return [name for name, value in given.items() if not value]


async def _serve(service: Simulator, every: float | None, missing: list[str], *, as_json: bool) -> None:
    from invsvc_async.simulator.serve import about, serve

    def announce(line: str) -> None:
        if missing:
            note(f"not set: {', '.join(missing)}. A receiver that expects it refuses the deliveries")
        typer.echo(line if as_json else _shown(about(service)))

    delivering = None if every is None else asyncio.create_task(_deliver(service, every))
    try:
        await serve(service, announce=announce)
    finally:
        if delivering is not None:
            delivering.cancel()
            with suppress(asyncio.CancelledError):
                await delivering


async def _deliver(service: Simulator, every: float) -> None:
    """Deliver an event of each type in turn."""
    from invsvc_async.simulator.validate import EVENTS

    for event in itertools.cycle(EVENTS):
        await asyncio.sleep(every)
        service.emit_soon(event)


def _shown(facts: dict[str, str | list[str]]) -> str:
    """Return the connection details, with lines to paste into a shell."""
    rows = [
        f"  {name:<13} {', '.join(value) if isinstance(value, list) else value}"
        for name, value in facts.items()
    ]
    lines = [
        "The embedded service is running; press Ctrl-C to stop.",
        *rows,
        "\nIn another shell:",
        f"  export INVSVC_BASE_URL={facts['base_url']} INVSVC_API_KEY={facts['api_key']}",
        "  invsvc list invoices.egress",
        '  curl -H "Authorization: Bearer $INVSVC_API_KEY" $INVSVC_BASE_URL/webhooks',
    ]
    return "\n".join(lines)
