"""The calls of tools: each is one read, or one write under its key in the journal of the client."""

from __future__ import annotations

import logging
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from invsvc_async.agents import answers
from invsvc_async.agents.arguments import given_for
from invsvc_async.agents.data import ModelView
from invsvc_async.agents.plans import plan_of
from invsvc_async.agents.tools import has_pages, tools_for
from invsvc_async.api.parameters import quoted
from invsvc_async.client import options_of
from invsvc_async.errors import ConfigurationError, InvsvcError, KeyConflictError
from invsvc_async.resources.by_name import as_write, called, did_you_mean
from invsvc_async.writes.journal import keys_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from invsvc_async.agents.answers import ToolAnswer
    from invsvc_async.agents.arguments import Given
    from invsvc_async.agents.tools import Tool
    from invsvc_async.client import Client
    from invsvc_async.reconcile.outcome import AnyOutcome

log: logging.Logger = logging.getLogger("invsvc_async.agents")

_NO_JOURNAL = (
    "journal: is not set, and an agent sends again. Make the client with journal='calls.db' or "
    "journal='postgresql://…', or offer reads only."
)


class Toolbox:
    """
    The tools of one client.

    *keeps_secrets* is whether the client's ``on_secret`` stores the secrets of new webhooks; answers say so.

    Raises:
        ConfigurationError: Writes are offered, but the client has no journal; or as ``tools_for``.
    """

    def __init__(
        self,
        client: Client,
        *,
        only: Sequence[str] = (),
        read_only: bool = False,
        dry_run: bool = False,
        keeps_secrets: bool = True,
    ) -> None:
        self._client = client
        self._keeps_secrets = keeps_secrets
        self._is_dry_run = dry_run
        self.tools: Mapping[str, Tool] = tools_for(
            client,
            only=only,
            read_only=read_only,
            dry_run=dry_run,
        )
        has_writes = any(tool.writes for tool in self.tools.values())
        journal = options_of(client).core.writes.journal
        if has_writes and keys_of(journal) is None:
            raise ConfigurationError(_NO_JOURNAL)

    def no_tool(self, name: str) -> str:
        """Return the message for the name of a tool that does not exist."""
        hint = did_you_mean(name[:60].replace(".", "_"), self.tools)
        return f"{quoted(name)}: no such tool. {hint or 'The list of tools names all.'} Nothing was sent."

    async def call(self, tool: Tool, plain: object) -> ToolAnswer:
        """
        Call *tool* with the arguments in *plain*, as they came.

        A failure is an answer, too: nothing but a cancellation is raised.
        """
        shown = ModelView(self._hidden())
        try:
            given = given_for(tool, plain)
            if tool.writes:
                return await self._write(tool, given, shown)
            return await self._read(tool, given, shown)
        except InvsvcError as error:
            return answers.of_error(tool.operation, error, shown)
        except Exception as error:  # noqa: BLE001 - a fault of this package: its text may hold anything
            log.error("%s: %s", tool.operation.name, type(error).__name__)
            return answers.of_fault(tool.operation, error, shown)

    def _hidden(self) -> tuple[str, ...]:
        """Return what no answer may contain: the credential."""
        ready = options_of(self._client).core.credential.ready
        if ready is None:
            return ()
        return (ready.removeprefix("Bearer "),)

    # --- reads

    async def _read(
        self,
        tool: Tool,
        given: Given,
        shown: ModelView,
    ) -> ToolAnswer:
        row = tool.operation
        found = called(self._client, row.name, given.arguments)
        if has_pages(row):
            return await self._page(tool, found, given, shown)
        value = await found
        full = getattr(value, "is_full", False) or None
        return answers.of_read(row, value, shown, may_lack=full)

    async def _page(
        self,
        tool: Tool,
        pages: Any,
        given: Given,
        shown: ModelView,
    ) -> ToolAnswer:  # Any: pages of any model
        """Read one page: the first, or the page that a token names."""
        if given.continue_with is not None:
            pages = pages.resume(given.continue_with)
        async with aclosing(pages.by_page()) as walk:
            page = await anext(walk)
            token = pages.token_after(page)
        return answers.of_read(
            tool.operation,
            [*page],
            shown,
            continue_with=token,
            total=page.total_results,
        )

    # --- writes

    async def _write(
        self,
        tool: Tool,
        given: Given,
        shown: ModelView,
    ) -> ToolAnswer:
        assert given.key is not None
        key = given.key
        row = tool.operation
        write = as_write(self._client, row.name, given.arguments, key=key)
        try:
            if self._is_dry_run:
                plan = plan_of(write, key)
                if given.confirm != plan["digest"]:
                    write.close()
                    return await self._planned(tool, given, plan, shown)
            outcome = await write.outcome()
        except KeyConflictError as error:
            return await self._refused(tool, key, error, shown)
        return answers.of_write(
            row, key, outcome, shown, keeps_secrets=self._keeps_secrets
        )

    async def _refused(
        self, tool: Tool, key: str, error: KeyConflictError, shown: ModelView
    ) -> ToolAnswer:
        """Return the answer for a key that another write has; the outcome of another team's is not told."""
        try:
            first = await self._first(key)
        except KeyConflictError:
            return answers.of_key_elsewhere(tool.operation, key, error, shown)
        return answers.of_conflict(tool.operation, key, error, first, shown)

    async def _planned(
        self,
        tool: Tool,
        given: Given,
        plan: dict[str, Any],
        shown: ModelView,
    ) -> ToolAnswer:
        """Return the plan, or the refusal of a digest that is not of this plan."""
        assert given.key is not None
        if given.confirm is not None:
            return answers.of_other_plan(tool.operation, given.key, shown)
        first = await self._first(given.key)
        already = None if first is None else str(first.verdict)
        plan["already"] = already
        return answers.of_plan(tool.operation, given.key, plan, shown)

    async def _first(self, key: str) -> AnyOutcome | None:
        """Return the outcome under *key*, if there is one; raise KeyConflictError if it is another team's."""
        return await self._client.outcome_of(key)
