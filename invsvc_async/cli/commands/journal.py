"""``invsvc journal``: look after the journal of a client."""

from __future__ import annotations

import typer

from invsvc_async.cli.commands.report import report
from invsvc_async.cli.commands.stores import JOURNAL, attach, drop, list_, prune, retry, show
from invsvc_async.cli.options import group_of

__all__ = ["app"]

app: typer.Typer = group_of(
    "Show, retry or delete the writes in the journal of a client, `Client(journal=…)`."
)
attach(app, JOURNAL, list_, show, report, retry, drop, prune)
