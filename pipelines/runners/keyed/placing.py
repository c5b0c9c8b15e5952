"""Which windows by time a record belongs to, which records are late, and which windows a record closes.

The time of a key is the latest of its records so far; each key has its own. Times are milliseconds since 1970.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final, NamedTuple

import numpy as np

from pipelines.data.columns import Mask, Rows
from pipelines.runners.state.keytable import grown

NO_TIME: Final = -1
"""The time of a key that has none yet."""
NO_RECORD: Final = -1
"""In place of the position of a record that closes a window: none does."""
MOST_AT_ONCE: Final = 1 << 15
"""Records that are placed at once, at most."""
_MOST_PAIRS: Final = 1 << 18
"""Pairs of a record and a window that are looked at together, at most."""
_TIME_BITS: Final = 48


class Placed(NamedTuple):
    """The windows of M pairs of a record and a window, in the order of the records."""

    records: Rows
    """The position of the record."""
    begins: Rows
    """The begin of the window."""
    late: Mask
    """Which records are too late for all of their windows, `bool (N,)`."""


class Placing(ABC):
    """Places records in windows. Columns are indexed by the codes of keys (`KeyTable`)."""

    def __init__(self, past: int, windows: int = 1) -> None:
        """`past`: how far a key has to be past the begin of a window for the window to have closed.

        `windows`: how many of them a record may be in.
        """
        self._past = past
        self.most_at_once = max(min(MOST_AT_ONCE, _MOST_PAIRS // windows), 1)
        """Records that may be placed at once."""
        self._latest = np.zeros(0, np.int64)
        self._sorted: SortedRecords | None = None
        """The records placed last."""
        self._progress: Rows = np.zeros(0, np.int64)
        """How far the key of each of these, sorted, is with it; rises within a key."""
        self._moved: Rows = np.zeros(0, np.int64)

    def grow(self, capacity: int) -> None:
        """Have room for so many keys."""
        self._latest = grown(self._latest, capacity)

    def begin(self, codes: Rows) -> None:
        """These keys are new."""
        self._latest[codes] = NO_TIME

    def latest(self, codes: Rows) -> Rows:
        """The times of these keys."""
        return self._latest[codes]

    @abstractmethod
    def place(self, codes: Rows, times: Rows) -> Placed:
        """Place N records, in their order, at most `most_at_once`."""

    def closing(self, codes: Rows, begins: Rows) -> Rows:
        """The position of the record, of those placed last, that closes each of these windows, `int64`; `NO_RECORD`.

        Windows of other keys than those that are `moved` are not closed.
        """
        ordered = self._sorted
        assert ordered is not None
        keys = np.searchsorted(ordered.codes[ordered.starts], codes)
        ranked = self._progress + (ordered.ranks << _TIME_BITS)
        needed = np.minimum(begins + self._past, (1 << _TIME_BITS) - 1)
        at = np.searchsorted(ranked, needed + (keys << _TIME_BITS))
        closed = at < ordered.stops[keys]
        records = np.full(len(codes), NO_RECORD, np.int64)
        records[closed] = ordered.order[at[closed]]
        return records

    @property
    def moved(self) -> Rows:
        """The codes of keys of which the records placed last may have closed windows."""
        return self._moved

    def fresh(self, codes: Rows, begins: Rows, counts: Rows) -> Mask:
        """Which windows that end, with so many records, have some that were in none before; asked once for each.

        Windows of a key stand in the order in which they end.
        """
        return np.ones(len(codes), np.bool_)

    def ended(self, code: int) -> None:
        """The windows of this key were closed because nothing came."""

    def saved(self, code: int) -> list[int]:
        """What is known of a key, as values of JSON."""
        return [int(self._latest[code])]

    def load(self, code: int, saved: list[int]) -> None:
        """Take what `saved` gave. Raises any error if that is damaged."""
        (self._latest[code],) = saved


class SortedRecords:
    """Records sorted by key, in their order within a key, with the time of the key before and after each."""

    def __init__(self, codes: Rows, times: Rows, latest: Rows) -> None:
        self.order = np.argsort(codes, kind="stable")
        self.codes = codes[self.order]
        self.times = times[self.order]
        new = np.r_[True, self.codes[1:] != self.codes[:-1]]
        self.starts = np.flatnonzero(new)
        self.stops = np.r_[self.starts[1:], len(codes)]
        known = latest[self.codes[self.starts]]
        # A running maximum for each key: the number of the key is above the bits of its times, which then never fall.
        # One is added, as a key without a time has -1.
        self.ranks: Rows = np.cumsum(new) - 1
        above = self.ranks << _TIME_BITS
        moved = self.times + 1
        moved[self.starts] = np.maximum(moved[self.starts], known + 1)
        self.after = (np.maximum.accumulate(moved + above) - above) - 1
        self.before = np.r_[NO_TIME, self.after[:-1]]
        self.before[self.starts] = known

    @property
    def last(self) -> tuple[Rows, Rows]:
        """The keys, and the time of each after all records."""
        return self.codes[self.starts], self.after[self.stops - 1]

    def unsorted(self, values: Rows) -> Rows:
        """Values of sorted records in the order of the records."""
        given = np.empty_like(values)
        given[self.order] = values
        return given

    @property
    def places(self) -> Rows:
        """The sorted place of each record, in the order of the records."""
        return self.unsorted(np.arange(len(self.order)))


class AlignedWindows(Placing):
    """Windows of one size, each `every` behind the one before, aligned to 1970.

    A window is closed when the time of its key is `lateness` past its end.
    """

    def __init__(self, size: int, every: int, lateness: int) -> None:
        super().__init__(size + lateness, -(-size // every))
        self._size = size
        self._every = every

    def place(self, codes: Rows, times: Rows) -> Placed:
        ordered = self._sorted = SortedRecords(codes, times, self._latest)
        before = ordered.unsorted(ordered.before)
        self._progress = ordered.after
        newest = times // self._every * self._every
        count = -(-self._size // self._every)
        # The oldest window first, for each record.
        begins = newest[:, None] - np.arange(count - 1, -1, -1) * self._every
        inside = (begins + self._size > times[:, None]) & (begins + self._past > before[:, None])
        late: Mask = ~np.any(inside, axis=1)
        records, at = np.nonzero(inside)
        keys, after = ordered.last
        # Only where the time goes past the end of some window there may be one to close.
        earlier = self._latest[keys]
        passes = (after - self._past) // self._every > (earlier - self._past) // self._every
        self._moved = keys[passes & (after != earlier)]
        self._latest[keys] = after
        return Placed(records, begins[records, at], late)


class Sessions(Placing):
    """Windows that end when a key has no record for `gap`; each begins with the first record behind that.

    A record that is older than the first of its session by `gap` or more is late.
    """

    def __init__(self, gap: int) -> None:
        # A session has closed when the next one has begun.
        super().__init__(1)
        self._gap = gap
        self._begun = np.zeros(0, np.int64)

    def grow(self, capacity: int) -> None:
        super().grow(capacity)
        self._begun = grown(self._begun, capacity)

    def begin(self, codes: Rows) -> None:
        super().begin(codes)
        self._begun[codes] = NO_TIME

    def place(self, codes: Rows, times: Rows) -> Placed:
        ordered = self._sorted = SortedRecords(codes, times, self._latest)
        first = (ordered.before == NO_TIME) | (ordered.times >= ordered.before + self._gap)
        # Each record has the begin of the last session that began up to it; begins rise within a key.
        heads = np.zeros(len(codes), np.bool_)
        heads[ordered.starts] = True
        marked = np.where(first, ordered.times, np.where(heads, self._begun[ordered.codes], NO_TIME))
        at = np.maximum.accumulate(np.where(first | heads, np.arange(len(codes)), 0))
        begins = marked[at]
        late = ordered.unsorted((ordered.times <= begins - self._gap).astype(np.int64)).astype(np.bool_)
        keys, after = ordered.last
        self._latest[keys] = after
        self._begun[keys] = begins[ordered.stops - 1]
        self._progress = begins
        self._moved = np.unique(ordered.codes[first])
        records = np.flatnonzero(~late)
        return Placed(records, ordered.unsorted(begins)[records], late)

    def ended(self, code: int) -> None:
        # The next record begins a session, whatever its time.
        self._latest[code] = self._begun[code] = NO_TIME

    def saved(self, code: int) -> list[int]:
        return [*super().saved(code), int(self._begun[code])]

    def load(self, code: int, saved: list[int]) -> None:
        latest, begun = saved
        super().load(code, [latest])
        self._begun[code] = begun
