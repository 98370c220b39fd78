"""Journeys, which are workflow graphs.  Values that the service may refuse are not checked here."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any

import attrs

from invsvc_async.models.common import ABSENT, Model, wire

__all__ = [
    "ClonedFrom",
    "Edge",
    "Journey",
    "JourneyGraph",
    "JourneyOrigin",
    "JourneyStats",
    "JourneyStatus",
]
__all__ += ["Node", "NodeData", "PausedReason", "Position", "Viewport"]


class JourneyStatus(StrEnum):
    """The states of a journey that the specification names."""

    DRAFT = "draft"
    PUBLISHED = "published"
    PAUSED = "paused"
    ARCHIVED = "archived"


class JourneyOrigin(StrEnum):
    """Where a journey was created."""

    DASHBOARD = "dashboard"
    API = "api"
    AI_BUILDER = "ai-builder"
    CLONE = "clone"


class PausedReason(StrEnum):
    """Who paused a journey."""

    CIRCUIT_BREAKER = "circuit_breaker"
    USER = "user"


@attrs.frozen(
    kw_only=True,
    eq=False,
    repr=False,
    getstate_setstate=False,
)
class Position(Model):
    """The position of a node on the canvas, in the canvas's units.  Spec: Journey."""

    x: float = ABSENT
    y: float = ABSENT


@attrs.frozen(
    kw_only=True,
    eq=False,
    repr=False,
    getstate_setstate=False,
)
class NodeData(Model):
    """The settings of a node; ``config`` has no fixed form.  Spec: Journey."""

    config: Mapping[str, Any] | None = ABSENT


@attrs.frozen(
    kw_only=True,
    eq=False,
    repr=False,
    getstate_setstate=False,
)
class Node(Model):
    """One step of a journey.  All four fields are required in a request.  Spec: Journey."""

    id: str = ABSENT
    type: str = ABSENT
    position: Position = ABSENT
    data: NodeData = ABSENT


@attrs.frozen(
    kw_only=True,
    eq=False,
    repr=False,
    getstate_setstate=False,
)
class Edge(Model):
    """A connection from node ``source`` to node ``target`` (ids).  Spec: Journey."""

    id: str = ABSENT
    source: str = ABSENT
    target: str = ABSENT
    source_handle: str | None = attrs.field(
        default=ABSENT, metadata=wire("sourceHandle")
    )


@attrs.frozen(
    kw_only=True,
    eq=False,
    repr=False,
    getstate_setstate=False,
)
class Viewport(Model):
    """The part of the canvas that was last displayed.  Spec: Journey."""

    x: float = ABSENT
    y: float = ABSENT
    zoom: float = ABSENT


@attrs.frozen(
    kw_only=True,
    eq=False,
    repr=False,
    getstate_setstate=False,
)
class JourneyGraph(Model):
    """The nodes and edges of a journey.  The service refuses extra keys at any level.  Spec: Journey."""

    nodes: tuple[Node, ...] = ABSENT
    edges: tuple[Edge, ...] = ABSENT
    viewport: Viewport | None = ABSENT


@attrs.frozen(
    kw_only=True,
    eq=False,
    repr=False,
    getstate_setstate=False,
)
class ClonedFrom(Model):
    """The journey from which a journey was copied; the ids are optional.  Spec: Journey."""

    journey_id: str | None = attrs.field(default=ABSENT, metadata=wire("journeyId"))
    group_id: str | None = attrs.field(default=ABSENT, metadata=wire("groupId"))
    livemode: bool = ABSENT
    cloned_at: datetime = attrs.field(default=ABSENT, metadata=wire("clonedAt"))


@attrs.frozen(
    kw_only=True,
    eq=False,
    repr=False,
    getstate_setstate=False,
)
class JourneyStats(Model):
    """How often a journey ran and failed, and when it last ran.  Spec: Journey."""

    runs: int = ABSENT
    errors: int = ABSENT
    last_run_at: datetime | None = attrs.field(
        default=ABSENT, metadata=wire("lastRunAt")
    )


@attrs.frozen(
    kw_only=True,
    eq=False,
    repr=False,
    getstate_setstate=False,
)
class Journey(Model):
    """
    A workflow of a team.  An update changes its draft fields, not the published snapshot.

    Spec: Journey.
    """

    id: str = ABSENT
    name: str = ABSENT
    description: str | None = ABSENT
    livemode: bool = ABSENT
    owner: str | None = ABSENT
    team: str | None = ABSENT
    cloned_from: ClonedFrom | None = attrs.field(
        default=ABSENT, metadata=wire("clonedFrom")
    )
    created_at: datetime | None = ABSENT
    last_updated: datetime | None = ABSENT
    status: JourneyStatus | str = ABSENT
    version: int = ABSENT
    trigger_type: str = attrs.field(default=ABSENT, metadata=wire("triggerType"))
    graph: JourneyGraph = ABSENT
    replaces_defaults: bool = attrs.field(
        default=ABSENT, metadata=wire("replacesDefaults")
    )
    stats: JourneyStats = ABSENT
    from_: JourneyOrigin | str = ABSENT
    paused_reason: PausedReason | str | None = attrs.field(
        default=ABSENT, metadata=wire("pausedReason")
    )
    paused_detail: str | None = attrs.field(
        default=ABSENT, metadata=wire("pausedDetail")
    )
    paused_at: datetime | None = attrs.field(default=ABSENT, metadata=wire("pausedAt"))
    group_id: str | None = attrs.field(default=ABSENT, metadata=wire("groupId"))
