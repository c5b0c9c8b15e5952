"""`RingStore`: the last samples of each of many keys in one array, read and saved in pieces."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pipelines.data.columns import Rows
from pipelines.errors import DataError, StreamerError
from pipelines.runners.keyed.samples import SampleForm
from pipelines.runners.state.keytable import grown

PIECE: Final = 4096
"""Bytes of samples that are saved together."""
MOST_BYTES: Final = 1 << 26
"""The most bytes that the samples of one key may have."""
_FIRST_SLOTS: Final = 4


class RingStore:
    """For each slot the samples of one key, `size` of one form, in a ring: sample n has place n modulo `size`."""

    def __init__(self, form: SampleForm, size: int) -> None:
        """Raises `DataError` if the samples of one key would have too many bytes."""
        self.form = form
        self._size = size
        self._bytes = int(np.prod(form.shape, dtype=object)) * form.dtype.itemsize
        """Of one sample."""
        if self._bytes * size > MOST_BYTES:
            raise DataError(
                f"a window of {size} samples of {form} would have {self._bytes * size} bytes, more than {MOST_BYTES}"
            )
        self.samples: npt.NDArray[Any] = np.zeros((0, size, *form.shape), form.dtype)
        """`(slots, size, ...)`."""
        self._saved = np.zeros((0, -(-self._bytes * size // PIECE)), np.bool_)
        self._free: list[int] = []

    def slot(self) -> int:
        """A slot for another key."""
        if not self._free:
            before = len(self.samples)
            room = max(2 * before, _FIRST_SLOTS)
            self._free = list(range(before, room))
            self.samples, self._saved = grown(self.samples, room), grown(self._saved, room)
        slot = self._free.pop()
        self._saved[slot] = False
        return slot

    def release(self, slot: int) -> None:
        """The slot may be given to another key."""
        self._free.append(slot)
        if len(self._free) == len(self.samples):
            # Shapes come from senders: what no key has any more takes no memory.
            self.samples, self._saved, self._free = self.samples[:0].copy(), self._saved[:0].copy(), []

    def window(self, slot: int, head: int, count: int) -> npt.NDArray[Any]:
        """A copy of `count` samples from place `head` on."""
        ring, end = self.samples[slot], head + count
        if end <= self._size:
            part: npt.NDArray[Any] = ring[head:end].copy()
            return part
        return np.concatenate([ring[head:], ring[: end - self._size]])

    def write(self, slot: int, place: int, samples: npt.NDArray[Any]) -> None:
        """Put samples into the ring from this place on; not more than it has room for."""
        ring, split = self.samples[slot], min(self._size - place, len(samples))
        ring[place : place + split] = samples[:split]
        ring[: len(samples) - split] = samples[split:]

    def pieces(self, slot: int, end: int, count: int) -> Iterator[tuple[int, bytes]]:
        """The pieces, by number, that have the `count` samples before place `end`; they count as saved."""
        if count and self._saved.shape[1] == 1:
            # The usual case, as windows of a few hundred samples have one piece.
            self._saved[slot, 0] = True
            yield 0, self.samples[slot].tobytes()
            return
        data = self._data(slot)
        for number in sorted(self.numbers(end, count)):
            self._saved[slot, number] = True
            yield number, data[number * PIECE : (number + 1) * PIECE].tobytes()

    def numbers(self, end: int, count: int) -> set[int]:
        """The numbers of the pieces that have the `count` samples before place `end`."""
        start, stop, whole = (end - count) * self._bytes, end * self._bytes, self._size * self._bytes
        spans = [(start, stop)] if start >= 0 else [(0, stop), (start + whole, whole)]
        return {number for low, high in spans if low < high for number in range(low // PIECE, -(-high // PIECE))}

    def saved(self, slot: int) -> Rows:
        """The numbers of the pieces that were saved, `int64`."""
        return np.flatnonzero(self._saved[slot])

    def load(self, slot: int, number: int, piece: bytes) -> None:
        """Put a saved piece back. Raises `StreamerError` if it does not fit."""
        place = self._data(slot)[number * PIECE : (number + 1) * PIECE]
        if number < 0 or not len(piece) or len(place) != len(piece):
            raise StreamerError(f"piece {number} of its samples has {len(piece)} bytes, not {len(place)}")
        place[:] = np.frombuffer(piece, np.uint8)
        self._saved[slot, number] = True

    def _data(self, slot: int) -> npt.NDArray[np.uint8]:
        data: npt.NDArray[np.uint8] = self.samples[slot].reshape(-1).view(np.uint8)
        return data
