"""The options of commands that send stored writes, and what becomes of the secrets of new webhooks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import attrs
import typer

from invsvc_async.cli.options import (
    Json,
    NoSecrets,
    Profile,
    SecretsFile,
    Team,
    client_of,
    number,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AsyncExitStack

    from invsvc_async.client import Client

__all__ = ["BatchSending", "Concurrency", "Sending"]

Concurrency = Annotated[int, number(int, "Maximum writes in flight in this process.", least=1)]
Rate = Annotated[float | None, number(float, "Sends per second, evenly spaced.", least=0.001)]
SameMode = Annotated[
    bool, typer.Option("--same-mode", help="The credential is new, but has the same team and data mode.")
]
Restored = Annotated[
    bool, typer.Option("--restored", help="It is an older copy: settle what may have been sent first.")
]
Moved = Annotated[bool, typer.Option("--moved", help="It is complete, although it is in another place.")]


@attrs.frozen
class Sending:
    """The options that each of these commands has."""

    rate: Rate = None
    secrets_to: SecretsFile = None
    no_secrets: NoSecrets = False
    same_mode: SameMode = False
    restored: Restored = False
    moved: Moved = False
    json_: Json = False
    profile: Profile = None
    team: Team = None

    @property
    def settings(self) -> dict[str, Any]:  # Any: as the parameters
        """Those of ``Batch.open`` and ``Outbox.open``."""
        return {name: getattr(self, name) for name in ("rate", "same_mode", "restored", "moved")}

    def check_secrets(self, *, may_create: bool) -> None:
        """Check, before anything is sent, that secrets of new webhooks have a place, or are not wanted."""
        if self.secrets_to is not None and self.no_secrets:
            raise typer.BadParameter("use either --secrets-to or --no-secrets")
        if may_create and self.secrets_to is None and not self.no_secrets:
            raise typer.BadParameter(
                "nothing was sent. Writes may create webhooks, whose secrets are returned only once. Use "
                "--secrets-to FILE to store them, or --no-secrets to throw them away."
            )

    def client(self, concurrency: int) -> Client:
        """Return a client whose limit leaves room for settling reads beside the writes."""
        return client_of(self.profile, self.team, max_concurrency=concurrency + max(10, concurrency // 4))

    async def secret_sink(self, stack: AsyncExitStack) -> Callable[[str, Any], Any]:  # Any: a Webhook
        """Return the callback that receives the secrets of new webhooks."""
        if self.secrets_to is None:  # checked before: there are none, or they are not wanted
            from invsvc_async.batch.item import discard_secret

            return discard_secret
        from invsvc_async.cli.secrets_file import SecretsFile

        return (await stack.enter_async_context(SecretsFile(self.secrets_to))).take


@attrs.frozen
class BatchSending(Sending):
    """The options of commands that send a batch; a worker has not all of them."""

    concurrency: Concurrency = 200
    tag: Annotated[bool, typer.Option(help="Tag new webhooks, so that they can be identified.")] = True
    stop_after: Annotated[
        str | None,
        typer.Option(
            help="Stop after so many writes, or such a share (0.05), that were not applied.", metavar="N"
        ),
    ] = None

    @property
    def settings(self) -> dict[str, Any]:  # Any: as the parameters
        """Those of ``Batch.open``."""
        own = {"concurrency": self.concurrency, "tag": self.tag, "stop_after": _limit(self.stop_after)}
        return super().settings | own


def _limit(text: str | None) -> float | None:
    """Parse ``--stop-after``: a whole number of writes, or a share."""
    try:
        return None if text is None else int(text) if text.isdecimal() else float(text)
    except ValueError:
        raise typer.BadParameter("--stop-after: must be a number of writes, or a share below 1") from None
