"""
The kinds of writes: what decides about a write whose answer was lost, one object for each kind.

Each row of the table of operations that writes names one of them, as ``write_kind``.  The decision, the
facts, the findings, the run and the stores ask the kind for what it has, not which write it is.  So a new
kind is a row here.  (One policy is of one kind alone: ``journey_reader``, of the read that may be lacking.)
How its effect is recognised determines most of it:

============================  =============================================  ==========================
``shown_by``                  what it needs                                  what a 404 of its read says
============================  =============================================  ==========================
``time of change`` (update)   ``last_updated`` in the thing                  nothing
``baseline`` (update)         the state before the write, which is read      the thing was deleted
                              first, unless it is known
``list`` (create)             a list, and ``found_by``: a field that is      nothing
                              equal in all things it could be mistaken for
``absence`` (delete)          nothing                                        the thing is gone
``None``                      a reader of the caller's; without one, a
                              lost answer stays UNKNOWN
============================  =============================================  ==========================

``findings`` has a function for each, which looks for the effect in what was read.

A create differs from all others: each send of it adds another thing, while the last send of any other write
replaces what those before it wrote.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import attrs

from invsvc_async.api.operations import TABLE, Operation
from invsvc_async.reconcile import foreign, made_of
from invsvc_async.reconcile.compare import (
    HOOK_FIELDS,
    same,
    same_hook_field,
    same_journey_field,
    url_key,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from invsvc_async.codec.exact_json import Wire
    from invsvc_async.settings import ReconcilePolicy


ShownBy = Literal["time of change", "baseline", "list", "absence"]


def _follows(of: Callable[[WriteKind], object]) -> Any:  # Any: as `attrs.field`
    """Return a field that follows from how the write is recognised."""
    return attrs.field(init=False, default=attrs.Factory(of, takes_self=True))


def _prefix_of_alike(found_by: str | None) -> str:
    """Return what the text of things begins with that are alike in the field *found_by*."""
    return f"{found_by} "


def _basis_of(kind: WriteKind) -> Literal["match", "gone", "equal"]:
    """Return the basis of the verdict APPLIED, if a read shows the write."""
    if kind.creates:
        return "match"
    if kind.deletes:
        return "gone"
    return "equal"


@attrs.frozen(kw_only=True, eq=False)
class ThingKind:
    """
    What is written, such as a webhook, and how its fields are compared.

    - ``name``: in reasons.
    - ``fields``: those that its read shows; ``None``: all that can be sent.
    - ``same_field``: whether one of them is equal in two states, given its name.
    - ``foreign_in``: for each of them, whether no service can have made a value of the one sent; a field that
      is not named has no such values, so nobody else is ever blamed for it.
    - ``made_in``: for each of them, whether a service may have made a value of the one sent; fields that are
      not named are compared by the types of their values.
    - ``never_null``: those for which a null that was sent cannot be found.
    - ``defaults``: the values of fields that a create leaves out.
    - ``hides``: whether a state may not be the one that was written, as a published snapshot.
    - ``stored``: the fields that a journal keeps as evidence for later writes; ``large``: the one of them
      that is left out if it is long; ``always``: those without which a state is only a part.
    """

    name: str = "thing"
    fields: tuple[str, ...] | None = None
    same_field: Callable[[str, Wire, Wire], bool] = attrs.field(
        default=lambda _name, one, other: same(one, other)
    )
    foreign_in: Mapping[str, foreign.Foreign] = attrs.field(factory=dict)
    made_in: Mapping[str, made_of.MadeOf] = attrs.field(factory=dict)
    never_null: tuple[str, ...] = ()
    defaults: Mapping[str, Wire] = attrs.field(factory=dict)
    hides: Callable[[ReconcilePolicy, Wire], bool] | None = None
    stored: tuple[str, ...] = ()
    large: str | None = None
    always: tuple[str, ...] = ()

    def visible(self, body: Mapping[str, Wire]) -> dict[str, Wire]:
        """Return the fields of a body that a read can show."""
        return {
            name: value for name, value in body.items() if self._is_visible(name, value)
        }

    def _is_visible(self, name: str, value: Wire) -> bool:
        if self.fields is not None and name not in self.fields:
            return False
        if value is not None:
            return True
        return name not in self.never_null

    def same(self, one: Mapping[str, Wire], other: Mapping[str, Wire]) -> bool:
        """Return whether all fields that a read shows are equal in two states."""
        return all(
            self.same_field(name, one.get(name), other.get(name))
            for name in self.fields or one
        )

    def is_foreign(
        self,
        name: str,
        sent: Wire,
        shown: Wire,
    ) -> bool:
        """Return whether the field *name* shows what no service can have made of *sent*."""
        return self.foreign_in.get(name, foreign.never)(sent, shown)

    def is_made_of(
        self,
        name: str,
        sent: Wire,
        shown: Wire,
    ) -> bool:
        """Return whether the field *name* shows what a service may have made of *sent*."""
        return self.made_in.get(name, made_of.value)(sent, shown)

    def kept_in(self, items: Iterable[Wire]) -> dict[str, int]:
        """Return, by field, how many characters of a text the service keeps, as *items* of its reads show."""
        names = [name for name, of in self.made_in.items() if of is made_of.text]
        things = [item for item in items if isinstance(item, dict)]
        return {
            name: max((made_of.kept_of(each.get(name)) for each in things), default=0)
            for name in names
        }


@attrs.frozen(kw_only=True, eq=False)
class WriteKind:
    """
    What decides about the writes of one kind: what is written, and how a write of it is recognised.

    - ``thing``: what is written.
    - ``shown_by``: what of the state that is read shows it; ``None`` if there is no read.
    - ``found_by``: of a create, the field that is equal in all things that it could be mistaken for, compared
      in the form of ``normal``.
    - ``place``: the part of that field that a service does not put in other words; ``None`` if it is not
      known. A thing with another one is not the effect of the create.
    - ``changed_at``: of an update, the field that shows when a thing was last changed (server ms).
    - ``status_in``: of an update, the field that says which version of a thing a read shows.
    - ``dated_by``: of a create, the field that shows when a thing was made (server ms).
    - ``most_listed``: of a create, how many things a list shows; with as many, it may be incomplete.
    - ``tagged_in``: of a create, the text at whose end a tag stands.
    - ``hidden_by``: of a create, the field for whose unusual values the list may leave a thing out.
    - ``may_lack_read``: whether the specification does not list the read, so that a deployment may lack it.
    - ``answer_shows_thing``: whether each answer to the write holds the whole thing.
    - ``has_secret``: whether the answer to a create has a secret that no read shows again.
    """

    thing: ThingKind = attrs.field(factory=ThingKind)
    shown_by: ShownBy | None = None
    found_by: str | None = None
    normal: Callable[[str], str] = str
    place: Callable[[Wire], str | None] = attrs.field(default=lambda _value: None)
    changed_at: str = "last_updated"
    status_in: str = "status"
    dated_by: str = "created_at"
    most_listed: int = 100
    tagged_in: str = "description"
    hidden_by: str | None = None
    may_lack_read: bool = False
    answer_shows_thing: bool = True
    has_secret: bool = False

    creates: bool = _follows(lambda kind: kind.shown_by == "list")
    deletes: bool = _follows(lambda kind: kind.shown_by == "absence")
    shows_change: bool = _follows(lambda kind: kind.shown_by == "time of change")
    needs_baseline: bool = _follows(lambda kind: kind.shown_by == "baseline")
    # A 404 of the read says that the thing is gone.
    gone_is_evidence: bool = _follows(lambda kind: kind.deletes or kind.needs_baseline)
    basis: Literal["match", "gone", "equal"] = _follows(_basis_of)

    def alike(self, fields: Wire) -> str | None:
        """
        Return the text that is equal in all things like a thing with *fields*, if the text is known.

        Things that are alike could be mistaken for each other.  ``PREFIXES_OF_ALIKE`` recognises the text.
        """
        if not isinstance(fields, dict):
            return None
        text = fields.get(self.found_by)
        if not isinstance(text, str):
            return None
        return f"{_prefix_of_alike(self.found_by)}{self.normal(text)}"

    def place_of(self, fields: Wire) -> str | None:
        """Return the part of ``found_by`` in *fields* that a service leaves unchanged, if it is known."""
        if not isinstance(fields, dict):
            return None
        return self.place(fields.get(self.found_by))

    def ids_near(self, items: Iterable[Wire]) -> dict[str | None, set[str]]:
        """Return the ids of the *items* of a list (wire form), by what ``place_of`` returns for them."""
        found: dict[str | None, set[str]] = {}
        for item in items:
            if isinstance(item, dict) and isinstance(item.get("id"), str):
                found.setdefault(self.place_of(item), set()).add(item["id"])
        return found

    def near(self, ids: Mapping[str | None, set[str]], fields: Wire) -> set[str]:
        """Return those of *ids*, by place, that a create with *fields* may have made."""
        place = self.place_of(fields)
        if place is None:
            return set().union(*ids.values())
        return ids.get(place, set()) | ids.get(None, set())


def _hides_draft(policy: ReconcilePolicy, journey: Wire) -> bool:
    """Return whether a read may have shown the published snapshot of a journey, not the draft."""
    if policy.journey_reads_show_drafts:
        return False
    if not isinstance(journey, dict):
        return True
    return journey.get("status") != "draft"


_NEVER_NULL = ("graph", "triggerType", "replacesDefaults")
_JOURNEY = ThingKind(
    name="journey",
    same_field=same_journey_field,
    foreign_in={  # not the trigger's type: its values are not closed, so a name may be an alias
        "name": foreign.text,
        "description": foreign.text,
        "graph": foreign.graph,
        "replacesDefaults": foreign.switch,
    },
    made_in={
        "name": made_of.text,
        "description": made_of.text,
        "graph": made_of.graph,
        "triggerType": made_of.always,  # a name may be an alias of any other
        "replacesDefaults": made_of.switch,
    },
    never_null=_NEVER_NULL,
    hides=_hides_draft,
    stored=("id", "status", "last_updated", "name", "description", *_NEVER_NULL),
    large="graph",
)
_WEBHOOK = ThingKind(
    name="webhook",
    fields=HOOK_FIELDS,
    same_field=same_hook_field,
    foreign_in={
        "url": foreign.url,
        "events": foreign.names,
        "description": foreign.text,
        "status": foreign.status,
    },
    made_in={
        "url": made_of.url,
        "events": made_of.names,
        "description": made_of.text,
        "status": made_of.never,
    },
    defaults={"status": "active"},
    stored=("id", *HOOK_FIELDS),
    # the description may be left out if there is none
    always=("url", "events", "status"),
)

KINDS: dict[str, WriteKind] = {
    "write without a read": WriteKind(),
    "update of a journey": WriteKind(
        thing=_JOURNEY,
        shown_by="time of change",
        may_lack_read=True,
    ),
    "create of a webhook": WriteKind(
        thing=_WEBHOOK,
        shown_by="list",
        found_by="url",
        normal=url_key,
        place=foreign.host_of,
        hidden_by="status",
        has_secret=True,
    ),
    "update of a webhook": WriteKind(
        thing=_WEBHOOK,
        shown_by="baseline",
        answer_shows_thing=False,
    ),
    "delete of a webhook": WriteKind(thing=_WEBHOOK, shown_by="absence"),
}
# What the texts of ``WriteKind.alike`` begin with, and no other name of a line: by it, statements and a batch
# recognise creates that could be mistaken for others.
PREFIXES_OF_ALIKE: tuple[str, ...] = tuple(
    _prefix_of_alike(kind.found_by)
    for kind in KINDS.values()
    if kind.found_by is not None
)


def is_created(thing: str | None) -> bool:
    """Return whether writes to *thing*, the name of a line, create what could be mistaken for others."""
    return thing is not None and thing.startswith(PREFIXES_OF_ALIKE)


def kind_of_write(operation: Operation) -> WriteKind:
    """
    Return the kind of the writes of *operation*.

    Raises:
        LookupError: Its row names none, or one that does not exist.
    """
    try:
        return KINDS[operation.write_kind or ""]
    except KeyError:
        raise LookupError(
            f"{operation.name}: write_kind is {operation.write_kind!r}. Name one of {sorted(KINDS)}, "
            "or add a kind to invsvc_async/reconcile/kinds.py."
        ) from None


for _operation in TABLE:  # a write without a kind is a mistake in the table
    if _operation.kind == "write":
        kind_of_write(_operation)
