"""
Install the wheel into new environments, and use it: packages, size, and seconds.

    python -m benchmarks.bench_install

``pip`` downloads everything, without its cache, so the seconds are those of this network, too.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
ENVIRONMENT = {
    name: value for name, value in os.environ.items() if name != "PYTHONPATH"
}
USES = {  # what the environment of an extra is then used for
    "": "python -c 'from invsvc_async import *'",
    "[cli]": "invsvc demo --writes 200",
    "[postgres]": "python -c 'import asyncpg; from invsvc_async import *'",
}


def run(*command: str | Path, cwd: Path) -> tuple[float, str]:
    """Run *command* in *cwd*; return the seconds that it took, and what it printed."""
    begun = time.perf_counter()
    ran = subprocess.run(
        command, cwd=cwd, check=True, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT
    )
    return time.perf_counter() - begun, ran.stdout


def main() -> None:
    """Print one line for each environment."""
    print("installed  packages  MB  seconds to install  then  seconds")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pip = (sys.executable, "-m", "pip", "--quiet")
        run(*pip, "wheel", "--no-deps", "--wheel-dir", folder, ROOT, cwd=folder)
        (wheel,) = folder.glob("*.whl")
        for extra, use in USES.items():
            home = folder / f"with{extra}"
            run(sys.executable, "-m", "venv", home, cwd=folder)
            python = home / "bin/python"
            before = _megabytes(home)
            took, _ = run(
                python,
                "-m",
                "pip",
                "install",
                "--quiet",
                "--no-cache-dir",
                f"{wheel}{extra}",
                cwd=folder,
            )
            _, listed = run(python, "-m", "pip", "list", "--format", "json", cwd=folder)
            packages = [
                each["name"]
                for each in json.loads(listed)
                if each["name"] not in ("pip", "setuptools")
            ]
            used, _ = run("sh", "-c", f"PATH={home}/bin:$PATH {use}", cwd=folder)
            size = _megabytes(home) - before
            print(
                f"invsvc-async{extra}  {len(packages)}  {size:.0f}  {took:.1f}  {use}  {used:.1f}",
                flush=True,
            )


def _megabytes(folder: Path) -> float:
    return (
        sum(each.stat().st_size for each in folder.rglob("*") if each.is_file()) / 1e6
    )


if __name__ == "__main__":
    main()
