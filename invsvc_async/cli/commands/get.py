"""``invsvc get``: read one item and print it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from invsvc_async.cli.options import Json, Profile, Team, client_of
from invsvc_async.concurrency.event_loop import until_done

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["command"]


def command(
    what: Annotated[
        str, typer.Argument(help="A read, such as webhooks.get (or webhooks), or a path like /users/usr_1.")
    ],
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="ID | NAME=VALUE", help="Its id and other arguments."),
    ] = None,
    *,
    json_: Json = False,
    profile: Profile = None,
    team: Team = None,
) -> None:
    """
    Read one item: `invsvc get webhooks wh_1`, `invsvc get payments.link plink_1`, `invsvc get
    /users/usr_1`.
    """
    from invsvc_async.cli.formatting import show
    from invsvc_async.cli.output import emit_json
    from invsvc_async.codec import unstructure

    found = until_done(_read(what, words or [], profile, team))
    if json_:
        emit_json(unstructure(found))
    else:
        show(found)


async def _read(what: str, words: Sequence[str], profile: str | None, team: str | None) -> Any:
    from invsvc_async.api.operations import CLIENT_REQUEST, Kind
    from invsvc_async.cli.arguments import arguments_of, called, operation_of

    async with client_of(profile, team) as client:
        if what.startswith("/"):
            envelope = await client.request("GET", what, params=arguments_of(CLIENT_REQUEST, words))
            return envelope.data
        operation = operation_of(what, Kind.READ, many=False, short="get")
        return await called(client, operation, arguments_of(operation, words))
