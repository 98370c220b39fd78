"""
The names of lines. The queues of runs that wait for their turn in a line are in ``lines``.

All writes that can be mistaken for each other, or that replace each other, have one line in common. It does
not matter how they are asked for: by the method of a resource, or as a raw request with that path; with the
name of the credential's own team, or without.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from invsvc_async.api.operations import TABLE, OperationKind
from invsvc_async.reconcile.findings import is_unique
from invsvc_async.reconcile.kinds import kind_of_write
from invsvc_async.writes.new_intent import request_of

if TYPE_CHECKING:
    from invsvc_async.api.operations import Operation
    from invsvc_async.codec.exact_json import Wire
    from invsvc_async.reconcile.intent import Intent
    from invsvc_async.reconcile.kinds import WriteKind
    from invsvc_async.transport.client_core import ClientCore, Request

_SHORT = 500  # characters of a line: in UTF-8, four times as many fit into an index of PostgreSQL
_WRITES: Final = [
    each for each in TABLE if each.listed and each.kind is OperationKind.WRITE
]
# The creates whose effects can be mistaken for each other, by their paths.
_CREATES: Final = {
    each.path: kind_of_write(each) for each in _WRITES if kind_of_write(each).creates
}
# The paths of what each team has one of.
_ONE_OF_A_TEAM: Final = frozenset(
    each.path for each in _WRITES if each.method != "POST" and "{" not in each.path
)


def line_of(
    core: ClientCore,
    request: Request,
    tag: str | None,
) -> str | None:
    """
    Return the line of a write, or ``None`` if no other write can be mistaken for it.

    The writes of one line run one at a time. Changes of one thing are in one line. So are all creates of
    things that may look alike in a list: webhooks of one URL, whatever their team and description. A create
    with a unique tag has a line of its own.
    """
    path = _path_of(request)
    kind = kind_of_create(request)
    if kind is not None:
        if is_unique(tag):
            return f"tag {tag}"
        return line_of_alike(kind, request.body) or path
    if _method_of(request) == "POST":
        return None
    if path in _ONE_OF_A_TEAM:
        path = f"{path} {core.other_team(request.team)}"
    return _shortened(path)


def thing_of(
    core: ClientCore,
    request: Request,
    tag: str | None,
) -> str | None:
    """
    Return the line of a write as stores have it, or ``None`` if the write waits for no other entry.

    A create with a unique tag waits for none. A raw create waits for others in its process only: its
    operation does not tell a store that it replaces nothing.
    """
    is_raw = request.raw_path is not None
    if creates(request) and (is_raw or is_unique(tag)):
        return None
    return line_of(core, request, tag)


def earlier_names(core: ClientCore | None) -> dict[str, str]:
    """
    Return the lines that 0.1.0 has called otherwise, and their names of today.

    It did not know that a team which a write names is the credential's own.
    """
    own = None if core is None else core.credential.team
    if own is None:
        return {}
    return {f"{path} {own}": f"{path} None" for path in _ONE_OF_A_TEAM}


def creates(request: Request) -> bool:
    """Return whether *request* creates a thing that may be taken for another, so that none is replaced."""
    return kind_of_create(request) is not None


def replaces(intent: Intent) -> bool:
    """Return whether the writes to the thing of *intent* replace each other.  Creates do not."""
    return not creates(request_of(intent))


def replaced_by(core: ClientCore, intent: Intent) -> str | None:
    """Return the line of what the write of *intent* replaces; ``None`` if it is a create, or has no line."""
    request = request_of(intent)
    if creates(request):
        return None
    return line_of(core, request, intent.tag)


def kind_of_create(request: Request) -> WriteKind | None:
    """Return the kind of a create, by a method or raw; ``None`` if *request* is none."""
    if request.raw_path is None:
        kind = kind_of_write(request.operation)
        return kind if kind.creates else None
    if _method_of(request) != "POST":
        return None
    return _CREATES.get(_path_of(request))


def _method_of(request: Request) -> str:
    return request.method or request.operation.method


def _path_of(request: Request) -> str:
    """Return the path of *request*, whose ids are not quoted."""
    if request.raw_path is not None:
        return unquote(request.raw_path.partition("?")[0]).rstrip("/")
    return _filled(request.operation, *request.path.values())


def line_of_alike(kind: WriteKind, fields: Wire) -> str | None:
    """Return the line of the creates without a unique tag that could be mistaken for one with *fields*."""
    alike = kind.alike(fields)
    if alike is None:
        return None
    return _shortened(alike)


def line_of_thing(operation: Operation, *ids: str) -> str:
    """Return the line of the writes to the thing that *operation* reads or writes at *ids*."""
    return _shortened(_filled(operation, *ids))


def _filled(operation: Operation, *ids: str) -> str:
    return f"{operation.path.partition('{')[0]}{'/'.join(ids)}"


def _shortened(line: str) -> str:
    if len(line) <= _SHORT:
        return line
    whole = line.encode(errors="replace")
    if len(whole) <= 4 * _SHORT:
        return line
    return f"{line[:_SHORT]} {blake2b(whole, digest_size=16).hexdigest()}"
