"""The programs in the docstrings of the modules for engines, which the pages show, too."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def program_of(module):
    """Return the first program in the docstring of a module of ``engines``."""
    text = (ROOT / f"invsvc_async/engines/{module}.py").read_text(encoding="utf-8")
    docstring = ast.get_docstring(ast.parse(text), clean=False)
    lines = docstring.partition("::\n\n")[2].splitlines()
    end = next(at for at, line in enumerate(lines) if re.match(r"\S", line))
    return "\n".join(line[4:] for line in lines[:end]).strip() + "\n"


def example_of(module):
    """Return the program of the example, without docstrings."""
    text = (ROOT / f"examples/{module}_table.py").read_text(encoding="utf-8")
    program = text.partition('"""\n\n')[2]
    return program.replace('    """Return the write of a row."""\n', "")


def output_of(module, folder):
    """Run the program as a file of its own, and return what it prints."""
    (folder / "program.py").write_text(program_of(module), encoding="utf-8")
    command = [sys.executable, "program.py"]
    ran = subprocess.run(  # noqa: S603 - the project's own program
        command, cwd=folder, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    return ran.stdout
