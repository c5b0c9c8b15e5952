"""Strings in cells: the codecs of string tensors. Strings are UTF-8 in memory."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from pipelines.errors import DataError, WrongTypeError
from pipelines.tensors.cells import Array
from pipelines.tensors.errors import ReleasedError

SPAN = np.dtype([("start", np.int64), ("end", np.int64)])
"""A cell of packed strings: where its bytes begin and end."""


class Padded:
    """Cells of `length` bytes each, filled up with the byte `padding`."""

    def __init__(self, length: int, padding: int = 0) -> None:
        if length < 1 or not 0 <= padding <= 255:
            raise DataError(f"strings of {length} bytes padded with {padding}: at least one byte, padded with 0 to 255")
        self.length = length
        self.padding = padding
        self.dtype = np.dtype((np.void, length))
        self._pad = bytes([padding])

    def raw(self, cells: Array) -> Iterator[bytes]:
        """The bytes of each cell, without the padding."""
        return (cell.tobytes().rstrip(self._pad) for cell in cells)

    def element(self, cell: Any) -> str:
        return _decoded(cell.tobytes().rstrip(self._pad))

    def many(self, cells: Array) -> Iterator[str]:
        return map(_decoded, self.raw(cells))

    def cell(self, value: Any) -> np.void:
        encoded = _encoded(value)
        if len(encoded) > self.length:
            raise DataError(f"{value!r} has {len(encoded)} bytes, and {self.length} is the length of these strings")
        if encoded.endswith(self._pad):
            raise DataError(f"{value!r} ends with the padding {self._pad!r}, which would be lost; choose another")
        return np.void(encoded.ljust(self.length, self._pad))

    def cells(self, values: Any, count: int) -> Array:
        listed = string_array(values, count)
        made = np.empty(listed.shape, self.dtype)
        flat = made.reshape(-1)
        for place, value in enumerate(listed.flat):
            flat[place] = self.cell(value)
        return made

    def release(self) -> None:
        """There is no memory besides the cells."""


class Packed:
    """Cells are spans of one piece of memory."""

    def __init__(self, memory: memoryview) -> None:
        self._memory: memoryview | None = memory

    @property
    def memory(self) -> memoryview:
        """The bytes of all strings. Raises `ReleasedError`."""
        if self._memory is None:
            raise ReleasedError("the view was released; make another one")
        return self._memory

    def raw(self, cells: Array) -> Iterator[bytes]:
        """The bytes of each cell."""
        return (bytes(self.memory[start:end]) for start, end in cells.tolist())

    def element(self, cell: Any) -> str:
        return _decoded(bytes(self.memory[int(cell["start"]) : int(cell["end"])]))

    def many(self, cells: Array) -> Iterator[str]:
        return map(_decoded, self.raw(cells))

    def cell(self, value: Any) -> Any:
        raise NotImplementedError("packed strings are not written in place")

    def cells(self, values: Any, count: int) -> Array:
        raise NotImplementedError("packed strings are not written in place")

    def release(self) -> None:
        """Let go of the bytes."""
        self._memory = None


class Collected:
    """Cells are Python strings, as an initialiser writes them before their sizes are known."""

    def raw(self, cells: Array) -> Iterator[bytes]:
        """The bytes of each cell."""
        return map(_encoded, cells)

    def element(self, cell: Any) -> str:
        return cell if isinstance(cell, str) else _decoded(cell)

    def many(self, cells: Array) -> Iterator[str]:
        return map(self.element, cells)

    def cell(self, value: Any) -> str | bytes:
        _encoded(value)
        cell: str | bytes = value
        return cell

    def cells(self, values: Any, count: int) -> Array:
        listed = string_array(values, count)
        for value in listed.flat:
            _encoded(value)
        return listed

    def release(self) -> None:
        """There is no memory besides the cells."""


@runtime_checkable
class HasStrings(Protocol):
    """A tensor of strings."""

    def object_array(self) -> npt.NDArray[np.object_]:
        """All elements in an array of Python strings."""


def string_array(values: Any, count: int | None) -> Array:
    """Strings, nested lists or an array of them as an array of objects; of an iterator at most `count` are taken."""
    if isinstance(values, HasStrings):
        return values.object_array()
    if isinstance(values, np.ndarray):
        if values.dtype.kind not in "USTO":
            raise _refusal(values.dtype)
        return np.asarray(values, object)
    if isinstance(values, (str, bytes)):
        # A string is an element, not a row of characters.
        single = np.empty((), object)
        single[()] = values
        return single
    if not isinstance(values, Iterable):
        raise _refusal(type(values).__name__)
    listed = list(itertools.islice(values, count)) if isinstance(values, Iterator) else list(values)
    shape = _shape_of(listed)
    made = np.empty(shape, object)
    flat = made.reshape(-1)
    for place, value in enumerate(_leaves(listed, len(shape))):
        flat[place] = value
    return made


def _shape_of(values: Any) -> tuple[int, ...]:
    if not isinstance(values, (list, tuple)):
        return ()
    inner = {_shape_of(value) for value in values}
    if len(inner) > 1:
        raise DataError("the lists have different lengths or depths and make no tensor; ragged_string() makes one")
    return (len(values), *(inner.pop() if inner else ()))


def _leaves(values: Any, depth: int) -> Iterator[Any]:
    return iter(values) if depth == 1 else itertools.chain.from_iterable(_leaves(item, depth - 1) for item in values)


def _encoded(value: Any) -> bytes:
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError:
            raise DataError(f"{value!r} has half of a surrogate pair, which is not text") from None
    if isinstance(value, bytes):
        return value
    raise _refusal(type(value).__name__)


def _decoded(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise DataError(
            f"the string {raw!r} is not valid UTF-8 ({error.reason}); get_bytes() gives it as it is"
        ) from None


def _refusal(what: object) -> WrongTypeError:
    return WrongTypeError(f"a string tensor takes str and bytes, not {what}")
