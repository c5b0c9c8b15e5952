"""`raw` and `text`: the payload is one value, bytes or a string, and nothing else."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from connectors.codec import Codec, Decoded, Encoded
from connectors.codecs.config import CodecConfig
from connectors.codecs.rows import decoded_column, encode_values, payload_bytes
from connectors.records import Records
from pipelines.data.batch import Batch
from pipelines.data.columns import Column
from pipelines.errors import WireError
from pipelines.steps.config import Key
from pipelines.values import type_of


class RawConfig(CodecConfig):
    """Payloads as they are, as the bytes of one key."""

    built_by: ClassVar[str] = "connectors.codecs.raw:Raw"

    type: Literal["raw"] = "raw"
    """The type of codec."""
    key: Key = "bytes"
    """The key of the bytes. If a result has only one value, that is written whatever its key."""


class TextConfig(CodecConfig):
    """Payloads as the text of one key, UTF-8."""

    built_by: ClassVar[str] = "connectors.codecs.raw:Text"

    type: Literal["text"] = "text"
    """The type of codec."""
    key: Key = "text"
    """The key of the text. If a result has only one value, that is written whatever its key."""


class Raw(Codec):
    """Bytes in, bytes (or a string, as UTF-8) out."""

    opens_images: ClassVar[bool] = False

    def __init__(self, config: RawConfig | None = None) -> None:
        self._key = (config or RawConfig()).key

    def decode(self, records: Records, wanted: frozenset[str] | None, first: int = 0) -> Decoded:
        """One column of bytes."""
        return _each(records, first, self._key, lambda payload: payload_bytes(payload, "raw"))

    def encode(self, batch: Batch) -> Encoded:
        """The bytes of each row."""
        return encode_values(batch, self._key, "raw", lambda value, key: _written(value, key, "raw"))


class Text(Codec):
    """A string in, a string (or bytes, as they are) out."""

    opens_images: ClassVar[bool] = False

    def __init__(self, config: TextConfig | None = None) -> None:
        self._key = (config or TextConfig()).key

    def decode(self, records: Records, wanted: frozenset[str] | None, first: int = 0) -> Decoded:
        """One column of strings; a payload that is not UTF-8 fails."""
        return _each(records, first, self._key, _text)

    def encode(self, batch: Batch) -> Encoded:
        """The string of each row in UTF-8."""
        return encode_values(batch, self._key, "text", lambda value, key: _written(value, key, "text"))


def _each(records: Records, first: int, key: str, read: Any) -> Decoded:
    values, rows = [], []
    failed: dict[int, Exception] = {}
    for row, payload in enumerate(records.values):
        if payload is None:
            continue
        try:
            values.append(read(payload))
        except WireError as error:
            failed[row] = error
        else:
            rows.append(row)
    return decoded_column(records, first, key, Column.of(values), rows, failed)


def _text(payload: object) -> str:
    try:
        return payload_bytes(payload, "text").decode()
    except UnicodeDecodeError as error:
        raise WireError(f"the payload is not valid UTF-8 text ({error}); use the codec raw for other bytes") from None


def _written(value: Any, key: str, codec: str) -> bytes:
    if isinstance(value, bytes):
        return bytes(value)
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError as error:
            raise WireError(f'the text of "{key}" cannot be written as UTF-8: {error}') from None
    raise WireError(
        f'the {codec} codec writes bytes or a string, but "{key}" is of type {type_of(value).name}; '
        "use the codec protodata or json, or another value (keys: [NAME])"
    )
