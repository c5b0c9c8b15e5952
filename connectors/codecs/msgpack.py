"""`msgpack`: payloads are MessagePack maps, the binary cousin of JSON (https://msgpack.org)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

from connectors.codec import Codec, Decoded, Encoded
from connectors.codecs.config import MessageConfig
from connectors.codecs.plainrows import checked_keys, decode_plain, encode_plain
from connectors.codecs.rows import payload_bytes
from connectors.records import Records
from pipelines.data.batch import Batch
from pipelines.errors import MissingPackageError, WireError
from pipelines.plugins.requirements import Package, Requires
from pipelines.wire.plainvalues import PlainRules

if TYPE_CHECKING:
    import msgpack

_TIMESTAMPS: Final = (b"\xd6\xff", b"\xd7\xff", b"\xc7\x0c\xff")
"""The first bytes of timestamps of 32, 64 and 96 bits."""


class MsgpackConfig(MessageConfig):
    """MessagePack maps: numbers, texts, bytes, lists and maps; arrays are written as lists."""

    built_by: ClassVar[str] = "connectors.codecs.msgpack:Msgpack"

    requires: ClassVar[Requires] = Package("msgpack", "msgpack")

    type: Literal["msgpack"] = "msgpack"
    """The type of codec."""


class Msgpack(Codec):
    """One map for each row. A timestamp is INT64, in milliseconds since 1970; nil is a key that is not there."""

    def __init__(self, config: MsgpackConfig | None = None) -> None:
        try:
            import msgpack
        except ImportError:
            raise MissingPackageError("msgpack", "msgpack", "the codec msgpack") from None
        self._msgpack = msgpack
        self._limits = (config or MsgpackConfig()).limits
        self._rules = PlainRules(self._limits)

    def decode(self, records: Records, wanted: frozenset[str] | None, first: int = 0) -> Decoded:
        """Columns of all keys; values that no step reads are written unchanged."""
        return decode_plain(records, first, wanted, self._read, self._rules)

    def encode(self, batch: Batch) -> Encoded:
        """One map for each row, without metadata."""
        return encode_plain(batch, self._written)

    def _read(self, row: int, payload: Any) -> dict[str, Any]:
        raw = payload_bytes(payload, "msgpack")
        self._limits.check_bytes(len(raw))
        try:
            record = self._msgpack.unpackb(raw)
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
        if not isinstance(record, dict):
            raise WireError(f"a record is a map, but the payload is of type {type(record).__name__}")
        checked_keys(record, self._limits)
        if any(begin in raw for begin in _TIMESTAMPS):
            record = {key: self._without_timestamps(value) for key, value in record.items()}
        return record

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
