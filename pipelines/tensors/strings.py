"""String tensors: padded to one length and written in place, or of any length and collected first."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from pipelines.errors import DataError
from pipelines.tensors.access import tensor_data
from pipelines.tensors.cells import Array, Cells, Lease, sealed
from pipelines.tensors.create import checked_shape, view, writable
from pipelines.tensors.dense import DenseView
from pipelines.tensors.text import SPAN, Collected, Packed, Padded, string_array
from pipelines.tensors.textstreams import StringForm, read_stream, write_stream
from pipelines.tensors.writing import WritableDense


class StringView(DenseView[str]):
    """Strings that are read where they lie; `get` decodes one from UTF-8."""

    __slots__ = ()

    @property
    def fixed(self) -> tuple[int, int] | None:
        """The length in bytes and the padding, 0 to 255, of strings of one length; `None` for others."""
        return (self._codec.length, self._codec.padding) if isinstance(self._codec, Padded) else None

    def get_bytes(self, *indices: int) -> bytes:
        """One element as the bytes that it is. Raises as `get` does."""
        where = self._cells.locate(indices)
        codec: Any = self._codec
        encoded: bytes = next(iter(codec.raw(self._cells.array[(*where, np.newaxis)])))
        return encoded

    def bytes_of_all(self) -> list[bytes]:
        """All elements as bytes, in row-major order."""
        codec: Any = self._codec
        return list(codec.raw(self._cells.read(0, self.total_size)))

    def to_list(self) -> Any:
        """All elements as nested lists of `str`; of a scalar the `str`."""
        return self.object_array().tolist()

    def object_array(self) -> npt.NDArray[np.object_]:
        """All elements in an array of Python strings, as onnxruntime takes a tensor(string)."""
        made = np.empty(self.total_size, object)
        made[:] = list(self.stream())
        return made.reshape(self.shape)

    def dump(self, stream: IO[bytes], form: StringForm = "modified-utf8") -> None:
        """Write all strings to a binary stream, one after the other; `read_strings` reads them."""
        write_stream(stream, self.bytes_of_all(), form)

    def as_data_value(self) -> Any:
        data = tensor_data("string", self.shape)
        encoded = self.bytes_of_all()
        try:
            listed: list[Any] = [text.decode() for text in encoded]
        except UnicodeDecodeError:
            listed = encoded
        if listed:
            data["values"] = listed
        if self.fixed is not None:
            data["length"], data["padding"] = self.fixed
        return data


class WritableStrings(StringView, WritableDense[str]):
    """Strings that an initialiser writes."""

    __slots__ = ()


def dense_string(
    shape: Sequence[int],
    init: Callable[[WritableStrings], object],
    *,
    length: int | None = None,
    padding: int = 0,
    out: Any = None,
) -> StringView:
    """A string tensor that `init` writes, as `str` and `bytes`; elements that it leaves out are empty.

    With `length`, each string takes so many bytes, filled up with the byte `padding`, and is written where it will
    stay: new memory, or that of `out`; a longer one is a `DataError`. Without, the strings are collected, their sizes
    computed once, and the memory is made then. Exceptions of `init` go through, and there is no tensor.
    """
    lengths = checked_shape(shape)
    if length is not None:
        return _fixed(lengths, Padded(length, padding), init, out)
    if out is not None:
        raise DataError("strings of any length cannot be written in place; give a length, or leave out away")
    collected = np.full(lengths, "", object)
    _filled(WritableStrings(Cells(collected, lease=Lease(writable=True)), Collected()), init)
    return packed(list(Collected().raw(collected.reshape(-1))), lengths)


def strings(values: Any) -> StringView:
    """A string tensor of a string, nested lists of them, or an array."""
    listed = string_array(values, None)
    return packed(list(Collected().raw(listed.reshape(-1))), listed.shape)


def string_view(source: Any, shape: Sequence[int], length: int, *, padding: int = 0, offset: int = 0) -> StringView:
    """A read-only view over memory that holds strings of `length` bytes each; for `source` see `view`."""
    codec = Padded(length, padding)
    lengths = checked_shape(shape)
    raw = view(source, np.uint8, [math.prod(lengths) * length], offset=offset).array
    return StringView(Cells(raw.view(codec.dtype).reshape(lengths)), codec)


def packed_strings(offsets: Any, memory: Any, shape: Sequence[int] | None = None) -> StringView:
    """A read-only view over strings of any length as Arrow lays them out. Nothing is copied.

    Args:
        offsets: int64 `(n + 1,)`: where each string begins in `memory`, and where the last one ends.
        memory: The bytes of all strings, one after the other.
        shape: Shape of the view, of n elements; by default `(n,)`.

    Raises:
        DataError: Offsets fall, or point beyond the memory.
    """
    edges = view(offsets, np.int64).array
    content = view(memory, np.uint8).array
    if edges.ndim != 1 or not len(edges) or edges[0] < 0 or edges[-1] > len(content) or (np.diff(edges) < 0).any():
        raise DataError(
            "the offsets of strings rise from 0 to the size of their memory, one more than there are strings"
        )
    lengths = (len(edges) - 1,) if shape is None else checked_shape(shape)
    if math.prod(lengths) != len(edges) - 1:
        raise DataError(f"{len(edges) - 1} strings are not a tensor of the shape {list(lengths)}")
    pairs = np.lib.stride_tricks.sliding_window_view(edges, 2) if len(edges) > 1 else np.zeros((0, 2), np.int64)
    spans = pairs.view(SPAN)[:, 0].reshape(lengths)
    return StringView(Cells(spans), Packed(content.data))


def read_strings(stream: IO[bytes], form: StringForm = "modified-utf8", *, most: int = 16_000_000) -> StringView:
    """The strings of a binary stream up to its end, as a tensor of rank 1.

    `"modified-utf8"`: as Java's `DataOutput.writeUTF` writes them, two bytes of length each. `"lines"`: UTF-8, one a
    line. Raises `WireError` for a stream that ends within a string, is not such text or holds more than `most` strings.
    """
    encoded = read_stream(stream, form, most)
    return packed(encoded, (len(encoded),))


def packed(encoded: list[bytes], shape: tuple[int, ...]) -> StringView:
    """A tensor of these strings in row-major order."""
    edges = np.zeros(len(encoded) + 1, np.int64)
    np.cumsum([len(text) for text in encoded], out=edges[1:])
    return packed_strings(edges, b"".join(encoded), shape)


def _fixed(shape: tuple[int, ...], codec: Padded, init: Callable[[WritableStrings], object], out: Any) -> StringView:
    size = math.prod(shape) * codec.length
    raw: Array = np.empty(size, np.uint8) if out is None else writable(out, np.uint8, [size]).array
    raw[:] = codec.padding
    cells = raw.view(codec.dtype).reshape(shape)
    _filled(WritableStrings(Cells(cells, lease=Lease(writable=True)), codec), init)
    return StringView(Cells(sealed(raw).view(codec.dtype).reshape(shape)), codec)


def _filled(target: WritableStrings, init: Callable[[WritableStrings], object]) -> None:
    try:
        init(target)
    finally:
        target.complete()
