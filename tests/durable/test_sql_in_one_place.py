"""All SQL of the tables of a store of writes stands in one folder."""

from __future__ import annotations

import ast
import re
from collections import Counter
from importlib import import_module
from pathlib import Path

import invsvc_async
from invsvc_async.durable import store

PACKAGE = Path(invsvc_async.__file__).parent
STORE = PACKAGE / "durable" / "store"
STATEMENTS = STORE / "statements"
BY = 50  # the column of the picture that says what does a change
PICTURE = store.__doc__.partition("\nchange   ")[2].partition("Reopening keeps")[0]
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
    """Whoever changes a table, or looks for what a guard is, reads the statements, and no operations."""
    others = {
        path
        for folder in ("durable", "batch", "outbox", "cli")
        for path in (PACKAGE / folder).rglob("*.py")
        if STATEMENTS not in path.parents
    }
    assert sorted(str(path) for path in others if has_statement(path)) == []


def test_statements_are_few_files():
    """Each statement is found by its subject."""
    assert {path.stem for path in STATEMENTS.glob("*.py")} == {
        "__init__",
        "entry_sql",
        "key_sql",
        "schema_sql",
        "store_sql",
    }


def test_names_of_statements():
    """A name is that of one statement, in whichever module it is looked for."""
    texts = [path.read_text(encoding="utf-8") for path in STATEMENTS.glob("*_sql.py")]
    names = [
        name
        for text in texts
        for name in re.findall(r"^([A-Z]\w+)(?:: | = )", text, re.MULTILINE)
    ]
    assert len(names) > 200
    assert [name for name, times in Counter(names).items() if times > 1] == []


def test_statements_in_the_picture():
    """The names in the picture of the states are those of statements and functions that are there."""
    named = set(re.findall(r"``(\w+_sql)\.(\w+)``", store.__doc__))
    modules = {
        name: import_module(f"{store.__name__}.statements.{name}") for name, _ in named
    }
    assert len(named) > 30
    assert (
        sorted(each for each in named if not hasattr(modules[each[0]], each[1])) == []
    )


def test_statements_in_the_picture_are_run_by_the_operations_before_them():
    """Whoever looks for the code of a change finds it at once."""
    column = " ".join(line[BY:] for line in PICTURE.splitlines())
    before, *parts = re.split(r"(\w+): ", column)
    rows = [*zip(parts[::2], parts[1::2], strict=True)]
    assert len(rows) > 20
    missing = [
        (operation, name)
        for operation, names in rows
        for name in re.findall(r"``([\w.]+)``", names)
        if name not in (STORE / f"{operation}.py").read_text(encoding="utf-8")
        and name != "entry_sql.ADD"  # by ``add`` of adding, which others call
    ]
    assert "``" not in before
    assert missing == []


def test_that_statements_are_recognised():
    """Otherwise the test above would hold nothing."""
    found = {path.stem for path in STATEMENTS.glob("*.py") if has_statement(path)}
    assert found == {"entry_sql", "key_sql", "schema_sql", "store_sql"}
