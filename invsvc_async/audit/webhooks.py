"""Webhooks that are duplicates of each other: equal URLs, and equal events."""

from __future__ import annotations

from collections import defaultdict
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from invsvc_async.audit.duplicates import MOST_NAMED, Certainty, Duplicate
from invsvc_async.codec.exact_json import EPOCH
from invsvc_async.errors import FieldError
from invsvc_async.models import WebhookStatus
from invsvc_async.reconcile.compare import normal_url, url_key
from invsvc_async.reconcile.findings import TAG

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from invsvc_async.codec.exact_json import WireObject
    from invsvc_async.models import Webhook

WEBHOOKS: Final = "webhooks.list"
_MS: Final = timedelta(milliseconds=1)
_ONE_WRITE = "equal URL, events and tag, which one write has"
_SENT_TWICE = "equal URL and events: each event is sent there {} times"
_WAS_SENT_TWICE = "equal URL and events, but at most one is active"
_SPELT_ALIKE = "equal events, and URLs that differ only in their spelling"


def can_be_compared(hook: Webhook) -> bool:
    """Return whether the id, the URL and the events of *hook* can be read."""
    try:
        return bool(hook.id and hook.url) and hook.events is not None
    except FieldError:
        return False


def duplicates_of(hooks: Iterable[Webhook]) -> Iterator[Duplicate]:
    """Yield the duplicates among *hooks*, which can be compared; first the certain ones."""
    by_id = {hook.id: hook for hook in hooks}
    known = sorted(by_id.values(), key=lambda hook: (_created(hook) or 0, hook.id))
    for group in _grouped(known, normal_url):
        yield _equal(group)
    for group in _grouped(known, url_key):
        # webhooks with one URL were yielded above
        if len({normal_url(hook.url) for hook in group}) > 1:
            yield _duplicate(group, Certainty.LIKELY, _SPELT_ALIKE)


def _grouped(
    hooks: Sequence[Webhook], form: Callable[[str], str]
) -> list[list[Webhook]]:
    """Return the groups of several webhooks with equal events whose URLs have the same *form*."""
    groups: defaultdict[tuple[str, frozenset[str]], list[Webhook]] = defaultdict(list)
    for hook in hooks:
        groups[form(hook.url), frozenset(map(str, hook.events))].append(hook)
    return [group for group in groups.values() if len(group) > 1]


def _equal(group: list[Webhook]) -> Duplicate:
    """Return the duplicate that webhooks with equal URLs and events are."""
    tags = {_tag_of(hook) for hook in group}
    if len(tags) == 1 and None not in tags:
        return _duplicate(group, Certainty.CERTAIN, _ONE_WRITE)
    active = sum(map(_is_active, group))
    if active > 1:
        return _duplicate(group, Certainty.CERTAIN, _SENT_TWICE.format(active))
    return _duplicate(group, Certainty.LIKELY, _WAS_SENT_TWICE)


def _duplicate(
    group: list[Webhook],
    certainty: Certainty,
    why: str,
) -> Duplicate:
    return Duplicate(
        what=WEBHOOKS,
        certainty=certainty,
        why=why,
        count=len(group),
        in_effect=sum(map(_is_active, group)),
        items=tuple(map(_facts_of, group[:MOST_NAMED])),
    )


def _is_active(hook: Webhook) -> bool:
    try:
        return hook.status != WebhookStatus.INACTIVE
    except FieldError:
        return True


def _tag_of(hook: Webhook) -> str | None:
    """Return the tag of the write that made *hook*, at the end of its description."""
    found = TAG.search(_description_of(hook))
    if found is None:
        return None
    return found[0]


def _description_of(hook: Webhook) -> str:
    try:
        return hook.description or ""
    except FieldError:
        return ""


def _created(hook: Webhook) -> int | None:
    """Return the time of creation in ms, if it can be read."""
    try:
        return (hook.created_at - EPOCH) // _MS
    except FieldError:
        return None


def _facts_of(hook: Webhook) -> WireObject:
    """Return the fields that are shown; a secret is not among them, whatever the service sends."""
    facts: WireObject = {
        "id": hook.id,
        "created_at": _created(hook),
        "status": "active" if _is_active(hook) else "inactive",
        "url": hook.url,
        "events": [str(each) for each in hook.events],
        "description": _description_of(hook) or None,
    }
    return {name: value for name, value in facts.items() if value is not None}
