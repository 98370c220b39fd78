"""Programs, drawn at random."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from tests.walk.program import End, Life, Program, Write

if TYPE_CHECKING:
    from random import Random

    from tests.walk.program import Journal, Kind, Use

FATES = ("ok", "ok", "ok", "lost", "landed", "soon", "late", "slow", "500", "500 late", "refused", "unsent")
CLOCKS = (1.0, -1.0, 60.0, 660.0, -660.0, 3_700.0, -3_700.0, 86_400.0, -86_400.0, 8_640_000.0, -8_640_000.0)  # s
FILES = (
    "writes/driver", "writes/results", "durable/keys", "durable/key_claims", "durable/journal",
    "durable/leases", "durable/sqlite_store", "durable/postgres_store", "storage/sqlite_writer", "batch/item",
)  # fmt: skip
KEYS = "ABCDEFGHIJ"


EVENTS = ("signals", "clocks", "replies", "fates", "reads", "cancels", "ends", "prunes")


def drawn(
    chance: Random, journals: tuple[Journal, ...], uses: tuple[Use, ...], without: tuple[str, ...] = ()
) -> Program:
    """Return a program that *chance* draws, but for the events *without*, which are in ``EVENTS``."""
    program = _drawn(chance, journals, uses)
    return _reduced(program, without) if without else program


def _drawn(chance: Random, journals: tuple[Journal, ...], uses: tuple[Use, ...]) -> Program:
    journal, use = chance.choice(journals), chance.choice(uses)
    writes = _writes(chance)
    lives = _lives(chance, journal, [write.key for write in writes])
    steps = _steps(chance, 0.1) if journal == "database" else ()
    return Program(
        journal=journal,
        use=use,
        writes=writes,
        lives=lives,
        fates=_fates(chance, writes),
        reads=_reads(chance),
        wall=steps,
        order=chance.randrange(1, 10**6) if chance.random() < 0.5 else 0,
        jitter=chance.randrange(1, 10**6) if journal == "database" and chance.random() < 0.7 else 0,
    )


def _reduced(program: Program, without: tuple[str, ...]) -> Program:
    less: dict[str, tuple[()]] = {}
    if "clocks" in without:
        less["wall"] = ()
    if "replies" in without:
        less |= {"lost": (), "slow": ()}
    if "cancels" in without:
        less["cancels"] = ()
    lives = []
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
    )


def _writes(chance: Random) -> tuple[Write, ...]:
    things = chance.choice((1, 1, 1, 2, 2, 3))
    many = chance.choice((1, 2, 2, 3, 3, 4, 5, 6))
    kinds: list[Kind] = chance.choices(("rename", "change"), k=things)
    found: list[Write] = []
    for number in range(many):
        thing = chance.randrange(things)
        kind = kinds[thing]
        if chance.random() < 0.1:
            kind = "create"
        elif kind == "change" and chance.random() < 0.06 and not any(each.kind == "remove" for each in found):
            kind = "remove"
        found.append(Write(KEYS[number], kind, thing))
    return tuple(found)


def _lives(chance: Random, journal: Journal, keys: list[str]) -> tuple[Life, ...]:
    count = chance.choice((1, 1, 2, 2, 3))
    lives: list[Life] = []
    for number in range(1, count + 1):
        name = f"p{number}"
        after: tuple[str, ...] = ()
        if lives and (journal == "file" or chance.random() < 0.5):
            after = (lives[-1].name,)
        lives.append(
            Life(
                name,
                _chosen(chance, keys),
                how=chance.choice(("one by one", "at once", "at once", "at once", "apart")),
                after=after,
                gap=chance.choice((0.0, 0.0, 0.01, 0.1, 0.5, 2.0, 9.0)),
                end=_end(chance) if chance.random() < 0.7 else None,
                cancels=_cancels(chance, keys),
                wall=_steps(chance, 0.2),
                lost=_numbers(chance, 0.15) if journal == "database" else (),
                slow=_numbers(chance, 0.15) if journal == "database" else (),
                deadline=chance.choice((40.0, 40.0, 40.0, 1.0, 5.0)),
                prunes=chance.uniform(0.0, 9.0) if chance.random() < 0.08 else None,
            )
        )
    everything = tuple(keys)
    if chance.random() < 0.4:
        everything = tuple(chance.sample(keys, len(keys)))
    how = chance.choice(("one by one", "at once", "apart"))
    last = Life("last", everything, how=how, after=tuple(life.name for life in lives), wall=_steps(chance, 0.1))
    return (*lives, last)


def _chosen(chance: Random, keys: list[str]) -> tuple[str, ...]:
    match chance.random():
        case share if share < 0.6:
            return tuple(keys)
        case share if share < 0.75:
            return tuple(reversed(keys))
        case share if share < 0.85:
            return tuple(chance.sample(keys, len(keys)))
    return tuple(chance.sample(keys, chance.randint(1, len(keys))))


def _end(chance: Random) -> End:
    how = chance.choice(("kill", "kill", "cancel", "close", "drop", "raise"))
    if how == "raise":
        file = chance.choice(FILES)
        return End(how, step=int(10 ** chance.uniform(0.0, 2.7)), file=file)
    if chance.random() < 0.5:
        return End(how, step=int(10 ** chance.uniform(0.3, 2.3)))
    return End(how, at=round(10 ** chance.uniform(-2.5, 1.0), 3))


def _cancels(chance: Random, keys: list[str]) -> tuple[tuple[str, float], ...]:
    if chance.random() > 0.15:
        return ()
    return ((chance.choice(keys), round(10 ** chance.uniform(-2.5, 1.0), 3)),)


def _steps(chance: Random, share: float) -> tuple[tuple[float, float], ...]:
    if chance.random() > share:
        return ()
    times = chance.choice((1, 1, 2))
    moments = sorted(round(10 ** chance.uniform(-1.5, 1.2), 3) for _ in range(times))
    if chance.random() < 0.6:
        moments[0] = 0.0
    return tuple((moment, chance.choice(CLOCKS)) for moment in moments)


def _numbers(chance: Random, share: float) -> tuple[int, ...]:
    if chance.random() > share:
        return ()
    return tuple(sorted({chance.randrange(40) for _ in range(chance.choice((1, 1, 2, 4)))}))


def _fates(chance: Random, writes: tuple[Write, ...]) -> dict[str, tuple[str, ...]]:
    if chance.random() < 0.3:
        return {}
    sound = chance.choice((0.3, 0.6, 0.9))
    fates = {}
    for write in writes:
        if chance.random() > sound:
            fates[write.key] = tuple(chance.choices(FATES, k=chance.choice((1, 1, 2, 3))))
    return fates


def _reads(chance: Random) -> dict[str, str]:
    if chance.random() < 0.75:
        return {}
    return {str(chance.randrange(20)): chance.choice(("failed", "slow")) for _ in range(chance.choice((1, 2, 5)))}
