"""`PieceWorker`: runs pieces in its process, one after the other."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final

from connectors.file.sink import NO_ROOM
from pipelines.errors import RAISED, StreamerError
from pipelines.executors.executor import Executor
from streamer.backfill.formats.inputformat import Block
from streamer.backfill.formats.registry import FORMATS
from streamer.backfill.locations import place_of
from streamer.backfill.piecereader import PieceReader
from streamer.backfill.pieces import Outcome, Piece
from streamer.backfill.results import ResultForm
from streamer.backfill.rowsfile import ENDINGS, Format, RowsFile, rows_file
from streamer.definition.service import Service

ERRORS: Final = "_errors"
"""The folder of errors below that of outputs."""


class PieceWorker:
    """A service's open pipeline, for pieces. Owned by one thread."""

    def __init__(self, service: Service, executor: Executor, form: ResultForm, format: Format, output: str) -> None:
        """It owns the `executor`. `output`: the folder of outputs, which are of this format."""
        self._executor = executor
        self._reader = PieceReader(service, executor)
        self._form = form
        self._format = format
        self._output = output
        self._place = place_of(output)

    def run(self, piece: Piece, stopped: Callable[[], bool]) -> Outcome | None:
        """As `streamer.backfill.engines.engine.Worker.run`."""
        began = time.perf_counter()
        try:
            counts = self._written(piece, stopped)
        except _StoppedError:
            return None
        except RAISED as error:  # Whatever reading and writing raises is the failure of this piece alone.
            return Outcome(piece, failure=_text(error), seconds=time.perf_counter() - began)
        return Outcome(
            piece,
            counts.rows,
            counts.results,
            counts.errors,
            piece.output + ENDINGS[self._format],
            counts.error_output,
            counts.error,
            time.perf_counter() - began,
        )

    def close(self) -> None:
        """Release the models."""
        self._executor.close()

    def _written(self, piece: Piece, stopped: Callable[[], bool]) -> _Counts:
        counts = _Counts()
        with ExitStack() as files:
            results = self._opened(files, piece.output + ENDINGS[self._format], self._format, self._form.schema)
            errors: RowsFile | None = None
            for block in self._reader.blocks(piece):
                if stopped():
                    raise _StoppedError
                failed = self._run(block, results, counts)
                if not failed:
                    continue
                lost = block.failures(failed)
                if errors is None:
                    kind = FORMATS[piece.format].errors
                    counts.error = str(failed[min(failed)])
                    counts.error_output = f"{ERRORS}/{piece.output}{ENDINGS[kind]}"
                    errors = self._opened(files, counts.error_output, kind, getattr(lost, "schema", None))
                errors.add(lost)
            results.finish()
            if errors is not None:
                errors.finish()
        return counts

    def _run(self, block: Block, results: RowsFile, counts: _Counts) -> Mapping[int, Exception]:
        made, failed = self._reader.run(block)
        rows, count = self._form.rows(made, failed)
        if count:
            results.add(rows)
        counts.rows += block.rows
        counts.results += count
        counts.errors += len(failed)
        return failed

    def _opened(self, files: ExitStack, name: str, format: Format, schema: Any | None) -> RowsFile:
        file = files.enter_context(self._place.create(self._place.child(self._output, name)))
        rows = rows_file(format, file, schema)
        files.callback(rows.leave)
        return rows


@dataclass(slots=True)
class _Counts:
    rows: int = 0
    results: int = 0
    errors: int = 0
    error_output: str | None = None
    error: str | None = None


class _StoppedError(Exception):
    """The piece is broken off."""


def _text(error: BaseException) -> str:
    if isinstance(error, StreamerError):
        return str(error)
    if isinstance(error, OSError) and error.errno in NO_ROOM:
        return f"its output cannot be written: {error.strerror}; make room, and run the same command again"
    return f"{type(error).__name__}: {error}"
