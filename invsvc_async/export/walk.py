"""
Walk a list and write it, noting after each page how far it got; never read a page twice without need.
"""

from __future__ import annotations

import asyncio
import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import attrs

from invsvc_async._errors import ConfigurationError
from invsvc_async.export.files import ExportError, Form, Sink, TextSink
from invsvc_async.models import Invoice

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from invsvc_async.reads.pages import Pages

__all__ = ["Exported", "invoices"]

T = TypeVar("T")

_FORMS: tuple[Form, ...] = ("jsonl", "csv", "parquet")


@attrs.frozen(kw_only=True)
class Exported:
    """What was written: all rows of the file, those of a run before this one among them."""

    path: Path
    rows: int
    resumed: bool


@attrs.frozen(kw_only=True)
class _Note:
    """How far an export got, as kept beside its file: behind the page of *token* stands what comes next."""

    token: str
    mark: int
    rows: int
    shape: dict[str, Any]  # Any: JSON: form and scale, which cannot change halfway


async def invoices(
    pages: Pages[Invoice],
    target: str | Path,
    format: Form | None = None,  # noqa: A002 - the public word
    *,
    resume: bool = False,
    overwrite: bool = False,
    precision: int = 38,
    scale: int = 12,
    on_page: Callable[[int], None] | None = None,
) -> Exported:
    """
    Write every invoice of *pages* to *target*, holding a page (of Parquet, a part of 10,000 rows) in memory.

    *format* is that of the target's ending unless given.  ``jsonl`` has the service's own form and digits;
    ``csv`` a column for each field, nested ones as JSON; ``parquet`` typed columns, decimals as
    ``decimal128(precision, scale)``.  When it stops for whatever reason, ``TARGET.resume`` says how far it
    got: the same call with ``resume=True`` goes on from there, and *overwrite* begins anew.  *on_page* is
    told the rows written so far.

    Raises:
        ConfigurationError: The format is unknown or its extra not installed; the target is there, or an
            unfinished export of it, and neither *resume* nor *overwrite* was said.
        ExportError: A number does not fit its column: it is named, never rounded; or the files that
            an export had left were changed.
        PagingError, ServiceError, TransportError, DeadlineExceededError: As when walking.

    Spec: Resources, Response envelopes.

    """
    path = Path(target)
    form = _form_of(path, format)
    shape = {"form": form, "precision": precision, "scale": scale}
    export = _Export(path, shape, _sink(path, form, precision, scale), on_page)
    note = await _on_thread(partial(export.begin, resume=resume, overwrite=overwrite))
    return await export.run(pages, note)


@attrs.define
class _Export:
    path: Path
    shape: dict[str, Any]
    sink: Sink
    on_page: Callable[[int], None] | None
    rows: int = 0
    behind: str | None = None  # the place behind the last page taken
    noted: bool = True  # whether that is in the note

    @property
    def beside(self) -> Path:
        """Where the note is kept."""
        return self.path.with_name(self.path.name + ".resume")

    def begin(self, *, resume: bool, overwrite: bool) -> _Note | None:
        """Decide from where to go on."""
        note = _read_note(self.beside) if resume else None
        if note is None and not overwrite:
            for there, why in (
                (self.beside, "is an unfinished export: resume it, or overwrite it"),
                (self.path, "is there already: give another path, or overwrite it"),
            ):
                if there.exists():
                    raise ConfigurationError(f"{self.path} {why}")
        if note is not None and note.shape != self.shape:
            raise ConfigurationError(
                f"{self.beside} belongs to an export of {note.shape}: go on with the same"
            )
        self.sink.open(None if note is None else note.mark)
        if note is not None:
            self.rows = note.rows
        return note

    async def run(self, pages: Pages[Invoice], note: _Note | None) -> Exported:
        """Walk; whatever ends it, what was taken is written and noted."""
        walk = (pages if note is None else pages.resume(note.token)).by_page()
        whole = False
        try:
            async for page in walk:
                self.behind = pages.token_after(page)
                await _on_thread(partial(self._take, page.items, last=self.behind is None))
                if self.on_page is not None:
                    self.on_page(self.rows)
            whole = True
        finally:
            await walk.aclose()
            await _on_thread(partial(self._end, whole=whole))
        return Exported(path=self.path, rows=self.rows, resumed=note is not None)

    def _take(self, items: Sequence[Invoice], *, last: bool) -> None:
        mark = self.sink.write(items, last=last)
        self.rows += len(items)
        self.noted = mark is not None
        if mark is not None and self.behind is not None:
            note = _Note(token=self.behind, mark=mark, rows=self.rows, shape=self.shape)
            unfinished = self.beside.with_name(self.beside.name + ".new")
            unfinished.write_text(json.dumps(attrs.asdict(note)), encoding="utf-8")
            unfinished.replace(self.beside)

    def _end(self, *, whole: bool) -> None:
        if not whole and not self.noted and self.behind is not None:
            self._take((), last=True)  # what was held back for a larger part
        self.sink.close(whole=whole)
        if whole:
            self.beside.unlink(missing_ok=True)


async def _on_thread(work: Callable[[], T]) -> T:
    """Wait for *work* to end even when cancelled: the file may not be touched from two threads."""
    working = asyncio.create_task(asyncio.to_thread(work))
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        await asyncio.wait((working,))
        raise


def _form_of(path: Path, given: str | None) -> Form:
    form = given or path.suffix.removeprefix(".")
    for known in _FORMS:
        if form == known:
            return known
    raise ConfigurationError(f"{form or 'no ending'!r} is none of {', '.join(_FORMS)}: give format=")


def _sink(path: Path, form: Form, precision: int, scale: int) -> Sink:
    if form != "parquet":
        return TextSink(path, form, Invoice)
    if not 0 <= scale <= precision <= 38:
        raise ConfigurationError(f"decimal128({precision}, {scale}): 0 <= scale <= precision <= 38 must hold")
    try:
        from invsvc_async.export.arrow_schema import Columns
        from invsvc_async.export.parquet import ParquetSink
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "pyarrow":
            raise
        raise ConfigurationError(
            "Parquet needs pyarrow, of the extra `parquet`: pip install 'invsvc-async[parquet]'"
        ) from None
    return ParquetSink(path, Columns(Invoice, precision, scale))


def _read_note(path: Path) -> _Note | None:
    if not path.exists():
        return None
    try:
        return _Note(**json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError, OSError) as error:
        raise ExportError(f"{path} cannot be read ({error}): begin anew") from None
