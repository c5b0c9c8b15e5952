"""Records of cameras for tests of steps that keep what they know of each camera."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

from pipelines import BoundingBox, Data
from pipelines.data.record import RecordContext


def frame(
    values: Mapping[str, Any],
    seconds: float | None = 0.0,
    camera: str = "gate",
    lane: Hashable = ("gate", 1),
    key: bytes | None = None,
) -> Data:
    """A record of a camera; `seconds` is its timestamp."""
    timestamp = None if seconds is None else 1_700_000_000_000 + round(seconds * 1000)
    return Data(values, record=RecordContext("cameras", camera, timestamp=timestamp, lane=lane, key=key))


def box(x: float, y: float, size: float = 0.1, label: str | None = None, score: float | None = 0.9) -> BoundingBox:
    """A square around a point."""
    half = size / 2
    return BoundingBox.corners(x - half, x + half, y - half, y + half, label, score)
