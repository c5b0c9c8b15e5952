"""`Spans`: N byte strings in one buffer, so that a column of payloads, keys or map entries costs no object a row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from pipelines.data.entries import Entries, PackedEntries
from pipelines.hotpath import choose

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]

_FEW = 32
"""Below this number, strings are copied out of the buffer one by one."""
_GAPS = 1024
"""Bytes between two strings up to which copying them, too, is quicker than leaving them out."""


class Spans(PackedEntries[bytes | None]):
    """N byte strings, any of which may be null, as a sequence of `bytes | None`.

    `buffer` is `uint8 (bytes,)`; string i is `buffer[starts[i]:starts[i] + lengths[i]]`, null where `lengths[i]` is
    -1. `starts` and `lengths` are `int64 (N,)`; strings may lie in any order, overlap, and leave gaps. None of the
    arrays is written to after it was made. `take` shares the buffer, so a few rows keep all of it alive (`compact`).
    The caller has to ensure that all spans lie inside the buffer; that is not checked here.
    """

    __slots__ = ("buffer", "lengths", "starts")

    def __init__(self, buffer: Bytes, starts: Ints, lengths: Ints) -> None:
        self.buffer = buffer
        self.starts = starts
        self.lengths = lengths

    @staticmethod
    def of(values: Sequence[bytes | None]) -> Spans:
        """The same strings in one buffer; spans are given back as they are."""
        if isinstance(values, Spans):
            return values
        try:
            lengths = sizes = np.fromiter(map(len, values), np.int64, len(values))  # type: ignore[arg-type]
        except TypeError:
            # Some strings are null.
            lengths = np.array([-1 if value is None else len(value) for value in values], np.int64)
            sizes = np.maximum(lengths, 0)
            values = [value or b"" for value in values]
        buffer = np.frombuffer(b"".join(values), np.uint8)  # type: ignore[arg-type]
        return Spans(buffer, sizes.cumsum() - sizes, lengths)

    @staticmethod
    def of_block(block: Any, count: int) -> Spans:
        """The `count` strings of a block of the extension that begins with their starts and lengths."""
        table: Any = np.ndarray((2, count), np.int64, block)
        buffer: Any = np.ndarray(len(block) - 16 * count, np.uint8, block, 16 * count)
        return Spans(buffer, table[0], table[1])

    @staticmethod
    def concat(parts: Sequence[Spans]) -> Spans:
        """The strings of all parts, one after the other, in one buffer: the parts' own if they share it."""
        if len(parts) == 1:
            return parts[0]
        if not parts:
            return Spans.of([])
        shared = _shared([part.buffer for part in parts])
        if shared is not None:
            return Spans(
                shared,
                np.concatenate([part.starts for part in parts]),
                np.concatenate([part.lengths for part in parts]),
            )
        # The columns of a block all share its buffer: if most of that belongs to others, only their own is copied.
        if sum(len(part.buffer) for part in parts) > 2 * sum(part.byte_count for part in parts):
            parts = [part.compact() for part in parts]
        bases = np.cumsum([0, *(len(part.buffer) for part in parts[:-1])])
        return Spans(
            np.concatenate([part.buffer for part in parts]),
            np.concatenate([part.starts + base for part, base in zip(parts, bases.tolist(), strict=True)]),
            np.concatenate([part.lengths for part in parts]),
        )

    @property
    def null(self) -> npt.NDArray[np.bool_]:
        """Which strings are null, `bool (N,)`."""
        null: npt.NDArray[np.bool_] = self.lengths < 0
        return null

    @property
    def byte_count(self) -> int:
        """Size of all strings together."""
        return int(np.maximum(self.lengths, 0).sum())

    def take(self, rows: npt.NDArray[Any]) -> Spans:
        """The strings at these positions (numbers or a mask), in the same buffer."""
        return Spans(self.buffer, self.starts[rows], self.lengths[rows])

    def joined(self, parts: Sequence[Entries]) -> Spans:
        """The strings of all parts, one after the other."""
        return Spans.concat([Spans.of(part) for part in parts])

    def compact(self) -> Spans:
        """The same strings one after the other in a buffer that holds nothing else.

        A null begins where the next string does.
        """
        native = self.extension()
        if native is None:
            return Spans.of(self.tolist())
        return Spans.of_block(native.gathered(self.buffer, self.starts, self.lengths), len(self))

    def tolist(self) -> list[bytes | None]:
        """All strings as `bytes`, `None` for null."""
        native = self.extension()
        if native is not None:
            strings: list[bytes | None] = native.strings(self.buffer, self.starts, self.lengths, None)
            return strings
        if len(self) < _FEW:
            view = self.buffer.data
            cells = zip(self.starts.tolist(), self.lengths.tolist(), strict=True)
            return [None if length < 0 else view[start : start + length].tobytes() for start, length in cells]
        ends = self.starts + self.lengths
        there = self.starts[~self.null]
        if not len(there):
            return [None] * len(self)
        # Slices of `bytes` cost half of those of a view: where gaps are short, all between the strings is copied once.
        first, last = int(there.min()), int(ends.max())
        near = last - first < _GAPS * len(there)
        between = self.buffer[first:last].tobytes() if near else self.buffer[first:last].data
        pairs = zip((self.starts - first).tolist(), (ends - first).tolist(), strict=True)
        if near and len(there) == len(self):
            return [between[start:end] for start, end in pairs]  # type: ignore[misc]
        return [None if end < start else bytes(between[start:end]) for start, end in pairs]

    def extension(self) -> ModuleType | None:
        """The compiled extension, if it can be used and reads these spans: the arrays must be contiguous."""
        return choose().native if self.starts.flags.c_contiguous and self.lengths.flags.c_contiguous else None

    def __len__(self) -> int:
        return len(self.starts)

    @overload
    def __getitem__(self, place: int) -> bytes | None: ...
    @overload
    def __getitem__(self, place: slice) -> Spans: ...
    def __getitem__(self, place: int | slice) -> bytes | None | Spans:
        if isinstance(place, slice):
            return Spans(self.buffer, self.starts[place], self.lengths[place])
        length = int(self.lengths[place])
        if length < 0:
            return None
        start = int(self.starts[place])
        return self.buffer[start : start + length].tobytes()

    def __iter__(self) -> Iterator[bytes | None]:
        return iter(self.tolist())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (Spans, list, tuple)):
            return NotImplemented
        return list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Spans({len(self)} strings, {self.byte_count} bytes)"


def _shared(buffers: Sequence[Bytes]) -> Bytes | None:
    """The longest of these buffers if all begin at the same address of the same memory, else `None`."""
    first = buffers[0]
    if all(buffer is first for buffer in buffers):
        return first
    if first.base is None or any(buffer.base is not first.base for buffer in buffers):
        return None
    begins = {buffer.__array_interface__["data"][0] for buffer in buffers}
    return max(buffers, key=len) if len(begins) == 1 else None
