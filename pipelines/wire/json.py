"""The JSON form of a `Data`, which is Konduit Serving's, and the same as plain mappings for YAML and definitions.

Arrays are base64 of their elements in C order, big-endian by default (`byte_order`); a message does not name its byte
order. NaN and infinities are written as the strings "NaN", "Infinity" and "-Infinity". A DOUBLE written so comes back
as a STRING, as it does in Konduit Serving; in coordinates, probabilities and lists with at least one number it comes
back as it was.
"""

from __future__ import annotations

import binascii
import json
import math
import re
from collections.abc import Mapping
from typing import Any, Literal, NoReturn, TypeAlias

from pipelines.data.data import Data, check_key
from pipelines.errors import DataError, MissingPackageError, WireError
from pipelines.values.buffer import ByteBuffer
from pipelines.values.geometry import BoundingBox, Point
from pipelines.values.image import Image
from pipelines.values.imageheader import FORMATS
from pipelines.values.native import native
from pipelines.values.ndarray import Array, ByteOrder, NDArrayType, array_type, from_buffer, to_buffer
from pipelines.values.valuetype import ValueType, type_of
from pipelines.wire.hints import encoded_twice, nul_found
from pipelines.wire.limits import DEFAULT_LIMITS, Limits

Nulls: TypeAlias = Literal["error", "drop"]
"""How to treat a key whose value is null: refuse the message, or leave the key out."""


def dumps(data: Data, byte_order: ByteOrder = "big", *, pretty: bool = False) -> str:
    """The JSON text of `data`: on one line, or indented by two if `pretty`. Raises `WireError`."""
    plain = to_plain(data, byte_order)
    text = json.dumps(
        plain,
        ensure_ascii=False,
        allow_nan=False,
        indent=2 if pretty else None,
        separators=None if pretty else (",", ":"),
    )
    _check_text(text)
    return text


def loads(
    text: str | bytes, byte_order: ByteOrder = "big", limits: Limits = DEFAULT_LIMITS, *, nulls: Nulls = "error"
) -> Data:
    """The `Data` of a JSON text, its arrays in `byte_order` (those read are read-only).

    Of keys that occur twice the last one counts. Raises `WireError` for text that is no JSON object, null (keys that
    are null are left out if `nulls` is `"drop"`; null in a list or a value is an error all the same), integers
    beyond 64 bits, lists of several types (integers and floats together are floats), reserved keys, broken values,
    and a message that exceeds `limits`: its size and its keys are looked at before it is parsed.
    """
    limits.check_bytes(len(text))
    try:
        text = text if isinstance(text, str) else bytes(text).decode()
        if text.count(":") > limits.max_keys:
            _check_keys(text, limits)
        plain = json.loads(text, parse_constant=_no_constant)
    except WireError:
        raise
    except RecursionError:
        limits.check_depth(limits.max_depth + 1)
        raise
    except ValueError as error:
        nul = nul_found(error.doc, error.pos) if isinstance(error, json.JSONDecodeError) else None
        reason = error if nul is None else f"it has {nul}"
        raise WireError(f"Error deserializing Data from JSON: {reason}") from None
    if not isinstance(plain, Mapping):
        raise WireError(f"a Data is a JSON object, not {_json_name(plain)}{encoded_twice(plain)}")
    return _JsonReader(byte_order, limits, nulls, parsed=True).data(plain, 0)


def to_plain(data: Data, byte_order: ByteOrder = "big") -> dict[str, Any]:
    """`data` as dictionaries, lists, strings and finite numbers, as in its JSON form. Raises `WireError`."""
    return _plain_data(data, byte_order, 0)


def value_to_plain(value: Any, byte_order: ByteOrder = "big") -> Any:
    """One value of a `Data` as in its JSON form. Raises `WireError`."""
    return _plain(native(value), byte_order, 0)


def value_from_plain(plain: object, byte_order: ByteOrder = "big", limits: Limits = DEFAULT_LIMITS) -> Any:
    """The value that `plain` stands for in the JSON form of a `Data`. Raises `WireError`.

    A point may be spelled `{"@Coords": [...]}`, as in a `Data`, or `{"coords": [...]}`, as in a step's configuration.
    """
    return _JsonReader(byte_order, limits, "error").value(plain, 0)


def _plain_data(data: Data, byte_order: ByteOrder, depth: int) -> dict[str, Any]:
    DEFAULT_LIMITS.check_depth(depth)
    plain = {key: _plain_entry(key, value, byte_order, depth) for key, value in data.items()}
    if data.metadata is not None:
        plain["@Metadata"] = _plain_data(data.metadata, byte_order, depth + 1)
    return plain


