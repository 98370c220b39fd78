"""The types of the arguments of ``Client``, for functions that pass them on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypedDict

if TYPE_CHECKING:
    import ssl as tls
    from collections.abc import Awaitable, Callable, Mapping
    from pathlib import Path

    import aiohttp

    from invsvc_async.concurrency.clock import Clock
    from invsvc_async.models.webhooks import Webhook
    from invsvc_async.reconcile.intent import Intent
    from invsvc_async.settings import (
        ParameterNames,
        ReadRetries,
        ReconcilePolicy,
        Timeouts,
    )
    from invsvc_async.transport.client_core import AttemptReport, DecisionReport
    from invsvc_async.transport.credentials import Credential
    from invsvc_async.writes.journal import Journal


class ClientKeywords(TypedDict, total=False):
    """The arguments of ``Client`` after ``base_url`` and ``credential``. Each may be left out."""

    team: str | None
    timeout: Timeouts
    reads: ReadRetries
    reconcile: ReconcilePolicy
    names: ParameterNames
    max_concurrency: int | Literal["adaptive"]
    rate: float | None
    max_response_bytes: int
    journal: str | Path | Journal | None
    session: aiohttp.ClientSession | None
    ssl: tls.SSLContext | aiohttp.Fingerprint | bool | None
    headers: Mapping[str, str] | None
    user_agent: str | None
    trust_env: bool
    proxy: str | None
    allow_insecure_http: bool
    on_attempt: Callable[[AttemptReport], None] | None
    on_decision: Callable[[DecisionReport], None] | None
    on_unsettled: Callable[[Intent], None] | None
    on_secret: Callable[[str, Webhook], Awaitable[None] | None] | None
    clock: Clock | None


class ClientSettings(ClientKeywords, total=False):
    """
    The arguments of ``Client`` for functions that pass them on: ``**settings: Unpack[ClientSettings]``.

    Each may be left out; what the environment and a profile give stands in its place.
    """

    base_url: str
    credential: Credential | None


class ClientArguments(ClientKeywords):
    """All that ``Client(**arguments)`` takes; the first two are needed."""

    base_url: str
    credential: Credential
