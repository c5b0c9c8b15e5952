"""`Data`: one record on its way through a pipeline."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pipelines.data.record import RecordContext
from pipelines.errors import (
    MOST_KEYS,
    DataError,
    ReservedKeyError,
    ValueNotFoundError,
    WireError,
    WrongTypeError,
    nearest,
)
from pipelines.late import late
from pipelines.values.buffer import ByteBuffer
from pipelines.values.geometry import BoundingBox, Point
from pipelines.values.image import Image
from pipelines.values.lists import TypedList, element_type, list_to_array
from pipelines.values.native import as_held, native, native_class, settled
from pipelines.values.ndarray import ByteOrder, array_type
from pipelines.values.oddvalue import OddValue
from pipelines.values.valuetype import ValueType, type_of
from pipelines.wire.limits import DEFAULT_LIMITS, Limits

__all__ = ["RESERVED_KEYS", "Data", "RecordContext", "as_data", "check_key", "is_reserved"]

RESERVED_KEYS = frozenset(
    {
        "@type",
        "@BytesBase64",
        "@BytesArray",
        "@ByteBuffer",
        "@ByteBufferBase64",
        "@ImageFormat",
        "@ImageData",
        "@NDArrayShape",
        "@NDArrayType",
        "@NDArrayDataBase64",
        "@Metadata",
        "@x1",
        "@x2",
        "@y1",
        "@y2",
        "@cx",
        "@cy",
        "@h",
        "@w",
        "@Point",
        "@Coords",
        "@AsyncTrigger",
    }
)
"""Keys that the JSON form uses for itself. No `Data` may have one, in upper, lower or mixed case."""


class Data(MutableMapping[str, Any]):
    """Keys and typed values in the order in which they were put, with optional metadata (one more `Data`).

    Values are native: `str int float bool bytes numpy.ndarray list`, and `Image`, `BoundingBox`, `Point`,
    `ByteBuffer` and `Data`; `pipelines.values.native` lists the other types that are accepted and converted. There is
    no null: leave the key out. `data[key]` gives any value, `data.get_double(key)` and the like one of a known type.

    Raises, when a value is put: `ReservedKeyError` for a key of `RESERVED_KEYS`, `WrongTypeError` for a value or a
    key of another type, `DataError` for an integer beyond 64 bits.
    Equality compares keys, types and values, not their order, the metadata or the record.

    A `Data` that a step is given may share values with other branches and records. Mutable values (lists, nested
    `Data`, boxes, points) are copied when they are first asked for, so that changes stay in this `Data`; arrays are
    read-only. A `Data` that was decoded may also have values beyond its types (a list of several types, 2**70,
    `[1, None]`): `data[key]` gives these as the parser of their format does, as plain lists, dictionaries and numbers;
    `get_double` and the like raise `WireError`.
    """

    __slots__ = ("_lent", "_metadata", "_record", "_values")

    _lent: set[str] | None
    """Keys whose values are shared with another `Data`, and copied when they are asked for, and those of odd values
    (`OddValue`); `None` for none."""

    def __init__(
        self,
        values: Mapping[str, Any] | Iterable[tuple[str, Any]] = (),
        *,
        metadata: Data | Mapping[str, Any] | None = None,
        record: RecordContext | None = None,
    ) -> None:
        self._values: dict[str, Any] = {}
        self._metadata: Data | None = None
        self._record = record
        self._lent = None
        for key, value in values.items() if isinstance(values, Mapping) else values:
            self[key] = value
        if metadata is not None:
            self.metadata = metadata

    @classmethod
    def trusted(
        cls,
        values: dict[str, Any],
        metadata: Data | None = None,
        record: RecordContext | None = None,
        lent: set[str] | None = None,
    ) -> Data:
        """A `Data` around `values`, unchecked, for codecs that made them.

        The caller promises native values (see `pipelines.values.native`), checked keys (`check_key`), and not to use
        the dictionary and the set any more. Values named by `lent` are shared: they are copied when asked for. A value
        that is an `OddValue` is named there.
        """
        data = cls.__new__(cls)
        data._values = values
        data._metadata = metadata
        data._record = record
        data._lent = lent
        return data

    @property
    def metadata(self) -> Data | None:
        """Values about the record rather than of it; `None` if there are none. A mapping becomes a `Data`."""
        return self._metadata

    @metadata.setter
    def metadata(self, metadata: Data | Mapping[str, Any] | None) -> None:
        if metadata is not None and not isinstance(metadata, Data):
            metadata = Data(metadata)
        self._metadata = metadata

    @property
    def record(self) -> RecordContext | None:
        """The record of the bus that this came from, or `None`. Never serialised."""
        return self._record

    def __getitem__(self, key: str) -> Any:
        try:
            value = self._values[key]
        except KeyError:
            raise self._not_found(key) from None
        return self._copy_for_caller(key, value) if self._lent and key in self._lent else value

    def __setitem__(self, key: str, value: Any) -> None:
        check_key(key)
        try:
            self._values[key] = native(value)
        except DataError as error:
            raise type(error)(f'key "{key}": {error}') from error
        if self._lent:
            self._lent.discard(key)

    def __delitem__(self, key: str) -> None:
        if key not in self._values:
            raise self._not_found(key)
        del self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, key: object) -> bool:
        return key in self._values

    def get(self, key: str, default: Any = None) -> Any:
        """The value of `key`, or `default`."""
        return self[key] if key in self._values else default

    @property
    def held(self) -> Mapping[str, Any]:
        """The keys and values, shared ones not copied: they must not be changed. Odd ones are `OddValue`s."""
        return self._values

    @property
    def odd(self) -> Mapping[str, OddValue]:
        """The values that are of no type of `Data`, by key; one that was read is the caller's copy (`handed_out`)."""
        if not self._lent:
            return _NONE_ODD
        return {key: value for key in self._lent if isinstance(value := self._values.get(key), OddValue)}

    def hold(self, key: str, value: Any) -> None:
        """Put a value that may be of no type of `Data`: an `OddValue`, or an object that `as_held` makes one of.

        Raises as `data[key] = value` does for any other.
        """
        check_key(key)
        try:
            self._values[key] = value = value if isinstance(value, OddValue) else as_held(value)
        except DataError as error:
            raise type(error)(f'key "{key}": {error}') from error
        if isinstance(value, OddValue):
            self._lent = {key, *(self._lent or ())}
        elif self._lent:
            self._lent.discard(key)

    def lent(self) -> Data:
        """Another `Data` with the same entries, metadata and record; changes to it do not reach this one."""
        lent = {key for key, value in self._values.items() if isinstance(value, LENT)}
        metadata = None if self._metadata is None else self._metadata.lent()
        odd = {key: settled(value) for key, value in self.odd.items()}
        return Data.trusted({**self._values, **odd}, metadata, self._record, lent or None)

    def type(self, key: str) -> ValueType:
        """The type of the value of `key`. `ValueNotFoundError` if there is none, `WireError` for an odd value."""
        return type_of(self._known(key))

    def list_type(self, key: str) -> ValueType:
        """The element type of a list: `NONE` for an empty one that never had one.

        `ValueNotFoundError` if there is no such key or its value is no list.
        """
        values = self._known(key)
        if not isinstance(values, list):
            raise ValueNotFoundError(f'Value of key "{key}" is {type_of(values).name}, not a LIST')
        return element_type(values)

    def get_ndarray(self, key: str) -> npt.NDArray[Any]:
        """The array of `key`. A list of numbers, nested or not, comes as a float32 array of its shape."""
        value = self._known(key)
        if isinstance(value, list):
            return list_to_array(value, key)
        array: npt.NDArray[Any] = self._typed(key, ValueType.NDARRAY)
        return array

    def get_string(self, key: str) -> str:
        """The string of `key`."""
        value: str = self._typed(key, ValueType.STRING)
        return value

    def get_int64(self, key: str) -> int:
        """The integer of `key`; a float is not one."""
        value: int = self._typed(key, ValueType.INT64)
        return value

    def get_double(self, key: str) -> float:
        """The number of `key` as a float: of a DOUBLE, or of an INT64 that a float does not round.

        `WrongTypeError` for any other value, a boolean too; `DataError` for an integer that a float would round.
        """
        value = self._known(key)
        if isinstance(value, int) and type_of(value) is ValueType.INT64:
            number = float(value)
            if number != value:
                raise DataError(
                    f'The INT64 {value} of key "{key}" is not a DOUBLE: it would lose digits; use get_int64'
                )
            return number
        return float(self._typed(key, ValueType.DOUBLE))

    def get_boolean(self, key: str) -> bool:
        """The boolean of `key`."""
        value: bool = self._typed(key, ValueType.BOOLEAN)
        return value

    def get_bytes(self, key: str) -> bytes:
        """The bytes of `key`; a `ByteBuffer` is another type."""
        value: bytes = self._typed(key, ValueType.BYTES)
        return value

    def get_byte_buffer(self, key: str) -> ByteBuffer:
        """The `ByteBuffer` of `key`."""
        value: ByteBuffer = self._typed(key, ValueType.BYTEBUFFER)
        return value

    def get_image(self, key: str) -> Image:
        """The `Image` of `key`."""
        value: Image = self._typed(key, ValueType.IMAGE)
        return value

    def get_bounding_box(self, key: str) -> BoundingBox:
        """The `BoundingBox` of `key`."""
        value: BoundingBox = self._typed(key, ValueType.BOUNDING_BOX)
        return value

    def get_point(self, key: str) -> Point:
        """The `Point` of `key`."""
        value: Point = self._typed(key, ValueType.POINT)
        return value

    def get_data(self, key: str) -> Data:
        """The nested `Data` of `key`."""
        value: Data = self._typed(key, ValueType.DATA)
        return value

    def get_list(self, key: str, elements: ValueType | None = None) -> list[Any]:
        """The list of `key`; with `elements`, one of that element type (an empty list is of any)."""
        values: list[Any] = self._typed(key, ValueType.LIST)
        if elements is not None and values and element_type(values) is not elements:
            raise WrongTypeError(
                f'Value has wrong type for key "{key}": requested list of {elements.name}, '
                f"actual list of {element_type(values).name}"
            )
        return values

    def merge(self, *others: Data, allow_overwrite: bool = False) -> None:
        """Take over the entries of `others`, one after the other, without their metadata.

        `DataError` if a key is there already and `allow_overwrite` is false; the entries merged before it stay.
        """
        for other in others:
            for key, value in other._values.items():
                if not allow_overwrite and key in self._values:
                    raise DataError(
                        f'Error during merging: Data instance already has key "{key}" and allowOverwrite is false'
                    )
                self._values[key] = value
                if other._lent and key in other._lent:
                    self._lent = {key, *(self._lent or ())}
                elif self._lent:
                    self._lent.discard(key)

    def copy(self) -> Data:
        """Another `Data` with the same entries (the same value objects), a copy of the metadata, and the record."""
        metadata = None if self._metadata is None else self._metadata.copy()
        return Data.trusted(dict(self._values), metadata, self._record, set(self._lent) if self._lent else None)

    __copy__ = copy

    def to_bytes(self) -> bytes:
        """The ProtoData message (docs/data.md). `WireError` if it cannot carry a value."""
        return _encode(self)

    @classmethod
    def from_bytes(cls, payload: bytes, limits: Limits | None = None) -> Data:
        """The `Data` of a ProtoData message. `WireError` if it is invalid or exceeds `limits`."""
        return _decode(payload, limits or DEFAULT_LIMITS)

    def to_json(self, byte_order: ByteOrder = "big", *, pretty: bool = False) -> str:
        """The JSON text (docs/data.md), on one line or `pretty`. `WireError` if it cannot carry a value."""
        return _dumps(self, byte_order, pretty=pretty)

    @classmethod
    def from_json(cls, text: str | bytes, byte_order: ByteOrder = "big", limits: Limits | None = None) -> Data:
        """The `Data` of a JSON text, arrays in `byte_order`. `WireError` if it is invalid or exceeds `limits`."""
        return _loads(text, byte_order, limits or DEFAULT_LIMITS)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Data):
            return NotImplemented
        if self._values.keys() != other._values.keys():
            return False
        return all(_same(value, other._values[key]) for key, value in self._values.items())

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        entries = ", ".join(f"{key}: {_summary(value)}" for key, value in self._values.items())
        return f"Data({entries})"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{html.escape(key)}</td><td>{_type_name(value)}</td><td>{_html(value)}</td></tr>"
            for key, value in self._values.items()
        )
        table = f"<table><tr><th>key</th><th>type</th><th>value</th></tr>{rows}</table>"
        return table if self._metadata is None else f"{table}metadata {self._metadata._repr_html_()}"

    def _copy_for_caller(self, key: str, value: Any) -> Any:
        assert self._lent is not None
        if isinstance(value, OddValue):
            try:
                self._values[key] = lent = value.lent()
            except WireError:
                raise value.error(key) from None
            return lent.handed_out
        self._lent.discard(key)
        self._values[key] = value = owned(value)
        return value

    def _known(self, key: str) -> Any:
        """The value of `key`, of a type that a `Data` has. Raises `WireError` for an odd one."""
        value = self[key]
        if self._lent and key in self._lent:
            # Reading a shared value of any other type has removed its key from `_lent`.
            raise self._values[key].error(key)
        return value

    def _typed(self, key: str, requested: ValueType) -> Any:
        value = self._known(key)
        actual = type_of(value)
        if actual is not requested:
            raise WrongTypeError(
                f'Value has wrong type for key "{key}": requested type {requested.name}, actual type {actual.name}'
            )
        return value

    def _not_found(self, key: object) -> ValueNotFoundError:
        return ValueNotFoundError(f'Value not found for key "{key}"{nearest(str(key), self._values, MOST_KEYS)}')


