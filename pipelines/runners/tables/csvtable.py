"""Tables in CSV (RFC 4180), in UTF-8, with a header row."""

from __future__ import annotations

import csv
import io
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pipelines.errors import StreamerError
from pipelines.runners.tables.tablefile import Limits, RawTable, TableFile


class CsvTable(TableFile):
    """A CSV file. An empty field is no value; empty lines are none at all."""

    def __init__(self, path: Path, limits: Limits, delimiter: str) -> None:
        super().__init__(path, limits)
        self._delimiter = delimiter

    def read(self, columns: Sequence[str]) -> RawTable:
        try:
            text = self.content().decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise StreamerError(f"{self.label} is no text in UTF-8 (byte {error.start}); save it in UTF-8") from None
        # The library's limit of 128 KiB a field is that of the whole process; that of the file is enough.
        csv.field_size_limit(max(csv.field_size_limit(), len(text)))
        # Without translation of line ends, so that those in a quoted field stay as they are.
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=self._delimiter, strict=True)
        try:
            return self._read(reader, columns)
        except csv.Error as error:
            reason = "a quotation mark is never closed" if "end of data" in str(error) else str(error)
            raise StreamerError(f"{self.label}, line {reader.line_num}: {reason}") from None

    def _read(self, reader: Any, columns: Sequence[str]) -> RawTable:
        header = next(filter(None, reader), None)
        if header is None:
            raise StreamerError(f"{self.label} is empty; its first line has to name the columns")
        self._check_delimiter(header, columns)
        self.checked_columns(columns, header)
        places = [header.index(name) for name in columns]
        fields: list[list[str | None]] = [[] for _ in columns]
        puts = [(values.append, place) for values, place in zip(fields, places, strict=True)]
        lines = array("q")
        for row in reader:
            if not row:
                continue
            if len(row) != len(header):
                raise StreamerError(
                    f"{self.label}, line {reader.line_num}: the row has {len(row)} fields, and the header {len(header)}"
                )
            for put, place in puts:
                put(row[place] or None)
            lines.append(reader.line_num)
            if len(lines) > self.limits.rows:
                self.check_rows(len(lines))
        return RawTable(dict(zip(columns, fields, strict=True)), len(lines), lines, typed=False)

    def _check_delimiter(self, header: Sequence[str], columns: Sequence[str]) -> None:
        """Raise `StreamerError` if the header has the columns, with another character between them."""
        if len(header) > 1 or not columns:
            return
        for other in (",", ";", "\t", "|"):
            if other != self._delimiter and set(columns) & set(header[0].split(other)) and other in header[0]:
                raise StreamerError(f"{self.label} has {other!r} between its fields; write delimiter: {other!r}")
