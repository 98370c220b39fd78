"""What engines need of a client: a journal that their processes share, and ``on_secret``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from invsvc_async.errors import ConfigurationError
from invsvc_async.writes.journal import keys_of

if TYPE_CHECKING:
    from invsvc_async.client import Client
    from invsvc_async.writes.write import AnyWrite

_SHARE: Final = "Use journal='postgresql://…', or set INVSVC_JOURNAL to it, which all workers then share."


def check_journal(client: Client, *, several: bool) -> None:
    """
    Check that the client has a journal, which has to be shared if there are *several* processes.

    Raises:
        ConfigurationError: There is none, or it is a file.
    """
    journal: Any = client._view.core.writes.journal  # noqa: SLF001 - the package's own
    if keys_of(journal) is None:
        advice = "" if several else "Use journal='calls.db' for one process. "
        raise ConfigurationError(
            f"journal: the client has none, so nobody would know what was sent. {advice}{_SHARE}"
        )
    if several and not journal.is_shared:
        raise ConfigurationError(
            f"journal: a file belongs to one process, and an engine has several. {_SHARE}"
        )


def check_secrets_are_kept(write: AnyWrite) -> None:
    """
    Check that ``on_secret`` gets the secret of a webhook that *write* creates, where no result has it.

    Raises:
        ConfigurationError: The client has no ``on_secret``. The write is closed.
    """
    spec = write._spec  # noqa: SLF001 - as above
    is_kept = spec.options.core.on_secret is not None
    if is_kept or not spec.creates_webhook:
        return
    write.close()
    raise ConfigurationError(
        "on_secret: is not set, and a write creates a webhook, whose secret no result has. Make the client "
        "with on_secret=… to keep secrets."
    )