def _plain_entry(key: str, value: Any, byte_order: ByteOrder, depth: int) -> Any:
    try:
        return _plain(value, byte_order, depth)
    except MissingPackageError:
        raise
    except (DataError, WireError) as error:
        raise WireError.within(key, error, "written") from error


def _plain(value: Any, byte_order: ByteOrder, depth: int) -> Any:
    kind = type_of(value)
    if kind is ValueType.DOUBLE:
        return _plain_float(value)
    if kind is ValueType.NDARRAY:
        return _plain_array(value, byte_order)
    if kind is ValueType.LIST:
        DEFAULT_LIMITS.check_depth(depth + 1)
        return [_plain(element, byte_order, depth + 1) for element in value]
    if kind is ValueType.DATA:
        plain = _plain_data(value, byte_order, depth + 1)
        # Without its empty metadata this one would be read as a point: both spellings are accepted.
        return plain | {"@Metadata": {}} if _is_configured_point(plain) else plain
    if kind is ValueType.IMAGE:
        return {"@ImageFormat": value.wire_format, "@ImageData": _base64(value.to_wire())}
    if kind is ValueType.BOUNDING_BOX:
        return _plain_box(value)
    if kind is ValueType.POINT:
        coords = [_plain_float(coordinate) for coordinate in value.coords]
        return {"@Coords": coords} | _plain_label(value)
    if kind is ValueType.BYTES:
        return {"@BytesBase64": _base64(value)}
    if kind is ValueType.BYTEBUFFER:
        return {"@ByteBufferBase64": _base64(value)}
    return value


def _plain_float(value: float) -> float | str:
    if math.isfinite(value):
        return value
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def _plain_array(array: Array, byte_order: ByteOrder) -> dict[str, Any]:
    return {
        "@NDArrayType": array_type(array.dtype).name,
        "@NDArrayShape": list(array.shape),
        "@NDArrayDataBase64": _base64(to_buffer(array, byte_order)),
    }


def _plain_box(box: BoundingBox) -> dict[str, Any]:
    names = ("@x1", "@x2", "@y1", "@y2") if box.form == "XY" else ("@cx", "@cy", "@h", "@w")
    return dict(zip(names, map(_plain_float, box.numbers), strict=True)) | _plain_label(box)


def _plain_label(value: BoundingBox | Point) -> dict[str, Any]:
    plain: dict[str, Any] = {} if value.label is None else {"label": value.label}
    if value.probability is not None:
        plain["probability"] = _plain_float(value.probability)
    return plain


def _base64(content: bytes) -> str:
    return binascii.b2a_base64(content, newline=False).decode("ascii")


