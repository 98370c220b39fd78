"""Mutants change what they name, and nothing stays of them."""

from __future__ import annotations

import pytest

from tests.support.mutation import (
    PACKAGE,
    ROOT,
    Mutant,
    in_files,
    in_process,
    mutants_in,
)

pytestmark = pytest.mark.one_python
LISTS = sorted((ROOT / "tests").rglob("*.patches"))
# Modules of engines, which can be imported only where the engine is installed.
OF_TASK_ENGINES = ROOT / "tests/engines/tasks.patches"


@pytest.mark.parametrize(
    "path", LISTS, ids=lambda path: f"{path.parent.name}/{path.stem}"
)
def test_text_is_in_its_file(path):
    """A line that no longer stands in the source is an error, not a mutant that was noticed."""
    mutants = mutants_in(path)

    assert mutants
    for mutant in mutants:
        for file, _, _ in mutant.changes:
            text = (ROOT / PACKAGE / file).read_text(encoding="utf-8")
            assert mutant.applied(file, text) != text


def test_list(tmp_path):
    """A mutant may have several parts, in several files; empty texts are none."""
    path = tmp_path / "list.patches"
    path.write_text(
        "# some\none | a.py | x | 3\n-  right\n+\n- two\n- lines\n+ 2\n@ b.py\n- b\n+ c\ntwo | d.py\n- d\n+ e\n"
    )
    one, two = mutants_in(path)

    assert one == (
        "one",
        ("x", "3"),
        [("a.py", " right", ""), ("a.py", "two\nlines", "2"), ("b.py", "b", "c")],
    )
    assert two == ("two", (), [("d.py", "d", "e")])
    with pytest.raises(LookupError, match=r"two: its text stands 2 times in d\.py"):
        two.applied("d.py", "dd")


@pytest.mark.slow
def test_process_and_files_after_mutants(tmp_path):
    """Functions, constants and files are those that ship again."""
    from invsvc_async.batch.dispatcher import Dispatcher
    from invsvc_async.durable.store.statements import entry_sql
    from invsvc_async.reconcile import settle_windows

    def now():
        windows = settle_windows.SettleWindows
        return (
            entry_sql.PUT_IN_DATABASE,
            Dispatcher._fetch.__code__,
            windows.over.func.__code__,
            windows.when.__code__,
        )

    before = now()
    for path in LISTS:
        if path == OF_TASK_ENGINES:
            continue
        for mutant in mutants_in(path):
            with in_process(mutant):
                pass
    assert now() == before

    (mutant, *_) = mutants_in(LISTS[0])
    for file, right, _ in mutant.changes:
        copy = tmp_path / PACKAGE / file
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(right)
    with in_files(mutant, tmp_path):
        assert copy.read_text() == mutant.changes[-1][2]
    assert copy.read_text() == mutant.changes[-1][1]


def test_property_that_a_class_has_no_more():
    """That of its base class counts, until the mutant ends."""
    from invsvc_async.transport.credentials import Credential, TokenProvider

    ships = vars(TokenProvider)["team"]
    text = "    @property\n    def team(self) -> None:"
    change = (
        "transport/credentials.py",
        text,
        text.replace("team", "unused_team"),
    )
    with in_process(Mutant("removed", (), [change])):
        assert TokenProvider.team is Credential.team
    assert TokenProvider.team is ships


def test_constant_of_the_same_name_and_value_in_another_module():
    """It stays as it is."""
    from invsvc_async.durable.store import due, unheard

    with in_process(
        Mutant(
            "fewer",
            (),
            [
                (
                    "durable/store/unheard.py",
                    "_AT_ONCE: Final = 200",
                    "_AT_ONCE: Final = 7",
                )
            ],
        )
    ):
        assert (unheard._AT_ONCE, due._AT_ONCE) == (7, 200)


def test_constant_that_another_module_has_imported():
    """It is changed there as well, and is what it was afterwards."""
    from invsvc_async.durable.store.statements import key_sql

    before = key_sql.MARK_IS_OPEN
    with in_process(
        Mutant(
            "later",
            (),
            [
                (
                    "durable/store/statements/store_sql.py",
                    'MARK_IS_OPEN: Final = f"""SELECT',
                    'MARK_IS_OPEN: Final = f"""DELETE',
                )
            ],
        )
    ):
        assert before.replace("SELECT", "DELETE") == key_sql.MARK_IS_OPEN
    assert key_sql.MARK_IS_OPEN is before
