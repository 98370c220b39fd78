"""Export of a list, recording the progress after each page."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast, get_args

import attrs
import msgspec

from invsvc_async.codec.nesting import check_depth
from invsvc_async.concurrency.cancellation import until_ended
from invsvc_async.concurrency.plain_function import is_plain_function
from invsvc_async.errors import ConfigurationError
from invsvc_async.export.files import ExportError, Form, TextSink, beside
from invsvc_async.models import Invoice
from invsvc_async.storage.file_lock import WhileOpen
from invsvc_async.storage.private_file import errors_naming, write_private

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from invsvc_async.codec.exact_json import WireObject
    from invsvc_async.export.parquet import ParquetSink
    from invsvc_async.reads.pages import Pages

T = TypeVar("T")


@attrs.frozen(kw_only=True)
class Exported:
    """Result of an export; ``rows`` includes those of earlier, interrupted runs."""

    path: Path
    rows: int
    resumed: bool


@attrs.frozen(kw_only=True)
class _Note:
    """Progress of an export, stored beside its file; it continues after the page of *token*, if any."""

    token: str
    mark: Annotated[int, msgspec.Meta(ge=0)]
    rows: int
    shape: dict[str, Any]  # looked up at run time


async def invoices(
    pages: Pages[Invoice],
    target: str | Path,
    format: Form | None = None,  # noqa: A002 - public name
    *,
    resume: bool = False,
    overwrite: bool = False,
    precision: int = 38,
    scale: int = 12,
    escape_formulas: bool = False,
    on_page: Callable[[int], None] | None = None,
) -> Exported:
    """
    Write every invoice of *pages* to *target*, with one page in memory (Parquet: a part of 10,000 rows).

    *format* defaults to the extension of *target*.  ``jsonl`` has the service's own form and digits;
    ``csv`` a column for each field, nested ones as JSON; ``parquet`` typed columns, decimals as
    ``decimal128(precision, scale)``.  With *escape_formulas*, text in CSV that a spreadsheet would run as a
    formula begins with ``'``; numbers stay numbers.  If the export stops for any reason, ``TARGET.resume``
    has the progress: the same call with ``resume=True`` continues, and ``overwrite=True`` starts over.
    *on_page* is called with the number of rows so far.

    Raises:
        ConfigurationError: The format is unknown or its extra is not installed; or the target or an
            unfinished export of it exists, and neither *resume* nor *overwrite* is set; or another export
            is writing it; or *on_page* is async.
        ExportError: A number does not fit its column (it is never rounded), or the files of an interrupted
            export were changed.
        OSError: The target, or a file beside it, cannot be written.
        PagingError, ServiceError, TransportError, DeadlineExceededError: As when reading the list.

    Spec: Resources, Response envelopes.
    """
    if on_page is not None and not is_plain_function(on_page):
        raise ConfigurationError("on_page: must be a function that is not async.")
    path = Path(target)
    form = format_of(path, format)
    sink = _sink(path, form, precision, scale, escape_formulas=escape_formulas)
    shape: WireObject = {"form": form, "precision": precision, "scale": scale}
    if escape_formulas:
        shape["escape_formulas"] = True
    note_path = beside(path, ".resume")
    lock = WhileOpen(beside(path, ".resume.lock"))
    export = _Export(path, shape, sink, on_page, note_path, lock)
    try:
        try:
            note = await _on_thread(
                partial(export.begin, resume=resume, overwrite=overwrite)
            )
        except OSError as error:  # perhaps of a file beside it
            raise OSError(error.errno, error.strerror, str(path)) from None
        return await export.run(pages, note)
    finally:
        sink.close(whole=False)  # after an error before the first page
        export.lock.release()


@attrs.define
class _Export:
    path: Path
    shape: dict[str, Any]
    sink: TextSink | ParquetSink
    on_page: Callable[[int], None] | None
    note_path: Path
    lock: WhileOpen
    rows: int = 0
    token: str | None = None  # resume token after the last page
    noted: bool = True  # whether the note has it

    def begin(self, *, resume: bool, overwrite: bool) -> _Note | None:
        """Open the file; return the note to continue from, if any."""
        if not self.lock.acquire():
            raise ConfigurationError(
                f"{self.path}: another export is writing it. Wait for its end."
            )
        note = _read_note(self.note_path) if resume else None
        if note is not None:
            self._check_shape(note)
        elif not overwrite:
            self._check_new()
        if note is None or not note.token:
            # before there is a file, which is then never taken for a finished one
            self._write_note("", 0)
            self.sink.open(None)
            return None
        self.sink.open(note.mark)
        self.rows = note.rows
        return note

    def _check_shape(self, note: _Note) -> None:
        """Raise an error if the export of *note* has other settings."""
        if note.shape == self.shape:
            return
        wrong = f"belongs to an export with {note.shape}. Use the same settings"
        raise ConfigurationError(f"{self.note_path}: {wrong}")

    def _check_new(self) -> None:
        """Raise an error if the export, or the file, exists."""
        if self.note_path.exists():
            words = "is an unfinished export. Use resume=True (--resume)"
        elif self.path.exists():
            words = "already exists. Use another path,"
        else:
            return
        raise ConfigurationError(
            f"{self.path}: {words} or overwrite=True (--overwrite)"
        )

    async def run(self, pages: Pages[Invoice], note: _Note | None) -> Exported:
        """Export the list; whatever ends it, the pages read are written and recorded."""
        # whose tokens have its arguments
        pages = pages if note is None else pages.resume(note.token)
        walk = pages.by_page()
        whole = False
        try:
            async for page in walk:
                self.token = pages.token_after(page)
                with errors_naming(self.path):
                    await _on_thread(
                        partial(self._take, page.items, last=self.token is None)
                    )
                if self.on_page is not None:
                    self.on_page(self.rows)
            whole = True
        finally:
            try:
                await walk.aclose()
            finally:
                with errors_naming(self.path):
                    await _on_thread(partial(self._end, whole=whole))
        return Exported(
            path=self.path,
            rows=self.rows,
            resumed=note is not None,
        )

    def _take(self, items: Sequence[Invoice], *, last: bool) -> None:
        mark = self.sink.write(items, last=last)
        self.rows += len(items)
        self.noted = mark is not None
        if mark is not None and self.token is not None:
            self._write_note(self.token, mark)

    def _write_note(self, token: str, mark: int) -> None:
        note = _Note(
            token=token,
            mark=mark,
            rows=self.rows,
            shape=self.shape,
        )
        unfinished = beside(self.note_path, ".new")
        write_private(unfinished, json.dumps(attrs.asdict(note)))
        unfinished.replace(self.note_path)

    def _end(self, *, whole: bool) -> None:
        if not self.noted and self.token is not None:
            self._take((), last=True)  # rows held back for a larger part
        self.sink.close(whole=whole)
        if whole:
            self.note_path.unlink(missing_ok=True)
            if self.shape["form"] == "parquet":
                rmtree(beside(self.path, ".parts"))


async def _on_thread(work: Callable[[], T]) -> T:
    """Run *work* in a thread and wait, however often it is cancelled: two threads must not use the file."""
    working = asyncio.create_task(asyncio.to_thread(work))
    try:
        await until_ended((working,), lambda: None)  # anyio cancels again and again
    except asyncio.CancelledError:
        working.exception()  # retrieved, so that asyncio does not log it
        raise
    return working.result()


def format_of(path: Path, given: str | None) -> Form:
    """Return the format *given*, or that of the extension of *path*."""
    form = given or path.suffix.removeprefix(".")
    if form not in (known := get_args(Form)):
        raise ConfigurationError(
            f"format: {form!r} is unknown. Use one of {', '.join(known)}"
        )
    return cast("Form", form)


def _sink(
    path: Path,
    form: Form,
    precision: int,
    scale: int,
    *,
    escape_formulas: bool,
) -> TextSink | ParquetSink:
    if escape_formulas and form != "csv":
        raise ConfigurationError(
            f"escape_formulas: {form} has no formulas. Use it with csv only."
        )
    if form != "parquet":
        return TextSink(path, form, escape_formulas)
    if not 0 <= scale <= precision <= 38:
        wrong = f"decimal128({precision}, {scale}): invalid"
        raise ConfigurationError(f"{wrong}. Use 0 <= scale <= precision <= 38")
    from invsvc_async.export.parquet import Columns, ParquetSink

    return ParquetSink(path, Columns(Invoice, precision, scale))


def is_finished(path: Path) -> bool:
    """Return whether *path* exists, and is not an unfinished export."""
    return path.exists() and not beside(path, ".resume").exists()


def _read_note(path: Path) -> _Note | None:
    if not path.exists():
        return None
    try:
        content = path.read_bytes()
        check_depth(content)
        return msgspec.json.decode(content, type=_Note)
    except (ValueError, OSError) as error:
        raise ExportError(f"{path}: cannot be read ({error}). Start over") from None