class _JsonReader:
    """Reads one message, counting its elements."""

    def __init__(self, byte_order: ByteOrder, limits: Limits, nulls: Nulls, *, parsed: bool = False) -> None:
        """`parsed`: from JSON text, in which an infinite number is one that was too large."""
        self._byte_order = byte_order
        self._limits = limits
        self._drop_nulls = nulls == "drop"
        self._parsed = parsed
        self._elements = 0
        self._inner_keys = 0

    def data(self, plain: Mapping[Any, Any], depth: int) -> Data:
        self._limits.check_depth(depth)
        self._limits.check_keys(len(plain))
        if depth:
            self._inner_keys += 1 + len(plain)
            self._limits.check_inner_keys(self._inner_keys)
        self._count(len(plain))
        values: dict[str, Any] = {}
        metadata = None
        for key, value in plain.items():
            if value is None and self._drop_nulls:
                continue
            try:
                if isinstance(key, str) and key.lower() == "@metadata":
                    metadata = self._metadata(value, depth + 1)
                    self._limits.check_keys(len(plain) + len(metadata) - 1)
                    continue
                check_key(key)
                _check_text(key)
                values[key] = self.value(value, depth)
            except (DataError, WireError) as error:
                raise WireError.within(key, error) from None
        return Data.trusted(values, metadata)

    def value(self, plain: object, depth: int) -> Any:
        if isinstance(plain, str):
            _check_text(plain)
            return plain
        if isinstance(plain, list):
            return self._list(plain, depth + 1)
        if isinstance(plain, Mapping):
            return self._object(plain, depth)
        if isinstance(plain, (bool, int, float)):
            if self._parsed and plain in _INFINITE:
                raise _too_large(plain)
            return native(plain)
        raise WireError(f"{_json_name(plain)} is no value of a Data" + ("; leave the key out" if plain is None else ""))

    def _metadata(self, plain: object, depth: int) -> Data:
        if not isinstance(plain, Mapping):
            raise WireError(f"metadata is a JSON object, not {_json_name(plain)}")
        return self.data(plain, depth)

    def _list(self, plain: list[Any], depth: int) -> list[Any]:
        self._limits.check_depth(depth)
        self._count(len(plain))
        values = [self.value(element, depth) for element in plain]
        if {str, float} <= set(map(type, values)) or {str, int} <= set(map(type, values)):
            # A list of floats of which some are NaN or infinite.
            values = [_NOT_FINITE.get(value, value) if isinstance(value, str) else value for value in values]
        checked: list[Any] = native(values)
        return checked

    def _object(self, plain: Mapping[str, Any], depth: int) -> Any:
        for marker, keys in _OBJECTS.items():
            if marker in plain:
                _check_alone(plain, marker, keys)
                return self._marked(plain, marker)
        if _is_configured_point(plain):
            return self._point(plain, plain["coords"])
        return self.data(plain, depth + 1)

    def _marked(self, plain: Mapping[str, Any], marker: str) -> Any:
        """The value of an object that a reserved key, a key of `_OBJECTS`, marks as another value than a `Data`."""
        match marker:
            case "@BytesBase64":
                return _bytes(plain[marker], marker)
            case "@BytesArray":
                return _signed_bytes(plain[marker])
            case "@ByteBufferBase64":
                return ByteBuffer(_bytes(plain[marker], marker))
            case "@NDArrayType":
                return self._array(plain)
            case "@ImageData":
                return _image(plain)
            case "@cx" | "@cy":
                return BoundingBox.center(*self._numbers(plain, "@cx", "@cy", "@h", "@w"), *self._label(plain))
            case "@Coords":
                return self._point(plain, plain[marker])
            case _:
                return BoundingBox.corners(*self._numbers(plain, "@x1", "@x2", "@y1", "@y2"), *self._label(plain))

    def _array(self, plain: Mapping[str, Any]) -> Array:
        name = plain["@NDArrayType"]
        if not isinstance(name, str) or name not in NDArrayType.__members__:
            raise WireError(f"{name!r} is no element type of an array; there are {', '.join(NDArrayType.__members__)}")
        shape = plain.get("@NDArrayShape")
        if not isinstance(shape, list) or not all(type(length) is int for length in shape):
            raise WireError("@NDArrayShape must be a list of integers")
        buffer = _bytes(plain.get("@NDArrayDataBase64"), "@NDArrayDataBase64")
        return from_buffer(buffer, shape, NDArrayType[name], self._byte_order)

    def _point(self, plain: Mapping[str, Any], coords: object) -> Point:
        if not isinstance(coords, list):
            raise WireError("the coordinates of a point must be a list of numbers")
        self._count(len(coords))
        return Point([self._number(coordinate, "a coordinate") for coordinate in coords], *self._label(plain))

    def _numbers(self, plain: Mapping[str, Any], a: str, b: str, c: str, d: str) -> tuple[float, float, float, float]:
        for name in (a, b, c, d):
            if name not in plain:
                raise WireError(f"a bounding box without {name}; it needs {a}, {b}, {c} and {d}")
        return (
            self._number(plain[a], a),
            self._number(plain[b], b),
            self._number(plain[c], c),
            self._number(plain[d], d),
        )

    def _number(self, value: object, name: str) -> float:
        if isinstance(value, str) and value in _NOT_FINITE:
            return _NOT_FINITE[value]
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise WireError(f"{name} must be a number, not {_json_name(value)}")
        if self._parsed and value in _INFINITE:
            raise _too_large(value)
        try:
            return float(value)
        except OverflowError:
            raise WireError(f"{name} is too large") from None

    def _label(self, plain: Mapping[str, Any]) -> tuple[str | None, float | None]:
        label = plain.get("label", plain.get("@label"))
        if label is not None and not isinstance(label, str):
            raise WireError(f"a label must be a string, not {_json_name(label)}")
        _check_text(label or "")
        probability = plain.get("probability", plain.get("@probability"))
        return label, None if probability is None else self._number(probability, "a probability")

    def _count(self, elements: int) -> None:
        self._elements += elements
        self._limits.check_elements(self._elements)


