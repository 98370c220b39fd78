"""Writes of tasks: their keys, made of what is the same when the task runs again, and their results."""

from __future__ import annotations

from contextlib import contextmanager
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, TypeVar

from invsvc_async.engines.client_checks import check_journal, check_secrets_are_kept
from invsvc_async.engines.portals import portal_of
from invsvc_async.engines.results import RowResult
from invsvc_async.errors import ConfigurationError, KeyConflictError
from invsvc_async.writes.write import Write

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from invsvc_async.client import Client
    from invsvc_async.engines.results import Plain
    from invsvc_async.portal import Portal
    from invsvc_async.reconcile.outcome import AnyOutcome
    from invsvc_async.writes.write import AnyWrite

T = TypeVar("T")
_LONGEST: Final = 200  # characters of a key
_BEGINNING: Final = 150  # that a longer one keeps


@contextmanager
def task_portal(make: Callable[[], Client], *, keep: bool = True) -> Generator[Portal]:
    """
    Lend the portal of this process for tasks, with the client that *make* makes.

    With *keep* it stays open until the process ends, or needs one for another client.

    Raises:
        ConfigurationError: The client has no journal that workers share.
    """
    with portal_of(make, keep=keep) as lent:
        check_journal(lent.portal.client, several=True)
        yield lent.portal


def client_of_process(make: Callable[[], Client]) -> Client:
    """
    Return the client that *make* makes for all tasks of this process. It stays open until the process ends.

    Raises:
        ConfigurationError: It has no journal that workers share.
    """
    with task_portal(make) as portal:
        return portal.client


def check_call(awaitable: object) -> None:
    """
    Check that *awaitable* is no write without a key, which each run of a task would do anew.

    Raises:
        ConfigurationError: It is one.
    """
    if isinstance(awaitable, Write) and awaitable._spec.key is None:  # noqa: SLF001 - the package's own
        awaitable.close()
        raise ConfigurationError(
            "call: the write has no key, so each run of the task would do it anew. Use send."
        )


@contextmanager
def under_task_key(
    write: Write[T],
    key: str,
    argument: str,
) -> Generator[Write[T]]:
    """
    Lend *write* under the *key* of its task.

    If the key has another write, the error tells that a second write of a task needs *argument* of ``send``.
    """
    try:
        yield write._rekeyed(key)  # noqa: SLF001 - as above
    except KeyConflictError as error:
        error.add_note(
            "key: a second write of a task has the key of the first. Give it one of its own: "
            f"send(write, {argument}=…)."
        )
        raise


def task_key(*parts: str) -> str:
    """
    Return the key of a write, made of the *parts* that are not empty: different parts make different keys.

    What is too long for a key, or cannot be printed, is replaced by its digest after the beginning.
    """
    escaped = [part.replace("%", "%25").replace("/", "%2F") for part in parts if part]
    key = "/".join(escaped)
    if len(key) <= _LONGEST and key.isprintable():
        return key
    digest = sha256(key.encode(errors="surrogatepass")).hexdigest()[:32]
    beginning = "".join(filter(str.isprintable, key))
    return f"{beginning[:_BEGINNING]}~{digest}"


def task_write(
    client: Client,
    line: Mapping[str, Any],
    key: str,
) -> AnyWrite:
    """
    Return the write that *line* describes, under *key*, for :func:`task_result`.

    Raises:
        ConfigurationError: It creates a webhook, and the *client* has no ``on_secret``.
        InvalidRequestError: The line or the key does not fit.
    """
    write = client.write_from(line).keyed(key)
    check_secrets_are_kept(write)
    return write


def task_result(key: str, outcome: AnyOutcome) -> dict[str, Plain]:
    """
    Return the fields of the ``RowResult`` of a task's write, but for a secret, which engines would store.

    The write is of :func:`task_write`, so ``on_secret`` gets the secret. That it was lost is in the message.

    Raises:
        InvsvcError: The write was not applied.
    """
    if not outcome.applied:
        outcome.unwrap()
    result = RowResult.of(key, outcome).to_dict()
    del result["secret"]  # on_secret has had it
    return result
