"""
Wrong surroundings of ``decide``, each with the scenes that must notice it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from invsvc_async.writes import driver, new_intent, recovery
from invsvc_async.writes.driver import Driver
from invsvc_async.writes.register import Thing, WriteRegister

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest


@attrs.frozen
class Mutant:
    """
    A part of the client that is broken by *apply*.

    The scenes whose name begins with *where* must break the invariant *rule*.
    """

    name: str
    apply: Callable[[pytest.MonkeyPatch], None]
    where: str
    rule: int


def _no_lock(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Thing, "enter", lambda _thing: True)
    patch.setattr(WriteRegister, "leave", lambda _register, _line, _thing: None)


def _released_early(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(WriteRegister, "close", lambda *_: None)


def _settled_without_a_lock(patch: pytest.MonkeyPatch) -> None:
    drive = Driver._drive

    async def without(self: Driver[Any]) -> None:
        if self._takes_up:
            self.line = None
        await drive(self)

    patch.setattr(Driver, "_drive", without)


def _held_up_by_itself(patch: pytest.MonkeyPatch) -> None:
    opens_at = Thing.opens_at
    patch.setattr(Thing, "opens_at", lambda thing, _owner: opens_at(thing, None))


def _guesses_are_certain(patch: pytest.MonkeyPatch) -> None:
    claim = WriteRegister.claim

    def certain(
        self: WriteRegister, webhook_id: str, identity: str, *, is_certain: bool, has_unique_tag: bool = False
    ) -> None:
        claim(self, webhook_id, identity, is_certain=is_certain or True, has_unique_tag=has_unique_tag)

    patch.setattr(WriteRegister, "claim", certain)


def _taken_up_before_the_lock(patch: pytest.MonkeyPatch) -> None:
    make = Driver.__init__

    def early(self: Driver[Any], spec: Any, intent: Any, **others: Any) -> None:
        if others.get("takes_up"):
            begun = others["begin"](intent)
            others["begin"] = lambda _intent: begun
        make(self, spec, intent, **others)

    patch.setattr(Driver, "__init__", early)


def _leftovers_close_nothing(patch: pytest.MonkeyPatch) -> None:
    async def only_kept(session: Any, journal: Any) -> None:
        async for intent in journal.open_intents():
            line = new_intent.line_of(new_intent.request_of(intent), intent.scope.team, intent.tag)
            session.writes.add_leftover(intent, line)
        if session.writes.leftovers is None:
            session.writes.leftovers = {}

    patch.setattr(driver, "close_lines_of_leftovers", only_kept)
    patch.setattr(recovery, "close_lines_of_leftovers", only_kept)


def _not_overtaken(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(WriteRegister, "overtake", lambda _register, _thing, _newest: [])


def _outcomes_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(WriteRegister, "keep_ended", lambda *_: None)


MUTANTS = (
    Mutant("no lock", _no_lock, "live create, live create", 11),
    Mutant("no lock, in order", _no_lock, "live rename, live rename", 12),
    Mutant("lock released before the windows", _released_early, "live rename, live rename", 11),
    Mutant("settle takes no lock", _settled_without_a_lock, "resume of a cancelled rename, live rename", 11),
    Mutant("own closing holds itself up", _held_up_by_itself, "settle of a cancelled create alone", 5),
    Mutant("claims by match are certain", _guesses_are_certain, "a guess", 3),
    Mutant(
        "taken up before the lock", _taken_up_before_the_lock, "resume of a cancelled rename, live rename", 9
    ),
    Mutant("leftovers do not close lines", _leftovers_close_nothing, "killed: create", 11),
    Mutant("leftovers do not close lines, in order", _leftovers_close_nothing, "killed: rename, change", 12),
    Mutant("overtaken not marked", _not_overtaken, "cancelled, then killed: rename, rename", 9),
    Mutant("outcomes forgotten", _outcomes_forgotten, "create, resume and resume, live nothing", 13),
)
