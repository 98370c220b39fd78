"""Programs, drawn at random."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
from msgspec.structs import replace

from invsvc_async.simulator.stores import Stores
from tests.walk.program import CREATES, RECENT, Cut, Edit, End, Life, Program, Write
from tests.walk.service import IN_PART, LIMITED

if TYPE_CHECKING:
    from random import Random

    from invsvc_async.simulator.stores import Times
    from tests.walk.program import Change, How, Journal, Kind, Then, Use

FATES = (
    "ok",
    "ok",
    "ok",
    "lost",
    "landed",
    "soon",
    "late",
    "slow",
    "500",
    "500 late",
    "refused",
    "unsent",
)
CLOCKS = (
    1.0,
    -1.0,
    60.0,
    660.0,
    -660.0,
    3_700.0,
    -3_700.0,
    86_400.0,
    -86_400.0,
    8_640_000.0,
    -8_640_000.0,
)  # s
FILES = (
    "writes/driver", "writes/sending", "writes/concluding", "writes/run_record", "writes/place", "writes/answers",
    "writes/results",
    "durable/keys", "durable/key_steps", "durable/key_drivers", "durable/key_claims", "durable/journal",
    "durable/journal_life", "durable/run_ends", "durable/run_waits",
    "durable/leases", "durable/store/sqlite", "durable/store/postgres", "storage/sqlite_writer", "batch/item",
)  # fmt: skip
TEXTS = (
    "nfc", "no markup", "no emoji", "no zero-width", "trimmed", "folded", "masked", "sorted", "cut", "entities"
)  # fmt: skip
TIMES: tuple[Times, ...] = (
    "exact",
    "exact",
    "exact",
    "seconds",
    "zero",
    "minute",
    "day",
)
GROWS = 0.5  # of the programs whose service cuts texts
# characters that it leaves: some cut off all that lengthens a text
LONGEST = (7, 8, 9, 12, 24)
RECOVERS = 0.2  # of the processes
FROZEN = 0.1  # of the ends are none, but a freeze
SUCCESSIONS = 0.2  # of all programs: processes follow each other, and leave writes that are not known
WILD = 0.35  # of all programs have each kind of event
LONGEST_DEADLINE = 40.0  # s
KEYS = "ABCDEFGHIJ"
CUT = (0.0, 0.0, 0.3, 0.9)  # of the keys, in a program: an await of them is cancelled
THEN: tuple[Then, ...] = ("again", "again", "again", "again", "settle", "resume")
BARE = 0.3  # of the processes with writes without keys have no journal
FEW = 0.7  # of the programs: all writes are those of two processes
COMMITS, STEPS = (
    0.3,
    0.8,
)  # of the cuts come before a commit; up to so many, before it or a step
AS_REMOVED = 0.06  # s after it was heard, or cancelled, an entry is being removed
DENIED = 0.2  # of the programs: reads are denied
WAITS = 0.5  # of the processes wait when the service limits their rate
SETTLES = 0.3  # of the processes with keys settle what their clients have left open
MIXED = 0.25  # of the programs with keys have writes without them, too
MARKS = 0.2  # of the processes with keys mark what is UNKNOWN as to be done again
ALIKE = 0.06  # of the programs with keys: all create webhooks that look alike, and are left UNKNOWN
DOUBTFUL = 0.08  # of the programs with keys: all processes leave writes UNKNOWN, and settle them beside runs
ONE_LINE = 0.4  # of the programs with both: all writes are to one thing, and all processes run all keys
PEOPLE = 0.08  # of the programs: a person resolves what is in doubt
# what becomes of writes that are to be in doubt
IN_DOUBT = ("lost", "landed", "soon", "late", "slow", "500 late")
WITHOUT_EFFECT = ("lost", "lost", "500", "landed")  # but for the last of them
WHILE_SENT = (-1.3, 0.3)  # powers of 10, in s: when processes begin to send
PERSON = "person"  # the name of that one's life
LATE = 0.4  # of the processes with lost replies notice them late
UNNAMED = 0.15  # of the programs: the namespace of the keys has no name
TEAMS = 0.12  # of the programs: some processes name their own team, and others do not
DUES = 0.3  # of the programs with an outbox: some writes are due later than others
DUE_AFTER = (0.05, 0.5, 2.0, 5.0)  # s
EDITS = 0.1  # of the programs: somebody edits the descriptions of webhooks that creates have made
CHANGES: tuple[Change, ...] = (
    "untag",
    "reword",
    "copy elsewhere",
    "copy beside",
    "copy onto",
)
WINDOWS = (
    0.12  # of the programs: processes have shorter or longer settle windows than others
)
TIMES_AS_LONG = (0.5, 1.0, 1.0, 1.5, 2.0)
RECENTS = (RECENT, RECENT, 3.0, 0.2)  # s


EVENTS = (
    "signals",
    "clocks",
    "replies",
    "fates",
    "reads",
    "cancels",
    "cuts",
    "ends",
    "prunes",
    "words",
    "people",
    "windows",
    "edits",
    "namespaces",
    "teams",
    "dues",
)


def drawn(
    chance: Random,
    journals: tuple[Journal, ...],
    uses: tuple[Use, ...],
    without: tuple[str, ...] = (),
) -> Program:
    """Return a program that *chance* draws, but for the events *without*, which are in ``EVENTS``."""
    program = _drawn(chance, journals, uses)
    return _reduced(program, without) if without else program


@attrs.frozen
class _Taste:
    """How much of each kind of event a program has, as shares."""

    ends: float
    clocks: float
    replies: float
    fates: float
    reads: float
    cancels: float
    prunes: float
    parts: float  # of the processes run only a part of the keys
    haste: float  # of them have a short deadline
    words: float  # of the programs meet a service that stores in its own way
    succession: float = 0.0  # of the processes run one key, each another one

    @classmethod
    def of(cls, chance: Random) -> _Taste:
        """Return one that *chance* draws: some have something of everything, because faults need several."""
        shares = [0.3, 0.6] if chance.random() < WILD else [0.0, 0.0, 0.0, 0.3, 0.9]
        taste = cls(*(chance.choice(shares) for _ in attrs.fields(cls)[:-1]))
        if chance.random() < SUCCESSIONS:
            return attrs.evolve(taste, fates=0.7, haste=0.7, succession=0.9)
        return taste


def _drawn(
    chance: Random, journals: tuple[Journal, ...], uses: tuple[Use, ...]
) -> Program:
    journal, use, taste = (
        chance.choice(journals),
        chance.choice(uses),
        _Taste.of(chance),
    )
    taste = attrs.evolve(taste, ends=chance.choice((0.0, 0.5, 0.9, 0.9)))
    writes = _writes(chance)
    program = Program(
        journal=journal,
        use=use,
        writes=writes,
        lives=_lives(chance, taste, journal, [write.key for write in writes]),
        fates=_fates(chance, taste, writes, words := _words(chance, taste)),
        stores=words,
        reads=_reads(chance, taste),
        wall=_steps(chance, taste.clocks / 2, wrong_at_first=0.3)
        if journal == "database"
        else (),
        order=chance.randrange(1, 10**6) if chance.random() < 0.5 else 0,
        jitter=chance.randrange(1, 10**6)
        if journal == "database" and chance.random() < 0.7
        else 0,
        grows="cut" in words and chance.random() < GROWS,
    )
    if use == "keys" and chance.random() < ALIKE:
        program = _with_creates_in_doubt(chance, program)
    elif use == "keys" and chance.random() < DOUBTFUL:
        program = _with_runs_beside_settling(chance, program)
    if use == "writes":
        program = _without_keys(chance, taste, program)
    program = _with_late_replies(chance, _with_cuts(chance, program))
    if chance.random() < PEOPLE:
        program = _with_people(chance, program)
    if use == "keys" and chance.random() < MIXED:
        program = _mixed(chance, program)
    return _in_another_world(chance, program)


def _in_another_world(chance: Random, program: Program) -> Program:
    """Return *program*, whose names, webhooks, settle windows or due times may differ from those of most."""
    use = program.use
    if use in ("keys", "writes") and chance.random() < UNNAMED:
        program = replace(program, is_named=False)
    if use in ("keys", "writes") and chance.random() < TEAMS:
        program = _with_names_of_the_team(chance, program)
    if chance.random() < EDITS:
        program = _with_edits(chance, program)
    if chance.random() < WINDOWS:
        program = _with_other_windows(chance, program)
    if use == "outbox" and chance.random() < DUES:
        program = _with_due_times(chance, program)
    return program


def _with_due_times(chance: Random, program: Program) -> Program:
    """Return *program*, some of whose writes are not due at once; all clocks agree when that is."""
    writes = tuple(
        replace(write, due=chance.choice(DUE_AFTER)) if chance.random() < 0.5 else write
        for write in program.writes
    )
    lives = tuple(replace(life, wall=()) for life in program.lives)
    return replace(program, writes=writes, lives=lives, wall=())


def _with_other_windows(chance: Random, program: Program) -> Program:
    """Return *program*, whose processes have settle windows of their own, which are true of what they send."""
    if chance.random() < 0.6:  # else, few writes are in doubt
        program = _with_sends_in_doubt(chance, program)
    lives = tuple(
        replace(life, windows=chance.choice(TIMES_AS_LONG)) for life in program.lives
    )
    return replace(program, lives=lives)


def _with_names_of_the_team(chance: Random, program: Program) -> Program:
    """Return *program*, some of whose processes name their own team, and which may save its mapping."""
    share = chance.choice((0.0, 0.5, 0.9))
    kinds = chance.choice((("mapping",), ("mapping", "raw mapping")))
    writes = tuple(
        replace(write, kind=chance.choice(kinds), thing=0)
        if write.kind in ("rename", "change") and chance.random() < share
        else write
        for write in program.writes
    )
    first, *others = (
        replace(life, names_team=chance.random() < 0.5) for life in program.lives
    )
    if not any(life.names_team for life in (first, *others)):
        first = replace(first, names_team=True)
    # In a namespace without a name, older versions of the package have two for it.
    is_named = program.is_named or chance.random() < 0.5
    return replace(program, writes=writes, lives=(first, *others), is_named=is_named)


def _with_edits(chance: Random, program: Program) -> Program:
    """Return *program*, many of whose writes create webhooks, which somebody edits."""
    if chance.random() < 0.4:
        program = _with_sends_in_doubt(chance, program)
    share = chance.choice((0.4, 0.9))
    writes = tuple(
        replace(write, kind=chance.choice(("create", "create", "create", "untagged")))
        if not write.without_key and chance.random() < share
        else write
        for write in program.writes
    )
    made = [write.key for write in writes if write.kind in CREATES]
    edited = chance.sample(made, min(len(made), chance.choice((1, 1, 2))))
    fates = {
        key: (chance.choice(IN_DOUBT), *program.fates.get(key, ())[1:])
        for key in edited
    }
    return replace(
        program,
        writes=writes,
        fates={**program.fates, **fates},
        edits=tuple(
            Edit(key, chance.choice(CHANGES), _moment(chance)) for key in edited
        ),
    )


def _with_sends_in_doubt(chance: Random, program: Program) -> Program:
    """Return *program*, whose processes leave writes in doubt, which others send again, in doubt as well."""
    fates = {
        write.key: (chance.choice(WITHOUT_EFFECT), *chance.choices(IN_DOUBT, k=3))
        for write in program.writes
        if chance.random() < 0.8
    }
    *others, last = program.lives
    for number, life in enumerate(others):
        if not life.looks and chance.random() < 0.6:
            end = End(chance.choice(("kill", "cancel", "close")), at=_moment(chance))
            others[number] = replace(life, end=end)
    lives = [
        replace(life, deadline=LONGEST_DEADLINE, resumes=program.use == "writes")
        if chance.random() < 0.7
        else life
        for life in (*others, last)
    ]
    return replace(program, fates={**program.fates, **fates}, lives=tuple(lives))


def _mixed(chance: Random, program: Program) -> Program:
    """Return *program*, in which some writes have no key, each of which is made by one process."""
    if chance.random() < ONE_LINE:
        program = _in_one_line(chance, program)
    without = {
        write.key: chance.choice(program.lives).name
        for write in program.writes
        if write.kind in ("rename", "change") and chance.random() < 0.5
    }
    return replace(
        program,
        writes=tuple(
            replace(write, without_key=write.key in without) for write in program.writes
        ),
        lives=tuple(
            replace(
                life,
                keys=tuple(
                    key for key in life.keys if without.get(key, life.name) == life.name
                ),
            )
            for life in program.lives
        ),
    )


def _in_one_line(chance: Random, program: Program) -> Program:
    """Return *program*, whose writes are all to one thing, and whose processes run all keys, at the same time."""
    kind: Kind = chance.choice(("rename", "change"))
    writes = tuple(replace(write, kind=kind, thing=0) for write in program.writes)
    keys = [write.key for write in writes]
    lives = [
        replace(
            life,
            keys=tuple(chance.sample(keys, len(keys))),
            how=chance.choice(("at once", "apart")),
        )
        for life in program.lives
    ]
    return _at_the_same_time(
        chance, replace(program, writes=writes, lives=tuple(lives))
    )


def _at_the_same_time(chance: Random, program: Program) -> Program:
    """Return *program*, whose processes run at the same time, but for the last one, if they may share the journal."""
    if program.journal == "file":
        return program
    *others, last = program.lives
    others = [replace(life, after=(), gap=_moment(chance)) for life in others]
    return replace(program, lives=(*others, last))


def _without_keys(chance: Random, taste: _Taste, program: Program) -> Program:
    """Return *program* for writes without keys: each of them is that of one process."""
    among = program.lives
    if chance.random() < FEW:
        among = (chance.choice(program.lives), program.lives[-1])
    owners = {write.key: chance.choice(among).name for write in program.writes}
    lives = [
        replace(
            life,
            keys=tuple(key for key in life.keys if owners[key] == life.name),
            cancels=(),
            prunes=None,
            bare=chance.random() < BARE,
            waits=chance.random() < WAITS,
            resumes=chance.random() < 0.5,
            deadline=chance.choice((life.deadline, 1.0, 2.0)),
        )
        for life in _with_all_keys(program)
    ]
    fates = {
        key: tuple(
            LIMITED if chance.random() < taste.fates / 3 else fate for fate in fates
        )
        for key, fates in program.fates.items()
    }
    reads = dict(program.reads)
    if chance.random() < taste.reads + DENIED:
        reads |= {str(chance.randrange(6)): "denied" for _ in range(2)}
    return replace(program, lives=tuple(lives), fates=fates, reads=reads)


def _with_late_replies(chance: Random, program: Program) -> Program:
    """Return *program*, in which lost replies may be noticed late, and stored states may soon be old."""
    lives = []
    for life in program.lives:
        is_late = chance.random() < LATE
        slow = tuple(sorted({*life.slow, *life.lost})) if is_late else life.slow
        lives.append(replace(life, slow=slow))
    program = replace(program, lives=tuple(lives), recent=chance.choice(RECENTS))
    return _with_settling(chance, program) if program.use == "keys" else program


def _with_settling(chance: Random, program: Program) -> Program:
    lives = [
        replace(
            life,
            settles=life.settles or chance.random() < SETTLES,
            runs_beside=life.runs_beside or chance.random() < 0.5,
            marks=life.marks or chance.random() < MARKS,
        )
        for life in program.lives
    ]
    return replace(program, lives=tuple(lives))


def _with_creates_in_doubt(chance: Random, program: Program) -> Program:
    """Return *program*, whose first process leaves creates of webhooks of one URL UNKNOWN, which others mark."""
    keys = list(KEYS[: chance.choice((2, 3, 3, 4))])
    first, *others = (
        replace(life, cancels=tuple(each for each in life.cancels if each[0] in keys))
        for life in program.lives
    )
    followers = [
        replace(
            life,
            keys=tuple(chance.sample(keys, len(keys))),
            how=chance.choice(("at once", "apart", "apart")),
            after=life.after or (first.name,),
            marks=chance.random() < 0.7,
        )
        for life in others
    ]
    first = replace(first, keys=tuple(keys), deadline=chance.choice((0.3, 1.0)))
    fates = {
        key: (chance.choice(("unsent", *IN_DOUBT)), *program.fates.get(key, ())[1:])
        for key in keys
    }
    # While one is settled, runs of the others may begin.
    slow = {str(chance.randrange(20)): "slow" for _ in range(chance.choice((0, 2, 5)))}
    return replace(
        program,
        writes=tuple(Write(key, "untagged") for key in keys),
        lives=(first, *followers),
        fates=fates,
        reads={**program.reads, **slow},
    )


def _with_runs_beside_settling(chance: Random, program: Program) -> Program:
    """Return *program*, whose processes leave writes UNKNOWN, and settle them while others run them, or they do."""
    keys = [write.key for write in program.writes][: chance.choice((1, 2, 3))]
    fates = {
        key: tuple(chance.choice(("lost", "lost", *IN_DOUBT)) for _ in range(3))
        for key in keys
    }
    lives = [
        replace(
            life,
            keys=tuple(chance.sample(keys, len(keys))),
            # of some, the settle window of their send is over soon after the deadline
            deadline=chance.choice((1.0, 2.0, 2.0, 3.0, LONGEST_DEADLINE)),
            cancels=tuple(each for each in life.cancels if each[0] in keys),
            settles=True,
            rests=chance.choice((0.0, round(chance.uniform(0.0, 1.5), 3))),
            runs_beside=chance.random() < 0.7,
        )
        for life in program.lives
    ]
    slow = {str(chance.randrange(20)): "slow" for _ in range(chance.choice((0, 2, 5)))}
    return _at_the_same_time(
        chance,
        replace(
            program,
            writes=tuple(write for write in program.writes if write.key in keys),
            lives=tuple(lives),
            fates=fates,
            reads={**program.reads, **slow},
        ),
    )


def _with_people(chance: Random, program: Program) -> Program:
    """Return *program*, in which a person resolves what is in doubt, from outside, through processes, or both."""
    if chance.random() < 0.5:
        program = _with_doubts(chance, program)
    if chance.random() < 0.5:
        return _with_a_person(chance, program)
    lives = tuple(
        replace(life, resolves=chance.random() < 0.6) for life in program.lives
    )
    program = replace(program, lives=lives)
    return _with_a_person(chance, program) if chance.random() < 0.3 else program


def _with_doubts(chance: Random, program: Program) -> Program:
    """Return *program*, in which replies are lost, and time runs out before one knows what became of the writes."""
    fates = {
        write.key: (chance.choice(IN_DOUBT), *program.fates.get(write.key, ())[1:])
        for write in program.writes
        if chance.random() < 0.7
    }
    lives = tuple(
        replace(life, deadline=chance.choice((1.0, 2.0)))
        if chance.random() < 0.7
        else life
        for life in program.lives
    )
    return replace(program, fates={**program.fates, **fates}, lives=lives)


def _with_a_person(chance: Random, program: Program) -> Program:
    """Return *program* with a person beside its processes, or between two of them if they share a file."""
    *others, last = program.lives
    number = chance.randrange(len(others))
    before = others[number]
    person = Life(PERSON, (), after=(before.name,), gap=_moment(chance))
    if program.journal == "file":
        followers = [
            replace(life, after=(PERSON,)) if before.name in life.after else life
            for life in others
        ]
        followers.insert(number + 1, replace(person, looks=1))
        last = replace(last, after=(*last.after, PERSON))
        return replace(program, lives=(*followers, last))
    person = replace(
        person,
        after=() if chance.random() < 0.8 else person.after,
        looks=chance.choice((1, 2, 4, 8)),
        lost=_numbers(chance, 0.2),
        slow=_numbers(chance, 0.2),
    )
    if chance.random() < 0.7:
        last = replace(last, after=(*last.after, PERSON))
    if chance.random() < 0.6:
        frozen = End("freeze", at=round(10 ** chance.uniform(*WHILE_SENT), 3))
        others[number] = replace(before, end=frozen)
    return replace(program, lives=(*others, person, last))


def _with_all_keys(program: Program) -> list[Life]:
    """Return the lives of *program*, each with all its keys, first those that it has already."""
    keys = [write.key for write in program.writes]
    return [
        replace(life, keys=tuple(dict.fromkeys((*life.keys, *keys))))
        for life in program.lives
    ]


def _with_cuts(chance: Random, program: Program) -> Program:
    share = chance.choice(CUT[2:] if program.use == "writes" else CUT)
    lives = [
        replace(life, cuts=_cuts(chance, share, program, life))
        for life in program.lives
    ]
    return replace(program, lives=tuple(lives))


def _cuts(
    chance: Random, share: float, program: Program, life: Life
) -> tuple[Cut, ...]:
    keys = ["", *life.keys]
    if program.use == "writes" and life.name == "last":
        keys = ["", *(write.key for write in program.writes)]
    return tuple(
        _cut(chance, key, program.use, life.deadline)
        for key in keys
        if chance.random() < share
        for _ in range(chance.choice((1, 1, 1, 2, 2, 3)))
    )


def _cut(chance: Random, key: str, use: Use, deadline: float) -> Cut:
    pause = chance.choice((0.0, 0.0, AS_REMOVED, _moment(chance), _moment(chance)))
    then: Then = chance.choice(THEN) if use == "writes" else "again"
    way = chance.random()
    if way < COMMITS:
        commit = chance.choice((1, 1, 2, 2, 2, 3, 4, 6))
        return Cut(key, commit=commit, pause=pause, then=then)
    if way < STEPS:
        step = int(10 ** chance.uniform(0.0, 2.3))
        return Cut(key, step=step, pause=pause, then=then)
    at = _moment(chance)
    if chance.random() < 0.5 and deadline < LONGEST_DEADLINE:
        at = round(deadline + chance.uniform(0.1, 0.4), 3)  # while UNKNOWN is stored
    return Cut(key, at=at, pause=pause, then=then)


def _reduced(program: Program, without: tuple[str, ...]) -> Program:
    less = _less(without)
    lives = []
    if "people" in without:
        program = _without_people(program)
    for life in program.lives:
        is_signal = life.end is not None and life.end.how == "raise"
        drops = "ends" in without or ("signals" in without and is_signal)
        end, prunes = life.end, life.prunes
        if drops:
            end = None
        if "prunes" in without:
            prunes = None
        lives.append(replace(life, **less, end=end, prunes=prunes))
    return replace(
        program,
        lives=tuple(lives),
        fates={} if "fates" in without else program.fates,
        reads={} if "reads" in without else program.reads,
        wall=() if "clocks" in without else program.wall,
        stores="" if "words" in without else program.stores,
        is_named="namespaces" in without or program.is_named,
        edits=() if "edits" in without else program.edits,
        writes=_without_dues(program) if "dues" in without else program.writes,
    )


def _without_dues(program: Program) -> tuple[Write, ...]:
    return tuple(replace(write, due=0.0) for write in program.writes)


def _less(without: tuple[str, ...]) -> dict[str, Any]:
    """Return what each life has instead of the events *without*, by its field."""
    plain: dict[str, dict[str, Any]] = {
        "clocks": {"wall": ()},
        "replies": {"lost": (), "slow": ()},
        "cancels": {"cancels": ()},
        "cuts": {"cuts": ()},
        "windows": {"windows": 1.0},
        "teams": {"names_team": False},
    }
    less: dict[str, Any] = {}
    for name in without:
        less |= plain.get(name, {})
    return less


def _without_people(program: Program) -> Program:
    before = {life.name: life.after for life in program.lives if life.looks}
    lives = []
    for life in program.lives:
        after = tuple(each for name in life.after for each in before.get(name, (name,)))
        if not life.looks:
            lives.append(
                replace(life, after=tuple(dict.fromkeys(after)), resolves=False)
            )
    return replace(program, lives=tuple(lives))


def _writes(chance: Random) -> tuple[Write, ...]:
    things = chance.choice((1, 1, 1, 2, 2, 3))
    many = chance.choice((1, 2, 2, 2, 3, 3, 4, 6))
    kinds: list[Kind] = chance.choices(
        ("rename", "change", "untagged"), (4, 4, 1), k=things
    )
    found: list[Write] = []
    for number in range(many):
        thing = chance.randrange(things)
        kind = kinds[thing]
        if chance.random() < 0.1:
            kind = chance.choice(CREATES)
        elif (
            kind == "change"
            and chance.random() < 0.06
            and not any(each.kind == "remove" for each in found)
        ):
            kind = "remove"
        found.append(Write(KEYS[number], kind, thing))
    return tuple(found)


def _lives(
    chance: Random, taste: _Taste, journal: Journal, keys: list[str]
) -> tuple[Life, ...]:
    lives: list[Life] = []
    for number in range(1, chance.choice((1, 1, 2, 2, 3)) + 1):
        after: tuple[str, ...] = ()
        if lives and (journal == "file" or chance.random() < 0.5):
            after = (lives[-1].name,)
        life = _life(chance, taste, f"p{number}", journal, keys, after)
        if chance.random() < taste.succession:
            life = replace(life, keys=(keys[(number - 1) % len(keys)],), end=None)
        lives.append(life)
    everything = tuple(keys)
    if chance.random() < 0.4:
        everything = tuple(chance.sample(keys, len(keys)))
    last = Life(
        "last",
        everything,
        how=chance.choice(("one by one", "at once", "apart")),
        after=tuple(life.name for life in lives),
        gap=chance.choice((0.0, 0.0, 0.5, 9.0)),
        wall=_steps(chance, taste.clocks / 2),
    )
    return (*lives, last)


def _life(
    chance: Random,
    taste: _Taste,
    name: str,
    journal: Journal,
    keys: list[str],
    after: tuple[str, ...],
) -> Life:
    is_shared = journal == "database"
    return Life(
        name,
        _chosen(chance, taste, keys),
        how=chance.choice(("one by one", "at once", "at once", "at once", "apart")),
        after=after,
        gap=chance.choice((0.0, 0.0, 0.01, 0.1, 0.5, 2.0, 9.0)),
        end=_end(chance, is_shared=is_shared) if chance.random() < taste.ends else None,
        cancels=((chance.choice(keys), _moment(chance)),)
        if chance.random() < taste.cancels
        else (),
        wall=_steps(chance, taste.clocks),
        lost=_numbers(chance, taste.replies) if is_shared else (),
        slow=_numbers(chance, taste.replies) if is_shared else (),
        deadline=chance.choice((1.0, 1.0, 5.0))
        if chance.random() < taste.haste
        else LONGEST_DEADLINE,
        recovers=chance.random() < RECOVERS,
        prunes=_moment(chance) if chance.random() < taste.prunes / 2 else None,
    )


def _chosen(chance: Random, taste: _Taste, keys: list[str]) -> tuple[str, ...]:
    if chance.random() < taste.parts:
        return tuple(chance.sample(keys, chance.randint(1, len(keys))))
    match chance.randrange(4):
        case 0:
            return tuple(reversed(keys))
        case 1:
            return tuple(chance.sample(keys, len(keys)))
    return tuple(keys)


def _end(chance: Random, *, is_shared: bool) -> End:
    how: How = chance.choice(("kill", "kill", "cancel", "close", "drop", "raise"))
    if is_shared and chance.random() < FROZEN:
        how = "freeze"
    if how == "raise":
        return End(
            how, step=int(10 ** chance.uniform(0.0, 2.7)), file=chance.choice(FILES)
        )
    if chance.random() < 0.5:
        return End(how, step=int(10 ** chance.uniform(0.3, 2.3)))
    return End(how, at=_moment(chance))


def _moment(chance: Random) -> float:
    """Return some ms to some seconds."""
    return round(10 ** chance.uniform(-2.5, 1.0), 3)


def _steps(
    chance: Random, share: float, *, wrong_at_first: float = 0.7
) -> tuple[tuple[float, float], ...]:
    """Return the steps of a clock; it is *wrong_at_first* in so many cases."""
    if chance.random() >= share:
        return ()
    moments = sorted(_moment(chance) for _ in range(chance.choice((1, 1, 2))))
    if chance.random() < wrong_at_first:
        moments[0] = 0.0
    return tuple((moment, chance.choice(CLOCKS)) for moment in moments)


def _numbers(chance: Random, share: float) -> tuple[int, ...]:
    if chance.random() >= share:
        return ()
    return tuple(
        sorted({chance.randrange(40) for _ in range(chance.choice((1, 1, 2, 4)))})
    )


def _fates(
    chance: Random, taste: _Taste, writes: tuple[Write, ...], words: str
) -> dict[str, tuple[str, ...]]:
    chosen = [write.key for write in writes if chance.random() < taste.fates]
    among = (*FATES, IN_PART, IN_PART) if words else FATES
    return {
        key: tuple(chance.choices(among, k=chance.choice((1, 1, 2, 3))))
        for key in chosen
    }


def _words(chance: Random, taste: _Taste) -> str:
    """Return how the service stores, in the words of ``Stores.parse``."""
    if chance.random() >= taste.words / 2:
        return ""
    stores = Stores(
        words=tuple(chance.sample(TEXTS, chance.choice((1, 1, 2, 3)))),
        longest=chance.choice(LONGEST),
        echoes=chance.random() < 0.3,
        twice=chance.choice((0.0, 0.0, 0.0, 1.0)),
        created_at=chance.choice(TIMES),
        last_updated=chance.choice(TIMES),
    )
    return stores.text()


def _reads(chance: Random, taste: _Taste) -> dict[str, str]:
    if chance.random() >= taste.reads:
        return {}
    return {
        str(chance.randrange(20)): chance.choice(("failed", "slow"))
        for _ in range(chance.choice((1, 2, 5)))
    }
