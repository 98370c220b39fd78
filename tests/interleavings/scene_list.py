"""
The scenes that are walked.
"""

from __future__ import annotations

from typing import Any

from tests.interleavings.actions import (
    awaited_twice,
    beside_a_stranger,
    closed,
    guessed,
    killed,
    left_elsewhere,
    not_sent,
    taken_up,
    taken_up_twice,
    together,
    unknown_then,
)  # fmt: skip
from tests.interleavings.scene import Scene


def _scene(
    name: str,
    play: Any,
    *,
    fates: dict[str, tuple[str, ...]],
    cancels: str = "",
    **settings: Any,
) -> Scene:
    return Scene(
        name=name, play=play, fates=fates, cancels=frozenset(cancels), **settings
    )


LEFT = ("lost", "landed", "late")
AWAY = ("ok", "lost", "landed", "soon", "late")
PAIRS = (("create", "create"), ("rename", "rename"), ("change", "change"), ("change", "remove"),
          ("remove", "change"))  # fmt: skip

ENDS = ("ok", "lost")
OWN = ("in words", "late in words", "500 in words", "in part", "lost in part")
SCENES: tuple[Scene, ...] = (
    *(
        _scene(f"live {one}, live {other}", together(one, other, moments=(0.05, 4.0)),
               fates={"A": (*LEFT, "500 late", "slow", "unsent"), "B": ENDS}, cancels="A")
        for one, other in PAIRS
    ),
    *(
        _scene(f"reads fail: live {kind}, live {kind}", together(kind, kind, moments=(0.05,)),
               fates={"A": LEFT, "B": ENDS}, reads=("ok", "failed", "slow"))
        for kind in ("create", "rename", "change")
    ),
    *(
        _scene(f"three live {kind}s", together(kind, kind, kind, moments=(0.05, 0.2)),
               fates={"A": ("lost", "late"), "B": ENDS}, cancels="A")
        for kind in ("create", "rename")
    ),
    *(
        _scene(f"own words: live {kind}, live {other}", together(kind, other, moments=(0.05, 4.0)),
               fates={"A": (*OWN, "landed"), "B": (*ENDS, "in words")}, cancels="A")
        for kind, other in (("create awkward", "create awkward"), ("rename all", "rename all"),
                            ("rename all", "rename"), ("change all", "change all"), ("change all", "remove"))
    ),
    *(
        _scene(f"own words: {how} of an unknown {kind}, live {kind}", unknown_then(kind, kind, how),
               fates={"A": OWN, "B": ENDS}, cancels="A")
        for kind in ("create awkward", "rename all", "change all")
        for how in ("settle", "resume")
    ),
    *(
        _scene(f"own words: live {kind} beside a stranger", beside_a_stranger(kind, changes=changes),
               fates={"A": OWN})
        for kind, changes in (("rename all", {"name": "theirs"}), ("change all", {"description": "theirs"}))
    ),
    _scene("creates of two URLs share lists", together("create", "create elsewhere", moments=(0.05, 0.0)),
           fates={"A": LEFT, "B": ("lost", "landed")}, cancels="A", reads=("ok", "slow")),
    _scene("a guess", guessed, fates={"A": ("lost", "landed"), "B": ("late", "lost")}, rivals=True),
    _scene("creates spelt differently", together("create", "create spelt", moments=(0.05, 0.2)),
           fates={"A": AWAY, "B": ENDS}),
    *(
        _scene(f"{how} of a cancelled {one} alone", taken_up(one, "", how, moments=()),
               fates={"A": (*AWAY, "slow")}, cancels="A", alone=True)
        for one in ("create", "rename", "change", "remove")
        for how in ("settle", "resume")
    ),
    *(
        _scene(f"{how} of a cancelled {one}, live {other}", taken_up(one, other, how, moments=(0.05, 4.5)),
               fates={"A": LEFT, "B": ENDS}, cancels="A")
        for one, other in PAIRS
        for how in ("settle", "resume")
    ),
    *(
        _scene(f"{how} of an unknown {one}, live {other}", unknown_then(one, other, how),
               fates={"A": AWAY, "B": ENDS}, cancels="A")
        for one, other in PAIRS
        for how in ("settle", "resume")
    ),
    *(
        _scene(f"{how} of a {one} left by another client, live {other}",
               left_elsewhere(one, other, how, moments=(0.05, 4.5), waits=(0.0, 8.0)),
               fates={"A": LEFT, "B": ENDS}, cancels="A", rivals=True)
        for one, other in PAIRS
        for how in ("settle", "resume")
    ),
    *(
        _scene(f"{one}, {first} and {second}, live {other or 'nothing'}",
               taken_up_twice(one, other, first=first, second=second, apart=(0.0, 1.0, 9.0)),
               fates={"A": LEFT}, cancels="A", alone=not other)
        for one, other in (("create", ""), ("rename", ""), *PAIRS)
        for first, second in (("resume", "resume"), ("settle", "resume"))
    ),
    *(
        _scene(f"{one} resumed by two clients",
               taken_up_twice(one, "", first="resume", second="resume", apart=(0.0, 9.0), clients=2),
               fates={"A": LEFT}, cancels="A", misuse=True)
        for one in ("create", "rename", "change")
    ),
    *(
        _scene(f"{one} awaited twice, live {other}", awaited_twice(one, other), fates={"A": LEFT, "B": ENDS})
        for one, other in PAIRS[:4]
    ),
    *(
        _scene(f"closed: {one}, {other}", closed(one, other), fates={"A": LEFT, "B": ENDS}, rivals=True)
        for one, other in PAIRS[:4]
    ),
    *(
        _scene(f"killed: {', '.join(kinds)}; then {after}{'' if recovers else ' without recovery'}",
               killed(*kinds, after=after, recovers=recovers),
               fates={"A": LEFT[1:], "B": ("late", "ok"), "N": ENDS})
        for kinds, after in ((("create", "create"), "create"), (("rename", "change"), "rename"),
                             (("change", "remove"), "change"), (("rename", "rename", "create"), "rename"))
        for recovers in (True, False)
    ),
    *(
        _scene(f"cancelled, then killed: {one}, {other}; then {one}",
               killed(one, other, after=one, cancelled=True),
               fates={"A": LEFT, "B": ("late", "ok"), "N": ENDS})
        for one, other in PAIRS
    ),
    *(
        _scene(f"{how} of a cancelled {one}{where}, {other} that may not leave",
               not_sent(one, other, how, elsewhere=bool(where)),
               fates={"A": ("lost", "landed"), "B": ("ok", "unsent")}, cancels="B")
        for one, other in PAIRS[1:]
        for where in ("", " of another client")
        for how in ("settle", "resume")
    ),
    *(
        _scene(f"live {', '.join(kinds)} beside a stranger{'' if changes else ' who deletes'}",
               beside_a_stranger(*kinds, changes=changes), fates={"A": AWAY, "B": ENDS})
        for kinds, changes in ((("rename", "rename"), {"name": "theirs"}),
                               (("change", "change"), {"description": "theirs"}),
                               (("rename",), {"name": "old"}), (("change", "change"), None))
    ),
)  # fmt: skip
