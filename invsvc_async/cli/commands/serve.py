"""``invsvc serve``: run the embedded service until Ctrl-C."""

from __future__ import annotations

import asyncio
import itertools
import json
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Final

import attrs
import typer

from invsvc_async.cli.commands.trigger import Credentials, PayloadVersion
from invsvc_async.cli.options import (
    FaultPlan,
    Port,
    StoresPlan,
    check_url,
    misuse,
    number,
    option,
)
from invsvc_async.cli.output import as_json, note
from invsvc_async.cli.signals import stopping

if TYPE_CHECKING:
    from typing import Unpack

    from invsvc_async.simulator import Simulator
    from invsvc_async.simulator.service import SimulatorSettings

_KEPT: Final = 10_000  # deliveries: about 60 MB if the receiver is gone
_LATENCY = "Processing time of each request."
_INSPECT = "Serve a page that shows what arrives; with --admin, script faults."


@attrs.frozen
class _Service:
    port: Port = 0
    host: Annotated[str, option("Address to listen on.", "ADDRESS")] = "127.0.0.1"
    seed: Annotated[int, number(int, "Seed of records, ids and faults.")] = 7
    faults: FaultPlan = "none"
    stores: StoresPlan = "none"
    latency: Annotated[float, number(float, _LATENCY, least=0, metavar="SECONDS")] = 0.0
    at_once: Annotated[
        int | None, number(int, "Maximum requests processed at once.", least=1)
    ] = None
    admin: Annotated[bool, option("Enable /_simulator/: ledger, scripts, faults.")] = (
        False
    )
    inspect: Annotated[bool, option(_INSPECT)] = False

    def made(self, **settings: Unpack[SimulatorSettings]) -> Simulator:
        from invsvc_async.simulator import Faults, Simulator, Stores

        plans = {
            "faults": Faults.parse(self.faults),
            "stores": Stores.parse(self.stores),
        }
        given = attrs.asdict(self) | plans
        try:
            return Simulator(**given, **settings)
        except ValueError as error:
            raise misuse(str(error)) from error


_TO = "Deliver events to this receiver; see also --faults."
_EVERY = "Deliver an event so often, one type after the other."


async def serve(
    *,
    of: _Service,
    deliver_to: Annotated[str | None, option(_TO, "URL")] = None,
    deliver_every: Annotated[
        float | None, number(float, _EVERY, least=0.001, metavar="SECONDS")
    ] = None,
    deliver_version: PayloadVersion = "v2",
    credentials: Credentials,
    openapi: Annotated[
        bool, option("Print an OpenAPI 3.1 description of it as JSON, and end.")
    ] = False,
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
    from invsvc_async.simulator.validate import EVENTS

    if deliver_every is not None and deliver_to is None:
        raise misuse("--deliver-every needs --deliver-to")
    service = of.made(
        deliver=deliver_to is not None,
        delivery_backoff=1.0,
        deliveries_kept=_KEPT,
    )
    missing: list[str] = []
    if deliver_to is not None:
        check_url(deliver_to, "--deliver-to", insecure=credentials.allow_insecure_http)
        headers = credentials.header()
        secret = credentials.secret()
        given = {"INVSVC_SHARED_HEADER": headers, "INVSVC_WEBHOOK_SECRET": secret}
        missing = [name for name, value in given.items() if not value]
        hook = service.seed_webhook(
            url=deliver_to,
            events=EVENTS,
            secret=secret,
        )
        service.set_delivery_version(hook.id, deliver_version)
        service.set_delivery_headers(hook.id, headers)
    await _serve(service, deliver_every, missing)


async def _serve(
    service: Simulator,
    every: float | None,
    missing: list[str],
) -> None:
    from invsvc_async.simulator.inspector import plan_text
    from invsvc_async.simulator.validate import EVENTS

    with stopping() as stopped:
        async with service:
            if missing:
                note(
                    f"not set: {', '.join(missing)}. A receiver that expects it refuses the deliveries"
                )
            names = (
                "base_url",
                "api_key",
                "test_key",
                "oauth_token",
                "person_token",
                "teams",
            )
            facts = {name: getattr(service, name) for name in names}
            facts |= {
                "faults": plan_text(service.faults),
                "stores": service.stores.text(),
            }
            facts |= service.pages
            if as_json.get():
                typer.echo(json.dumps(facts))
            else:
                typer.echo(_shown(facts))
            for event in itertools.cycle(EVENTS):
                with suppress(TimeoutError):
                    await asyncio.wait_for(stopped.wait(), every)
                    break
                service.emit_soon(event)


def _shown(facts: dict[str, str | list[str]]) -> str:
    """Return the connection details, with lines to paste into a shell."""
    rows: list[str] = []
    for name, value in facts.items():
        words = value
        if isinstance(value, list):
            words = ", ".join(value)
        rows.append(f"  {name:<13} {words}")
    lines = [
        "The embedded service is running; press Ctrl-C to stop.",
        *rows,
        "\nIn another shell:",
        f"  export INVSVC_BASE_URL={facts['base_url']} INVSVC_API_KEY={facts['api_key']}",
        "  invsvc list invoices.egress",
        "  invsvc get journeys jrn_1     # a draft; jrn_2 is published",
        '  curl -H "Authorization: Bearer $INVSVC_API_KEY" $INVSVC_BASE_URL/webhooks',
    ]
    return "\n".join(lines)
