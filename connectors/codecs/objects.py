"""`objects`: records stay as they are, for connectors that carry objects inside the process."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from connectors.codec import Codec, Decoded, Encoded
from connectors.codecs.config import CodecConfig
from connectors.codecs.rows import decode_rows
from connectors.records import Records
from pipelines.data.batch import Batch
from pipelines.data.data import Data
from pipelines.errors import WireError


class ObjectsConfig(CodecConfig):
    """Records as `Data`, neither encoded nor copied: for sinks that show or encode images themselves."""

    built_by: ClassVar[str] = "connectors.codecs.objects:Objects"

    carries: ClassVar[Literal["bytes", "objects"]] = "objects"

    type: Literal["objects"] = "objects"
    """The type of codec."""


class Objects(Codec):
    """A payload is a `Data`, with the context of its record (`Data.record`) on the way out."""

    opens_images: ClassVar[bool] = False

    def __init__(self, config: ObjectsConfig | None = None) -> None:
        """Takes no configuration."""

    def decode(self, records: Records, wanted: frozenset[str] | None, first: int = 0) -> Decoded:
        """The records; a payload that is not a `Data` fails."""
        return decode_rows(records, first, _data)

    def encode(self, batch: Batch) -> Encoded:
        """A `Data` of each row, which refers to the row's values."""
        failed: dict[int, Exception] = {}
        values: list[Any] = list(batch.to_list(batch.row_values(failed), lent=False))
        for row in failed:
            values[row] = None
        return Encoded(values, failed)


def _data(payload: object) -> Data:
    if isinstance(payload, Data):
        return payload
    raise WireError(
        f"the objects codec reads records (Data), but the payload is of type {type(payload).__name__}; "
        "choose the codec that fits the source"
    )
