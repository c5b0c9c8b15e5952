"""`TypedKeys` and `TypedHeaders`: the fields `key` and `headers` of sources, which say what their bytes hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

from pydantic import Field, model_validator

from connectors.config import SourceConfig
from connectors.metadata.bytetypes import ByteType
from pipelines.errors import nearest


class TypedKeys(SourceConfig):
    """Base of sources whose records have keys that are not always texts."""

    key: ByteType | None = None
    """What `into` makes of the keys of all records. `long`, `int` and `double` are numbers as Kafka's Java serializers write them (8, 4 and 8 bytes, big-endian), `uuid` is one in text or in 16 bytes, `text` is UTF-8, and `bytes` stay bytes. A key that is something else fails its record. By default keys that are UTF-8 are texts, others bytes."""  # noqa: E501

    @property
    def key_type(self) -> ByteType | None:
        """Its `key`."""
        return self.key


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
