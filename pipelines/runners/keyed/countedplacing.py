"""Which windows by count a record belongs to: the records of each key are numbered, and numbers take the part of times.

A gap leaves out as many numbers as a window has, so that the record behind it ends all windows before it.
"""

from __future__ import annotations

import numpy as np

from pipelines.data.columns import Mask, Rows
from pipelines.runners.keyed.placing import NO_TIME, Placed, Placing, SortedRecords
from pipelines.runners.state.keytable import grown


class CountedWindows(Placing):
    """Windows of `size` records, each `every` records behind the one before. No record is late.

    The time of a key is that of the record that came last.
    """

    def __init__(self, size: int, every: int, gap: int | None) -> None:
        """`gap`: milliseconds between two records of a key beyond which its windows end; `None`: they never do."""
        super().__init__(size, -(-size // every))
        self._size = size
        self._every = every
        self._gap = gap
        self._base = np.zeros(0, np.int64)
        """The number of the record with which the first window began, since the last gap."""
        self._next = np.zeros(0, np.int64)
        """The number of the key's next record."""
        self._given = np.zeros(0, np.int64)
        """The number up to which records were in a window that has ended."""

    def grow(self, capacity: int) -> None:
        super().grow(capacity)
        self._base, self._next = grown(self._base, capacity), grown(self._next, capacity)
        self._given = grown(self._given, capacity)

    def begin(self, codes: Rows) -> None:
        super().begin(codes)
        self._base[codes] = self._next[codes] = self._given[codes] = 0

    def place(self, codes: Rows, times: Rows) -> Placed:
        ordered = self._sorted = SortedRecords(codes, times, self._latest)
        keys = ordered.codes[ordered.starts]
        gaps = self._gaps(ordered, keys)
        bases, numbers = self._numbered(ordered, gaps)
        lasts = ordered.stops - 1
        self._base[keys], self._next[keys] = bases[lasts], numbers[lasts] + 1
        self._latest[keys] = ordered.times[lasts]
        self._progress = numbers + 1
        past = numbers - bases + 1 - self._size
        self._moved = np.unique(ordered.codes[gaps | ((past >= 0) & (past % self._every == 0))])
        # The oldest window first, for each record.
        newest = (numbers - bases) // self._every * self._every + bases
        begins = newest[:, None] - np.arange(-(-self._size // self._every) - 1, -1, -1) * self._every
        inside = (begins + self._size > numbers[:, None]) & (begins >= bases[:, None])
        begins, inside = begins[ordered.places], inside[ordered.places]
        records, at = np.nonzero(inside)
        return Placed(records, begins[records, at], np.zeros(len(codes), np.bool_))

    def fresh(self, codes: Rows, begins: Rows, counts: Rows) -> Mask:
        ends = begins + counts
        fresh = np.zeros(len(codes), np.bool_)
        for at, (code, end) in enumerate(zip(codes.tolist(), ends.tolist(), strict=True)):
            if end > self._given[code]:
                self._given[code] = end
                fresh[at] = True
        return fresh

    def ended(self, code: int) -> None:
        # The next record begins a window.
        self._latest[code] = NO_TIME
        self._base[code] = self._next[code] = self._given[code] = 0

    def saved(self, code: int) -> list[int]:
        return [*super().saved(code), int(self._base[code]), int(self._next[code]), int(self._given[code])]

    def load(self, code: int, saved: list[int]) -> None:
        latest, self._base[code], self._next[code], self._given[code] = saved
        super().load(code, [latest])

    def _gaps(self, ordered: SortedRecords, keys: Rows) -> Mask:
        """Before which sorted records there is a gap."""
        if self._gap is None:
            return np.zeros(len(ordered.codes), np.bool_)
        before = np.r_[NO_TIME, ordered.times[:-1]]
        before[ordered.starts] = self._latest[keys]
        gaps: Mask = (before != NO_TIME) & (ordered.times - before > self._gap)
        return gaps

    def _numbered(self, ordered: SortedRecords, gaps: Mask) -> tuple[Rows, Rows]:
        """For each sorted record the number with which windows began, and its own."""
        heads = np.zeros(len(ordered.codes), np.bool_)
        heads[ordered.starts] = True
        # Parts: records of a key without a gap between them. What a part begins with, if no gap is before it, is known.
        starts = np.flatnonzero(heads | gaps)
        lengths = np.diff(starts, append=len(ordered.codes))
        first = heads[starts]
        goes_on = first & ~gaps[starts]
        codes = ordered.codes[starts]
        bases = np.where(goes_on, self._base[codes], self._next[codes] + self._size)
        already = np.where(goes_on, self._next[codes] - self._base[codes], 0)
        room = already + lengths + self._size
        # Within a key, the parts before; each begins behind the one before it.
        before_all = np.cumsum(room) - room
        heads_at = np.flatnonzero(first)
        each = np.diff(heads_at, append=len(starts))
        begins = np.repeat(bases[heads_at], each) + before_all - np.repeat(before_all[heads_at], each)
        numbers = np.repeat(begins + already - starts, lengths) + np.arange(len(ordered.codes))
        return np.repeat(begins, lengths), numbers
