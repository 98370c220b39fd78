"""Type checkers, run on code as users write it; ``nox -s types`` has them, and there nothing is skipped."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
# The comment that marks the lines of each file that are errors; uses.py and names.py have none.
MARKS = {
    "uses.py": "wrong",
    "names.py": "wrong",
    "forgotten.py": "forgotten",
    "passed_on.py": "wrong",
}
# mypy's alone: its comments ignore each error, and one that ignores nothing is an error.
MISUSES = {"misuses.py": "wrong"}
# Settings of users, so no cache of ours would do.
AS_USERS = (
    "--config-file=", "--strict", f"--cache-dir={ROOT / '.mypy_cache' / 'users'}", "--follow-imports=silent",
)  # fmt: skip

pytestmark = [
    pytest.mark.types,
    pytest.mark.skipif(
        not (find_spec("mypy") or find_spec("pyright")),
        reason="nox -s types has the type checkers",
    ),
]


def checked(tool, *arguments, cwd):
    own = Path(
        sys.executable
    ).parent  # pyright asks the `python` of the path for what is installed
    return subprocess.run(  # noqa: S603
        [sys.executable, "-m", tool, *map(str, arguments)],
        capture_output=True, text=True, check=False, cwd=cwd, timeout=300,
        env={
            **os.environ, "MYPYPATH": str(ROOT), "PYTHONPATH": str(ROOT),
            "PATH": os.pathsep.join((str(own), os.environ["PATH"])),
        },
    )  # fmt: skip


def lines_marked(file, word):
    """Return the numbers of the lines of *file* that end with *word* as a comment."""
    return [
        at
        for at, line in enumerate(file.read_text().splitlines(), 1)
        if line.endswith(f"# {word}")
    ]


def errors_in(file, ran):
    """Return the numbers of the lines of *file* in which a checker found an error."""
    found = re.findall(
        rf"{re.escape(file.name)}:(\d+):[\d:-]* (?:- )?error", ran.stdout
    )
    return sorted({int(at) for at in found})


@pytest.mark.parametrize("tool", ["mypy", "pyright"])
def test_package(tool):
    """The package is clean by the settings that its project file holds, on Linux."""
    system = {"mypy": ("--platform", "linux"), "pyright": ("--pythonplatform", "Linux")}
    ran = checked(tool, *system[tool], cwd=ROOT)

    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tool", "options"),
    [
        *(("mypy", ("--platform", name, "--cache-dir", f".mypy_cache/{name}")) for name in ("darwin", "win32")),
        *(("pyright", ("--pythonplatform", name)) for name in ("Darwin", "Windows")),
    ],
    ids=["mypy macOS", "mypy Windows", "pyright macOS", "pyright Windows"],
)  # fmt: skip
def test_package_on_other_systems(tool, options):
    """It is clean by what macOS and Windows have, too, on which nobody runs the tests here."""
    ran = checked(tool, *options, cwd=ROOT)

    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize("tool", ["mypy", "pyright"])
def test_code_of_users(tool, tmp_path):
    """
    Types are inferred as they are said to be, and each marked line is an error, and no other.

    Forgotten awaits and misspelt keyword arguments are marked, with the settings that the documentation names.
    One run checks all files: most of its time goes into what they import.
    """
    options = AS_USERS if tool == "mypy" else ("--pythonpath", sys.executable)
    marks = MARKS | (MISUSES if tool == "mypy" else {})
    ran = checked(tool, *options, *(HERE / name for name in marks), cwd=tmp_path)

    found = {name: errors_in(HERE / name, ran) for name in marks}
    marked = {name: lines_marked(HERE / name, word) for name, word in marks.items()}
    assert found == marked, ran.stdout + ran.stderr
    assert (marked["forgotten.py"], marked["passed_on.py"]) != ([], [])


# Of these, only the base class is unknown: it is the engine's, which is not installed here. With a stand-in for
# it, the type checkers of users would not know that these are what the engine takes.
OF_ENGINES = {
    "airflow.InvsvcHook",
    "airflow.InvsvcWriteOperator",
    "airflow_hook.InvsvcHook",
    "airflow_operator.InvsvcWriteOperator",
    "airflow_trigger.InvsvcWriteTrigger",
    "celery.KeyedTask",
    "procrastinate._RunAgain",
    "temporal.InvsvcPlugin",
    "ray.InvsvcDatasink",
    "spark.InvsvcDataSource",
    "spark_writer.CountsMessage",
    "spark_format.InvsvcDataSource",
    "spark_format.InvsvcDataSource.writer",
    "spark_writer.FrameWriter",
    "spark_writer.FrameWriter.write",
}


def test_every_type_is_told(tmp_path):
    """Nothing that the package shows is left for each type checker to infer in its own way."""
    ran = checked(
        "pyright", "--verifytypes", "invsvc_async", "--ignoreexternal", "--outputjson", cwd=tmp_path
    )  # fmt: skip
    found = json.loads(ran.stdout)["typeCompleteness"]["symbols"]
    unknown = {each["name"] for each in found if not each["isTypeKnown"]}

    assert len(found) > 6000
    assert unknown <= {f"invsvc_async.engines.{name}" for name in OF_ENGINES}, unknown
