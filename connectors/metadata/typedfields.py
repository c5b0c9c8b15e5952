"""`TypedKeys` and `TypedHeaders`: the fields `key` and `headers` of sources, which say what their bytes hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final, Self

from pydantic import Field, model_validator

from connectors.config import SourceConfig
from connectors.metadata.bytetypes import ByteType
from pipelines.errors import nearest
from pipelines.late import late

_check_keys: Final[Callable[[Mapping[str, Any], Mapping[str, str]], object]] = late(
    "connectors.metadata.codedkeys:check_keys"
)


class TypedKeys(SourceConfig):
    """Base of sources whose records have keys that are not always texts."""

    into_columns: ClassVar[tuple[str, ...]] = ("key.NAME",)

    key: ByteType | dict[str, Any] | None = None
    """What `into` makes of the keys of all records: `{type: avro, ...}` is a codec, whose values `into` takes as `key.NAME`. `long`, `int` and `double` are numbers as Kafka's Java serializers write them (8, 4 and 8 bytes, big-endian), `uuid` is one in text or in 16 bytes, `text` is UTF-8, and `bytes` stay bytes; `integer`, `number` and `boolean` are written as texts. A key that is something else fails its record. By default keys that are UTF-8 are texts, others bytes."""  # noqa: E501

    @property
    def key_type(self) -> ByteType | None:
        """Its `key`, if that is a type."""
        return None if isinstance(self.key, dict) else self.key

    @property
    def key_codec(self) -> dict[str, Any] | None:
        """Its `key`, if that is a codec."""
        return self.key if isinstance(self.key, dict) else None

    @model_validator(mode="after")
    def _keys_that_have_fields(self) -> Self:
        fields = [name for name in self.into if name.startswith("key.")]
        if fields and self.key_codec is None:
            raise ValueError(
                f"into: {fields[0]} is a value inside of the key, and the source does not say which codec reads that; "
                "write key: {type: avro, ...}"
            )
        if fields and "key" in self.into:
            raise ValueError(f"into: a key is one value (key), or a record with values ({fields[0]}); name one of both")
        return self

    def check_key(self) -> None:
        """Raise `DefinitionError` unless the codec of the keys, if there is one, reads what `into` takes."""
        if self.key_codec is not None:
            _check_keys(self.key_codec, self.into)


class TypedHeaders(SourceConfig):
    """Base of sources whose records have headers."""

    headers: dict[str, ByteType] = Field(default={})
    """What `into` makes of headers, by their names: `{seq: long}`, with the types that keys have. A header that is something else fails its record. By default headers that are UTF-8 are texts, others bytes."""  # noqa: E501

    @property
    def header_types(self) -> Mapping[str, ByteType]:
        """Its `headers`."""
        return self.headers

    @model_validator(mode="after")
    def _headers_that_into_takes(self) -> Self:
        check_header_types(self)
        return self


def check_header_types(source: SourceConfig) -> None:
    """Raise `ValueError` if a header has a type, and `into` does not take it: its name may be misspelt."""
    used = [name.removeprefix("headers.") for name in source.into if name.startswith("headers.")]
    for name in source.header_types:
        if name not in used:
            raise ValueError(
                f'headers: the type of "{name}" has no use, as into does not take that header{nearest(name, used)}; '
                f"write into: {{headers.{name}: KEY}}"
            )
