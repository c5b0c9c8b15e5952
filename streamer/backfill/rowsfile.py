"""Files of rows that are written part by part: Parquet, Arrow, and lines."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import suppress
from io import BytesIO
from types import MappingProxyType
from typing import Any, BinaryIO, Final, Literal

from pipelines.arrow.library import pa
from pipelines.errors import StreamerError

Format = Literal["parquet", "arrow", "jsonl"]
"""The formats of outputs."""
ENDINGS: Final = MappingProxyType({"parquet": ".parquet", "arrow": ".arrow", "jsonl": ".jsonl"})
"""The end of the name of a file of each format."""
_MOST_ROWS: Final = 1 << 17
_MOST_BYTES: Final = 32 << 20
"""What is written at once, as a row group or record batch: small ones are slow to read."""


class RowsFile(ABC):
    """A file that is being written. Nothing is in it before `finish`, as far as a reader can rely on it."""

    @abstractmethod
    def add(self, rows: Any) -> None:
        """Append a `pyarrow.RecordBatch`, or the bytes of lines."""

    def finish(self) -> None:
        """Write what is held back, and the end of the file, which stays open."""

    def leave(self) -> None:
        """Called before the file is closed, finished or not: nothing more is written to it later."""


class Lines(RowsFile):
    """Lines, each with its line feed."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def add(self, rows: bytes) -> None:
        self._file.write(rows)


class Table(RowsFile):
    """Record batches of one schema, of which many are written together."""

    def __init__(self, writer: Any) -> None:
        """`writer`: of pyarrow, for Parquet or for Arrow's own files."""
        self._writer = writer
        self._held: list[Any] = []
        self._rows = self._bytes = 0

    def add(self, rows: Any) -> None:
        self._held.append(rows)
        self._rows += rows.num_rows
        self._bytes += rows.nbytes
        if self._rows >= _MOST_ROWS or self._bytes >= _MOST_BYTES:
            self._write()

    def finish(self) -> None:
        if self._held:
            self._write()
        self._writer.close()

    def leave(self) -> None:
        # Writers of pyarrow end their file when they are collected.
        with suppress(Exception):
            self._writer.close()

    def _write(self) -> None:
        held, self._held, self._rows, self._bytes = self._held, [], 0, 0
        self._writer.write_table(pa.Table.from_batches(held).combine_chunks())


def rows_file(format: Format, file: BinaryIO, schema: Any | None) -> RowsFile:
    """A file of this format; `schema` is the `pyarrow.Schema` of the rows of tables.

    Raises `pyarrow.ArrowException` for a type that the format does not have.
    """
    if format == "jsonl":
        return Lines(file)
    if format == "arrow":
        return Table(pa.ipc.new_file(file, schema))
    from pyarrow.parquet import ParquetWriter

    return Table(ParquetWriter(file, schema, compression="zstd"))


def check_schema(format: Format, schema: Any) -> None:
    """Raise `StreamerError` that names the column, if files of this format cannot have one of these."""
    for field in schema:
        try:
            rows_file(format, BytesIO(), pa.schema([field])).finish()
        except pa.ArrowException as error:
            raise StreamerError(
                f'"{field.name}" is of the type {field.type}, which {format} files do not have ({error}); '
                "choose another --format"
            ) from error
