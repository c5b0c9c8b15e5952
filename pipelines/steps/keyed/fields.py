"""Fields that steps with a state for each key share."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

from pydantic import BeforeValidator, Field, WithJsonSchema

from pipelines.steps.config import Key
from pipelines.units import Duration, seconds


def _listed(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


Names: TypeAlias = Annotated[
    tuple[Key, ...],
    BeforeValidator(_listed, json_schema_input_type=str | tuple[str, ...]),
    Field(min_length=1),
]
"""One key or a list of keys."""
Span: TypeAlias = Annotated[Duration, Field(gt=0)]
"""Seconds, more than 0, written as a number or like `5ms`, `2s`, `1m`."""


def _extent(value: Any) -> Any:
    """A count, or the text of a duration."""
    if isinstance(value, bool):
        raise ValueError("a whole number like 1024 or a duration like 1m is needed, not true or false")
    if isinstance(value, str):
        text = value.strip()
        if text.isdecimal():
            return int(text)
        try:
            seconds(text)
        except ValueError:
            raise ValueError(f'"{value}" is neither a whole number like 1024 nor a duration like 1m') from None
        return text
    if isinstance(value, float):
        if not value.is_integer():
            raise ValueError(f"{value} is neither a whole number like 1024 nor a duration like 1m")
        return int(value)
    return value


Extent: TypeAlias = Annotated[
    int | str,
    BeforeValidator(_extent),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 1}, {"type": "string"}], "examples": [1024, "1m"]}),
]
"""How long something is: a count of samples or records, or a duration as a text."""


def length(extent: float | str | None) -> float:
    """A count as it is, a duration in seconds."""
    return extent if isinstance(extent, (int, float)) else float(seconds(extent))  # type: ignore[arg-type]


def milliseconds(extent: float | str | None) -> int:
    """A duration in whole milliseconds; a number is seconds."""
    return round(length(extent) * 1000)
