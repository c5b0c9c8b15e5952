"""Schemas in a service file, inline or by path."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from pipelines.errors import DefinitionError

Given = Path | dict[str, Any]
"""A schema in a file, or in the service file itself."""


def schema_text(given: Given) -> str:
    """The JSON text of a schema. Raises `DefinitionError` for a file that cannot be read."""
    if not isinstance(given, Path):
        return json.dumps(given)
    try:
        text = given.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not valid UTF-8 text"
        raise DefinitionError(f"the schema {given} cannot be read: {why}") from None
    _check(given, text)
    return text


def _check(file: Path, text: str) -> None:
    """Raise `DefinitionError` for a file that is clearly not a schema; what it holds, maybe a secret, is not shown."""
    try:
        schema = json.loads(text)
    except ValueError as error:
        line = f" in line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise DefinitionError(f"{file} is not a schema: it is not valid JSON{line}") from None
    except RecursionError:
        raise DefinitionError(f"{file} is not a schema: it is nested too deeply") from None
    parts = schema if isinstance(schema, list) else [schema]
    if not all(isinstance(part, (dict, bool)) or part in _PRIMITIVE for part in parts):
        raise DefinitionError(f"{file} is not a schema: a schema is a JSON object, such as a record with its fields")


_PRIMITIVE: Final = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
"""Avro's types without names."""
