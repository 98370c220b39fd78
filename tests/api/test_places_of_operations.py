"""Where an operation has to stand besides its row in the table: each place that lacks one is named, all at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from invsvc_async.api.operations import BY_NAME, TABLE, OperationKind
from invsvc_async.cli.commands.read import COLUMNS
from tests.batch.test_jsonl import SOUND
from tests.codec.recorded import SAMPLES
from tests.exhaustive.world_list import BASES
from tests.faults.test_write_matrix import WRITES
from tests.resources.test_mapping import CALLS
from tests.simulator.test_operations import FINDABLE

if TYPE_CHECKING:
    from collections.abc import Iterable

GENERAL = "client."  # the operations whose method and path the caller gives
NO_MODEL = {"bytes", "Envelope", "object"}


def missing(place: str, wanted: Iterable[str], there: Iterable[str]) -> list[str]:
    return [f"{place}: {name}" for name in sorted({*wanted} - {*there})]


def test_places_of_each_operation() -> None:
    """Columns of its list, a sample of its model, a request to find it, its call; of a write also its histories."""
    own = [row for row in TABLE if not row.name.startswith(GENERAL)]
    writes = [row.name for row in own if row.kind is OperationKind.WRITE]
    settled = [row.name for row in own if row.reader]
    walked = {base["model"].operation for base in BASES.values()}

    lacking = [
        *missing(
            "invsvc_async/cli/commands/read.py COLUMNS",
            (row.result for row in TABLE if row.many),
            COLUMNS,
        ),
        *missing(
            "tests/codec/recorded.py SAMPLES",
            {row.result for row in TABLE} - NO_MODEL,
            SAMPLES,
        ),
        *missing(
            "tests/simulator/test_operations.py FINDABLE",
            (row.name for row in own),
            FINDABLE,
        ),
        *missing(
            "tests/resources/test_mapping.py CALLS",
            (row.name for row in own),
            (call.operation for call in CALLS),
        ),
        *missing("tests/batch/test_jsonl.py SOUND", writes, SOUND),
        *missing("tests/exhaustive/world_list.py BASES", settled, walked),
        *missing("tests/faults/test_write_matrix.py WRITES", settled, WRITES),
    ]

    assert not lacking, "add a row for each:\n" + "\n".join(lacking)


def test_path_of_a_write_and_of_its_read() -> None:
    """They name the thing alike: the state is read at the path arguments of the write."""
    for row in TABLE:
        if row.reader is None:
            continue
        names = {each.wire for each in row.parameters if each.where == "path"}
        read = {
            each.wire for each in BY_NAME[row.reader].parameters if each.where == "path"
        }
        assert read <= names, (row.name, row.reader)
