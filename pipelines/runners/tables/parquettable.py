"""Tables in Parquet files, read by Polars."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

from pipelines.errors import StreamerError
from pipelines.expressions.engine import polars
from pipelines.runners.tables.tablefile import RawTable, TableFile


class ParquetTable(TableFile):
    """A Parquet file; null is no value."""

    def read(self, columns: Sequence[str]) -> RawTable:
        library = polars("a table in Parquet")
        content = self.content()
        try:
            frame = library.scan_parquet(io.BytesIO(content))
            self.checked_columns(columns, frame.collect_schema().names())
            # Of the file's metadata: no column is read for it.
            self.check_rows(int(frame.select(library.len()).collect().item()))
            read = frame.select(columns).collect()
            return self._values(read, library)
        except (library.exceptions.PolarsError, library.exceptions.PanicException) as error:
            reason = str(error).strip().partition("\n")[0]
            raise StreamerError(f"{self.label} cannot be read: {reason}") from error

    def _values(self, read: Any, library: Any) -> RawTable:
        values: dict[str, Sequence[Any]] = {}
        size = 0
        for name in read.columns:
            column = read.get_column(name)
            if column.dtype in (library.Categorical, library.Enum):
                column = column.cast(library.String)
            elif column.dtype == library.Decimal:
                column = column.cast(library.Float64)
            # A text that many rows share is small in the file only.
            size += (column.str.len_bytes().sum() or 0) if column.dtype == library.String else 8 * len(column)
            self.check_bytes(size)
            if not (column.dtype.is_numeric() or column.dtype in (library.String, library.Boolean, library.Null)):
                raise StreamerError(
                    f'{self.label}: the column "{name}" has values of {column.dtype}; texts, numbers and booleans can '
                    "be looked up"
                )
            values[name] = column.to_list()
        return RawTable(values, read.height)
