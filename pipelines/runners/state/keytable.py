"""`KeyTable`: a number for each key that a step remembers something of, by which its columns are indexed."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import islice, pairwise
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from pipelines.data.batch import Batch
from pipelines.data.columns import MISSING, Rows
from pipelines.data.result import Result
from pipelines.executors.accounting import joined
from pipelines.runners.state.recordkeys import key_of, keys_of, plain, text_of

FIRST_CAPACITY: Final = 64
"""Keys that the columns of a step have room for at first."""
LOOKED_FOR: Final = 64
"""Of a lane with too many keys the oldest are looked for a share of one in so many at once, as that looks at all."""
TOGETHER: Final = 1000
"""Keys that are loaded begin so many at once."""
NO_ROW: Final = -1
"""In place of the position of the row that brought another key: it was loaded."""
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

    There are at most so many keys in a lane. A row that brings another makes that one go of which there was no row for
    longest, whether the rows came one by one or together: a key may go and come again within a batch, and has two codes
    then. Only a batch of more rows than there may be keys would need a key to go that the batch itself has used: all
    its keys have a place until the next batch. `in_portions` divides it.
    """

    def __init__(
        self,
        by: Sequence[str],
        most: int,
        *,
        begin: Callable[[Rows], None],
        evict: Callable[[Rows, Rows], None],
    ) -> None:
        """`most`: keys of a lane; the key that was silent longest goes when there is another.

        `begin` is called with the codes of new keys, before `coded` or `code` returns, and after `capacity` has grown.
        `evict` is called before that with the codes of keys that go because there are too many, and the position in the
        batch of the row that made each go (`NO_ROW`: a key that was loaded). Their `lane` and `text` can still be asked
        for; no row of the batch has one of these codes.
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
        """When each key had its last row, by code: rows are counted."""
        self._clock = 0
        self._listed: Rows | None = None
        """The codes of all keys; `None`: they have changed since they were listed."""
        self._oldest: dict[Hashable, list[tuple[int, int]]] = {}
        """The keys of a lane that had no row for longest, the oldest last: code, and when it had its last row."""

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
        rows = np.arange(len(keys))
        if len(lanes) and lanes.count(lanes[0]) == len(lanes):
            codes = self._coded(lanes[0], keys, rows)
        else:
            codes = np.full(len(keys), NO_CODE, np.int64)
            numbers: dict[Hashable, int] = {}
            of_rows = np.array([numbers.setdefault(lane, len(numbers)) for lane in lanes], np.int64)
            for lane, number in numbers.items():
                at = np.flatnonzero(of_rows == number)
                codes[at] = self._coded(lane, [keys[row] for row in at.tolist()], at)
        self._clock += len(keys)
        return Coded(codes, failed)

    def in_portions(
        self, batch: Batch, run: Callable[[Batch], Result], reads: Iterable[str] | None, rows: int | None = None
    ) -> Result:
        """The results of `run`, called with parts that have no more rows than there may be keys, nor than `rows`.

        Raises `RowsFailed` if values of the keys `reads` cannot be decoded, before any part has changed a state.
        """
        most = self._most if rows is None else min(self._most, rows)
        if batch.size <= most:
            return run(batch)
        for name in reads or ():
            batch.get(name)
        edges = [*range(0, batch.size, most), batch.size]
        return joined(map(run, batch.parts([range(start, stop) for start, stop in pairwise(edges)])))

    def code(self, lane: Hashable, text: str) -> int:
        """The code of the key with this JSON text, which gets one if it is new. `StreamerError` for another text."""
        return self._code(lane, key_of(text))

    def _code(self, lane: Hashable, key: Any) -> int:
        known = self._codes.get(lane, {})
        code = known.get(key)
        if code is None and len(known) < self._most:
            code = self._begun(lane, known, key)
            self._begin(np.array([code], np.int64))
        elif code is None:
            code = int(self._in_place_of_others(lane, known, [key], np.array([NO_ROW]))[0])
        self._used[code] = self._clock
        self._clock += 1
        return code

    def loaded(self, lane: Hashable, texts: Iterable[str]) -> Iterator[int]:
        """What `code` gives for each of these texts, in their order.

        It begins many keys together where there is room for all, so nothing else may be asked of keys before the last
        code is there, but for those that were given.
        """
        rest = iter(texts)
        while part := [key_of(text) for text in islice(rest, TOGETHER)]:
            known = self._codes.setdefault(lane, {})
            new = [key for key in dict.fromkeys(part) if key not in known]
            if len(known) + len(new) > self._most:
                yield from (self._code(lane, key) for key in part)
                continue
            begun = [self._begun(lane, known, key) for key in new]
            codes = [known[key] for key in part]
            if begun:
                self._begin(np.array(begun, np.int64))
            self._used[codes] = self._clock + np.arange(len(codes))
            self._clock += len(codes)
            yield from codes

    def codes_of(self, lane: Hashable) -> Rows:
        """The codes of all keys of a lane, `int64`."""
        return np.fromiter(self._codes.get(lane, {}).values(), np.int64)

    @property
    def codes(self) -> Rows:
        """The codes of all keys, `int64`; not to be written to."""
        if self._listed is None:
            self._listed = np.array([code for codes in self._codes.values() for code in codes.values()], np.int64)
        return self._listed

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
        self._listed = None
        for code in codes:
            lane = self._lanes[code]
            of_lane = self._codes[lane]
            del of_lane[self._keys[code]]
            if not of_lane:
                del self._codes[lane]
                self._oldest.pop(lane, None)
            self._lanes[code] = self._keys[code] = None
            self._free.append(code)

    def forget(self, lanes: Iterable[Hashable]) -> Rows:
        """Drop all keys of these lanes; returns their codes."""
        gone = [code for lane in lanes for code in self._codes.get(lane, {}).values()]
        self.drop(gone)
        return np.array(gone, np.int64)

    def _coded(self, lane: Hashable, keys: Sequence[Any], rows: Rows) -> Rows:
        """The codes of these keys of a lane, which are those of the batch's rows at these positions."""
        known = self._codes.setdefault(lane, {})
        codes: list[int | None] = list(map(known.get, keys))
        if None in codes:
            new = dict.fromkeys(
                key for key, code in zip(keys, codes, strict=True) if code is None and key is not MISSING
            )
            if len(known) + len(new) > self._most:
                return self._in_place_of_others(lane, known, keys, rows)
            begun = [self._begun(lane, known, key) for key in new]
            codes = [known.get(key, NO_CODE) for key in keys]
            if begun:
                self._begin(np.array(begun, np.int64))
        every = np.array(codes, np.int64)
        usable = every >= 0
        # Of a key that is there repeatedly, the last row counts.
        self._used[every[usable]] = (self._clock + np.arange(len(every)))[usable]
        if not known:
            del self._codes[lane]
        return every

    def _in_place_of_others(self, lane: Hashable, known: dict[Any, int], keys: Sequence[Any], rows: Rows) -> Rows:
        """The same, where some key has to go for another, or may have to: row by row."""
        codes: list[int] = []
        begun: list[int] = []
        gone: list[int] = []
        gone_at: list[int] = []
        for at, key in enumerate(keys):
            code = NO_CODE if key is MISSING else known.get(key)
            if code is None:
                while len(known) >= self._most and (oldest := self._next_to_go(lane, known)) is not None:
                    del known[self._keys[oldest]]
                    gone.append(oldest)
                    gone_at.append(int(rows[at]))
                code = self._begun(lane, known, key)
                begun.append(code)
            if code != NO_CODE:
                self._used[code] = self._clock + at
            codes.append(code)
        if gone:
            self._evict(np.array(gone, np.int64), np.array(gone_at, np.int64))
            for code in gone:
                self._lanes[code] = self._keys[code] = None
            self._free += gone
        if begun:
            self._begin(np.array(begun, np.int64))
        return np.array(codes, np.int64)

    def _next_to_go(self, lane: Hashable, known: dict[Any, int]) -> int | None:
        """The code of the key that had no row for longest; `None` if the batch has rows of all."""
        oldest = self._oldest.setdefault(lane, [])
        while True:
            while oldest:
                code, used = oldest.pop()
                # Else it had a row since, has gone, or is another key's by now.
                if self._used[code] == used and self._keys[code] is not None:
                    return code
            codes = np.fromiter(known.values(), np.int64)
            codes = codes[self._used[codes] < self._clock]
            if not len(codes):
                return None
            count = max(self._most // LOOKED_FOR, 1)
            if count < len(codes):
                codes = codes[np.argpartition(self._used[codes], count)[:count]]
            codes = codes[np.argsort(self._used[codes])[::-1]]
            oldest += zip(codes.tolist(), self._used[codes].tolist(), strict=True)

    def _begun(self, lane: Hashable, known: dict[Any, int], key: Any) -> int:
        """A code for a new key."""
        self._listed = None
        if not self._free:
            self._grow()
        code = known[key] = self._free.pop()
        self._lanes[code] = lane
        self._keys[code] = key
        self._codes[lane] = known
        return code

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