def _check_alone(plain: Mapping[str, Any], marker: str, keys: frozenset[str]) -> None:
    """Raise `WireError` for an object of a value that has other keys, too: they would be lost without a word."""
    others = [key for key in plain if key not in keys]
    if others:
        named = ", ".join(f'"{key}"' for key in others[:3]) + (", ..." if len(others) > 3 else "")
        raise WireError(f'{named} beside "{marker}" would be lost; put them into the object around this one')


def _check_keys(text: str, limits: Limits) -> None:
    """Raise `WireError` for an object of too many keys, as soon as it has one too many: nothing is made of them."""
    counts: list[int] = []
    for token in _KEYS_AND_BRACES.finditer(text):
        if token[0] == "{":
            counts.append(0)
        elif not counts:
            # No JSON, which the parser says better.
            return
        elif token[0] == "}":
            counts.pop()
        elif token[1] is not None:
            counts[-1] += 1
            limits.check_keys(counts[-1])


def _is_configured_point(plain: Mapping[Any, Any]) -> bool:
    coords = plain.get("coords")
    return (
        isinstance(coords, list)
        and bool(coords)
        and plain.keys() <= {"coords", "label", "probability"}
        and all(type(coordinate) in (int, float) for coordinate in coords)
    )


_IMAGE_FORMATS = frozenset({"PNG", "JPEG", "JPG", "BMP", "GIF", "WEBP", "TIFF", "PGM", "PPM"})


def _image(plain: Mapping[str, Any]) -> Image:
    label = plain.get("@ImageFormat", "PNG")
    if not isinstance(label, str) or label.upper() not in _IMAGE_FORMATS:
        raise WireError(f"@ImageFormat is {label!r}; it can be {FORMATS}")
    # The content decides, not the label: peers send other formats labelled PNG.
    return Image(_bytes(plain["@ImageData"], "@ImageData"))


def _bytes(text: object, name: str) -> bytes:
    if not isinstance(text, str):
        raise WireError(f"{name} must be a string of base64")
    try:
        return binascii.a2b_base64(text, strict_mode=True)
    except ValueError as error:
        raise WireError(f"{name} is no base64: {error}") from None


def _signed_bytes(numbers: object) -> bytes:
    if not isinstance(numbers, list) or not all(type(n) is int and -128 <= n <= 127 for n in numbers):
        raise WireError("@BytesArray must be a list of integers from -128 to 127")
    return bytes(number & 0xFF for number in numbers)


def _check_text(text: str) -> None:
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise WireError(f"half of a surrogate pair at character {error.start} is no text") from None


def _no_constant(name: str) -> NoReturn:
    raise WireError(f'Error deserializing Data from JSON: {name} is no JSON; write "{name}" in quotes')


def _too_large(value: float) -> WireError:
    return WireError(f'a number is beyond the largest, 1.8e308; write "{_plain_float(value)}" in quotes if it is meant')


def _json_name(value: object) -> str:
    if value is None:
        return "null"
    names = {
        dict: "an object",
        list: "an array",
        str: "a string",
        bool: "a boolean",
        int: "a number",
        float: "a number",
    }
    return names.get(type(value), f"a {type(value).__name__}")


_LABELLED = frozenset({"label", "@label", "probability", "@probability"})
_OBJECTS: dict[str, frozenset[str]] = {
    # Of bytes in both forms the first is read, as Konduit Serving does.
    "@BytesBase64": frozenset({"@BytesBase64", "@BytesArray"}),
    "@BytesArray": frozenset({"@BytesArray"}),
    "@ByteBufferBase64": frozenset({"@ByteBufferBase64", "@ByteBuffer"}),
    "@NDArrayType": frozenset({"@NDArrayType", "@NDArrayShape", "@NDArrayDataBase64"}),
    "@ImageData": frozenset({"@ImageData", "@ImageFormat"}),
    "@cx": frozenset({"@cx", "@cy", "@h", "@w"}) | _LABELLED,
    "@x1": frozenset({"@x1", "@x2", "@y1", "@y2"}) | _LABELLED,
    "@cy": frozenset({"@cx", "@cy", "@h", "@w"}) | _LABELLED,
    "@Coords": frozenset({"@Coords"}) | _LABELLED,
}
"""The objects that are another value than a `Data`: the key that marks each, in the order in which they are tried, and
all keys that it may have."""
_INFINITE = (math.inf, -math.inf)
# Braces outside of strings; strings, with a colon behind those that are keys. A string without an end is one too, as
# else each escaped quote in it would be tried as the beginning of another.
_KEYS_AND_BRACES = re.compile(r'[{}]|"[^"\\]*+(?:\\.[^"\\]*+)*+"?+(\s*+:)?', re.DOTALL)
_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
