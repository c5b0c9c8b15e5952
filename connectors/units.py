"""Addresses, shares, positions and lists of texts as they are written in service files; and durations and sizes."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from pipelines.units import Duration as Duration
from pipelines.units import Size as Size
from pipelines.units import number
from pipelines.units import seconds as seconds
from pipelines.units import size_in_bytes as size_in_bytes

_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^:\[\]\s]+):(\d{1,5})")


def _listed(value: object) -> object:
    return (value,) if isinstance(value, str) else value


def host_and_port(address: str) -> tuple[str, int]:
    """The parts of `host:port`, the host without brackets. Raises `ValueError` for another text."""
    match = _ADDRESS.fullmatch(address)
    if match is None or int(match[2]) > 65535:
        raise ValueError(f'host:port is needed, not "{address}"')
    return match[1].strip("[]"), int(match[2])


def listening(port: int) -> AfterValidator:
    """Checks the address, `host:port`, at which something listens; `port` is that of the example in its error."""

    def checked(address: str) -> str:
        try:
            host_and_port(address)
        except ValueError:
            example = f"127.0.0.1:{port} or 0.0.0.0:{port}"
            raise ValueError(f'host:port is needed, like {example}, not "{address}"') from None
        return address

    return AfterValidator(checked)


OneOrMore = Annotated[tuple[str, ...], BeforeValidator(_listed, json_schema_input_type=str | tuple[str, ...])]
"""Texts of a service file; one that is not in a list is the only one."""


def share(value: object) -> object:
    """`"1%"` as 0.01; a number from 0 to 1, or such a text, is a share already. `ValueError` for anything else."""
    expected = "a share like 1% or 0.01"
    if not isinstance(value, str):
        number(value, expected)
        if isinstance(value, (int, float)) and value > 1:
            raise ValueError(f"{value} is more than all; write {value}%")
        return value
    text = value.strip()
    try:
        return float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        raise ValueError(f'"{value}" is not {expected}') from None


Share = Annotated[
    float,
    BeforeValidator(share),
    Field(ge=0, le=1, allow_inf_nan=False),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number", "minimum": 0, "maximum": 1},
                {"type": "string", "pattern": r"^\s*[0-9]+(\.[0-9]+)?\s*%?\s*$"},
            ],
            "examples": ["1%", "0.01"],
        },
    ),
]
"""A part of all, written like `1%` or as a number from 0 to 1."""


def position(value: object) -> object:
    """`earliest`, `latest`, or milliseconds since 1970 from an ISO time (UTC where it has no zone) or a number."""
    if isinstance(value, str) and value not in ("earliest", "latest"):
        if value.isdigit():
            return int(value)
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise ValueError(
                f'"{value}" is not earliest, latest, an ISO time like 2025-03-01T12:00:00Z or milliseconds since 1970'
            ) from None
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime.combine(value, time())
    if isinstance(value, datetime):
        return round((value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp() * 1000)
    return value


Position = Annotated[
    Literal["earliest", "latest"] | Annotated[int, Field(ge=0)],
    BeforeValidator(position),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "integer", "minimum": 0}]}),
]
"""Where to begin: `earliest`, `latest`, an ISO time, or milliseconds since 1970."""
