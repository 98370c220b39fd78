"""``replace-lost``: another webhook in the place of one whose secret was lost, for each kind of store."""

from __future__ import annotations

import os
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from invsvc_async.cli.files import check_outputs
from invsvc_async.cli.options import argument, misuse, option
from invsvc_async.cli.output import Exit, counted, fail, tell
from invsvc_async.cli.store_options import JOURNAL, StoreOptions
from invsvc_async.errors import (
    ConfigurationError,
    InvalidRequestError,
    InvsvcError,
    JournalError,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from invsvc_async.batch.result import Result
    from invsvc_async.client import Client
    from invsvc_async.durable.entries import Entries
    from invsvc_async.models import Webhook
    from invsvc_async.reconcile.outcome import Outcome

_KEY = "Keys of creates whose secrets were lost."
_ALL = "Each webhook of the store whose secret was lost, and that was not replaced yet."
_SECRETS = "Write the new secrets here (mode 0600); they are never printed."
_JOURNAL = "The journal of a client: that of your application, or always the same file."


async def replace_lost(
    at: StoreOptions,
    keys: Annotated[list[str] | None, argument(_KEY, "KEY")] = None,
    *,
    all_: Annotated[bool, option(_ALL)] = False,
    secrets_to: Annotated[Path, option(_SECRETS, "FILE")],
    journal: Annotated[str | None, option(_JOURNAL, "ADDRESS")] = None,
) -> int:
    """
    Make another webhook in the place of one whose secret was lost, and delete that one:
    `invsvc KIND replace-lost PLACE row-17 --secrets-to SECRETS`.

    The new secret is written under the key of the first create.  The new webhook is made before the old one
    is deleted, so that no event is missed.  What has been changed since, or may be another program's, stays.

    Repeat it after an error or a kill: one webhook is left.  That is so because both writes are keyed in a
    journal of a client.  NAMED

    Exits with 1 if one was not replaced.
    """
    if bool(keys) == all_:
        raise misuse("give either keys or --all")
    place: str | None
    if at.kind is JOURNAL:
        place = at.place
    else:
        place = journal or os.environ.get("INVSVC_JOURNAL")
    if place is None:
        raise misuse(
            "is missing: only a journal knows which webhook was made already. Name that of your application "
            "if it replaces webhooks, too; otherwise a file, and always the same one",
            "--journal",
        )
    if place == "ADDRESS":  # as reports print the command
        raise misuse("ADDRESS is a placeholder. Put the journal there", "--journal")
    check_outputs(
        {"--secrets-to": secrets_to}, **{at.kind.name: at.place, "journal": place}
    )
    async with AsyncExitStack() as stack:
        from invsvc_async.cli.secrets_file import SecretsFile

        secrets = await stack.enter_async_context(SecretsFile(secrets_to))
        # otherwise the client is the only one that has the file
        is_own = at.kind is JOURNAL
        async with AsyncExitStack() as reading:
            entries = await (reading if is_own else stack).enter_async_context(
                at.opened(reading=is_own)
            )
            lost = [each async for each in _lost_in(entries, keys)]
        client = await stack.enter_async_context(
            at.client(journal=place, on_secret=secrets.take)
        )
        replacing = _CommandRun(client, None if is_own else entries)
        for key, result in lost:
            await replacing.replace(key, result)
    return replacing.tell(secrets_to)


async def _lost_in(
    entries: Entries, keys: Sequence[str] | None
) -> AsyncIterator[tuple[str, Result | None]]:
    """Iterate over the results of *keys*, ``None`` where there is none, or of all whose secrets were lost."""
    from invsvc_async.batch.entries import results_in, results_of
    from invsvc_async.resources.lost_secrets import first_key_of

    # what was made in the place of another one that is here is replaced with that
    if keys is None:
        seen: set[str] = set()
        async for each in results_of(entries):
            if not each.secret_lost:
                continue
            if each.replaced_by is not None:
                continue
            seen.add(each.key)
            if first_key_of(each.key) == each.key or first_key_of(each.key) not in seen:
                yield each.key, each
        return
    for key in dict.fromkeys(keys):
        if first_key_of(key) != key and first_key_of(key) in keys:
            continue
        entry = await entries.entry(await entries.named(key))
        if entry is None or entry.verdict is None:
            yield key, None
        else:
            [result] = await results_in(entries, [entry])
            yield key, result


class _CommandRun:
    """Replaces webhooks, one after the other; *entries* note it, unless they are the client's own journal."""

    def __init__(self, client: Client, entries: Entries | None) -> None:
        from invsvc_async.batch.replaced import ReplacementNotes
        from invsvc_async.client import options_of

        self._client = client
        self._is_own = entries is None
        self._replaced: list[dict[str, str]] = []
        self._kept: list[str] = []
        if entries is not None:
            self._notes = ReplacementNotes(entries)
            options_of(client).core.replacements.add(self._notes)

    async def replace(self, key: str, result: Result | None) -> None:
        """Replace the webhook of *result*, or say why not."""
        if result is None:
            self._keep(key, "there is no such write, or it has no verdict yet")
            return
        try:
            hook = await self._client.webhooks.replace_lost(await self._outcome(result))
        except (ConfigurationError, JournalError):
            raise
        except InvsvcError as error:
            self._keep(key, str(error))
            return
        self._replaced.append(
            {"key": key, "webhook": str(result.thing), "replaced_by": hook.id}
        )

    async def _outcome(self, result: Result) -> Result | Outcome[Webhook]:
        """Return what to replace: in the client's own journal, the outcome under the key in its namespace."""
        if not self._is_own:
            return result
        outcome: Outcome[Any] | None = result.outcome
        if outcome is None or outcome.started_as.nonce is None:
            return result
        team = outcome.started_as.scope.team
        client = self._client if team is None else self._client.for_team(team)
        known = await client.outcome_of(result.key)
        if known is None or getattr(known.value, "id", None) != result.thing:
            raise InvalidRequestError(
                "it is in another namespace than that of this address",
                hint="Add namespace=NAME to the query of the address. Nothing was sent.",
            )
        return known

    def _keep(self, key: str, why: str) -> None:
        self._kept.append(key)
        fail(f"{key}: not replaced: {why}")

    def tell(self, secrets_to: Path) -> int:
        """Print what was done; return the exit code."""
        lines = [
            f"{each['key']}: {each['replaced_by']} stands in the place of {each['webhook']}"
            for each in self._replaced
        ]
        count = counted(len(self._replaced), "webhook")
        where = f"; new secrets are in {secrets_to}" if lines else ""
        tell(
            {"replaced": self._replaced, "kept": self._kept},
            "\n".join([*lines, f"{count} replaced{where}"]),
        )
        if self._kept:
            return Exit.FAILED
        return Exit.DONE
