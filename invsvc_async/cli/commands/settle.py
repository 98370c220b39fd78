"""``invsvc settle``: find out the result of another process's write from its intent."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads the types
from typing import TYPE_CHECKING, Annotated, Any

import typer

from invsvc_async.cli.options import Json, Profile, Story, Team, client_of
from invsvc_async.concurrency.event_loop import until_done

if TYPE_CHECKING:
    from invsvc_async.reconcile.outcome import Outcome

__all__ = ["command"]


def command(
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="The intent, as JSON.")],
    *,
    same_mode: Annotated[
        bool,
        typer.Option("--same-mode", help="Confirm that the credential has the intent's team and data mode."),
    ] = False,
    story: Story = None,
    json_: Json = False,
    profile: Profile = None,
    team: Team = None,
) -> None:
    """
    Find out whether a write was applied.  It only reads, so it can be repeated safely.

    Exits with 0 if the write was applied, 3 if the result is unknown, and 1 otherwise.
    """
    from invsvc_async.cli.outcome_output import exit_code_of, print_outcome

    outcome = until_done(_settle(file.read_bytes(), profile, team, same_mode=same_mode))
    print_outcome(outcome, as_json=json_, story=story)
    raise typer.Exit(exit_code_of(outcome))


async def _settle(text: bytes, profile: str | None, team: str | None, *, same_mode: bool) -> Outcome[Any]:
    from invsvc_async.reconcile.intent import Intent

    async with client_of(profile, team) as client:
        return await client.settle(Intent.from_json(text), same_mode=same_mode)
