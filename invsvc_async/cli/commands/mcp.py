"""``invsvc mcp``: the operations as tools for agents."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import attrs
import typer

from invsvc_async.cli.files import check_outputs
from invsvc_async.cli.options import Calling, misuse, number, option
from invsvc_async.cli.output import counted, emitted, note, tell_at_once
from invsvc_async.cli.signals import handled

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcp.server.lowlevel import Server

    from invsvc_async.agents.toolbox import Toolbox

_ONLY = "Offer these operations only, such as webhooks.* or users.get; repeatable."
_JOURNAL = (
    "Where writes are stored: a file, or postgresql://…; INVSVC_JOURNAL by default."
)
_SECRETS = "Store the secrets of new webhooks here (mode 0600); no agent sees them."
_DRY_RUN = "Answer a write with its plan; the digest of the plan as `confirm` sends it."


_HTTP = (
    "Serve streamable HTTP on this port of 127.0.0.1, behind a token, instead; 0 selects a free one. The "
    "token is INVSVC_MCP_TOKEN, or a new one, which is printed."
)
_PORTS: dict[str, Any] = {"least": 0, "most": 65_535, "metavar": "PORT"}


@attrs.frozen
class _Offer:
    """What is offered to agents."""

    read_only: Annotated[bool, option("Offer no writes.")] = False
    only: Annotated[list[str] | None, option(_ONLY, "PATTERN")] = None
    dry_run: Annotated[bool, option(_DRY_RUN)] = False
    journal: Annotated[str | None, option(_JOURNAL, "ADDRESS")] = None
    secrets_to: Annotated[Path | None, option(_SECRETS, "FILE")] = None
    no_secrets: Annotated[bool, option("Throw the secrets of new webhooks away.")] = (
        False
    )

    @property
    def address(self) -> str | None:
        """The address of the journal; none is needed without writes."""
        if self.read_only:
            return None
        return self.journal or os.environ.get("INVSVC_JOURNAL")


async def mcp(
    *,
    offer: _Offer,
    http: Annotated[int | None, number(int, _HTTP, **_PORTS)] = None,
    skill: Annotated[
        bool, option("Print the page for agents, SKILL.md, and end.")
    ] = False,
    calling: Calling,
) -> None:
    """
    Serve the operations as tools for agents, over the Model Context Protocol: `invsvc mcp --journal calls.db
    --secrets-to secrets.jsonl`.

    A host of agents starts it, and speaks to it on standard input and output.  Each write takes a key, the
    business action, and has one effect however often it is called.  Needs the extra `mcp`.
    """
    if skill:
        from invsvc_async.agents.skill import SKILL

        page = SKILL.read_text(encoding="utf-8")
        if not emitted({"skill": page}):
            typer.echo(page, nl=False)
        return
    from invsvc_async.agents.server import server_of
    from invsvc_async.agents.toolbox import Toolbox

    check_outputs({"--secrets-to": offer.secrets_to}, journal=offer.address)
    if not offer.read_only and offer.address is None:
        raise misuse(
            "is missing: an agent sends again, and only a journal knows what was sent. Use --journal "
            "calls.db, or --read-only",
            "--journal",
        )
    async with AsyncExitStack() as stack:
        client = calling.client(
            journal=offer.address, on_secret=await _sink(offer, stack)
        )
        toolbox = Toolbox(
            client,
            only=offer.only or (),
            read_only=offer.read_only,
            dry_run=offer.dry_run,
            keeps_secrets=offer.secrets_to is not None,
        )
        _check_secrets(offer, toolbox)
        await stack.enter_async_context(client)
        serving = asyncio.create_task(
            _serve(server_of(toolbox), len(toolbox.tools), http)
        )
        # the client is closed then: what is under way gets its verdict, or stays in the journal
        with (
            handled((signal.SIGINT, signal.SIGTERM), serving.cancel),
            suppress(asyncio.CancelledError),
        ):
            await serving


async def _serve(
    server: Server[Any],
    count: int,
    port: int | None,
) -> None:
    """Serve *count* tools on standard input and output, or on a *port*."""
    if port is None:
        from invsvc_async.agents.stdio import serve_stdio

        note(f"{counted(count, 'tool')} on standard input and output")
        await serve_stdio(server)
        return
    from invsvc_async.agents.http import serve_http, token_of

    given = os.environ.get("INVSVC_MCP_TOKEN") or None
    token = token_of(given)

    def ready(url: str) -> None:
        lines = [f"url: {url}"]
        facts: dict[str, Any] = {"url": url, "tools": count}
        if given is None:
            lines.append(f"token: {token}")
            facts["token"] = token
        tell_at_once(facts, "\n".join(lines))
        note(f"{counted(count, 'tool')}; press Ctrl-C to stop")

    await serve_http(server, port, token, ready)


def _check_secrets(offer: _Offer, toolbox: Toolbox) -> None:
    """Check that secrets of new webhooks have a place, or are not wanted."""
    if offer.secrets_to is not None and offer.no_secrets:
        raise misuse("use either --secrets-to or --no-secrets")
    if "webhooks_create" not in toolbox.tools:
        return
    if offer.secrets_to is None and not offer.no_secrets:
        raise misuse(
            "agents may create webhooks, whose secrets are returned only once. Use --secrets-to FILE to "
            "store them, or --no-secrets to throw them away"
        )


# Any: a Webhook
async def _sink(offer: _Offer, stack: AsyncExitStack) -> Callable[[str, Any], Any]:
    """Return the callback that receives the secrets of new webhooks."""
    if offer.secrets_to is None:
        from invsvc_async.batch.item import discard_secret

        return discard_secret
    from invsvc_async.cli.secrets_file import SecretsFile

    return (await stack.enter_async_context(SecretsFile(offer.secrets_to))).take
