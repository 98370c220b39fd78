"""The version of the tables of a journal, an outbox or a store of events."""

from __future__ import annotations

from invsvc_async.errors import JournalError

VERSION = 1
BEGIN_ANEW = (
    "Finish what is open in it with that version, or begin a new one in its place, a batch or an outbox with "
    "--restored"
)


def check_version(name: str, found: object, advice: str = BEGIN_ANEW) -> None:
    """
    Check the version *found* in the tables of what errors call *name*.

    Raises:
        JournalError: It is another one, or there is none. *advice* says what to do.
    """
    if str(found) != str(VERSION):
        version = "no version" if found is None else f"version {found}"
        raise JournalError(
            f"{name}: its tables have {version}, and this package reads version {VERSION}: a development "
            f"version of the package made them, or a newer one. {advice}."
        )
