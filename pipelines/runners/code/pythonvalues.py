"""Values of records as variables of the user's Python code, and variables as values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from pipelines.data.data import Data
from pipelines.errors import DataError, DefinitionError, StreamerError, WrongTypeError
from pipelines.steps.code.python import PythonIO
from pipelines.values import BoundingBox, ByteBuffer, Image, Point, TypedList, ValueType, type_of
from pipelines.values.imageheader import FORMATS
from pipelines.values.native import native

Convert = Callable[[Any], Any]
"""A variable as a value of a record; raises `StreamerError`."""

_BOX_CENTER: Final = ("cx", "cy", "height", "width")
_BOX_CORNERS: Final = ("x1", "x2", "y1", "y2")


def variable(value: Any) -> Any:
    """A value of a record as the code sees it, a copy where it could be written to.

    Arrays, texts, bytes, numbers and booleans as they are in Python (a BYTEBUFFER is `bytes`), an image as the bytes of
    its file (PNG if it has none), a `Data` as its JSON text, a box as a dict of cx, cy, width, height, label,
    probability, x1, x2, y1, y2, a point as one of x, y, label, z and dimensions, a list with its elements so.
    """
    convert = _VARIABLES.get(type_of(value))
    return value if convert is None else convert(value)


def converter(name: str, io: PythonIO) -> Convert:
    """The function that makes the value of the output `name` of its variable.

    Raises `DefinitionError` for types that do not go together; the function raises `WrongTypeError` or `DataError`
    naming the variable, the expected type and the type found.
    """
    convert = _element(_target(name, io), ValueType[io.secondary_type])

    def checked(value: Any) -> Any:
        try:
            return convert(value)
        except _Mismatch as error:
            # The user knows the declared type; the type of value that it means is a detail.
            raise WrongTypeError(f'the output "{name}" must be {error}') from None
        except StreamerError as error:
            raise DataError(f'the output "{name}": {error}') from error
        except Exception as error:  # an object of the user's may raise anything when it is looked at
            raise DataError(f'the output "{name}": {type(error).__name__}: {error}') from error

    return checked


class _Mismatch(WrongTypeError):
    def __init__(self, expected: str, value: object) -> None:
        what = f"a {type(value).__name__}" if value is not None else "None"
        super().__init__(f"{expected}, but the variable is {what}")


def _target(name: str, io: PythonIO) -> ValueType:
    """The type of value that the output becomes; `NONE`: that of its variable."""
    if io.python_type is None:
        return ValueType[io.type]
    fixed = _FIXED.get(io.python_type)
    if fixed is not None:
        return fixed
    allowed = _CHOICES[io.python_type]
    if io.type == "NONE":
        return allowed[0]
    if ValueType[io.type] not in allowed:
        names = ", ".join(value_type.name for value_type in allowed)
        raise DefinitionError(
            f'ioOutputs: "{name}" of type {io.python_type} cannot become {io.type}; it can be {names}'
        )
    return ValueType[io.type]


def _element(target: ValueType, secondary: ValueType) -> Convert:
    if target is not ValueType.LIST:
        return _CONVERTERS[target]
    inner = _untyped if secondary is ValueType.LIST else _CONVERTERS[secondary]

    def listed(value: Any) -> Any:
        if not isinstance(value, (list, tuple)):
            raise _Mismatch("a list", value)
        if not value:
            return TypedList(secondary)
        converted = []
        for place, item in enumerate(value):
            try:
                converted.append(inner(item))
            except _Mismatch as error:
                raise WrongTypeError(f"element {place} must be {error}".replace("the variable", "it")) from None
        return native(converted)

    return listed


def _image_bytes(value: Image) -> bytes:
    return value.get_as(bytes)


def _box_dict(value: BoundingBox) -> dict[str, Any]:
    return {
        "cx": value.cx,
        "cy": value.cy,
        "width": value.width,
        "height": value.height,
        "label": value.label,
        "probability": value.probability,
        "x1": value.x1,
        "x2": value.x2,
        "y1": value.y1,
        "y2": value.y2,
    }


def _point_dict(value: Point) -> dict[str, Any]:
    point: dict[str, Any] = dict(zip("xy", value.coords, strict=False))
    point["label"] = value.label
    if value.dimensions > 2:
        point["z"] = value.z
    point["dimensions"] = value.dimensions
    return point


_VARIABLES: Final[Mapping[ValueType, Convert]] = MappingProxyType(
    {
        # The record's own is shared with other steps.
        ValueType.NDARRAY: np.array,
        ValueType.BYTEBUFFER: bytes,
        ValueType.IMAGE: _image_bytes,
        ValueType.DATA: Data.to_json,
        ValueType.BOUNDING_BOX: _box_dict,
        ValueType.POINT: _point_dict,
        ValueType.LIST: lambda values: [variable(item) for item in values],
    }
)


def _boolean(value: Any) -> bool:
    value = _scalar(value)
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    raise _Mismatch("a bool", value)


def _integer(value: Any) -> Any:
    value = _scalar(value)
    if isinstance(value, (int, np.integer, np.bool_)):
        return native(int(value))
    raise _Mismatch("an int", value)


def _double(value: Any) -> float:
    value = _scalar(value)
    if isinstance(value, (float, int, np.floating, np.integer)) and not isinstance(value, bool):
        return float(value)
    raise _Mismatch("a float", value)


def _scalar(value: Any) -> Any:
    # Results of numpy's reductions, also with `keepdims` or `asarray` around them.
    return value[()] if isinstance(value, np.ndarray) and value.ndim == 0 else value


def _text(value: Any) -> str:
    if isinstance(value, str):
        return str(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        try:
            return bytes(value).decode()
        except UnicodeDecodeError as error:
            raise DataError(f"the bytes are not valid UTF-8 text ({error})") from None
    raise _Mismatch("a str", value)


def _array(value: Any) -> Any:
    if isinstance(value, (list, tuple, Mapping, str, bytes, int, float)) and not isinstance(value, np.generic):
        raise _Mismatch("a numpy.ndarray", value)
    array = native(np.asarray(value) if isinstance(value, np.generic) else value)
    if not isinstance(array, np.ndarray):
        raise _Mismatch("a numpy.ndarray", value)
    return np.array(array)


def _bytes(value: Any) -> bytes:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise _Mismatch("bytes", value)


def _image(value: Any) -> Image:
    image = Image(_bytes(value))
    if image.format is None:
        raise DataError(f"the bytes are not a {FORMATS} file")
    return image


def _data(value: Any) -> Data:
    if isinstance(value, (Data, Mapping)):
        return Data({key: _untyped(item) for key, item in value.items()})
    raise _Mismatch("a dict with texts as keys", value)


def _box(value: Any) -> BoundingBox:
    if isinstance(value, BoundingBox):
        return value
    if not isinstance(value, Mapping):
        raise _Mismatch("a dict", value)
    label, probability = _label(value, None), _probability(value, None)
    if value.keys() >= set(_BOX_CORNERS) and not value.keys() >= set(_BOX_CENTER):
        x1, x2, y1, y2 = (_number(value, key, "a box") for key in _BOX_CORNERS)
        return BoundingBox.corners(x1, x2, y1, y2, label, probability)
    cx, cy, height, width = (_number(value, key, "a box") for key in _BOX_CENTER)
    return BoundingBox.center(cx, cy, height, width, label, probability)


def _point(value: Any) -> Point:
    if isinstance(value, Point):
        return value
    if not isinstance(value, Mapping):
        raise _Mismatch("a dict", value)
    coords = [_number(value, key, "a point") for key in ("x", "y")]
    if value.get("z") is not None:
        coords.append(_number(value, "z", "a point"))
    return Point(coords, _label(value, ""), _probability(value, 0.0))


def _number(value: Mapping[str, Any], key: str, what: str) -> float:
    if key not in value:
        raise DataError(f'{what} needs "{key}", and the dict has only {", ".join(map(str, value)) or "nothing"}')
    try:
        return _double(value[key])
    except _Mismatch as error:
        raise DataError(f'"{key}" must be {error}'.replace("the variable", "it")) from None


def _label(value: Mapping[str, Any], default: str | None) -> str | None:
    label = value.get("label", default)
    if label is None or isinstance(label, str):
        return label
    raise DataError(f'"label" must be a str, but it is a {type(label).__name__}')


def _probability(value: Mapping[str, Any], default: float | None) -> float | None:
    if value.get("probability", default) is None:
        return None
    return _number({"probability": default, **value}, "probability", "it")


def _untyped(value: Any) -> Any:
    """The value that a variable is by itself, a copy where the code could still write to it."""
    if isinstance(value, Mapping):
        return _data(value)
    if isinstance(value, (list, tuple)):
        return native([_untyped(item) for item in value])
    if isinstance(value, np.ndarray):
        return _array(value)
    if isinstance(value, (bytearray, memoryview)):
        return ByteBuffer(value)
    return native(value)


_FIXED: Final[Mapping[str, ValueType]] = MappingProxyType(
    {
        "bool": ValueType.BOOLEAN,
        "int": ValueType.INT64,
        "float": ValueType.DOUBLE,
        "str": ValueType.STRING,
        "numpy.ndarray": ValueType.NDARRAY,
    }
)

_CHOICES: Final[Mapping[str, tuple[ValueType, ...]]] = MappingProxyType(
    {
        "list": (ValueType.LIST,),
        "bytes": (ValueType.BYTES, ValueType.IMAGE, ValueType.BYTEBUFFER, ValueType.STRING),
        "dict": (ValueType.DATA, ValueType.POINT, ValueType.BOUNDING_BOX),
    }
)
"""The types that a variable of this Python type can become; the first is the default."""

_CONVERTERS: Final[Mapping[ValueType, Convert]] = MappingProxyType(
    {
        ValueType.BOOLEAN: _boolean,
        ValueType.INT64: _integer,
        ValueType.DOUBLE: _double,
        ValueType.STRING: _text,
        ValueType.NDARRAY: _array,
        ValueType.BYTES: _bytes,
        ValueType.BYTEBUFFER: lambda value: ByteBuffer(_bytes(value)),
        ValueType.IMAGE: _image,
        ValueType.DATA: _data,
        ValueType.POINT: _point,
        ValueType.BOUNDING_BOX: _box,
        ValueType.NONE: _untyped,
    }
)
