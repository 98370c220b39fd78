"""Run of one command against the embedded service."""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import attrs

from invsvc_async.api.json_values import is_object
from invsvc_async.client import Client
from invsvc_async.codec import envelope
from invsvc_async.conformance.client_runs import ClientRun
from invsvc_async.conformance.reasons import Told
from invsvc_async.conformance.reports import RequestedWrite, WriteReport
from invsvc_async.conformance.service_process import embedded
from invsvc_async.conformance.workload import Unit, made_up, plan_for, request_of
from invsvc_async.errors import InvsvcError
from invsvc_async.reconcile.history import Verdict
from invsvc_async.resources.by_name import as_write
from invsvc_async.transport.credentials import ApiKey

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from invsvc_async.codec.exact_json import WireObject

SETTLE = 1.0  # s: late effects of faults land within half of it
_VERDICTS = {verdict.value.replace(" ", "_"): verdict for verdict in Verdict}


@attrs.frozen(kw_only=True)
class Conformance(ClientRun):
    """
    Result of one command's run.

    ``unreported`` writes have no line, or none that can be read; they count as unknown.  ``exit_code`` is
    ``None`` after a timeout.
    """

    unreported: int
    exit_code: int | None

    @property
    def holds(self) -> bool:
        """Whether each write had at most one effect, and every report is true."""
        judged = self.judgement
        if self.exit_code != 0:  # None after a timeout
            return False
        has_more_effects = bool(judged.duplicates or judged.unasked)
        is_misreported = bool(judged.wrong or self.unreported)
        return not has_more_effects and not is_misreported

    def counts(self) -> dict[str, Any]:  # Any: numbers and a table of them
        """Return the counts as JSON values."""
        judged = self.judgement
        return {
            "writes": judged.asked,
            "effects": judged.effects,
            "duplicates": judged.duplicates,
            "lost": len(judged.lost),
            "wrong": len(judged.wrong),
            "false_reasons": judged.false_reasons,
            "out_of_order": judged.inverted,
            "unasked": judged.unasked,
            "unknown": judged.verdicts.get(Verdict.UNKNOWN, 0),
            "unreported": self.unreported,
            "webhooks_left": self.left,
            "sends": judged.sends,
            "reads": self.reads,
            "seconds": round(self.seconds, 1),
            "exit_code": self.exit_code,
            "holds": self.holds,
            "unknown_reasons": dict(judged.unknown_reasons),
            "verdicts": {
                verdict.value: judged.verdicts.get(verdict, 0) for verdict in Verdict
            },
        }


async def conform(
    command: Sequence[str],
    *,
    writes: int = 400,
    seed: int = 1,
    faults: str,
    stores: str = "none",
    concurrency: int = 50,
    timeout: float = 300.0,
) -> Conformance:
    """
    Run *command* with *writes* writes under *faults* (a fault plan) and judge its reports by the ledger.

    *stores* says how the service stores what it is sent, in the words of `Stores.parse`.

    *timeout* is in seconds; after it the command is killed, and its reports so far count.

    Raises:
        OSError: The command cannot be started.
        ValueError: One of the plans is invalid.
    """
    units = made_up(writes, seed)
    async with embedded(
        plan_for(
            units,
            seed=seed,
            faults=faults,
            stores=stores,
        )
    ) as service:
        work = tasks(units, home=service.team)
        begun = time.monotonic()
        with TemporaryDirectory() as folder:
            file = Path(folder) / "writes.jsonl"
            file.write_bytes(b"".join(envelope.dumps(line) + b"\n" for line, _ in work))
            settings = {
                "INVSVC_BASE_URL": service.base_url,
                "INVSVC_API_KEY": service.api_key,
            }
            settings |= {
                "INVSVC_WRITES": str(file),
                "INVSVC_CONCURRENCY": str(concurrency),
            }
            settings["INVSVC_SETTLE"] = str(SETTLE)
            exit_code, out = await _ran(command, {**os.environ, **settings}, timeout)
        seconds = time.monotonic() - begun
        reports, unreported = read_reports(out, work)
        return await Conformance.judged(
            reports,
            service,
            seconds=seconds,
            unreported=unreported,
            exit_code=exit_code,
        )


