"""Which windows by time a record belongs to, which records are late, and which windows a record closes.

The time of a key is the latest of its records so far; each key has its own. Times are milliseconds since 1970.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import numpy as np

from pipelines.data.columns import Mask, Rows
from pipelines.runners.state.keytable import grown

NO_TIME: Final = -1
"""The time of a key that has none yet."""
MOST_AT_ONCE: Final = 1 << 15
"""Records that are placed at once, at most."""
_TIME_BITS: Final = 48


class Placed(NamedTuple):
    """The windows of M pairs of a record and a window, in the order of the records."""

    records: Rows
    """The position of the record."""
    begins: Rows
    """The begin of the window."""
    late: Mask
    """Which records are too late for all of their windows, `bool (N,)`."""


class Closing(NamedTuple):
    """A window that ends."""

    record: int
    """The position of the record that closes it."""
    code: int
    begin: int


class Placing(ABC):
    """Places records in windows. Columns are indexed by the codes of keys (`KeyTable`)."""

    def __init__(self, past: int) -> None:
        """`past`: how far a key has to be past the begin of a window for the window to have closed."""
        self._past = past
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
        """Place N records, in their order, at most `MOST_AT_ONCE`."""

    def closings(self, of: Mapping[int, Mapping[int, int]]) -> list[Closing]:
        """The windows that the records placed last have closed, in the order of records and begins.

        `of` are the open windows of keys, as `OpenWindows.of` gives them; the keys that matter are `moved`.
        """
        ordered = self._sorted
        assert ordered is not None
        closed = []
        for code, windows in of.items():
            segment = ordered.segment(code)
            progress = self._progress[segment]
            for begin in windows:
                at = int(np.searchsorted(progress, begin + self._past))
                if at < len(progress):
                    closed.append(Closing(int(ordered.order[segment.start + at]), code, begin))
        return sorted(closed, key=lambda each: (each.record, each.begin))

    @property
    def moved(self) -> Iterable[int]:
        """The codes of keys of which the records placed last may have closed windows."""
        return map(int, self._moved)

    def fresh(self, code: int, begin: int, count: int) -> bool:
        """Whether a window that ends, with so many records, has some that were in none before it; asked once."""
        return True

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
        ranks = (np.cumsum(new) - 1) << _TIME_BITS
        moved = self.times + 1
        moved[self.starts] = np.maximum(moved[self.starts], known + 1)
        self.after = (np.maximum.accumulate(moved + ranks) - ranks) - 1
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

    def segment(self, code: int) -> slice:
        """The sorted places of this key's records."""
        at = int(np.searchsorted(self.codes[self.starts], code))
        return slice(int(self.starts[at]), int(self.stops[at]))


class AlignedWindows(Placing):
    """Windows of one size, each `every` behind the one before, aligned to 1970.

    A window is closed when the time of its key is `lateness` past its end.
    """

    def __init__(self, size: int, every: int, lateness: int) -> None:
        super().__init__(size + lateness)
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
