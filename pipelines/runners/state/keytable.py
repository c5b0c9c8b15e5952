"""`KeyTable`: a number for each key that a step remembers something of, by which its columns are indexed."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from pipelines.data.batch import Batch
from pipelines.data.columns import MISSING, Rows
from pipelines.runners.state.recordkeys import key_of, keys_of, plain, text_of

FIRST_CAPACITY: Final = 64
"""Keys that the columns of a step have room for at first."""
EVICTED_AT_ONCE: Final = 64
"""Of a lane with too many keys a share of one in so many goes at once, as finding the oldest takes a look at all."""
NO_CODE: Final = -1
"""The code of a row whose key cannot be used."""


class Coded(NamedTuple):
    """The keys of a batch's rows."""

    codes: Rows
    """The code of each row's key, `int64 (N,)`; `NO_CODE` where `failed` has the row."""
    failed: dict[int, Exception]
    """The rows whose key is missing or of another type, by position."""


class KeyTable:
    """The keys of a step, by lane. Each has a code: the row of the step's columns that has its state.

    A key is the value of `by`, or the list of the values of several; they are texts, integers or booleans. Of none,
    all records of a lane have one key, the empty list. The same key in another lane is another key. Codes are used
    again after a key is gone: a step sets its columns of a code that `coded` or `code` makes, in `begin`. Used by
    one thread.
    """

    def __init__(
        self,
        by: Sequence[str],
        most: int,
        *,
        begin: Callable[[Rows], None],
        evict: Callable[[Rows], None],
    ) -> None:
        """`most`: keys of a lane; the key that was silent longest goes when there is another.

        `begin` is called with the codes of new keys, before `coded` or `code` returns, and after `capacity` has grown.
        `evict` is called with the codes of keys that go because there are too many, while they are still known.
        """
        self._by = tuple(by)
        self._most = most
        self._begin = begin
        self._evict = evict
        self._codes: dict[Hashable, dict[Any, int]] = {}
        self._free: list[int] = list(range(FIRST_CAPACITY))[::-1]
        self._lanes: list[Hashable] = [None] * FIRST_CAPACITY
        self._keys: list[Any] = [None] * FIRST_CAPACITY
        self._used = np.zeros(FIRST_CAPACITY, np.int64)
        self._clock = 0
        self.evicted = 0
        """Keys that went because there were too many."""

    @property
    def capacity(self) -> int:
        """Rows that columns indexed by code need to have."""
        return len(self._lanes)

    @property
    def by(self) -> tuple[str, ...]:
        """The names of the values that are the key."""
        return self._by

    def __len__(self) -> int:
        """The number of keys, of all lanes."""
        return sum(map(len, self._codes.values()))

    def coded(self, batch: Batch) -> Coded:
        """The codes of the keys of all rows; keys that are new get one."""
        keys, failed = keys_of(batch, self._by)
        lanes = batch.lanes()
        self._clock += 1
        if len(lanes) and lanes.count(lanes[0]) == len(lanes):
            codes = self._coded(lanes[0], keys)
        else:
            codes = np.full(len(keys), NO_CODE, np.int64)
            for lane in dict.fromkeys(lanes):
                at = [row for row, each in enumerate(lanes) if each == lane]
                codes[at] = self._coded(lane, [keys[row] for row in at])
        return Coded(codes, failed)

    def code(self, lane: Hashable, text: str) -> int:
        """The code of the key with this JSON text, which gets one if it is new. `StreamerError` for another text."""
        key = key_of(text)
        self._clock += 1
        return int(self._coded(lane, [key])[0])

    def codes_of(self, lane: Hashable) -> Rows:
        """The codes of all keys of a lane, `int64`."""
        return np.fromiter(self._codes.get(lane, {}).values(), np.int64)

    @property
    def codes(self) -> Rows:
        """The codes of all keys, `int64`."""
        return np.array([code for codes in self._codes.values() for code in codes.values()], np.int64)

    def lane(self, code: int) -> Hashable:
        """The lane of a key."""
        return self._lanes[code]

    def value(self, code: int) -> Any:
        """The key: the value of `by`, or the tuple of several values or of none."""
        return plain(self._keys[code])

    def text(self, code: int) -> str:
        """The key's JSON text, by which its state is saved."""
        return text_of(self._keys[code])

    def drop(self, codes: Iterable[int]) -> None:
        """These keys are gone; their codes may be given to others."""
        for code in codes:
            lane = self._lanes[code]
            of_lane = self._codes[lane]
            del of_lane[self._keys[code]]
            if not of_lane:
                del self._codes[lane]
            self._lanes[code] = self._keys[code] = None
            self._free.append(code)

    def forget(self, lanes: Iterable[Hashable]) -> Rows:
        """Drop all keys of these lanes; returns their codes."""
        gone = [code for lane in lanes for code in self._codes.get(lane, {}).values()]
        self.drop(gone)
        return np.array(gone, np.int64)

    def _coded(self, lane: Hashable, keys: Sequence[Any]) -> Rows:
        known = self._codes.setdefault(lane, {})
        codes: list[int | None] = list(map(known.get, keys))
        if None in codes:
            new = [key for key, code in zip(keys, codes, strict=True) if code is None and key is not MISSING]
            # Those of this batch are in use: they are the last to go.
            self._used[[code for code in codes if code is not None]] = self._clock
            self._add(lane, known, list(dict.fromkeys(new)))
            codes = [known.get(key, NO_CODE) for key in keys]
        every = np.array(codes, np.int64)
        self._used[every[every >= 0]] = self._clock
        if not known:
            del self._codes[lane]
        return every

    def _add(self, lane: Hashable, known: dict[Any, int], new: Sequence[Any]) -> None:
        # A batch with more keys than there may be has places for all until the next.
        excess = len(known) + len(new) - self._most
        if excess > 0 and known:
            self._make_room(known, max(excess, self._most // EVICTED_AT_ONCE))
        while len(self._free) < len(new):
            self._grow()
        codes = [self._free.pop() for _ in new]
        for key, code in zip(new, codes, strict=True):
            known[key] = code
            self._lanes[code] = lane
            self._keys[code] = key
        self._codes[lane] = known
        if codes:
            self._begin(np.array(codes, np.int64))

    def _make_room(self, known: dict[Any, int], count: int) -> None:
        codes = np.fromiter(known.values(), np.int64)
        codes = codes[self._used[codes] < self._clock]
        count = min(count, len(codes))
        if not count:
            return
        oldest = codes[np.argsort(self._used[codes], kind="stable")[:count]]
        self._evict(oldest)
        self.evicted += count
        for code in oldest.tolist():
            del known[self._keys[code]]
            self._lanes[code] = self._keys[code] = None
            self._free.append(code)

    def _grow(self) -> None:
        more = self.capacity
        self._free[:0] = range(2 * more - 1, more - 1, -1)
        self._lanes += [None] * more
        self._keys += [None] * more
        self._used = grown(self._used, 2 * more)


def grown(column: npt.NDArray[Any], capacity: int) -> npt.NDArray[Any]:
    """A column with room for so many keys: the same rows, and zeros behind them."""
    larger = np.zeros((capacity, *column.shape[1:]), column.dtype)
    larger[: len(column)] = column
    return larger
