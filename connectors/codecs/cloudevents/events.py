"""CloudEvents 1.0.2: attributes and data of an event, read and checked, in structured or binary mode.

Structured mode is the JSON format of the specification, binary mode its bindings to Kafka (`ce_id`), HTTP (`ce-id`) and
MQTT 5 (`id`).
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NoReturn

from connectors.codecs.described import media_type
from pipelines.errors import WireError

STRUCTURED: Final = "application/cloudevents+json"
"""The media type of an event in structured mode."""
REQUIRED: Final = ("specversion", "id", "source", "type")
"""Attributes that every event has."""
OPTIONAL: Final = ("datacontenttype", "dataschema", "subject", "time")
"""The other attributes that the specification names; all else are extensions."""
VERSION: Final = "1.0"

_NAME: Final = re.compile(r"[a-z0-9]+")
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", re.ASCII | re.IGNORECASE)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_INT32: Final = 1 << 31

Attribute = str | int | bool
"""The types of attributes' values. Times and URIs are texts."""


@dataclass(frozen=True, slots=True)
class Event:
    """One event: its attributes by name, and its data as they would be in binary mode; `None` without data."""

    attributes: Mapping[str, Attribute]
    data: bytes | None


def is_attribute(name: str) -> bool:
    """Whether the specification allows an attribute of this name."""
    return _NAME.fullmatch(name) is not None and name != "data"


def structured(payload: bytes) -> Event:
    """The event of a payload in structured mode. Raises `WireError` if it is not an event."""
    try:
        envelope = json.loads(payload.decode(), parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise WireError(f"the payload is not a CloudEvent: it is not valid JSON ({_short(error)})") from None
    if not isinstance(envelope, dict):
        raise WireError(
            f"the payload is not a CloudEvent: it is JSON, but not an object, of type {type(envelope).__name__}"
        )
    data, encoded = envelope.pop("data", None), envelope.pop("data_base64", None)
    # A null attribute counts as missing.
    event = _checked({name: value for name, value in envelope.items() if value is not None})
    if data is not None and encoded is not None:
        raise WireError("the CloudEvent has both data and data_base64")
    if encoded is not None:
        return Event(event, _decoded(encoded))
    return Event(event, None if data is None else _plain(data, event.get("datacontenttype")))


def binary(attributes: Mapping[str, str], content_type: str | None, payload: bytes) -> Event:
    """The event of a payload whose attributes stood in headers. Raises `WireError` if they are not an event."""
    if content_type:
        attributes = {**attributes, "datacontenttype": content_type}
    return Event(_checked(attributes), payload or None)


def milliseconds(time: Attribute) -> int:
    """The time of an event, as RFC 3339 writes it, in milliseconds since 1970. Raises `WireError` if it is no such
    time."""
    try:
        if not isinstance(time, str) or _TIME.fullmatch(time) is None:
            raise ValueError("it is not a time as in 2025-03-01T12:00:00Z")
        return (datetime.fromisoformat(time.upper()) - _EPOCH) // timedelta(milliseconds=1)
    except (ValueError, OverflowError) as error:
        raise WireError(f"the time of the CloudEvent is {str(time)[:60]!r}: {error}") from None


def timestamp(milliseconds: int) -> str:
    """Milliseconds since 1970 as RFC 3339 has them. Raises `WireError` for a time before year 1 or after 9999."""
    try:
        time = _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        raise WireError(f"{milliseconds} milliseconds since 1970 are not a time that an event can have") from None
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def is_json(content_type: Attribute | None) -> bool:
    """Whether data of this content type are JSON; data without a content type are."""
    kind = media_type(None if content_type is None else str(content_type))
    return kind in ("", "application/json", "text/json") or kind.endswith("+json")


def _checked(attributes: Mapping[str, Any]) -> Mapping[str, Attribute]:
    """The attributes, checked: required ones are present, and all names and types are valid. Raises `WireError`."""
    lacking = [name for name in REQUIRED if name not in attributes]
    if lacking:
        raise WireError(f"the payload is not a CloudEvent: it lacks {', '.join(lacking)}")
    if attributes["specversion"] != VERSION:
        raise WireError(f"the CloudEvent is of version {str(attributes['specversion'])[:40]!r}, not {VERSION!r}")
    for name, value in attributes.items():
        if not is_attribute(name):
            raise WireError(f"invalid attribute name {name[:60]!r} of the CloudEvent: they have a to z and 0 to 9 only")
        if name in REQUIRED or name in OPTIONAL:
            if not isinstance(value, str) or not value:
                raise WireError(f"the {name} of the CloudEvent is not text, or is empty")
        elif not isinstance(value, (str, bool, int)) or (isinstance(value, int) and not -_INT32 <= value < _INT32):
            raise WireError(f"the {name} of the CloudEvent is not text, boolean or integer of 32 bits")
        if isinstance(value, str):
            _check_text(name, value)
    if "time" in attributes:
        milliseconds(attributes["time"])
    return attributes


def _check_text(name: str, text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise WireError(f"the {name} of the CloudEvent is not text: {error}") from None


def _plain(data: Any, content_type: Attribute | None) -> bytes:
    try:
        if is_json(content_type):
            return json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
        if isinstance(data, str):
            return data.encode()
    except (ValueError, RecursionError) as error:
        raise WireError(f"the data of the CloudEvent cannot be read: {_short(error)}") from None
    raise WireError(f"the data of the CloudEvent are {str(content_type)[:60]}, so that they should be text")


def _decoded(encoded: object) -> bytes:
    try:
        if isinstance(encoded, str):
            return base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        pass
    raise WireError("the data_base64 of the CloudEvent is not valid base64")


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a number of JSON")


def _short(error: Exception) -> str:
    return str(error)[:200]
