"""`npy`: the payload is a `.npy` file. In a service file `codec: npy`, or `codec: {type: npy, key: x}`."""

from __future__ import annotations

from typing import Any, Literal

from connectors.codec import Codec, Decoded, Encoded
from connectors.codecs.config import CodecConfig
from connectors.codecs.rows import decode_rows, encode_values, payload_bytes
from connectors.records import Records
from pipelines import Batch, Data, NDArray

from example_plugin.npy import Npy


class NpyConfig(CodecConfig):
    """Payloads that are `.npy` files, as `numpy.save` writes them."""

    type: Literal["npy"] = "npy"
    """The type of codec."""
    key: str = "x"
    """The key of the array. A result that has one value only may have it under another key."""

    def build(self) -> NpyCodec:
        """The codec."""
        return NpyCodec(self.key)


class NpyCodec(Codec):
    """One array a record; a payload that is no such file fails its record and no other."""

    def __init__(self, key: str) -> None:
        self._key = key

    def decode(self, records: Records, wanted: frozenset[str] | None, first: int = 0) -> Decoded:
        """The array of each payload."""
        return decode_rows(records, first, self._read)

    def encode(self, batch: Batch) -> Encoded:
        """The file of each row's array."""
        return encode_values(batch, self._key, "npy", self._written)

    def _read(self, payload: object) -> Data:
        return Data({self._key: Npy(payload_bytes(payload, "npy")).array()})

    def _written(self, value: Any, key: str) -> bytes:
        # By the converters, so that whatever an array can be made of is written.
        written: Npy = NDArray.create(value).get_as(Npy)
        return written.content