def tasks(
    units: Iterable[Unit], *, home: str
) -> list[tuple[WireObject, RequestedWrite]]:
    """
    Return the lines of *units*, which need no knowledge of the operations, and their forms in the ledger.

    *home* is the team of the credential.
    """
    client = Client("http://127.0.0.1:1/v2", ApiKey("never-sent"))
    found: list[tuple[WireObject, RequestedWrite]] = []
    for unit in units:
        after = None
        for step in unit:
            write = as_write(client, step.operation, step.arguments)
            intent = write.intent
            write.close()
            line = {"key": step.key, "after": after, "operation": intent.operation}
            found.append(
                (
                    line | request_of(intent, step.key),
                    RequestedWrite.of(intent, home=home),
                )
            )
            after = step.key
    return found


async def _ran(
    command: Sequence[str],
    settings: Mapping[str, str],
    timeout: float,
) -> tuple[int | None, list[bytes]]:
    child = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        env=settings,
        limit=2**24,
    )
    assert child.stdout is not None
    lines: list[bytes] = []
    try:
        async with asyncio.timeout(timeout):
            async for line in child.stdout:
                lines.append(line)  # noqa: PERF401 - keeps lines read before a timeout
            return await child.wait(), lines
    except TimeoutError:
        return None, lines
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()


def read_reports(
    out: Iterable[bytes], work: Iterable[tuple[WireObject, RequestedWrite]]
) -> tuple[list[WriteReport], int]:
    """
    Return the reports, from the last line of each key, and the number of writes without one.

    The reports are in the order of *work*.  The ``id`` in the line of a create is judged as well.
    """
    lines = _lines_by_key(out)
    said = [(sent["key"], asked, lines.get(sent["key"], {})) for sent, asked in work]
    verdicts = [_verdict_in(line) for _, _, line in said]
    reports = [_report(*each, of) for each, of in zip(said, verdicts, strict=True)]
    return reports, verdicts.count(None)


def _lines_by_key(out: Iterable[bytes]) -> dict[str, Mapping[str, Any]]:
    """Return the last line of each key.  What is no JSON object with a key is left out."""
    lines: dict[str, Mapping[str, Any]] = {}
    for text in out:
        with suppress(InvsvcError):
            line = envelope.loads(text)
            if is_object(line) and isinstance(line.get("key"), str):
                lines[line["key"]] = line
    return lines


def _verdict_in(line: Mapping[str, Any]) -> Verdict | None:
    return _VERDICTS.get(str(line.get("verdict")).replace(" ", "_"))


def _report(
    key: str,
    asked: RequestedWrite,
    line: Mapping[str, Any],
    verdict: Verdict | None,
) -> WriteReport:
    if verdict is None:
        return WriteReport(
            key=key,
            asked=asked,
            verdict=Verdict.UNKNOWN,
            reason="not reported",
        )
    made = _made(asked, line) if verdict is Verdict.APPLIED else None
    return WriteReport(
        key=key,
        asked=asked,
        verdict=verdict,
        reason=str(line.get("reason") or ""),
        made=made,
        told=_told(line, verdict, made),
    )


def _made(asked: RequestedWrite, line: Mapping[str, Any]) -> str | None:
    """Return the id in the line of a create; ``None`` without one, or for another write."""
    is_create = asked.thing is None
    if not is_create:
        return None
    known_as = line.get("id")
    if isinstance(known_as, str):
        return known_as
    return None


def _told(
    line: Mapping[str, Any],
    verdict: Verdict,
    made: str | None,
) -> Told | None:
    """Return the reason in codes, if the line has any."""
    basis = _text_in(line, "basis")
    cause = _text_in(line, "cause")
    duplicates = line.get("duplicates")
    if basis is None and cause is None and duplicates is None:
        return None
    named = None
    if isinstance(duplicates, list):
        named = tuple(map(str, duplicates))
    return Told(
        verdict=verdict,
        basis=basis,
        cause=cause,
        made=made,
        duplicates=named,
    )


def _text_in(line: Mapping[str, Any], name: str) -> str | None:
    """Return the member *name* as text; ``None`` if the line has none, or null."""
    value = line.get(name)
    if value is None:
        return None
    return str(value)
