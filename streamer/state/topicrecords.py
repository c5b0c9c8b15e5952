"""The records of a state topic: how their keys and values are written.

The key is the JSON text of `["item", STEP, KEY, PART]`, `["step", STEP]` or `["position"]`. The value is the content of
the item, or JSON: `{"type": ..., "fields": ...}`, `{"service": ..., "partition": ..., "position": ...}`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

POSITION: Final = b'["position"]'
"""The key of the record with the position of a partition's state."""


def record_key(*parts: str | int) -> bytes:
    """The key of a record: `record_key("item", "WINDOW", '"pump-1"', 0)`."""
    return json.dumps(parts, separators=(",", ":")).encode()


def record_text(said: Mapping[str, Any]) -> bytes:
    """The value of a record that describes a step or a position."""
    return json.dumps(said).encode()
