"""The protobuf form of a `Data`: the message `DataMap` of protos/data.proto, without a length prefix.

It is Konduit Serving's, field for field. Arrays are little-endian, in C order. Unlike Konduit's own writers it carries
BYTES, BYTEBUFFER, lists of these, of `Data` and of lists, the true element type of arrays in lists, and the metadata
of nested `Data` (docs/data.md describes how Konduit's readers treat these).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

from google.protobuf.message import DecodeError, EncodeError

from pipelines.data.data import Data, check_key
from pipelines.errors import DataError, MissingPackageError, WireError
from pipelines.values.buffer import ByteBuffer
from pipelines.values.geometry import BoundingBox, Point
from pipelines.values.image import Image
from pipelines.values.lists import TypedList, element_type
from pipelines.values.ndarray import Array, NDArrayType, array_type, from_buffer, to_buffer, width
from pipelines.values.valuetype import ValueType, type_of
from pipelines.wire.limits import DEFAULT_LIMITS, Limits
from pipelines.wire.nomessage import no_message
from protos import data_pb2 as pb

FloatLists: TypeAlias = Literal["exact", "double"]
"""How to treat an array in a list that is labelled FLOAT and has eight bytes for each element, as Konduit Serving
writes a list of DOUBLE arrays: refuse it (`"exact"`) or read it as DOUBLE."""

UNKNOWN: Final = object()
"""The result of `value_of` for a type number that this version does not know. Such a key is skipped, as in Konduit
Serving, so that newer peers may send new types."""


def encode(data: Data) -> bytes:
    """The message of `data`; equal for equal entries in any order.

    Raises `WireError` for a value that cannot be written, for example an image that cannot be decoded.
    """
    message = pb.DataMap()
    _fill_map(message, data, 0)
    return _serialized(message)


def encode_entry(key: str, value: Any) -> bytes:
    """One entry of `DataMap.mapItems` with its field tag: a message is the concatenation of its entries."""
    message = pb.DataMap()
    _fill_entry(message.mapItems[key], key, value, 0)
    return _serialized(message)


def decode(payload: bytes, limits: Limits = DEFAULT_LIMITS, *, float_lists: FloatLists = "exact") -> Data:
    """The `Data` of a message, its keys sorted (the wire has no order). Its arrays are read-only.

    Raises `WireError` for bytes that are no such message, a value that its type does not describe, a reserved key,
    and a message that exceeds `limits`. Keys whose type number is unknown are left out.
    """
    limits.check_bytes(len(payload))
    limits.check_fields(payload)
    return _ValueReader(limits, float_lists).data(parsed_message(payload), 0)


def parsed_message(payload: bytes) -> pb.DataMap:
    """A message as protobuf reads it. Raises `WireError`."""
    try:
        return pb.DataMap.FromString(payload)
    except DecodeError:
        raise no_message(payload) from None


def metadata_of(message: pb.DataMap, limits: Limits = DEFAULT_LIMITS, *, float_lists: FloatLists = "exact") -> Data:
    """The metadata of a message that has some. Raises `WireError` as `decode` does."""
    return _ValueReader(limits, float_lists).metadata(message)


def value_of(scheme: pb.DataScheme, limits: Limits = DEFAULT_LIMITS, *, float_lists: FloatLists = "exact") -> Any:
    """The value of one entry; `UNKNOWN` if its type number, or that of its elements, is unknown.

    Raises `WireError` as `decode` does. `limits` count for this value alone.
    """
    # What most messages hold needs no counting of elements.
    present = scheme.WhichOneof("value")
    if present == "ndValue" and _VALUE_TYPES.get(scheme.type) is ValueType.NDARRAY:
        return _read_array(scheme.ndValue)
    if present is not None and present == SCALAR_FIELDS.get(scheme.type):
        return getattr(scheme, present)
    return _ValueReader(limits, float_lists).value(scheme, 0)


def fill(scheme: pb.DataScheme, value: Any) -> None:
    """Write `value`, a native one (see `pipelines.values.native`), into an empty `scheme`. Raises `WireError`."""
    _fill(scheme, value, 0)


def _serialized(message: pb.DataMap) -> bytes:
    try:
        return message.SerializeToString(deterministic=True)
    except (EncodeError, ValueError) as error:
        raise WireError(f"the message cannot be written: {error}") from None


def _fill_map(message: pb.DataMap, data: Data, depth: int) -> None:
    for key, value in data.items():
        _fill_entry(_entry(message.mapItems, key), key, value, depth)
    if data.metadata is None:
        return
    if data.metadata.metadata:
        raise WireError("protobuf has no place for the metadata of metadata; put it in as a nested Data")
    for key, value in data.metadata.items():
        _fill_entry(_entry(message.metaData, key), key, value, depth)


def _entry(items: Mapping[str, pb.DataScheme], key: str) -> pb.DataScheme:
    try:
        return items[key]
    except ValueError as error:
        raise WireError(f"the key {key!r} cannot be written: {error}") from None


def _fill_entry(scheme: pb.DataScheme, key: str, value: Any, depth: int) -> None:
    try:
        _fill(scheme, value, depth)
    except MissingPackageError:
        raise
    except (DataError, WireError, TypeError, ValueError) as error:
        raise WireError.within(key, error, "written") from error


def _fill(scheme: pb.DataScheme, value: Any, depth: int) -> None:
    value_type = type_of(value)
    field = _PLAIN_FIELDS.get(value_type)
    if field is not None:
        setattr(scheme, field, value)
    elif value_type is ValueType.NDARRAY:
        _fill_array(scheme.ndValue, value)
    elif value_type is ValueType.IMAGE:
        _fill_image(scheme.imValue, value)
    elif value_type is ValueType.BOUNDING_BOX:
        _fill_box(scheme.boxValue, value)
    elif value_type is ValueType.POINT:
        _fill_point(scheme.pointValue, value)
    elif value_type is ValueType.LIST:
        # A written record must be readable under the same limits.
        DEFAULT_LIMITS.check_depth(depth + 1)
        elements = element_type(value)
        # An empty list that never had a type needs one here; readers that look at it find no element to differ.
        elements = ValueType.STRING if elements is ValueType.NONE else elements
        scheme.listType = elements  # type: ignore[assignment]
        _fill_list(scheme.listValue, value, elements, depth + 1)
    else:
        DEFAULT_LIMITS.check_depth(depth + 1)
        scheme.metaData.SetInParent()
        _fill_map(scheme.metaData, value, depth + 1)
    scheme.type = value_type  # type: ignore[assignment]


def _fill_array(message: pb.NDArray, array: Array) -> None:
    message.shape.extend(array.shape)
    message.type = array_type(array.dtype)  # type: ignore[assignment]
    message.array.append(to_buffer(array))


def _fill_image(message: pb.Image, image: Image) -> None:
    message.type = image.wire_format
    message.data.append(image.to_wire())


def _fill_box(message: pb.BoundingBox, box: BoundingBox) -> None:
    if box.form == "XY":
        message.x0, message.x1, message.y0, message.y1 = box.numbers
        message.type = pb.BoundingBox.XY
    else:
        message.cx, message.cy, message.h, message.w = box.numbers
    message.label = box.label or ""
    message.probability = math.nan if box.probability is None else box.probability


def _fill_point(message: pb.Point, point: Point) -> None:
    message.label = point.label or ""
    message.probability = math.nan if point.probability is None else point.probability
    message.coords.extend(point.coords)


def _fill_list(message: pb.List, values: list[Any], elements: ValueType, depth: int) -> None:
    inner = getattr(message, _LIST_FIELDS[elements])
    # An empty list keeps its type by which member is set.
    inner.SetInParent()
    if elements in _PLAIN_FIELDS:
        inner.list.extend(values)
        return
    for value in values:
        if type_of(value) is not elements:
            raise WireError(f"a list of {elements.name} has an element of {type_of(value).name}")
        element = inner.list.add()
        if elements is ValueType.DATA:
            DEFAULT_LIMITS.check_depth(depth + 1)
            _fill_map(element, value, depth + 1)
        elif elements is ValueType.LIST:
            _fill(element, value, depth)
        else:
            _FILL_ELEMENT[elements](element, value)


class _ValueReader:
    """Reads one message, counting its elements."""

    def __init__(self, limits: Limits, float_lists: FloatLists) -> None:
        self._limits = limits
        self._float_lists = float_lists
        self._elements = 0
        self._inner_keys = 0

    def data(self, message: pb.DataMap, depth: int) -> Data:
        self._limits.check_depth(depth)
        keys = len(message.mapItems) + len(message.metaData)
        self._limits.check_keys(keys)
        if depth:
            self._inner_keys += 1 + keys
            self._limits.check_inner_keys(self._inner_keys)
        values = self._entries(message.mapItems, depth)
        metadata = self._entries(message.metaData, depth) if message.metaData else None
        return Data.trusted(values, None if metadata is None else Data.trusted(metadata))

    def metadata(self, message: pb.DataMap) -> Data:
        return Data.trusted(self._entries(message.metaData, 0))

    def value(self, scheme: pb.DataScheme, depth: int) -> Any:
        value_type = _VALUE_TYPES.get(scheme.type)
        if value_type is None:
            return UNKNOWN
        field = _FIELDS[value_type]
        present = scheme.WhichOneof("value")
        if present != field:
            raise WireError(f"its type is {value_type.name}, but {_presence(present)} instead of {field}")
        content = getattr(scheme, field)
        if value_type in SCALAR_FIELDS:
            return content
        if value_type is ValueType.NDARRAY:
            return _read_array(content)
        if value_type is ValueType.LIST:
            return self._list(content, scheme.listType, depth + 1)
        if value_type is ValueType.DATA:
            return self.data(content, depth + 1)
        return self._simple(value_type, content)

    def _entries(self, items: Mapping[str, pb.DataScheme], depth: int) -> dict[str, Any]:
        self._count(len(items))
        values = {}
        for key in sorted(items):
            if depth == 0:
                self._inner_keys = 0
            try:
                check_key(key)
                value = self.value(items[key], depth)
            except (WireError, DataError) as error:
                raise WireError.within(key, error) from None
            if value is not UNKNOWN:
                values[key] = value
        return values

    def _list(self, message: pb.List, number: int, depth: int) -> Any:
        self._limits.check_depth(depth)
        elements = _VALUE_TYPES.get(number)
        if elements is None:
            return UNKNOWN
        field = _LIST_FIELDS[elements]
        present = message.WhichOneof("list")
        if present != field:
            raise WireError(f"it is a list of {elements.name}, but {_presence(present)} instead of {field}")
        items = getattr(message, field).list
        self._count(len(items))
        if not items:
            return TypedList(elements)
        if elements in SCALAR_FIELDS:
            return list(items)
        if elements is ValueType.DATA:
            return [self.data(item, depth + 1) for item in items]
        if elements is ValueType.LIST:
            return self._lists(items, depth)
        if elements is ValueType.NDARRAY:
            return [self._list_array(item) for item in items]
        return [self._simple(elements, item) for item in items]

    def _lists(self, schemes: Any, depth: int) -> Any:
        values = []
        for scheme in schemes:
            if scheme.type != ValueType.LIST:
                raise WireError(f"a list of lists has an element of type {scheme.type}")
            value = self.value(scheme, depth)
            if value is UNKNOWN:
                return UNKNOWN
            values.append(value)
        return values

    def _simple(self, value_type: ValueType, content: Any) -> Any:
        if value_type is ValueType.IMAGE:
            # The label is not looked at: peers send other formats labelled PNG.
            return Image(_first(content.data, "data"))
        if value_type is ValueType.BOUNDING_BOX:
            return _read_box(content)
        if value_type is ValueType.POINT:
            return self._point(content)
        return ByteBuffer(content)

    def _list_array(self, message: pb.NDArray) -> Array:
        element = _array_type(message)
        buffer = _first(message.array, "array")
        count = math.prod(message.shape) if len(message.shape) <= 64 else 0
        if element is not NDArrayType.FLOAT or len(buffer) <= count * width(element):
            return from_buffer(buffer, message.shape, element)
        if self._float_lists == "double" and len(buffer) == count * width(NDArrayType.DOUBLE):
            return from_buffer(buffer, message.shape, NDArrayType.DOUBLE)
        raise WireError(
            f"an array of FLOAT {list(message.shape)} in a list has {len(buffer)} bytes, {count * 4} are right. "
            'Konduit Serving labels every array in a list FLOAT; if these are DOUBLE, read with float_lists="double"'
        )

    def _point(self, message: pb.Point) -> Point:
        self._count(len(message.coords))
        probability = None if math.isnan(message.probability) else message.probability
        return Point(message.coords, message.label, probability)

    def _count(self, elements: int) -> None:
        self._elements += elements
        self._limits.check_elements(self._elements)


def _read_array(message: pb.NDArray) -> Array:
    return from_buffer(_first(message.array, "array"), message.shape[:], _array_type(message))


def _read_box(message: pb.BoundingBox) -> BoundingBox:
    label = message.label or None
    probability = None if math.isnan(message.probability) else message.probability
    if message.type == pb.BoundingBox.XY:
        return BoundingBox.corners(message.x0, message.x1, message.y0, message.y1, label, probability)
    if message.type == pb.BoundingBox.CHW:
        return BoundingBox.center(message.cx, message.cy, message.h, message.w, label, probability)
    raise WireError(f"a bounding box of the unknown form {message.type}")


def _array_type(message: pb.NDArray) -> NDArrayType:
    element = _ARRAY_TYPES.get(message.type)
    if element is None:
        raise WireError(f"an array of the unknown element type {message.type}")
    return element


def _first(parts: Any, field: str) -> bytes:
    if not parts:
        raise WireError(f"its {field} is missing")
    first: bytes = parts[0]
    return first


def _presence(field: str | None) -> str:
    return "it has no value" if field is None else f"it has {field}"


SCALAR_FIELDS: dict[int, str] = {
    ValueType.STRING: "sValue",
    ValueType.INT64: "iValue",
    ValueType.BOOLEAN: "boolValue",
    ValueType.DOUBLE: "doubleValue",
    ValueType.BYTES: "bValue",
}
_PLAIN_FIELDS = SCALAR_FIELDS | {ValueType.BYTEBUFFER: "bValue"}
_FIELDS = _PLAIN_FIELDS | {
    ValueType.NDARRAY: "ndValue",
    ValueType.IMAGE: "imValue",
    ValueType.BOUNDING_BOX: "boxValue",
    ValueType.POINT: "pointValue",
    ValueType.LIST: "listValue",
    ValueType.DATA: "metaData",
}
_VALUE_TYPES: dict[int, ValueType] = {int(value_type): value_type for value_type in ValueType if value_type in _FIELDS}
_LIST_FIELDS = {
    ValueType.STRING: "sList",
    ValueType.INT64: "iList",
    ValueType.BOOLEAN: "bList",
    ValueType.DOUBLE: "dList",
    ValueType.BYTES: "bytesList",
    ValueType.BYTEBUFFER: "bytesList",
    ValueType.NDARRAY: "ndList",
    ValueType.IMAGE: "imList",
    ValueType.BOUNDING_BOX: "bboxList",
    ValueType.POINT: "pList",
    ValueType.DATA: "dataList",
    ValueType.LIST: "listList",
}
_ARRAY_TYPES: dict[int, NDArrayType] = {int(element): element for element in NDArrayType}
_FILL_ELEMENT: dict[ValueType, Any] = {
    ValueType.NDARRAY: _fill_array,
    ValueType.IMAGE: _fill_image,
    ValueType.BOUNDING_BOX: _fill_box,
    ValueType.POINT: _fill_point,
}
