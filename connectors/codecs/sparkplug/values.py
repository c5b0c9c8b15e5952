"""Values of Sparkplug metrics by their datatypes, and back (Sparkplug 3.0, chapter 6.4.16 and 6.4.17)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from pipelines.data.data import Data
from pipelines.errors import WireError
from pipelines.values import type_of
from protos import sparkplug_pb2 as pb

Order = Literal["little", "big"]

_INTEGERS: Final = frozenset({"int_value", "long_value"})
_FLOATS: Final = frozenset({"float_value", "double_value"})
_LARGEST: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class MetricReader:
    """Reads the values of metrics of one datatype."""

    field: str
    """The field of the message that holds it as a rule."""
    fields: frozenset[str]
    """All fields in which writers put the value."""
    get: Callable[[Any], Any]
    """The content of `field`."""
    convert: Callable[[Any], Any] | None = None
    """Converts the content to the value."""

    def value(self, metric: Any, name: str) -> Any:
        """The value, or `None` where there is none. Raises `WireError` for a value of another type."""
        raw = self.get(metric)
        # A field that is not there reads as zero, false or empty.
        if not raw and not metric.HasField(self.field):
            field = metric.WhichOneof("value")
            if field is None:
                return None
            if field not in self.fields:
                raise WireError(f'"{name}" has a {field}, which its datatype cannot have')
            raw = getattr(metric, field)
        if self.convert is None:
            return raw
        try:
            return self.convert(raw)
        except ValueError as error:
            raise WireError(f'"{name}": {error}') from None


def readings(byte_order: Order, bit_order: Order) -> Mapping[int, MetricReader]:
    """How metrics are read, by the number of their datatype; there is nothing for templates and property sets.

    Array elements are in `byte_order`, booleans of arrays in `bit_order` (`little`: the first is the lowest bit).
    """
    by_type = {number: _reading(field, fields, convert) for number, (field, fields, convert) in _SCALARS.items()}
    for number, dtype in _ARRAYS.items():
        by_type[number] = _bytes(partial(_array, np.dtype(dtype).newbyteorder("<" if byte_order == "little" else ">")))
    by_type[pb.BOOLEAN_ARRAY] = _bytes(partial(_booleans, bit_order))
    by_type[pb.STRING_ARRAY] = _bytes(_strings)
    by_type[pb.DATASET] = _reading("dataset_value", frozenset({"dataset_value"}), data_set)
    return by_type


def reading_of(field: str | None) -> MetricReader | None:
    """How a metric without a datatype is read; integers are then not negative."""
    return None if field is None else _OF_FIELD.get(field)


def write(metric: Any, value: Any, byte_order: Order, bit_order: Order) -> None:
    """Put a value and its datatype into a metric. Raises `WireError` for a value that metrics cannot have."""
    if isinstance(value, bool):
        metric.datatype, metric.boolean_value = pb.BOOLEAN, value
    elif isinstance(value, int):
        metric.datatype, metric.long_value = pb.INT64, value & ((1 << 64) - 1)
    elif isinstance(value, float):
        metric.datatype, metric.double_value = pb.DOUBLE, value
    elif isinstance(value, str):
        metric.datatype, metric.string_value = pb.STRING, value
    elif isinstance(value, (bytes, bytearray)):
        metric.datatype, metric.bytes_value = pb.BYTES, bytes(value)
    elif isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype == np.bool_:
        bits = np.packbits(value, bitorder=bit_order).tobytes()
        metric.datatype, metric.bytes_value = pb.BOOLEAN_ARRAY, len(value).to_bytes(4, byte_order) + bits
    elif isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype.name in _OF_DTYPE:
        order = value.dtype.newbyteorder("<" if byte_order == "little" else ">")
        metric.datatype, metric.bytes_value = _OF_DTYPE[value.dtype.name], value.astype(order).tobytes()
    elif isinstance(value, list) and all(isinstance(text, str) and "\0" not in text for text in value):
        metric.datatype, metric.bytes_value = pb.STRING_ARRAY, b"".join(text.encode() + b"\0" for text in value)
    else:
        kind = f"{value.dtype}{list(value.shape)}" if isinstance(value, np.ndarray) else type_of(value).name
        raise WireError(f'the value of "{metric.name}" is of type {kind}, which no Sparkplug metric can have')


def data_set(table: Any) -> Data:
    """A table as nested data: for each column an array, of texts a list. Raises `ValueError` for one that is wrong."""
    names, types, rows = list(table.columns), list(table.types), table.rows
    if len(names) != len(types) or len(set(names)) != len(names):
        raise ValueError(f"a data set of {len(names)} columns, not all named differently, has {len(types)} types")
    if any(len(row.elements) != len(names) for row in rows):
        raise ValueError(f"a data set of {len(names)} columns has rows of another length")
    return Data(
        {
            name: _cells(name, kind, [row.elements[at] for row in rows])
            for at, (name, kind) in enumerate(zip(names, types, strict=True))
        }
    )


def _cells(name: str, kind: int, cells: list[Any]) -> Any:
    if kind not in _CELLS:
        raise ValueError(f"a column of a data set cannot be of datatype {kind}")
    field, fields, convert = _SCALARS[kind]
    reading = _reading(field, fields, convert)
    values = [reading.value(cell, name) for cell in cells]
    if None in values:
        raise ValueError("a data set lacks a cell")
    return values if _CELLS[kind] is None else np.array(values, _CELLS[kind])


def _reading(field: str, fields: frozenset[str], convert: Callable[[Any], Any] | None) -> MetricReader:
    return MetricReader(field, fields, attrgetter(field), convert)


def _bytes(convert: Callable[[bytes], Any]) -> MetricReader:
    return _reading("bytes_value", frozenset({"bytes_value"}), convert)


def _unsigned(bits: int, value: int) -> int:
    if value >> bits or value > _LARGEST:
        raise ValueError(f"{value} is too large for {min(bits, 63)} bits")
    return value


def _signed(bits: int, value: int) -> int:
    # Some writers extend the sign to the width of the field.
    for width in (bits, 32, 64):
        if value < 1 << width:
            signed = value - (1 << width) if value >> (width - 1) else value
            if -(1 << (bits - 1)) <= signed < 1 << (bits - 1):
                return signed
    raise ValueError(f"{value} is not an integer of {bits} bits")


def _array(dtype: np.dtype[Any], content: bytes) -> npt.NDArray[Any]:
    if len(content) % dtype.itemsize:
        raise ValueError(f"{len(content)} bytes are not an array of {dtype.name}")
    return np.frombuffer(content, dtype).astype(dtype.newbyteorder("="), copy=False)


def _booleans(bit_order: Order, content: bytes) -> npt.NDArray[np.bool_]:
    count = int.from_bytes(content[:4], "little")
    if len(content) < 4 or len(content) - 4 != -(-count // 8):
        raise ValueError(f"{len(content)} bytes are not an array of {count} booleans")
    return np.unpackbits(np.frombuffer(content, np.uint8, offset=4), count=count, bitorder=bit_order).astype(np.bool_)


def _strings(content: bytes) -> list[str]:
    if content and not content.endswith(b"\0"):
        raise ValueError("the last text of an array does not end")
    return content.decode().split("\0")[:-1]


_INT: Final = "int_value"
_LONG: Final = "long_value"
_TEXT: Final = frozenset({"string_value"})
_SCALARS: Final[Mapping[int, tuple[str, frozenset[str], Callable[[Any], Any] | None]]] = {
    pb.INT8: (_INT, _INTEGERS, partial(_signed, 8)),
    pb.INT16: (_INT, _INTEGERS, partial(_signed, 16)),
    pb.INT32: (_INT, _INTEGERS, partial(_signed, 32)),
    pb.INT64: (_LONG, _INTEGERS, partial(_signed, 64)),
    pb.UINT8: (_INT, _INTEGERS, partial(_unsigned, 8)),
    pb.UINT16: (_INT, _INTEGERS, partial(_unsigned, 16)),
    pb.UINT32: (_INT, _INTEGERS, partial(_unsigned, 32)),
    pb.UINT64: (_LONG, _INTEGERS, partial(_unsigned, 64)),
    pb.FLOAT: ("float_value", _FLOATS, None),
    pb.DOUBLE: ("double_value", _FLOATS, None),
    pb.BOOLEAN: ("boolean_value", frozenset({"boolean_value"}), None),
    pb.STRING: ("string_value", _TEXT, None),
    pb.DATETIME: (_LONG, _INTEGERS, partial(_unsigned, 64)),
    pb.TEXT: ("string_value", _TEXT, None),
    pb.UUID: ("string_value", _TEXT, None),
    pb.BYTES: ("bytes_value", frozenset({"bytes_value"}), None),
    pb.FILE: ("bytes_value", frozenset({"bytes_value"}), None),
}
_OF_FIELD: Final[Mapping[str, MetricReader]] = {
    field: _reading(field, frozenset({field}), convert)
    for field, convert in (
        (_INT, partial(_unsigned, 32)),
        (_LONG, partial(_unsigned, 64)),
        ("float_value", None),
        ("double_value", None),
        ("boolean_value", None),
        ("string_value", None),
        ("bytes_value", None),
        ("dataset_value", data_set),
    )
}
_ARRAYS: Final[Mapping[int, str]] = {
    pb.INT8_ARRAY: "int8",
    pb.INT16_ARRAY: "int16",
    pb.INT32_ARRAY: "int32",
    pb.INT64_ARRAY: "int64",
    pb.UINT8_ARRAY: "uint8",
    pb.UINT16_ARRAY: "uint16",
    pb.UINT32_ARRAY: "uint32",
    pb.UINT64_ARRAY: "uint64",
    pb.FLOAT_ARRAY: "float32",
    pb.DOUBLE_ARRAY: "float64",
    pb.DATETIME_ARRAY: "int64",
}
_OF_DTYPE: Final = {dtype: number for number, dtype in _ARRAYS.items() if number != pb.DATETIME_ARRAY}
_CELLS: Final[Mapping[int, str | None]] = {
    **dict.fromkeys((pb.INT8, pb.INT16, pb.INT32, pb.INT64), "int64"),
    **dict.fromkeys((pb.UINT8, pb.UINT16, pb.UINT32, pb.UINT64, pb.DATETIME), "int64"),
    pb.FLOAT: "float32",
    pb.DOUBLE: "float64",
    pb.BOOLEAN: "bool",
    pb.STRING: None,
    pb.TEXT: None,
}
"""The dtype of the array that a column of a data set becomes, by its datatype; `None`: a list."""
