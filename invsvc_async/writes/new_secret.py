"""The secret of a new webhook, which only the answer to the create has: who gets it."""

from __future__ import annotations

import inspect
import logging
from typing import TYPE_CHECKING

from invsvc_async.transport import under_way

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from invsvc_async.reconcile.history import Secret
    from invsvc_async.settings import OnSecret
    from invsvc_async.writes.spec import WriteSpec

log: logging.Logger = logging.getLogger("invsvc_async.writes")


async def pass_on(
    hook: OnSecret,
    made: object,
    spec: WriteSpec,
    key: str,
) -> Secret:
    """
    Pass the secret of the webhook that *spec* has *made* on to *hook*, and return who has it.

    A hook that is still under way some time after the client was closed is cancelled. Then the secret is
    lost, unless whoever awaits the write gets it. *key* is that of the write.
    """
    options = spec.options
    waiting = None
    try:
        with options.core.under_way.hook_ended_after_close() as waiting:
            await hand_over(hook, key, made)
    except TimeoutError:
        if waiting is None or not waiting.has_expired:
            raise
    else:
        return "delivered"
    who = "it is lost"
    if options.gives_values:
        who = "only who awaits the write has it"
    log.error(
        "%s %s: on_secret did not end within %g s after the client was closed, and was cancelled. It "
        "may not have kept the secret of the webhook %s: %s.",
        spec.operation.name,
        key,
        under_way.TO_KEEP_SECRETS,
        getattr(made, "id", ""),
        who,
    )
    return "returned" if options.gives_values else "lost"


async def hand_over(
    hook: Callable[..., Awaitable[None] | None], *given: object
) -> None:
    """Call *hook*, a function of the user that may be async, with what is *given*."""
    handed = hook(*given)
    if handed is not None and inspect.isawaitable(handed):
        await handed
