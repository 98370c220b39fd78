"""``invsvc settle`` and ``invsvc resume``: find out the result of another process's write, or complete it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from invsvc_async.cli.options import Calling, IntentFile, SameMode, SecretsTo, Story, check_outputs, intent_in
from invsvc_async.concurrency.event_loop import until_done

if TYPE_CHECKING:
    from invsvc_async.client import Client
    from invsvc_async.reconcile.intent import Intent
    from invsvc_async.reconcile.outcome import Outcome
    from invsvc_async.writes.write import AnyWrite

__all__ = ["command", "resume"]


def command(file: IntentFile, *, same_mode: SameMode = False, story: Story = None, calling: Calling) -> None:
    """
    Find out whether a write was applied: `invsvc settle invsvc-intent-row-17.json`.

    It only reads, so it can be repeated safely.
    Exits with 0 if the write was applied, 3 if the result is unknown, and 1 otherwise.
    """
    from invsvc_async.cli.outcome_output import exit_code_of, print_outcome

    check_outputs({"--story": story}, intent=file)
    outcome = until_done(_settled(intent_in(file), calling, same_mode=same_mode), short=True)
    print_outcome(outcome, as_json=calling.json_, story=story)
    raise typer.Exit(exit_code_of(outcome))


async def _settled(intent: Intent, calling: Calling, *, same_mode: bool) -> Outcome[Any]:
    from invsvc_async.cli.waiting import WaitingForWrite

    waiting = WaitingForWrite()
    async with calling.client(on_decision=waiting.on_decision) as client:
        with waiting.shown(client):
            return await client.settle(intent, same_mode=same_mode)


def resume(
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
    from invsvc_async.cli.commands.write import finish

    check_outputs({"--secrets-to": secrets_to, "--story": story}, intent=file)
    intent = intent_in(file)

    def make(client: Client) -> AnyWrite:
        return client.resume(intent, same_mode=same_mode)

    finish(make, calling, secrets_to, story)
