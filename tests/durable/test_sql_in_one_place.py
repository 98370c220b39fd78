"""All SQL of the tables of a store of writes stands in one folder."""

from __future__ import annotations

import ast
import re
from importlib import import_module
from pathlib import Path

import invsvc_async
from invsvc_async.durable import store

PACKAGE = Path(invsvc_async.__file__).parent
STORE = PACKAGE / "durable" / "store"
TABLES = "entries|lanes|members|unheard|states|counts|facts|commons|invsvc_outbox"
STATEMENT = re.compile(
    rf"\b(FROM|JOIN|INTO|UPDATE|TABLE)\s+(\{{+\w+\}}+\.?)?({TABLES})\b"
    r"|^e\.\w+ (=|<|>|IS|IN|\{)"  # a condition of entries
    r"|\bSELECT \{+now\}+"
)


def texts_in(path):
    """Yield the texts in a file that are no documentation."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docs = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, documented) and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(
                str(part.value) if isinstance(part, ast.Constant) else "{s}"
                for part in node.values
            )
        elif isinstance(node, ast.Constant) and id(node) not in docs:
            yield str(node.value)


def has_statement(path):
    return any(STATEMENT.search(text) for text in texts_in(path))


def test_sql_of_a_store():
    """Whoever changes a table, or a guard, reads one folder."""
    others = {
        path
        for folder in ("durable", "batch", "outbox", "cli")
        for path in (PACKAGE / folder).rglob("*.py")
        if STORE not in path.parents
    }
    assert sorted(str(path) for path in others if has_statement(path)) == []


def test_statements_in_the_picture():
    """The names in the picture of the states are those of statements and functions that are there."""
    named = set(re.findall(r"``(_\w+|RELEASE)``", store.__doc__))
    modules = [
        import_module(f"{store.__name__}.{path.stem}")
        for path in STORE.glob("[!_]*.py")
    ]
    there = {name for module in modules for name in vars(module)}
    assert len(named) > 20
    assert sorted(named - there) == []


def test_each_name_in_the_picture_is_in_one_place():
    """Whoever looks for the code of a change finds it at once."""
    texts = [path.read_text(encoding="utf-8") for path in STORE.glob("[!_]*.py")]
    named = set(re.findall(r"``(_\w+|RELEASE)``", store.__doc__))
    of_name = {
        name: re.compile(rf"^(async )?(def )?{name}(\(|: | = )", re.MULTILINE)
        for name in named
    }
    times = {
        name: sum(len(definition.findall(text)) for text in texts)
        for name, definition in of_name.items()
    }
    assert {name: many for name, many in times.items() if many != 1} == {}


def test_that_statements_are_recognised():
    """Otherwise the test above would hold nothing."""
    found = {path.stem for path in STORE.glob("*.py") if has_statement(path)}
    assert {"claims", "order", "lanes", "unkeyed", "application_table"} <= found
