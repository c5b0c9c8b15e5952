"""`protodata`: payloads are ProtoData messages, the protobuf form of a `Data` (protos/data.proto, docs/data.md)."""

from __future__ import annotations

from typing import ClassVar, Literal

from connectors.codec import Codec, Decoded, Encoded, RecordsOrigin
from connectors.codecs.config import MessageConfig
from connectors.codecs.images.writtenimages import WritesImages
from connectors.codecs.rows import reserved_keys
from connectors.records import Records
from pipelines.data.batch import Batch
from pipelines.data.data import is_reserved
from pipelines.data.rowrange import row_range
from pipelines.hotpath import HotPathReport, choose
from pipelines.wire.columns import columns_reader, columns_writer


class ProtoDataConfig(WritesImages, MessageConfig):
    """Protobuf messages with any keys and values; arrays little-endian. The fastest codec, and the default."""

    built_by: ClassVar[str] = "connectors.codecs.protodata:ProtoData"

    type: Literal["protodata"] = "protodata"
    """The type of codec."""
    float_lists: Literal["exact", "double"] = "exact"
    """Konduit Serving labels all arrays in a list FLOAT. `double` reads those of eight bytes an element as DOUBLE; `exact` refuses them."""  # noqa: E501


class ProtoData(Codec):
    """Keys that no step uses stay undecoded, and are written again byte for byte."""

    opens_images: ClassVar[bool] = False

    def __init__(self, config: ProtoDataConfig | None = None) -> None:
        """Raises `HotPathError` if the compiled form is insisted on and was not built."""
        config = config or ProtoDataConfig()
        self._config = config
        self.opens_images = config.images != "keep"  # type: ignore[misc]
        self._hot_path = choose().report
        self._read = columns_reader(config.limits, float_lists=config.float_lists)
        self._write = columns_writer()

    @property
    def hot_path(self) -> HotPathReport:
        """Compiled where that was built and is wanted."""
        return self._hot_path

    def decode(self, records: Records, wanted: frozenset[str] | None, first: int = 0) -> Decoded:
        """Columns of these records; an error in a key that is not `wanted` shows when the key is decoded."""
        read = self._read(records.values, wanted or frozenset())
        count = len(read.rows)
        # Rows are in the order of their records.
        rows = row_range(first, count) if count == len(records) else read.rows + first
        origin = RecordsOrigin(records, first)
        batch = Batch(read.columns, count, rows=rows, metadata=read.metadata, origin=origin)
        return Decoded(batch, {first + row: error for row, error in read.failed.items()})

    def encode(self, batch: Batch) -> Encoded:
        """One message for each row, with its metadata."""
        refused = reserved_keys(batch)
        if refused:
            batch = batch.without(filter(is_reserved, batch.keys()))
        batch, unwritten = self._config.with_images(batch)
        written = self._write(batch)
        unwritten |= refused
        if not unwritten:
            return Encoded(*written)
        messages = [None if row in unwritten else message for row, message in enumerate(written.messages)]
        return Encoded(messages, {**written.failed, **unwritten})
