"""Share the options of the commands that talk to a service; never hold a credential."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from invsvc_async.client import Client

__all__ = ["Json", "Profile", "Story", "Team", "client_of"]

Profile = Annotated[str | None, typer.Option(help="A profile of invsvc.toml.", metavar="NAME")]
Team = Annotated[str | None, typer.Option(help="Act on this team (Connect).", metavar="ID")]


def _in_a_folder(story: Path | None) -> Path | None:
    """Refuse a place where nothing can be kept before a write is sent, not after."""
    if story is not None and not story.parent.is_dir():
        raise typer.BadParameter(f"{story.parent} is no folder")
    return story


Story = Annotated[
    Path | None,
    typer.Option(
        dir_okay=False,
        metavar="FILE",
        callback=_in_a_folder,
        help="Keep the story here, for `invsvc explain`.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, in the service's own form.")]


def client_of(profile: str | None, team: str | None, **settings: Any) -> Client:  # Any: those of Client
    """
    Make the client of the environment, or of a profile, with *settings* of the command's own.

    Raises:
        ConfigurationError: Something is missing; it says what to set.

    """
    from invsvc_async.client import Client

    client = Client.from_env(profile=profile, **settings)
    return client if team is None else client.for_team(team)
