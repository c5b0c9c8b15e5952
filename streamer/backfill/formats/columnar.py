"""Parquet and Arrow files: columns as they are, without a codec."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any, BinaryIO, ClassVar, Final

import numpy as np

from pipelines.arrow.entries import selected
from pipelines.arrow.library import pa
from pipelines.arrow.reading import BatchReader
from pipelines.errors import StreamerError
from streamer.backfill.formats.inputformat import ERROR, Block, Feed, InputFormat, Planned, parts_at, parts_of
from streamer.backfill.pieces import Piece
from streamer.backfill.places import Place, StoredFile

_READ: Final = 16_384
"""Rows that are read at once: blocks are parts of these, without a copy."""
_BYTES_OF_PART: Final = 16 << 20
"""Bytes of a file of record batches that make a piece: it does not say how many rows they have."""


class ColumnarBlock(Block):
    """The rows of a `pyarrow.RecordBatch`."""

    def __init__(self, records: Any, reader: BatchReader, first: int) -> None:
        self.batch = reader.read(records, first)
        self.failed: Mapping[int, Exception] = {}
        self.rows = records.num_rows
        self._records = records
        self._first = first

    def failures(self, failed: Mapping[int, Exception]) -> Any:
        """A `pyarrow.RecordBatch` of the records' columns and `_error`."""
        numbers = sorted(failed)
        places = np.array(numbers, np.int64) - self._first
        columns = [selected(column, places) for column in self._records.columns]
        texts = pa.array([str(failed[number]) for number in numbers], pa.string())
        return pa.RecordBatch.from_arrays(
            [*columns, texts], schema=self._records.schema.append(pa.field(ERROR, pa.string()))
        )


class Columnar(InputFormat):
    """Files of columns."""

    def blocks(self, piece: Piece, feed: Feed) -> Generator[ColumnarBlock, None, None]:
        first = 0
        reader: BatchReader | None = None
        with feed.place.open(piece.files[0].path) as file:
            for whole in self._batches(file, piece, feed):
                records = without_errors(whole)
                if reader is None or not records.schema.equals(reader.schema, check_metadata=True):
                    reader = BatchReader(records.schema)
                step = _rows_at_once(records, feed)
                for start in range(0, records.num_rows, step):
                    part = records.slice(start, step)
                    yield ColumnarBlock(part, reader, first)
                    first += part.num_rows

    @abstractmethod
    def _batches(self, file: BinaryIO, piece: Piece, feed: Feed) -> Iterator[Any]:
        """The `pyarrow.RecordBatch`es of a piece."""


class Parquet(Columnar):
    """Parquet, a piece of it runs of row groups."""

    name: ClassVar[str] = "parquet"
    suffixes: ClassVar[tuple[str, ...]] = (".parquet", ".parq", ".pq")

    def planned(self, place: Place, files: Sequence[StoredFile]) -> Planned:
        from pyarrow.parquet import ParquetFile

        (file,) = files
        with place.open(file.path) as content, ParquetFile(content) as parquet:
            groups = [parquet.metadata.row_group(place).num_rows for place in range(parquet.metadata.num_row_groups)]
            return Planned(parts_of(file, self.name, self.stem(file), groups), _without_error(parquet.schema_arrow))

    def _batches(self, file: BinaryIO, piece: Piece, feed: Feed) -> Iterator[Any]:
        from pyarrow.parquet import ParquetFile

        with ParquetFile(file) as parquet:
            about = parquet.metadata
            groups = range(*(piece.part or (0, about.num_row_groups)))
            size = sum(about.row_group(place).total_byte_size for place in groups)
            rows = sum(about.row_group(place).num_rows for place in groups)
            most = max(1, feed.max_bytes * rows // size) if size else _READ
            yield from parquet.iter_batches(min(_READ, most), list(groups), use_threads=False)


class Arrow(Columnar):
    """Arrow's own format of files and of streams, also as Feather 2. A piece is a run of record batches."""

    name: ClassVar[str] = "arrow"
    suffixes: ClassVar[tuple[str, ...]] = (".arrow", ".arrows", ".feather", ".ipc")

    def planned(self, place: Place, files: Sequence[StoredFile]) -> Planned:
        (file,) = files
        stem = self.stem(file)
        with place.open(file.path) as content:
            if _is_stream(content):
                with pa.ipc.open_stream(content) as stream:
                    return Planned([Piece(self.name, (file,), stem)], _without_error(stream.schema))
            with pa.ipc.open_file(content) as reader:
                count = reader.num_record_batches
                parts = max(1, min(count, file.size // _BYTES_OF_PART))
                edges = [count * place // parts for place in range(parts + 1)]
                return Planned(parts_at(file, self.name, stem, edges), _without_error(reader.schema))

    def _batches(self, file: BinaryIO, piece: Piece, feed: Feed) -> Iterator[Any]:
        if _is_stream(file):
            with pa.ipc.open_stream(file) as stream:
                yield from map(_checked, stream)
            return
        with pa.ipc.open_file(file) as reader:
            for place in range(*(piece.part or (0, reader.num_record_batches))):
                yield _checked(reader.get_batch(place))


def without_errors(records: Any) -> Any:
    """A record batch without the errors of an earlier run."""
    return records.drop_columns([ERROR]) if ERROR in records.schema.names else records


def _without_error(schema: Any) -> Any:
    return pa.schema([field for field in schema if field.name != ERROR], schema.metadata)


def _rows_at_once(records: Any, feed: Feed) -> int:
    size = records.nbytes
    return max(1, min(feed.rows, records.num_rows * feed.max_bytes // size)) if size > feed.max_bytes else feed.rows


def _is_stream(file: BinaryIO) -> bool:
    """Whether it is Arrow's format of streams; the file is at its beginning before and after."""
    begin = file.read(6)
    file.seek(0)
    if begin.startswith(b"FEA1"):
        raise StreamerError("it is of Feather's first version, which is no Arrow file: write it again with pyarrow")
    return not begin.startswith(b"ARROW1")


def _checked(records: Any) -> Any:
    # What Arrow's own files say of their buffers is taken as it stands, and might point anywhere.
    records.validate(full=True)
    return records
