"""Share the options of the commands that talk to a service; never hold a credential."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from invsvc_async.client import Client

__all__ = ["Json", "Profile", "Team", "client_of"]

Profile = Annotated[str | None, typer.Option(help="A profile of invsvc.toml.", metavar="NAME")]
Team = Annotated[str | None, typer.Option(help="Act on this team (Connect).", metavar="ID")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, in the service's own form.")]


def client_of(profile: str | None, team: str | None) -> Client:
    """
    Make the client of the environment, or of a profile.

    Raises:
        ConfigurationError: Something is missing; it says what to set.

    """
    from invsvc_async.client import Client

    client = Client.from_env(profile=profile)
    return client if team is None else client.for_team(team)
