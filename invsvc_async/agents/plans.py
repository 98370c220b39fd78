"""Plans of writes: what would be sent, and the digest that confirms it."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from invsvc_async.api.operations import BY_NAME
from invsvc_async.codec.encode import unstructure
from invsvc_async.writes.as_data import arguments_of

if TYPE_CHECKING:
    from invsvc_async.codec.exact_json import WireObject
    from invsvc_async.reconcile.intent import Intent
    from invsvc_async.writes.write import AnyWrite


def plan_of(write: AnyWrite, key: str) -> WireObject:
    """
    Return the plan of *write* under *key*: method, path, body, and a digest of all that decides what is sent.

    The digest is the same in every process, so that a plan may be confirmed after a restart.
    """
    intent = write.intent
    row = BY_NAME[intent.operation]
    plan: dict[str, Any] = {
        "method": row.method,
        "path": _path(row.path, intent),
        "arguments": unstructure(arguments_of(intent)),
        "team": intent.scope.team,
        "base_url": intent.scope.base_url,
    }
    digested = {"operation": row.name, "key": key, **plan}
    text = json.dumps(digested, sort_keys=True, default=str)
    return plan | {"digest": sha256(text.encode()).hexdigest()[:32]}


def _path(path: str, intent: Intent) -> str:
    """Return the path of the request, with the ids that the arguments give."""
    for name, value in intent.path.items():
        path = path.replace(f"{{{name}}}", value)
    return path
