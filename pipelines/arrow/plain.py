"""`plain`: a value of a record as Python values that Arrow converts, for values that have no buffer of their own."""

from __future__ import annotations

from typing import Any

from pipelines.values import BoundingBox, Image, Point, ValueType, type_of


def plain(value: Any) -> Any:
    """The value as numbers, texts, bytes, lists and dictionaries.

    An image is the bytes of its file, or of a PNG; a box a dictionary of its corners; a `Data` one of its values.
    Raises `WireError` for an odd value.
    """
    kind = type_of(value)
    if kind is ValueType.NDARRAY:
        return value.tolist()
    if kind is ValueType.LIST:
        return [plain(element) for element in value]
    if kind is ValueType.DATA:
        return {key: plain(inner) for key, inner in value.held.items()}
    if kind in (ValueType.BYTES, ValueType.BYTEBUFFER):
        return bytes(value)
    if isinstance(value, Image):
        return value.encoded if value.encoded is not None and value.format else value.to_wire()
    if isinstance(value, BoundingBox):
        corners = {"x1": value.x1, "y1": value.y1, "x2": value.x2, "y2": value.y2}
        return {**corners, "label": value.label, "probability": value.probability}
    if isinstance(value, Point):
        return {"coords": list(value.coords), "label": value.label, "probability": value.probability}
    return value