def as_data(values: Mapping[str, Any], metadata: Data | None = None) -> Data:
    """A `Data` as it is, and of another mapping one with its keys and values, and `metadata`.

    Plain values that no `Data` can hold are taken all the same, as if they had come in a payload (`OddValue`).
    Raises as `Data` does for others, and `WrongTypeError` for what is not a mapping.
    """
    if isinstance(values, Data):
        return values
    if not isinstance(values, Mapping):
        raise WrongTypeError(f"a record is a Data or a dict, not {type(values).__name__}")
    try:
        return Data(values, metadata=metadata)
    except DataError:
        data = Data(metadata=metadata)
        for key, value in values.items():
            data.hold(key, value)
        return data


WRITABLE = (list, Data, BoundingBox, Point)
"""Classes of mutable values. Arrays are shared read-only instead."""
LENT = (*WRITABLE, OddValue)
"""Classes of values that a `Data` which shares them has to know by their keys (`Data.trusted`)."""
_NONE_ODD: Mapping[str, OddValue] = {}


def owned(value: Any) -> Any:
    """A copy of `value` as far as it is mutable, at any depth; arrays as read-only views of the same memory."""
    if isinstance(value, list):
        # The elements of a list are of one type.
        made = list(map(owned, value)) if value and not isinstance(value[0], _PLAIN) else list(value)
        return TypedList(value.element_type, made) if isinstance(value, TypedList) else made
    if isinstance(value, Data):
        entries = {key: owned(entry) for key, entry in value._values.items()}
        odd = {key for key, entry in entries.items() if isinstance(entry, OddValue)}
        return Data.trusted(entries, owned(value._metadata), value._record, odd or None)
    if isinstance(value, OddValue):
        return settled(value)
    if isinstance(value, (BoundingBox, Point)):
        return value.copy()
    if isinstance(value, np.ndarray) and value.flags.writeable:
        value = value.view()
        value.flags.writeable = False
    return value


