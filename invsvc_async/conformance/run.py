"""
Run one command against the embedded service and judge what it reports; never trust it, never send for it.
"""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import attrs

from invsvc_async._errors import InvsvcError
from invsvc_async.api.json_values import is_object
from invsvc_async.codec import envelope
from invsvc_async.conformance.judge import Judgement, Report, judge
from invsvc_async.conformance.service_process import Embedded, embedded
from invsvc_async.conformance.tasks import Task, made_up, tasks
from invsvc_async.conformance.workload import plan_for
from invsvc_async.reconcile.history import Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

__all__ = ["SETTLE", "Conformance", "conform"]

_UNREPORTED = "not reported"
SETTLE = 1.0  # s: the faults' late effects land within half of it
_VERDICTS = {verdict.value.replace(" ", "_"): verdict for verdict in Verdict}


@attrs.frozen(kw_only=True)
class Conformance:
    """
    What one client's run came to.

    ``unreported`` writes have no line, or none that can be read: they count as unknown.  ``left`` counts the
    webhooks that stand at the end and were not there before; ``exit_code`` is ``None`` where time ran out.
    """

    judgement: Judgement
    unreported: int
    left: int
    reads: int
    seconds: float
    exit_code: int | None

    @property
    def holds(self) -> bool:
        """Whether each write had one effect at most, and every report is true."""
        judged = self.judgement
        ended = self.exit_code == 0  # not: time ran out
        return ended and not (judged.duplicates or judged.unasked or judged.wrong or self.unreported)

    def counts(self) -> dict[str, Any]:  # Any: numbers and a table of them
        """Give the numbers, plain."""
        judged = self.judgement
        return {
            "writes": judged.asked, "effects": judged.effects, "duplicates": judged.duplicates,
            "lost": len(judged.lost), "wrong": len(judged.wrong), "out_of_order": judged.inverted,
            "unasked": judged.unasked,
            "unknown": judged.verdicts.get(Verdict.UNKNOWN, 0), "unreported": self.unreported,
            "webhooks_left": self.left, "sends": judged.sends, "reads": self.reads,
            "seconds": round(self.seconds, 1), "exit_code": self.exit_code, "holds": self.holds,
            "unknown_reasons": dict(judged.unknown_reasons),
            "verdicts": {verdict.value: judged.verdicts.get(verdict, 0) for verdict in Verdict},
        }  # fmt: skip


async def conform(
    command: Sequence[str], *, writes: int = 400, seed: int = 1, faults: str, concurrency: int = 50,
    timeout: float = 300.0, environment: Mapping[str, str] = os.environ,
) -> Conformance:  # fmt: skip
    """
    Have *command* do *writes* writes under *faults* (in words), and judge its report by the ledger.

    *timeout* is in seconds; a command that needs longer is ended, and what it had reported counts.

    Raises:
        OSError: The command cannot be started.
        ValueError: The faults are not understood.

    """
    units = made_up(writes, seed)
    async with embedded(plan_for(units, seed=seed, faults=faults)) as service:
        work = tasks(units, home=service.team)
        begun = time.monotonic()
        with TemporaryDirectory() as folder:
            file = Path(folder) / "writes.jsonl"
            file.write_bytes(b"".join(envelope.dumps(task.line) + b"\n" for task in work))
            settings = {**environment, **_settings(service, file, concurrency)}
            exit_code, out = await _ran(command, settings, timeout)
        seconds = time.monotonic() - begun
        reports, unreported = read_reports(out, work)
        told = await service.tell()
        before = {thing.id for thing in service.plan.webhooks}
        return Conformance(
            judgement=judge(reports, told.ledger, told.state, told.before),
            unreported=unreported,
            left=sum("url" in thing and key not in before for key, thing in told.state.items()),
            reads=told.reads,
            seconds=seconds,
            exit_code=exit_code,
        )


def _settings(service: Embedded, file: Path, concurrency: int) -> dict[str, str]:
    return {
        "INVSVC_BASE_URL": service.base_url,
        "INVSVC_API_KEY": service.api_key,
        "INVSVC_WRITES": str(file),
        "INVSVC_CONCURRENCY": str(concurrency),
        "INVSVC_SETTLE": str(SETTLE),
    }


async def _ran(
    command: Sequence[str], settings: Mapping[str, str], timeout: float
) -> tuple[int | None, list[bytes]]:
    child = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, env=settings, limit=2**24
    )
    assert child.stdout is not None
    lines: list[bytes] = []
    try:
        async with asyncio.timeout(timeout):
            async for line in child.stdout:
                lines.append(line)  # noqa: PERF401 - what came before time ran out counts
            return await child.wait(), lines
    except TimeoutError:
        return None, lines
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()


def read_reports(out: Iterable[bytes], work: Sequence[Task]) -> tuple[list[Report], int]:
    """
    Read the last line of each key as its report; the second number counts the writes without one.

    The reports are in the order of *work*.  If a line of a create has an ``id``, that is judged, too.
    """
    told = {line["key"]: line for line in _objects(out) if isinstance(line.get("key"), str)}
    reports = [_report(task, told.get(task.key, {})) for task in work]
    return reports, sum(report.reason == _UNREPORTED for report in reports)


def _report(task: Task, line: Mapping[str, Any]) -> Report:
    verdict = _VERDICTS.get(str(line.get("verdict")).replace(" ", "_"))
    if verdict is None:
        return Report(key=task.key, asked=task.asked, verdict=Verdict.UNKNOWN, reason=_UNREPORTED)
    made = line.get("id") if task.asked.thing is None and verdict is Verdict.APPLIED else None
    return Report(
        key=task.key,
        asked=task.asked,
        verdict=verdict,
        reason=str(line.get("reason", "")),
        made=made if isinstance(made, str) else None,
    )


def _objects(out: Iterable[bytes]) -> list[Mapping[str, Any]]:
    found = [_read(line) for line in out]
    return [line for line in found if is_object(line)]


def _read(line: bytes) -> object:
    loads: Callable[[bytes], object] = envelope.loads
    try:
        return loads(line)
    except (InvsvcError, ValueError):
        return None
