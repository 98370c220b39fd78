"""
Where tests wait for the machine's clock, or reach past what the package offers: ``python -m tests.support.reach``.

Three kinds are found: a *sleep* that takes real time, a *change* of something of the package while a test runs
(``setattr``, ``patch``, an assignment), and a use of one of the package's *private* names. Each has a reason: a
comment of the form ``# sleeps: why`` or ``# reaches: why`` on one of its lines, or an entry in ``reach.toml``,
which holds for some names in some files. Exits with 1 if something has no reason, or an entry fits nothing.

``python -m tests.support.reach --table`` also prints how many there are in each folder. What stands in the text of a
program that a test starts is not looked at.
"""

from __future__ import annotations

import ast
import re
import sys
import tokenize
import tomllib
from collections import Counter, defaultdict
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.support.virtual_time import VIRTUAL_FOLDERS
from tests.support.watchdog import WRITTEN

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ROOT = Path(__file__).parents[2]
PACKAGE = "invsvc_async"
LIST = Path(__file__).with_suffix(".toml")
SLEEP = "sleep"
CHANGE = "change"
PRIVATE = "private"
KINDS = (SLEEP, CHANGE, PRIVATE)

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_COMMENT = re.compile(r"#.*\b(sleeps|reaches): \S")
_COMMENT_OF = {SLEEP: "sleeps", CHANGE: "reaches", PRIVATE: "reaches"}
_SLEEPS = {"asyncio.sleep", "time.sleep", "anyio.sleep", "trio.sleep"}
_UNKNOWN = ""  # where a value comes from


class Found(NamedTuple):
    """One place in a test that needs a reason."""

    kind: str
    file: str
    line: int
    last_line: int
    name: str  # the attribute, or for a sleep the seconds, as they are written

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.kind} of {self.name}"


# --- what the package calls private


def private_names(files: Iterable[Path]) -> frozenset[str]:
    """Return the private names that classes and modules in *files* define."""
    names: set[str] = set()
    for file in files:
        names |= _defined_in(ast.parse(file.read_text(encoding="utf-8")))
    return frozenset(names)


def _defined_in(tree: ast.AST) -> set[str]:
    """Return the private names of modules and classes in *tree*, but not those of variables of functions."""
    names: set[str] = set()
    for scope in ast.walk(tree):
        if isinstance(scope, (ast.Module, ast.ClassDef)):
            names |= _named_by(_statements(scope))
        elif isinstance(scope, ast.Attribute) and isinstance(scope.ctx, ast.Store):
            names.add(scope.attr)
    return {name for name in names if _is_private(name)}


def _statements(scope: ast.Module | ast.ClassDef) -> Iterator[ast.stmt]:
    """Yield the statements of *scope*, also those under its conditions."""
    waiting: list[ast.stmt] = [*scope.body]
    while waiting:
        statement = waiting.pop()
        yield statement
        if isinstance(statement, (ast.If, ast.Try, ast.With)):
            waiting += [
                each
                for each in ast.iter_child_nodes(statement)
                if isinstance(each, ast.stmt)
            ]


def _named_by(statements: Iterable[ast.stmt]) -> set[str]:
    names: set[str] = set()
    for statement in statements:
        if isinstance(statement, (*_FUNCTIONS, ast.ClassDef)):
            names.add(statement.name)
        elif isinstance(statement, (ast.Assign, ast.AnnAssign)):
            names |= {
                node.id
                for node in ast.walk(statement)
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
            }
            names |= _slots_of(statement)
    return names


