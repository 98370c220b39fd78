"""
The names of lines. The queues of runs that wait for their turn in a line are in ``lines``.

All writes that can be mistaken for each other, or that replace each other, have one line in common.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING
from urllib.parse import unquote

from invsvc_async.reconcile.findings import is_unique
from invsvc_async.reconcile.kinds import kind_of_write

if TYPE_CHECKING:
    from invsvc_async.api.operations import Operation
    from invsvc_async.codec.exact_json import Wire
    from invsvc_async.reconcile.kinds import WriteKind
    from invsvc_async.transport.client_core import Request

_SHORT = 500  # characters of a line: in UTF-8, four times as many fit into an index of PostgreSQL


def line_of(
    request: Request,
    team: str | None,
    tag: str | None,
) -> str | None:
    """
    Return the line of a write, or ``None`` if no other write can be mistaken for it.

    The writes of one line run one at a time. Changes of one thing are in one line. So are all creates of
    things that may look alike in a list: webhooks of one URL, whatever their team and description. A create
    with a unique tag has a line of its own.
    """
    operation = request.operation
    kind = kind_of_write(operation)
    if kind.creates:
        if is_unique(tag):
            return f"tag {tag}"
        return line_of_alike(kind, request.body) or operation.path
    if (request.method or operation.method) == "POST":
        return None
    if request.raw_path is not None:
        # as the ids of the other operations are, which are not quoted
        return _shortened(unquote(request.raw_path.partition("?")[0]))
    if not request.path:
        return _shortened(f"{operation.path} {team}")
    return line_of_thing(operation, *request.path.values())


def line_of_alike(kind: WriteKind, fields: Wire) -> str | None:
    """Return the line of the creates without a unique tag that could be mistaken for one with *fields*."""
    alike = kind.alike(fields)
    if alike is None:
        return None
    return _shortened(alike)


def line_of_thing(operation: Operation, *ids: str) -> str:
    """Return the line of the writes to the thing that *operation* reads or writes at *ids*."""
    return _shortened(f"{operation.path.partition('{')[0]}{'/'.join(ids)}")


def _shortened(line: str) -> str:
    if len(line) <= _SHORT:
        return line
    whole = line.encode(errors="replace")
    if len(whole) <= 4 * _SHORT:
        return line
    return f"{line[:_SHORT]} {blake2b(whole, digest_size=16).hexdigest()}"
