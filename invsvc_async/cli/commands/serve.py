"""``invsvc serve``: run the embedded service until Ctrl-C."""

from __future__ import annotations

from typing import Annotated

import typer

from invsvc_async.concurrency.event_loop import until_done

__all__ = ["command"]


def command(
    *,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 selects a free port.")] = 0,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    seed: Annotated[int, typer.Option(help="Seed of records, ids and faults.")] = 7,
    faults: Annotated[
        str, typer.Option(help="A fault plan, such as rate=0.2,kinds=500+reset,reads=0.1,late=0.4.")
    ] = "none",
    latency: Annotated[float, typer.Option(min=0, help="Processing time of each request, in seconds.")] = 0.0,
    at_once: Annotated[int | None, typer.Option(min=1, help="Maximum requests processed at once.")] = None,
    admin: Annotated[
        bool, typer.Option("--admin", help="Enable /_simulator/: ledger, scripts, faults.")
    ] = False,
    inspect: Annotated[
        bool,
        typer.Option("--inspect", help="Serve a page that shows what arrives; with --admin, script faults."),
    ] = False,
    json_: Annotated[
        bool, typer.Option("--json", help="Print the connection details as one line of JSON.")
    ] = False,
) -> None:
    """
    Run the embedded service: all operations of the specification, in memory, with optional faults.

    Prints the base URL and the keys.  Stop it with Ctrl-C.
    """
    from invsvc_async.simulator import Faults, Simulator
    from invsvc_async.simulator.serve import about, serve

    try:
        plan = Faults.parse(faults)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--faults") from error
    try:
        service = Simulator(
            seed=seed,
            faults=plan,
            latency=latency,
            at_once=at_once,
            host=host,
            port=port,
            admin=admin,
            inspect=inspect,
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
    """Print the connection details, with lines to paste into a shell."""
    typer.echo("The embedded service is running; press Ctrl-C to stop.")
    for name, value in facts.items():
        typer.echo(f"  {name:<13} {', '.join(value) if isinstance(value, list) else value}")
    typer.echo("\nIn another shell:")
    typer.echo(f"  export INVSVC_BASE_URL={facts['base_url']} INVSVC_API_KEY={facts['api_key']}")
    typer.echo("  invsvc list invoices.egress")
    typer.echo('  curl -H "Authorization: Bearer $INVSVC_API_KEY" $INVSVC_BASE_URL/webhooks')
