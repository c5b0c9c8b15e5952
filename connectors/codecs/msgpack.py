"""`msgpack`: payloads are MessagePack maps, the binary cousin of JSON (https://msgpack.org)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

from connectors.codec import Codec, Decoded, Encoded
from connectors.codecs.config import MessageConfig, PayloadFields
from connectors.codecs.fields.enveloped import Enveloped
from connectors.codecs.fields.statestypes import StatesTypes
from connectors.codecs.plainrows import checked_keys, decode_plain, decode_several, encode_plain
from connectors.codecs.rows import payload_bytes
from connectors.records import Records
from pipelines.data.batch import Batch
from pipelines.data.columns import MISSING
from pipelines.errors import MissingPackageError, WireError
from pipelines.plugins.requirements import Package, Requires
from pipelines.wire.jsonrecords import check_outer, no_array_at, no_record_at, nothing_at
from pipelines.wire.jsontext import Pointer
from pipelines.wire.plainvalues import PlainDecoder, PlainRules
from pipelines.wire.stated.types import Decoders

if TYPE_CHECKING:
    import msgpack

_TIMESTAMPS: Final = (b"\xd6\xff", b"\xd7\xff", b"\xc7\x0c\xff")
"""The first bytes of timestamps of 32, 64 and 96 bits."""


class MsgpackConfig(StatesTypes, Enveloped, MessageConfig):
    """MessagePack maps: numbers, texts, bytes, lists and maps; arrays are written as lists."""

    built_by: ClassVar[str] = "connectors.codecs.msgpack:Msgpack"

    requires: ClassVar[Requires] = Package("msgpack", "msgpack")

    type: Literal["msgpack"] = "msgpack"
    """The type of codec."""

    def read_fields(self, topic: str | None = None) -> PayloadFields | None:
        """Those whose types are stated, among any others."""
        return self.stated_fields


class Msgpack(Codec):
    """One map for each row. A timestamp is INT64, in milliseconds since 1970; nil is a key that is not there."""

    def __init__(self, config: MsgpackConfig | None = None) -> None:
        try:
            import msgpack
        except ImportError:
            raise MissingPackageError("msgpack", "msgpack", "the codec msgpack") from None
        self._msgpack = msgpack
        config = config or MsgpackConfig()
        limits, self._each = config.limits, config.each
        self._limits = limits
        self._at, self._outer = Pointer(config.at), config.outer_pointers
        self._decoders = Decoders(lambda stated: PlainDecoder(PlainRules(limits, stated=stated)), config.stated())

    def decode(self, records: Records, wanted: frozenset[str] | None, first: int = 0) -> Decoded:
        """Columns of all keys; values that no step reads are written unchanged."""
        if self._at.text or self._each:
            return decode_several(records, first, wanted, self._read_several, self._decoders)
        return decode_plain(records, first, wanted, self._read, self._decoders)

    def encode(self, batch: Batch) -> Encoded:
        """One map for each row, without metadata."""
        return encode_plain(batch, self._written)

    def _read(self, row: int, payload: Any) -> dict[str, Any]:
        record = self._unpacked(payload)
        if not isinstance(record, dict):
            several = "; each: true in the codec makes a row of every element" if isinstance(record, list) else ""
            raise WireError(f"a record is a map, but the payload is of type {type(record).__name__}{several}")
        return self._record(record, {})

    def _read_several(self, row: int, payload: Any) -> list[dict[str, Any]]:
        document = self._unpacked(payload)
        inner = self._at.inside(document, MISSING)
        if inner is MISSING:
            raise nothing_at(self._at, document)
        if inner is None and self._at.text:
            return []
        outer = {key: pointer.inside(document, None) for key, pointer in self._outer}
        at = self._at.text
        if not self._each:
            if not isinstance(inner, dict):
                raise no_record_at(at, inner)
            return [self._record(inner, outer)]
        if not isinstance(inner, list):
            raise no_array_at(at, inner)
        self._limits.check_elements(len(inner))
        check_outer(sum(len(self._msgpack.packb(value)) for value in outer.values()), len(inner), self._limits)
        for number, record in enumerate(inner):
            if not isinstance(record, dict):
                raise no_record_at(f"{at}/{number}", record)
        return [self._record(record, outer) for record in inner]

    def _unpacked(self, payload: Any) -> Any:
        raw = payload_bytes(payload, "msgpack")
        self._limits.check_bytes(len(raw))
        try:
            document = self._msgpack.unpackb(raw)
        except self._msgpack.StackError:
            raise WireError("the payload is nested too deeply") from None
        except self._msgpack.ExtraData as error:
            raise WireError(f"{len(error.extra)} bytes follow the map in the payload") from None
        except ValueError as error:
            # Maps with keys of other types may be made to collide: the library refuses them at any depth.
            reason = str(error).replace(" when strict_map_key=True", ", at any depth; write keys as texts")
            raise WireError(
                f"the payload is not valid MessagePack: {reason or 'it has a byte that means nothing'}"
            ) from None
        return self._without_timestamps(document) if any(begin in raw for begin in _TIMESTAMPS) else document

    def _record(self, record: dict[str, Any], outer: dict[str, Any]) -> dict[str, Any]:
        checked_keys(record, self._limits)
        if not outer:
            return record
        # A value that is missing hides the record's as well.
        return {**{key: value for key, value in record.items() if key not in outer}, **outer}

    def _without_timestamps(self, value: Any) -> Any:
        if isinstance(value, self._msgpack.Timestamp):
            return _milliseconds(value)
        if isinstance(value, dict):
            return {key: self._without_timestamps(item) for key, item in value.items()}
        return [self._without_timestamps(item) for item in value] if isinstance(value, list) else value

    def _written(self, row: dict[str, Any]) -> bytes:
        try:
            packed: bytes = self._msgpack.packb(row)
        except (ValueError, TypeError, OverflowError) as error:
            raise WireError(f"the values cannot be written as MessagePack: {error}") from None
        return packed


def _milliseconds(moment: msgpack.Timestamp) -> int:
    return int(moment.seconds) * 1000 + int(moment.nanoseconds) // 1_000_000
