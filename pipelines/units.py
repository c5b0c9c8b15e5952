"""Durations and sizes as they are written in definitions and service files: `5ms`, `2s`, `16MiB`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema

_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_BYTES = {
    "B": 1,
    "kB": 10**3,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
}
_NUMBER_AND_UNIT = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]+)\s*")


def seconds(value: object) -> object:
    """`"5ms"` as 0.005, for us, ms, s, m, h and d; a number is seconds already. `ValueError` for anything else."""
    if not isinstance(value, str):
        return number(value, "a duration like 5ms, 2s or 1m")
    return _scaled(value, _SECONDS, "a duration like 5ms, 2s or 1m")


def size_in_bytes(value: object) -> object:
    """`"16MiB"` as 16777216, for B, kB, MB, GB, KiB, MiB and GiB; a number is bytes already. `ValueError` for anything else."""  # noqa: E501
    if not isinstance(value, str):
        return number(value, "a size like 64KiB, 16MiB or 1GB")
    return round(_scaled(value, _BYTES, "a size like 64KiB, 16MiB or 1GB"))


def number(value: object, expected: str) -> object:
    """The value, which has to be a number; `ValueError`, saying what is `expected`, for anything else."""
    # pydantic would take true for 1.
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"{value!r} is not {expected}")
    return value


def _scaled(text: str, units: dict[str, float] | dict[str, int], expected: str) -> float:
    match = _NUMBER_AND_UNIT.fullmatch(text)
    if match is None or match[2] not in units:
        raise ValueError(f'"{text}" is not {expected}')
    return float(match[1]) * units[match[2]]


def _text_with(units: Iterable[str]) -> dict[str, Any]:
    return {"type": "string", "pattern": rf"^\s*[0-9]+(\.[0-9]+)?\s*({'|'.join(units)})\s*$"}


Duration = Annotated[
    float,
    BeforeValidator(seconds),
    Field(ge=0, allow_inf_nan=False),
    WithJsonSchema(
        {"anyOf": [{"type": "number", "minimum": 0}, _text_with(_SECONDS)], "examples": ["5ms", "2s", "1m"]},
    ),
]
"""Seconds, written as a number or like `5ms`, `2s`, `1m`."""

Size = Annotated[
    int,
    BeforeValidator(size_in_bytes),
    Field(ge=0),
    WithJsonSchema(
        {"anyOf": [{"type": "integer", "minimum": 0}, _text_with(_BYTES)], "examples": ["64KiB", "16MiB", "1GB"]},
    ),
]
"""Bytes, written as a number or like `64KiB`, `16MiB`, `1GB`."""
