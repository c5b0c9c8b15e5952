"""Which value of a record is the image, the boxes or the points that a step reads: by key, or the only one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pipelines.data.data import Data
from pipelines.errors import WrongTypeError
from pipelines.runners.images.onlykey import only_key
from pipelines.values import TypedList, ValueType, element_type, type_of


def boxes_key(data: Data, key: str | None) -> str:
    """The key of a box or a list of boxes: `key`, or without it the only one.

    Raises `ValueNotFoundError` if the key is not there, `WrongTypeError` if its value has another type, `DataError` if
    there are none or several.
    """
    return _key(
        data, key, ValueType.BOUNDING_BOX, "BoundingBox (or List<BoundingBox>)", "Bounding box", _single_or_list
    )


def points_key(data: Data, key: str | None) -> str:
    """The key of a list of points; otherwise as `boxes_key`."""
    return _key(data, key, ValueType.POINT, "List<Point>", "Point", _list_only)


def image_key(data: Data, key: str | None) -> str:
    """The key of an image; otherwise as `boxes_key`."""
    return _key(data, key, ValueType.IMAGE, "Image", "Image", _single_only)


def each(value: Any, function: Callable[[Any], Any], made: ValueType) -> Any:
    """`function` of a value, or of each element of a list; an empty list is one of `made`."""
    if not isinstance(value, list):
        return function(value)
    return [function(element) for element in value] or TypedList(made)


def listed(value: Any) -> list[Any]:
    """A list as it is, anything else as a list of one."""
    return value if isinstance(value, list) else [value]


def holds(value: Any, kind: ValueType) -> bool:
    """Whether a value is one of `kind`, or a list of them (an untyped empty list may be one)."""
    return _single_or_list(value, kind)


def _key(
    data: Data,
    key: str | None,
    kind: ValueType,
    wanted: str,
    what: str,
    fits: Callable[[Any, ValueType], bool],
) -> str:
    if key is not None:
        if not fits(data[key], kind):
            raise WrongTypeError(
                f'Value has wrong type for key "{key}": requested {wanted}, actual type {type_of(data[key]).name}'
            )
        return key
    keys = [name for name, value in data.items() if fits(value, kind)]
    if len(keys) > 1:
        # A list of the right element type goes before an empty list without one.
        keys = [name for name in keys if data[name] or element_type(data[name]) is kind] or keys
    return only_key(keys, what, wanted)


def _single_only(value: Any, kind: ValueType) -> bool:
    return type_of(value) is kind


def _list_only(value: Any, kind: ValueType) -> bool:
    return isinstance(value, list) and element_type(value) in (kind, ValueType.NONE)


def _single_or_list(value: Any, kind: ValueType) -> bool:
    return _single_only(value, kind) or _list_only(value, kind)
