"""
Raising an exception where a signal handler may raise one, at the n-th such place of the package's bookkeeping.

CPython runs signal handlers in the main thread, between two instructions: at the start of a function, after a
call, and where a loop goes back.  What is raised there leaves the function as an error of that instruction would.
"""

from __future__ import annotations

import dis
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import invsvc_async

if TYPE_CHECKING:
    from types import CodeType, FrameType, TracebackType

PACKAGE = Path(invsvc_async.__file__).parent
BOOKKEEPING = ("writes", "durable", "transport", "storage", "concurrency", "client.py")
_STARTS = 2  # a coroutine that goes on after an await looks for no signal: its RESUME has this argument, or more


class Interrupter:
    """
    Raise an exception of *kind* at the place with the number *at*, counted from 1; by default count them only.

    With *within*, only the places in the function of that name count, such as ``WritePlace.take``.  ``where`` says
    where the exception was raised.
    """

    def __init__(
        self,
        kind: type[BaseException] = BaseException,
        at: int = 0,
        *,
        within: str | None = None,
    ) -> None:
        self._kind = kind
        self._at = at
        self._within = within
        self._prefixes = tuple(str(PACKAGE / part) for part in BOOKKEEPING)
        self.count = 0
        self.where = ""

    def __enter__(self) -> Self:
        sys.settrace(self._called)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        sys.settrace(None)

    def _called(self, frame: FrameType, _event: str, _argument: object) -> Any:
        code = frame.f_code
        if code.co_name == "__del__" or not code.co_filename.startswith(self._prefixes):
            return None
        if self._within is not None and code.co_qualname != self._within:
            return None
        if frame.f_lasti in _places(code):
            self._pass(frame)
        frame.f_trace_lines = False
        # first: without it, Python 3.13 traces no instructions
        frame.f_trace = self._stepped
        frame.f_trace_opcodes = True
        return self._stepped

    def _stepped(self, frame: FrameType, event: str, _argument: object) -> Any:
        if event == "opcode" and frame.f_lasti in _places(frame.f_code):
            self._pass(frame)
        return self._stepped

    def _pass(self, frame: FrameType) -> None:
        self.count += 1
        if self.count == self._at:
            code = frame.f_code
            file = Path(code.co_filename).relative_to(PACKAGE)
            self.where = f"{file}:{frame.f_lineno} in {code.co_qualname}"
            raise self._kind(f"at {self.where}")


@cache
def _places(code: CodeType) -> frozenset[int]:
    """Return the offsets of the instructions before which *code* may be interrupted."""
    found: set[int] = set()
    handlers = dis._parse_exception_table(code)  # type: ignore[attr-defined]  # it has no public name

    def handled_at(offset: int) -> set[int]:
        return {each.target for each in handlers if each.start <= offset < each.end}

    before: dis.Instruction | None = None
    for instruction in dis.get_instructions(code):
        name, offset = instruction.opname, instruction.offset
        if (
            (name == "RESUME" and (instruction.arg or 0) < _STARTS)
            or (name.startswith("JUMP_BACKWARD") and "NO_INTERRUPT" not in name)
            or (before is not None and handled_at(before.offset) == handled_at(offset))
        ):
            found.add(offset)
        before = instruction if name.startswith("CALL") else None
    return frozenset(found)