def check_key(key: str) -> None:
    """Raise `ReservedKeyError` for a reserved key in any case, and `WrongTypeError` for a key that is not a `str`."""
    if not isinstance(key, str):
        raise WrongTypeError(f"a key of a Data is a string, not {key!r}")
    if is_reserved(key):
        raise ReservedKeyError(reserved(key))


def is_reserved(key: str) -> bool:
    """Whether the key is one of `RESERVED_KEYS`, in any case."""
    # All reserved keys begin with @, few others do.
    return key.startswith("@") and key.lower() in _RESERVED_LOWER


def reserved(key: str) -> str:
    """The error text for a reserved key."""
    return f'Cannot use key "{key}" in a Data instance: This key is reserved for internal use only'


_encode: Final[Callable[[Data], bytes]] = late("pipelines.wire.protobuf:encode")
_decode: Final[Callable[[bytes, Limits], Data]] = late("pipelines.wire.protobuf:decode")
_dumps: Final[Callable[..., str]] = late("pipelines.wire.json:dumps")
_loads: Final[Callable[[str | bytes, ByteOrder, Limits], Data]] = late("pipelines.wire.json:loads")

_PLAIN = (str, int, float, bytes, Image)
_RESERVED_LOWER = frozenset(key.lower() for key in RESERVED_KEYS)


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, OddValue) or isinstance(b, OddValue):
        return bool(a == b)
    kind = type_of(a)
    if kind is not type_of(b):
        return False
    if kind is ValueType.NDARRAY:
        return _same_array(a, b)
    if kind is ValueType.LIST:
        return len(a) == len(b) and all(map(_same, a, b))
    if kind is ValueType.DOUBLE:
        return bool(a == b or (a != a and b != b))
    return bool(a == b)


def _same_array(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> bool:
    if array_type(a.dtype) is not array_type(b.dtype) or a.shape != b.shape:
        return False
    # By bytes, as in Konduit Serving: a NaN equals the same NaN, and -0.0 is not 0.0.
    same: bool = a.tobytes() == b.astype(a.dtype, copy=False).tobytes()
    return same


def _summary(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{list(value.shape)}"
    if isinstance(value, list) and len(value) > 4:
        return f"list of {len(value)} {element_type(value).name}"
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _type_name(value: Any) -> str:
    return "none" if isinstance(value, OddValue) else type_of(value).name


def _html(value: Any) -> str:
    if isinstance(value, (Data, Image)):
        return value._repr_html_()
    return html.escape(_summary(value))


native_class(Data, ValueType.DATA, lambda value: value if isinstance(value, Data) else Data(value), base=Mapping)
