"""`konduit-json`: payloads are JSON objects in Konduit Serving's form of a `Data` (docs/data.md)."""

from __future__ import annotations

from typing import ClassVar, Literal

from connectors.codec import Codec, Decoded, Encoded
from connectors.codecs.config import MessageConfig
from connectors.codecs.images.writtenimages import WritesImages
from connectors.codecs.rows import decode_rows, encode_rows, payload_bytes
from connectors.records import Records
from pipelines.data.batch import Batch
from pipelines.wire.json import dumps, loads


class KonduitJsonConfig(WritesImages, MessageConfig):
    """JSON objects in Konduit Serving's form: arrays, images and boxes as objects with keys like `@NDArrayType`."""

    built_by: ClassVar[str] = "connectors.codecs.konduitjson:KonduitJson"

    type: Literal["konduit-json"] = "konduit-json"
    """The type of codec."""
    byte_order: Literal["big", "little"] = "big"
    """Order of the bytes in the base64 of an array. Later releases of Konduit Serving write `little`."""
    nulls: Literal["error", "drop"] = "error"
    """What to do with a key whose value is null: refuse the record, or leave the key out."""
    pretty: bool = False
    """Write indented text over several lines, for people."""


class KonduitJson(Codec):
    """One JSON object, UTF-8, for each row."""

    def __init__(self, config: KonduitJsonConfig | None = None) -> None:
        self._config = config or KonduitJsonConfig()
        self._limits = self._config.limits
        self.opens_images = self._config.images != "keep"  # type: ignore[misc]

    def decode(self, records: Records, wanted: frozenset[str] | None, first: int = 0) -> Decoded:
        """Columns of all keys, decoded."""
        order, nulls = self._config.byte_order, self._config.nulls
        return decode_rows(
            records,
            first,
            lambda payload: loads(payload_bytes(payload, "konduit-json"), order, self._limits, nulls=nulls),
        )

    def encode(self, batch: Batch) -> Encoded:
        """One object for each row, with its metadata."""
        order, pretty = self._config.byte_order, self._config.pretty
        batch, unwritten = self._config.with_images(batch)
        encoded = encode_rows(batch, lambda data: dumps(data, order, pretty=pretty).encode())
        if not unwritten:
            return encoded
        values = [None if row in unwritten else value for row, value in enumerate(encoded.values)]
        return Encoded(values, {**encoded.failed, **unwritten})
