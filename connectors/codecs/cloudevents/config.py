"""The configuration of the codec `cloudevents`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator

from connectors.codecs.cloudevents.events import is_attribute
from connectors.codecs.cloudevents.texts import text_of
from connectors.codecs.config import PayloadFields
from connectors.codecs.wrapping import WrapperConfig
from connectors.units import Size
from pipelines.steps.config import Key


class CloudEventsConfig(WrapperConfig):
    """CloudEvents 1.0 around the data of another codec: JSON (structured), or attributes in headers (binary)."""

    built_by: ClassVar[str] = "connectors.codecs.cloudevents.codec:CloudEvents"

    type: Literal["cloudevents"] = "cloudevents"
    """The type of codec."""
    codec: str | dict[str, Any] = "json"
    """The codec of the data: its name, or `{type: NAME, OPTION: ...}`."""
    attributes: dict[str, Key] = Field(default_factory=dict)
    """Attributes that become values: `{source: device, time: ts}`. A time becomes milliseconds since 1970."""
    mode: Literal["structured", "binary"] = "structured"
    """The mode in which events are written. Events of both modes are read, each by its headers."""
    prefix: Literal["ce_", "ce-", ""] = "ce_"
    """The prefix of attributes' names in headers: `ce_` on Kafka; nothing, `""`, on MQTT 5. With a prefix, `ce_` and `ce-` are both read."""  # noqa: E501
    write: dict[str, str | None] = Field(default_factory=dict)
    """Attributes of written events, made from values and records as topics are: `{source: "/plant/{line}", type: com.example.score, subject: "{record.key}"}`. By default the id is topic, partition and offset of the record, the same whenever it is tried again; source is `/{record.source}` (`/` without a record), type `result`, and time `{record.timestamp}`. `null` leaves an optional one out."""  # noqa: E501
    content_type: str | None = Field(default=None, min_length=1)
    """The `datacontenttype` of written events; by default that of the codec of the data."""
    max_bytes: Size = 16 << 20
    """Size of the largest payload; a larger one is an error of its record."""

    @field_validator("attributes")
    @classmethod
    def _known_attributes(cls, attributes: dict[str, str]) -> dict[str, str]:
        for name in attributes:
            _check_name(name)
        return attributes

    @field_validator("write")
    @classmethod
    def _texts(cls, write: dict[str, str | None]) -> dict[str, str | None]:
        for name, text in write.items():
            _check_name(name)
            if name in ("specversion", "datacontenttype"):
                raise ValueError(f"{name} is not made from values; say content_type for the type of the data")
            if text is not None:
                text_of(text)
            elif name in ("id", "source", "type"):
                raise ValueError(f"an event cannot be without {name}")
        return write

    def read_fields(self, topic: str | None = None) -> PayloadFields | None:
        """Those of the data, and the values that attributes become."""
        inner = super().read_fields(topic)
        if inner is None:
            return None
        added = frozenset(self.attributes.values())
        return replace(inner, names=inner.names | added, images=inner.images - added)


def _check_name(name: str) -> None:
    if not is_attribute(name):
        raise ValueError(f'invalid attribute name "{name}": they have a to z and 0 to 9 only')