def _slots_of(statement: ast.Assign | ast.AnnAssign) -> set[str]:
    targets = (
        statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    )
    if not any(
        isinstance(each, ast.Name) and each.id == "__slots__" for each in targets
    ):
        return set()
    return {
        str(node.value)
        for node in ast.walk(statement)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name[-1] != "_"


# --- one file of tests


class _Reader(ast.NodeVisitor):
    """Reads one file, and knows in which class and function it is."""

    def __init__(
        self,
        file: str,
        tree: ast.Module,
        private: frozenset[str],
        *,
        in_virtual_time: bool,
    ) -> None:
        self.found: list[Found] = []
        self._file = file
        self._private = private
        self._own = _defined_in(tree)
        self._origins = [_imports_of(tree, everywhere=False)]
        self._virtual = [_marks_virtual(tree, inherited=in_virtual_time)]
        self._of_package = [False]  # whether a class derives from one of the package
        self.visit(tree)

    # --- scopes

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._enter(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._enter(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        bases = [self._origin(each) for each in node.bases]
        self._of_package.append(any(_is_of_package(each) for each in bases))
        self.generic_visit(node)
        self._of_package.pop()

    def _enter(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        inherited = self._virtual[-1]
        self._virtual.append(_marked(node.decorator_list, inherited=inherited))
        self._origins.append(_imports_of(node, everywhere=True))
        self._note_loops(node)
        self.generic_visit(node)
        self._origins.pop()
        self._virtual.pop()

    def _note_loops(self, function: ast.AST) -> None:
        """Note which variables of *function* are objects of asyncio, which has other private names."""
        for node in ast.walk(function):
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    self._note_loop(name, value)
                case ast.Assign(
                    targets=[ast.Tuple(elts=[ast.Name(id=name), *_])],
                    value=ast.Tuple(elts=[value, *_]),
                ):
                    self._note_loop(name, value)
                case _:
                    pass

    def _note_loop(self, name: str, value: ast.expr) -> None:
        origin = self._origin(value)
        if origin.startswith("asyncio."):
            self._origins[-1][name] = origin

    def _origin(self, value: ast.expr) -> str:
        """Return the dotted name of what *value* is, or nothing if that is not known."""
        match value:
            case ast.Name(id=name):
                for names in reversed(self._origins):
                    if name in names:
                        return names[name]
                return _UNKNOWN
            case ast.Attribute(value=inner, attr=name):
                origin = self._origin(inner)
                return f"{origin}.{name}" if origin else _UNKNOWN
            case ast.Call(func=ast.Name(id="type"), args=[inner]):
                return self._origin(inner)
            case ast.Await(value=inner):
                return self._origin(inner)
            case ast.Call(func=inner):
                origin = self._origin(inner)
                return _UNKNOWN if origin.startswith("tests.") else origin
            case _:
                return _UNKNOWN

    # --- what is looked for

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if not _is_of_package(node.module or ""):
            return
        for each in node.names:
            if _is_private(each.name):
                self._add(PRIVATE, each, each.name)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        is_changed = isinstance(node.ctx, (ast.Store, ast.Del))
        if is_changed and _is_of_package(self._origin(node.value)):
            self._add(CHANGE, node, node.attr)
        elif node.attr in self._private and not self._is_own(node):
            self._add(PRIVATE, node, node.attr)
        self.generic_visit(node)

    def _is_own(self, node: ast.Attribute) -> bool:
        """Return whether a class or module of the tests defines the attribute."""
        origin = self._origin(node.value)
        if isinstance(node.value, ast.Name) and node.value.id in {"self", "cls"}:
            return node.attr in self._own or not self._of_package[-1]
        if origin and not _is_of_package(origin):
            return True
        return not origin and node.attr in self._own

    def visit_Call(self, node: ast.Call) -> None:
        self._look_at_call(node)
        self.generic_visit(node)

    def _look_at_call(self, node: ast.Call) -> None:
        if self._origin(node.func) in _SLEEPS:
            if not self._virtual[-1] and not _is_nothing(node):
                self._add(SLEEP, node, ast.unparse(node.args[0]))
            return
        match node:
            case ast.Call(
                func=ast.Name(id="getattr"), args=[_, ast.Constant(value=str(name)), *_]
            ) if name in self._private:
                self._add(PRIVATE, node, name)
            case ast.Call(
                func=ast.Name(id="setattr") | ast.Attribute(attr="setattr"),
                args=[target, *rest],
            ):
                self._look_at_change(node, target, rest)
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id="patch"), attr="object"),
                args=[target, *rest],
            ):
                self._look_at_change(node, target, rest)
            case ast.Call(func=ast.Name(id="patch"), args=[target, *rest]):
                self._look_at_change(node, target, rest)
            case _:
                pass

    def _look_at_change(
        self, node: ast.Call, target: ast.expr, rest: list[ast.expr]
    ) -> None:
        text = _text_of(target)
        if text is not None:
            if text.startswith("{") or _is_of_package(text):
                self._add(CHANGE, node, text.rpartition(".")[2])
            return
        origin = self._origin(target)
        if origin and not _is_of_package(origin):
            return
        name = _text_of(rest[0]) if rest else None
        self._add(CHANGE, node, name or "…")

    def _add(self, kind: str, node: ast.AST, name: str) -> None:
        line: int = getattr(node, "lineno", 0)
        last: int = getattr(node, "end_lineno", line)
        self.found.append(Found(kind, self._file, line, last, name))


def _imports_of(scope: ast.AST, *, everywhere: bool) -> dict[str, str]:
    """Return what the names of *scope* stand for: imports, and what is taken from them."""
    origins: dict[str, str] = {}
    nodes = ast.walk(scope) if everywhere else _at_the_top(scope)
    for node in nodes:
        if isinstance(node, ast.Import):
            for each in node.names:
                name = each.asname or each.name.partition(".")[0]
                origins[name] = each.name if each.asname else name
        elif isinstance(node, ast.ImportFrom):
            for each in node.names:
                origins[each.asname or each.name] = f"{node.module}.{each.name}"
        elif isinstance(node, ast.ClassDef) and not everywhere:
            origins.setdefault(node.name, f"tests.{node.name}")
    return origins


def _at_the_top(scope: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a module, without those inside functions."""
    for child in ast.iter_child_nodes(scope):
        yield child
        if not isinstance(child, (*_FUNCTIONS, ast.Lambda)):
            yield from _at_the_top(child)


def _is_of_package(origin: str) -> bool:
    return origin == PACKAGE or origin.startswith(f"{PACKAGE}.")


def _text_of(value: ast.expr) -> str | None:
    """Return the text that *value* is; of an f-string, what is filled in stands in braces."""
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        return value.value
    if not isinstance(value, ast.JoinedStr):
        return None
    return "".join(
        str(part.value) if isinstance(part, ast.Constant) else "{}"
        for part in value.values
    )


def _is_nothing(call: ast.Call) -> bool:
    """Return whether *call* sleeps for no time at all."""
    return not call.args or (
        isinstance(call.args[0], ast.Constant) and call.args[0].value == 0
    )


def _marks_virtual(tree: ast.Module, *, inherited: bool) -> bool:
    """Return whether the tests of a module run in virtual time, by its ``pytestmark``."""
    for statement in tree.body:
        if isinstance(statement, ast.Assign) and any(
            isinstance(each, ast.Name) and each.id == "pytestmark"
            for each in statement.targets
        ):
            return _marked([statement.value], inherited=inherited)
    return inherited


def _marked(marks: list[ast.expr], *, inherited: bool) -> bool:
    text = " ".join(ast.unparse(each) for each in marks)
    if "mark.loop_time" in text:
        return True
    return inherited and "mark.real_time" not in text


def occurrences(
    file: str, text: str, private: frozenset[str], *, in_virtual_time: bool = False
) -> list[Found]:
    """Return all places in *text* that need a reason."""
    reader = _Reader(file, ast.parse(text), private, in_virtual_time=in_virtual_time)
    return sorted(reader.found, key=lambda each: each.line)


# --- reasons


def commented_lines(text: str) -> dict[int, set[str]]:
    """Return the words of the reasons that comments give, by line; one alone on its line is about the next line."""
    words: defaultdict[int, set[str]] = defaultdict(set)
    lines = iter(text.splitlines(keepends=True))
    for token in tokenize.generate_tokens(lambda: next(lines, "")):
        if token.type == tokenize.COMMENT and (match := _COMMENT.match(token.string)):
            is_alone = token.line.strip().startswith("#")
            words[token.start[0] + is_alone].add(match[1])
    return words


def without_comment(found: list[Found], text: str) -> list[Found]:
    """Return those of *found* that no comment gives a reason for."""
    words = commented_lines(text)
    return [
        each
        for each in found
        if not any(
            _COMMENT_OF[each.kind] in words.get(line, ())
            for line in range(each.line, each.last_line + 1)
        )
    ]


def fits(entry: dict[str, Any], found: Found) -> bool:
    """Return whether *entry* of the list is about *found*."""
    return (
        entry["kind"] == found.kind
        and any(fnmatch(found.file, each) for each in entry["where"])
        and ("names" not in entry or found.name in entry["names"])
    )


def judged(
    entries: list[dict[str, Any]], found: list[Found]
) -> tuple[list[str], list[str]]:
    """Return what has no reason, and what the list has a reason for although it is not there, in words."""
    bare = [
        str(each) for each in found if not any(fits(entry, each) for entry in entries)
    ]
    gone: list[str] = []
    for entry in entries:
        fitting = [each for each in found if fits(entry, each)]
        if not fitting:
            gone.append(f"{entry['kind']} in {entry['where']}: {entry['why']}")
        used = {each.name for each in fitting}
        gone += [
            f"{entry['kind']} of {name} in {entry['where']}"
            for name in entry.get("names", ())
            if fitting and name not in used
        ]
    return bare, gone


def main() -> int:
    """Look at all tests, print what has no reason, and return the exit code."""
    listed = tomllib.loads(LIST.read_text(encoding="utf-8"))
    usual = [f"tests/{folder}/*" for folder in VIRTUAL_FOLDERS]
    virtual = (*usual, *listed["virtual_time"])
    private = private_names((ROOT / PACKAGE).rglob("*.py"))
    everything: list[Found] = []
    uncommented: list[Found] = []
    for path in sorted((ROOT / "tests").rglob("*.py")):
        if path.name.startswith(WRITTEN):  # it may be gone in a moment
            continue
        file = str(path.relative_to(ROOT))
        text = path.read_text(encoding="utf-8")
        is_virtual = any(fnmatch(file, each) for each in virtual)
        found = occurrences(file, text, private, in_virtual_time=is_virtual)
        everything += found
        uncommented += without_comment(found, text)
    bare, gone = judged(listed["reason"], uncommented)
    for each in bare:
        print(f"without a reason: {each}")  # noqa: T201 - a command
    for each in gone:
        print(f"not found any more, remove it from {LIST.name}: {each}")  # noqa: T201 - the same
    if "--table" in sys.argv:
        print(table(everything))  # noqa: T201 - the same
    counted = Counter(each.kind for each in everything)
    numbers = ", ".join(f"{counted[kind]} of kind {kind}" for kind in KINDS)
    print(f"reach: {numbers}; {len(bare)} of them without a reason")  # noqa: T201 - the same
    return 1 if bare or gone else 0


def table(found: list[Found]) -> str:
    """Return how many there are of each kind in each folder."""
    counted: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for each in found:
        parts = each.file.split("/")
        counted[parts[1] if len(parts) > 2 else "."][each.kind] += 1
    rows = [f"{'folder':16}" + "".join(f"{kind:>9}" for kind in KINDS)]
    for folder, kinds in sorted(counted.items()):
        rows.append(f"{folder:16}" + "".join(f"{kinds[kind]:9}" for kind in KINDS))
    return "\n".join(rows)


if __name__ == "__main__":
    sys.exit(main())
