"""
A program: what is written in how many processes, and what happens to them, as data.

A history is a program that was played.  The same program makes the same history, so a broken one can be printed,
stored, shrunk and played again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

if TYPE_CHECKING:
    from pathlib import Path

Journal = Literal["file", "database"]
Use = Literal["keys", "batch", "outbox", "writes"]
# "untagged": a create without a tag, of a webhook that may be taken for that of another create of its URL
# "mapping": of the spreadsheet import, of which each team has one; "raw mapping": the same by its path
Kind = Literal[
    "rename", "change", "create", "untagged", "remove", "mapping", "raw mapping"
]
MAPPINGS: tuple[Kind, ...] = ("mapping", "raw mapping")
CREATES: tuple[Kind, ...] = ("create", "untagged")

How = Literal["kill", "cancel", "close", "drop", "raise", "freeze"]
Then = Literal["again", "settle", "resume"]
Change = Literal["untag", "reword", "copy elsewhere", "copy beside", "copy onto"]

RECENT = 600.0  # s


class Write(msgspec.Struct, frozen=True, omit_defaults=True):
    """
    One write of the program: its key, and what it does to which thing.

    Where others have keys, one *without_key* is made by one process, in the same journal.  In an outbox, it may
    be *due* only so many seconds after it is enqueued.
    """

    key: str
    kind: Kind
    thing: int = 0
    without_key: bool = False
    due: float = 0.0


class End(msgspec.Struct, frozen=True, omit_defaults=True):
    """
    How a process ends before its work is done.

    It does so *at* so many seconds after its beginning, or, if *step* is set, just before that step of its own.
    ``freeze`` is no end: it takes no step for longer than it counts as living, and then goes on.
    ``raise`` raises an exception at the line number *step* that it runs in *file* of the package, or of those
    of a *function* there.
    """

    how: How
    at: float = 0.0
    step: int | None = None
    file: str = ""
    function: str = ""


class Cut(msgspec.Struct, frozen=True, omit_defaults=True):
    """
    An await that is cancelled, and what its application does next.

    The await is that of the write under *key*; of a recovery, or of a batch, if there is none. It is cancelled
    *at* so many seconds after its beginning; if *step* or *commit* is set, just before that step of its process,
    or commit to its journal, from then on. After a *pause* in seconds, the application awaits the same object *again*, or settles or resumes the
    intent that the client has left open.
    """

    key: str = ""
    at: float = 0.0
    step: int | None = None
    commit: int | None = None
    pause: float = 0.0
    then: Then = "again"


class Edit(msgspec.Struct, frozen=True, omit_defaults=True):
    """
    What somebody does in the dashboard, so many seconds *after* the first webhook of the create *key* was made.

    Its description loses the tag (``untag``), or is another one (``reword``).  Or it is copied, with its tag: to a
    new webhook of another URL (``copy elsewhere``) or of the same one (``copy beside``), or to that of another
    create of the URL (``copy onto``), if there is one.
    """

    key: str
    how: Change
    after: float = 0.0


class Life(msgspec.Struct, frozen=True, omit_defaults=True):
    """One process: which keys it runs, how, and when."""

    name: str
    keys: tuple[str, ...]
    how: Literal["one by one", "at once", "apart"] = "at once"
    after: tuple[str, ...] = ()  # the processes that must have ended
    gap: float = 0.0  # s from then, or from the start, until it begins
    end: End | None = None
    cancels: tuple[tuple[str, float], ...] = ()  # keys whose run is cancelled, and when
    wall: tuple[
        tuple[float, float], ...
    ] = ()  # steps of its wall clock: from when, by how much it is ahead (s)
    lost: tuple[int, ...] = ()  # numbers of its transactions whose reply is lost
    slow: tuple[int, ...] = ()  # numbers of its transactions that are slow to answer
    deadline: float = 40.0  # s of its policy
    recovers: bool = False  # before its work, it takes over what others have left
    # after its work, it settles what its client has left open, and does its work again
    settles: bool = False
    rests: float = 0.0  # s before it settles
    runs_beside: bool = False  # it does its work again while it settles
    # s after its work that it prunes what is older than an hour
    prunes: float | None = None
    # awaits that are cancelled, those of one key one after the other
    cuts: tuple[Cut, ...] = ()
    # before its work, it marks writes with the verdict UNKNOWN as to be done again
    marks: bool = False
    bare: bool = False  # its client has no journal
    waits: bool = False  # it waits when the service limits its rate
    resumes: bool = (
        False  # it resumes what others have handed over, instead of settling it
    )
    # after its work, a person resolves through it what is in doubt
    resolves: bool = False
    # it is no process, but a person, who looks so many times and resolves what is in doubt
    looks: int = 0
    # how many times as long its settle windows are as those of the others: what it sends may take effect as late
    windows: float = 1.0
    # it names its own team, which the API key names, too, and others do not
    names_team: bool = False


class Program(msgspec.Struct, frozen=True, omit_defaults=True):
    """A program, and its world."""

    journal: Journal
    use: Use
    writes: tuple[Write, ...]
    lives: tuple[Life, ...]
    # by key: of its sends, one after the other; then "ok"
    fates: dict[str, tuple[str, ...]] = {}
    reads: dict[str, str] = {}  # by number: of the reads that are not quick and sound
    wall: tuple[tuple[float, float], ...] = ()  # steps of the database's clock
    # what is written only lengthens texts that are there from the start
    grows: bool = False
    stores: str = ""  # how the service stores what it is sent, as ``Stores.parse`` reads it; "": as it is
    order: int = 0  # a seed: which of several tasks that could go on does; 0: the first
    jitter: int = 0  # a seed: how long transactions take; 0: always as long
    recent: float = RECENT  # s for which a stored state of a webhook counts
    # of the keys in the journal: a namespace with a name, or that of the base URL and the team
    is_named: bool = True
    # of the descriptions of webhooks that its creates have made
    edits: tuple[Edit, ...] = ()

    def write(self, key: str) -> Write:
        """Return the write under *key*."""
        return next(write for write in self.writes if write.key == key)

    @property
    def address(self) -> str:
        """The address of its journal."""
        return f"postgresql://walk{'?namespace=walk' if self.is_named else ''}"

    @property
    def names_team(self) -> bool:
        """Whether some of its processes name their own team."""
        return any(life.names_team for life in self.lives)

    @property
    def is_mixed(self) -> bool:
        """Whether some of its writes have keys and others have not."""
        return any(write.without_key for write in self.writes)

    def is_without_key(self, key: str) -> bool:
        """Return whether the write that is called *key* has none, although others have."""
        return self.write(key).without_key

    @property
    def size(self) -> int:
        """How much of it there is: what shrinking makes smaller."""
        ends = sum(life.end is not None for life in self.lives)
        runs = sum(
            len(life.keys)
            + len(life.cancels)
            + len(life.cuts)
            + len(life.lost)
            + len(life.slow)
            for life in self.lives
        )
        clocks = len(self.wall) + sum(
            len(life.wall)
            + (life.prunes is not None)
            + life.recovers
            + life.settles
            + bool(life.rests)
            + life.runs_beside
            + life.marks
            + life.bare
            + life.waits
            + life.resumes
            + life.resolves
            + life.looks
            + (life.windows != 1.0)
            + life.names_team
            for life in self.lives
        )
        fates = sum(len(fates) for fates in self.fates.values()) + len(self.reads)
        seeds = bool(self.order) + bool(self.jitter) + 2 * bool(self.stores)
        seeds += (self.recent != RECENT) + len(self.edits)
        seeds += not self.is_named
        seeds += sum(write.due > 0.0 for write in self.writes)
        return (
            2 * len(self.writes)
            + 3 * len(self.lives)
            + ends
            + runs
            + clocks
            + fates
            + seeds
        )


def offset(steps: tuple[tuple[float, float], ...], at: float) -> float:
    """Return by how much a clock with these *steps* is ahead at the time *at*."""
    ahead = 0.0
    for since, by in steps:
        if since <= at:
            ahead = by
    return ahead


def text_of(program: Program) -> str:
    """Return *program* as JSON, on a few lines."""
    return msgspec.json.format(msgspec.json.encode(program), indent=1).decode()


def read(path: Path) -> Program:
    """Return the program in the file at *path*."""
    return msgspec.json.decode(path.read_bytes(), type=Program)
