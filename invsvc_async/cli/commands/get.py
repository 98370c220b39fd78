"""``invsvc get``: read one item and print it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from invsvc_async.api.operations import Kind
from invsvc_async.cli.arguments import complete_argument, complete_operation
from invsvc_async.cli.options import Calling
from invsvc_async.cli.output import emit_json
from invsvc_async.concurrency.event_loop import until_done

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["command"]


def command(
    what: Annotated[
        str,
        typer.Argument(
            metavar="WHAT",
            help="A read, such as webhooks.get (or webhooks), or a path like /users/usr_1.",
            autocompletion=complete_operation(Kind.READ, many=False),
        ),
    ],
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="ID | NAME=VALUE", help="Its id and other arguments.", autocompletion=complete_argument
        ),
    ] = None,
    *,
    calling: Calling,
) -> None:
    """
    Read one item: `invsvc get webhooks wh_1`, `invsvc get payments.link plink_1`, `invsvc get
    /users/usr_1`.
    """
    found = until_done(_read(what, words or [], calling), short=True)
    if calling.json_:
        from invsvc_async.codec import unstructure

        emit_json(unstructure(found))
    else:
        from invsvc_async.cli.formatting import show

        show(found)


async def _read(what: str, words: Sequence[str], calling: Calling) -> Any:
    from invsvc_async.api.operations import CLIENT_REQUEST
    from invsvc_async.cli.arguments import arguments_of, operation_of
    from invsvc_async.cli.waiting import waiting_for_read
    from invsvc_async.resources.by_name import called

    async with calling.client() as client:
        if what.startswith("/"):
            params = arguments_of(CLIENT_REQUEST, words)
            with waiting_for_read(client, what):
                return (await client.request("GET", what, params=params)).data
        operation = operation_of(what, Kind.READ, many=False, short="get")
        found = called(client, operation.name, arguments_of(operation, words))
        with waiting_for_read(client, operation.name):
            return await found
