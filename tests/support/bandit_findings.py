"""
Compare what bandit finds in the package with the list that says why each of it is no fault.

    python -m tests.support.bandit_findings

Exits with 1 if something is not in ``bandit_findings.toml``, or is in it but is not found any more.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
LIST = Path(__file__).with_suffix(".toml")
_PASSWORD = "Possible hardcoded password: '"


def run_bandit() -> list[dict[str, Any]]:
    """Return what bandit finds."""
    command = [
        sys.executable,
        "-m",
        "bandit",
        "--quiet",
        "--recursive",
        "invsvc_async",
        "--format",
        "json",
    ]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S603 - our own
    if ran.returncode not in {0, 1}:  # 1: something was found
        sys.exit(ran.stderr)
    report = json.loads(ran.stdout)
    if report["errors"]:
        sys.exit(f"bandit could not read: {report['errors']}")
    found: list[dict[str, Any]] = report["results"]
    return found


def is_in(entry: dict[str, Any], finding: dict[str, Any]) -> bool:
    """Return whether *entry* of the list is about *finding*."""
    if entry["rule"] != finding["test_id"] or not fnmatch(
        finding["filename"], entry["where"]
    ):
        return False
    if "texts" not in entry:
        return True
    text = finding["issue_text"].removeprefix(_PASSWORD).removesuffix("'")
    return text in entry["texts"]


def judged(
    entries: list[dict[str, Any]], findings: list[dict[str, Any]]
) -> tuple[list[str], list[str]]:
    """Return what is found but not listed, and what is listed but not found, in words."""
    new = [
        f"{each['filename']}:{each['line_number']}: {each['test_id']} {each['issue_text']}"
        for each in findings
        if not any(is_in(entry, each) for entry in entries)
    ]
    gone = [
        f"{entry['rule']} in {entry['where']}: {entry['why']}"
        for entry in entries
        if not any(is_in(entry, each) for each in findings)
    ]
    return new, gone


def main() -> int:
    """Compare, print what differs, and return 1 if something does."""
    entries = tomllib.loads(LIST.read_text(encoding="utf-8"))["found"]
    findings = run_bandit()
    new, gone = judged(entries, findings)
    for each in new:
        print(f"not listed: {each}")  # noqa: T201 - a command
    for each in gone:
        print(f"not found any more, remove it from {LIST.name}: {each}")  # noqa: T201 - the same
    print(f"bandit: {len(findings)} findings, {len(new)} of them without a reason")  # noqa: T201 - the same
    return 1 if new or gone else 0


if __name__ == "__main__":
    sys.exit(main())
