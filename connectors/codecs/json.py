"""`json`: payloads are plain JSON objects, as most of the world writes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final, Literal

from pydantic import Field, field_validator, model_validator

from connectors.codec import Codec, Decoded, Encoded, RecordsOrigin
from connectors.codecs.config import MessageConfig, PayloadFields
from connectors.codecs.fields.enveloped import Enveloped
from connectors.codecs.fields.statestypes import StatesTypes
from connectors.codecs.images.writtenimages import WritesImages
from connectors.records import Records
from pipelines.data.batch import Batch
from pipelines.data.rowrange import row_range
from pipelines.hotpath import HotPathReport, choose
from pipelines.steps.config import Key
from pipelines.wire.jsoncolumns import json_reader, json_writer
from pipelines.wire.jsonrecords import JsonOptions
from pipelines.wire.jsontext import Pointer
from pipelines.wire.plainjson import JsonForm

_KONDUITS: Final = ("byte_order", "nulls")
"""Fields of the codec `konduit-json`, which users of Konduit may expect here."""


class JsonConfig(StatesTypes, Enveloped, WritesImages, MessageConfig):
    """Plain JSON objects: numbers, texts, booleans, lists, objects; arrays are lists. Values that no step reads pass through unchanged."""  # noqa: E501

    built_by: ClassVar[str] = "connectors.codecs.json:Json"

    type: Literal["json"] = "json"
    """The type of codec."""
    fields: dict[Key, str] = Field(default_factory=dict)
    """Values from inside a record, and their keys, by JSON pointer: `{temp: /readings/0/temp}`. Where there is none, or null, the record lacks the key."""  # noqa: E501
    each: bool = False
    """Whether every element of an array, or every line, is a record of its own. The payload is done when they all are; if one fails, all of it fails."""  # noqa: E501
    read_nan: Literal["error", "missing"] = "error"
    """What `NaN`, `nan`, `Infinity` and `-inf`, which JSON does not have, are in a payload: an error of it; or a missing value, as null is."""  # noqa: E501
    nan: Literal["null", "error"] = "null"
    """What to write for NaN and infinite numbers, which JSON does not have: null; or the record fails."""
    pretty: bool = False
    """Write indented text over several lines, for people. Values that pass through unchanged keep their form."""

    @model_validator(mode="before")
    @classmethod
    def _not_konduits(cls, fields: Any) -> Any:
        named = [name for name in _KONDUITS if isinstance(fields, Mapping) and name in fields]
        if named:
            raise ValueError(
                f"{named[0]} is a field of konduit-json, Konduit's form of JSON, and json is plain JSON: "
                f"write type: konduit-json, or leave {' and '.join(named)} out"
            )
        return fields

    @field_validator("fields")
    @classmethod
    def _pointers(cls, fields: dict[str, str]) -> dict[str, str]:
        for text in fields.values():
            Pointer(text)
        return fields

    @model_validator(mode="after")
    def _each_key_once(self) -> JsonConfig:
        for key in self.outer:
            if key in self.fields:
                raise ValueError(f'"{key}" is in fields and in outer; a key has one value')
        return self

    def read_fields(self, topic: str | None = None) -> PayloadFields | None:
        """Those whose types are stated, among any others."""
        return self.stated_fields


class Json(Codec):
    """One JSON object, UTF-8, for each row.

    codec = JsonConfig(fields={"temp": "/readings/0/temp"}).build()
    """

    opens_images: ClassVar[bool] = True

    def __init__(self, config: JsonConfig | None = None) -> None:
        """Raises `HotPathError` if the compiled form is insisted on and was not built."""
        config = self._config = config or JsonConfig()
        fields = tuple((key, Pointer(text)) for key, text in config.fields.items())
        self._hot_path = choose().report
        self._each = config.each
        at, outer = Pointer(config.at), config.outer_pointers
        self._read = json_reader(
            JsonOptions(config.limits, fields, config.each, config.read_nan, at, outer, config.stated())
        )
        self._write = json_writer(JsonForm(config.nan, config.pretty))

    @property
    def hot_path(self) -> HotPathReport:
        """Compiled where that was built and is wanted."""
        return self._hot_path

    def decode(self, records: Records, wanted: frozenset[str] | None, first: int = 0) -> Decoded:
        """Columns of these records; an error in a key that is not `wanted` shows when the key is decoded."""
        read = self._read(records.values, wanted or frozenset())
        count = len(read.rows)
        whole = count == len(records) and not self._each
        rows = row_range(first, count) if whole else read.rows + first
        batch = Batch(read.columns, count, rows=rows, origin=RecordsOrigin(records, first))
        return Decoded(batch, {first + row: error for row, error in read.failed.items()})

    def encode(self, batch: Batch) -> Encoded:
        """One object for each row, without metadata. Values that no step has read are written unchanged."""
        batch, unwritten = self._config.with_images(batch)
        values, failed = self._write(batch)
        if not unwritten:
            return Encoded(values, failed)
        values = [None if row in unwritten else value for row, value in enumerate(values)]
        return Encoded(values, {**failed, **unwritten})
