"""Files that commands read and write: checks before anything is done."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from invsvc_async.cli.options import misuse
from invsvc_async.cli.signals import interruptible

if TYPE_CHECKING:
    from collections.abc import Mapping

_SQLITE = b"SQLite format 3\0"


def existing_file(file: Path | None) -> Path | None:
    """Check that an input file exists; ``-`` is standard input."""
    if file is None or str(file) == "-":
        return file
    if file.is_dir():
        raise misuse(f"file {str(file)!r} is a directory")
    if not file.exists():
        raise misuse(f"file {str(file)!r} does not exist")
    return file


def check_outputs(
    outputs: Mapping[str, Path | None], **inputs: Path | str | None
) -> None:
    """
    Check, before anything is done, that no output would replace, or be mixed with, another file in use.

    *outputs* are the files of options, and *inputs* what else the command uses. No output may be a database.
    """
    used = dict[Path, str]()
    for each, used_file in inputs.items():
        place = _place_of(used_file)
        if place is not None:
            used[place] = f"the {each}"
    for name, file in outputs.items():
        place = _place_of(file)
        if place is None:
            continue
        if place in used:
            raise misuse(f"{file} is {used[place]}. Use another file.", name)
        # reported when it is written; it may not exist
        with suppress(OSError), place.open("rb") as opened:
            if opened.read(len(_SQLITE)) == _SQLITE:
                raise misuse(
                    f"{file} is a database, such as a journal. Use another file.", name
                )
        used[place] = f"the file of {name}"


def _place_of(file: Path | str | None) -> Path | None:
    """Return where a file is or will be; ``None`` for standard input, devices and addresses."""
    if file is None:
        return None
    if str(file) == "-" or "://" in str(file):
        return None
    try:
        place = Path(file).resolve()
        is_device = place.exists() and not place.is_file()
    except OSError:  # reported when the file is opened
        return None
    if is_device:
        return None
    return place


def content_of(file: Path) -> bytes:
    """Return the content of an input file; ``-`` is standard input."""
    with interruptible():
        if str(file) == "-":
            return sys.stdin.buffer.read()
        return file.read_bytes()


def text_of_secret(file: Path) -> str:
    """Return the content of a file with a secret, which no error shows."""
    try:
        return content_of(file).decode()
    except UnicodeDecodeError:  # its message would show the secret
        raise misuse(f"{file}: is not text in UTF-8") from None
