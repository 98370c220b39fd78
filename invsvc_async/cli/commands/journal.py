"""``invsvc journal``: look after the journal of a client."""

from __future__ import annotations

import typer

from invsvc_async.cli.commands.report import report
from invsvc_async.cli.commands.stores import JOURNAL, attach
from invsvc_async.cli.commands.upkeep import drop, prune, retry
from invsvc_async.cli.commands.views import list_, show

__all__ = ["app"]

app: typer.Typer = typer.Typer(
    add_completion=False, rich_markup_mode="markdown", no_args_is_help=True,
    help="Show, retry or delete the writes in the journal of a client, `Client(journal=…)`.",
)  # fmt: skip
attach(app, JOURNAL, list_, show, report, retry, drop, prune)
