"""``invsvc resume``: settle another process's write, and send it again if it is proven absent."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from invsvc_async.cli.options import (
    Calling,
    IntentFile,
    SameMode,
    SecretsTo,
    Story,
    check_outputs,
    intent_in,
)  # fmt: skip

if TYPE_CHECKING:
    from invsvc_async.client import Client
    from invsvc_async.writes.write import Write

__all__ = ["command"]


def command(
    file: IntentFile,
    *,
    secrets_to: SecretsTo = Path("invsvc-secrets.jsonl"),
    same_mode: SameMode = False,
    story: Story = None,
    calling: Calling,
) -> None:
    """
    Complete an interrupted write: `invsvc resume invsvc-intent-row-17.json`.

    It reads first, and sends the write again only if the reads prove that it was not applied.  Exits with 0
    if the write was applied, 3 if the result is unknown, and 1 otherwise.
    """
    from invsvc_async.cli.commands.write import send, until_settled
    from invsvc_async.cli.outcome_output import exit_code_of, print_outcome

    check_outputs({"--secrets-to": secrets_to, "--story": story}, intent=file)
    intent = intent_in(file)

    def make(client: Client) -> Write[Any]:  # Any: the intent's operation says what the value is
        return client.resume(intent, same_mode=same_mode)

    show = partial(print_outcome, as_json=calling.json_, story=story)
    outcome, lost = until_settled(send(make, calling, secrets_to, show))
    if lost is not None:
        raise lost
    raise typer.Exit(exit_code_of(outcome))
