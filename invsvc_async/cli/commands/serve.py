"""Serve the service in a box until Ctrl-C, for other programs and languages; never print a second thing."""

from __future__ import annotations

from typing import Annotated

import typer

from invsvc_async.concurrency.event_loop import until_done

__all__ = ["command"]


def command(
    *,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 0,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    seed: Annotated[int, typer.Option(help="Makes records, ids and faults repeat.")] = 7,
    faults: Annotated[
        str, typer.Option(help="A fault plan, for example rate=0.2,kinds=500+reset,reads=0.1,late=0.4.")
    ] = "none",
    latency: Annotated[float, typer.Option(min=0, help="Seconds of work on each request.")] = 0.0,
    at_once: Annotated[int | None, typer.Option(min=1, help="Requests worked on at once.")] = None,
    admin: Annotated[
        bool, typer.Option("--admin", help="Open /_simulator/: ledger, scripts, faults.")
    ] = False,
    json_: Annotated[
        bool, typer.Option("--json", help="Print where to connect as one line of JSON.")
    ] = False,
) -> None:
    """
    Run the embedded service: all operations of the specification in memory, with faults if you like.

    Prints the base URL and the keys.  Ctrl-C ends it.
    """
    from invsvc_async.simulator import Faults, Simulator
    from invsvc_async.simulator.serve import about, serve

    try:
        plan = Faults.parse(faults)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--faults") from error
    try:
        service = Simulator(
            seed=seed, faults=plan, latency=latency, at_once=at_once, host=host, port=port, admin=admin
        )
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error

    def announce(line: str) -> None:
        if json_:
            typer.echo(line)
        else:
            _show(about(service))

    until_done(serve(service, announce=announce))


def _show(facts: dict[str, str | list[str]]) -> None:
    """Print where to connect, with lines to paste into a shell."""
    typer.echo("The embedded service runs; Ctrl-C ends it.")
    for name, value in facts.items():
        typer.echo(f"  {name:<13} {', '.join(value) if isinstance(value, list) else value}")
    typer.echo("\nIn another shell:")
    typer.echo(f"  export INVSVC_BASE_URL={facts['base_url']} INVSVC_API_KEY={facts['api_key']}")
    typer.echo("  invsvc list invoices.egress")
    typer.echo('  curl -H "Authorization: Bearer $INVSVC_API_KEY" $INVSVC_BASE_URL/webhooks')
