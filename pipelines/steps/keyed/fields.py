"""Fields that steps with a state for each key share."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

from pydantic import BeforeValidator, Field

from pipelines.steps.config import Key
from pipelines.units import Duration


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
