"""Schemas that a service file names or holds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pipelines.errors import DefinitionError

Given = Path | dict[str, Any]
"""A schema in a file, or in the service file itself."""


def schema_text(given: Given) -> str:
    """The JSON text of a schema. Raises `DefinitionError` for a file that cannot be read."""
    if not isinstance(given, Path):
        return json.dumps(given)
    try:
        return given.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
        raise DefinitionError(f"the schema {given} cannot be read: {why}") from None
