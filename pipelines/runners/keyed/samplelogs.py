"""`SampleLogs`: the samples of each key in the order in which they came, for windows that take them by time or overlap.

A sample is kept, and saved, once, however many windows it is in.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pipelines.data.columns import Rows
from pipelines.errors import DataError
from pipelines.runners.keyed.ringstore import MOST_BYTES, PIECE
from pipelines.runners.keyed.samples import SampleForm, Samples
from pipelines.runners.state.keytable import grown
from pipelines.steps.keyed.window import LONGEST

Array = npt.NDArray[Any]
NO_FORM: Final = -1
"""The form of a key that had no samples yet."""
_FIRST: Final = 8
_NUMBERS: Final = 24
"""Bytes of the numbers that are kept with each sample."""


class SampleLogs:
    """By the code of a key (`KeyTable`) its samples, all of one form, that of the first. Used by one thread."""

    def __init__(self) -> None:
        self._logs: dict[int, _Log] = {}
        self._forms: dict[SampleForm, int] = {}
        self._saved_forms: dict[tuple[str, tuple[int, ...]], SampleForm] = {}
        # By code: how many samples are kept, and the number of their form.
        self._held, self._form = np.zeros(0, np.int64), np.zeros(0, np.int64)

    def grow(self, capacity: int) -> None:
        """Have room for so many keys."""
        self._held, self._form = grown(self._held, capacity), grown(self._form, capacity)

    def begin(self, codes: Rows) -> None:
        """These keys are new: they have no samples, and no form."""
        self._held[codes], self._form[codes] = 0, NO_FORM

    def number_of(self, form: SampleForm) -> int:
        """The number of a form."""
        return self._forms.setdefault(form, len(self._forms))

    def forms(self, codes: Rows) -> Rows:
        """The numbers of the forms of the samples of these keys; `NO_FORM`: there were none yet."""
        return self._form[codes]

    def held(self, codes: Rows) -> Rows:
        """How many samples each of these keys has."""
        return self._held[codes]

    @property
    def most_held(self) -> int:
        """The most samples that any key has."""
        return int(self._held.max(initial=0))

    def form(self, code: int) -> SampleForm:
        """The form of the samples of a key, which had some."""
        return self._logs[code].form

    def settle(self, code: int, form: SampleForm) -> None:
        """The samples of this key, which has none yet, are of this form."""
        self._logs[code] = _Log(form)
        self._form[code] = self.number_of(form)

    def add(self, codes: Rows, oldest: Rows, newest: Rows, times: Rows, counts: Rows | None, samples: Array) -> None:
        """Add the samples of N records of keys of one form, sorted by key, in their order.

        A record is in the windows that begin from `oldest` to `newest`; `counts` says how many of the `samples` each
        has, `None`: one each.
        """
        if counts is not None:
            codes, oldest, newest, times = (np.repeat(each, counts) for each in (codes, oldest, newest, times))
        edges = np.flatnonzero(np.r_[True, codes[1:] != codes[:-1], True]).tolist()
        keys = codes[edges[:-1]]
        logs = [self._logs[code] for code in keys.tolist()]
        rows = np.empty(len(codes), logs[0].row)
        rows["oldest"], rows["newest"], rows["time"], rows["sample"] = oldest, newest, times, samples
        for log, (start, stop) in zip(logs, pairwise(edges), strict=True):
            log.add(rows[start:stop])
        self._held[keys] = [log.held for log in logs]

    def window(self, code: int, begin: int, *, by_time: bool) -> Array:
        """The samples of a window, `[count, ...]`: as they came, or by time, equal times as they came."""
        log = self._logs[code]
        rows = log.rows
        inside = np.flatnonzero((rows["oldest"] <= begin) & (rows["newest"] >= begin))
        if by_time:
            times = rows["time"][inside]
            if (times[1:] < times[:-1]).any():
                inside = inside[np.argsort(times, kind="stable")]
        samples: Array = rows["sample"][inside]
        return samples

    def count(self, code: int, begin: int) -> int:
        """How many samples a window has."""
        rows = self._logs[code].rows
        return int(np.count_nonzero((rows["oldest"] <= begin) & (rows["newest"] >= begin)))

    def trim(self, code: int, begins: Collection[int]) -> None:
        """The windows with these begins are open; samples that came before all of theirs are not needed."""
        log = self._logs.get(code)
        if log is not None:
            log.trim(min(begins, default=None))
            self._held[code] = log.held

    def drop(self, codes: Rows) -> None:
        """These keys are gone."""
        for code in codes.tolist():
            self._logs.pop(code, None)
        self.begin(codes)

    def described(self, code: int) -> list[Any]:
        """The form of the samples of a key and which are kept, as values of JSON."""
        log = self._logs[code]
        return [log.form.dtype.str, list(log.form.shape), log.first, log.stop]

    def pieces(self, code: int) -> Iterator[tuple[int, bytes | None]]:
        """The pieces of samples, by number, that are new, have changed or (`None`) are gone since the last call."""
        return self._logs[code].pieces()

    def saved(self, code: int) -> set[int]:
        """The numbers of the pieces of a key that were saved."""
        log = self._logs.get(code)
        return set() if log is None else log.saved

    def load(self, code: int, described: list[Any], pieces: dict[int, bytes]) -> None:
        """Take what `described` and `pieces` gave. Raises `ValueError` or `TypeError` if that is damaged."""
        dtype, shape, first, stop = described
        written = dtype, tuple(shape)
        # Each type that is made anew would be hashed anew, which takes as long as all else that is done for a key.
        form = self._saved_forms.get(written)
        if form is None:
            form = self._saved_forms[written] = SampleForm(np.dtype(dtype), written[1])
        if form.dtype.kind not in "biuf" or not 0 <= first <= stop:
            raise ValueError("what its samples are is damaged")
        self.settle(code, form)
        log = self._logs[code]
        log.load(first, stop, pieces)
        self._held[code] = log.held


class _Log:
    """The samples of one key. They are numbered from 0 on, until none is kept any more; `rows` are those kept."""

    def __init__(self, form: SampleForm) -> None:
        self.form = form
        self.row = np.dtype([("oldest", "<i8"), ("newest", "<i8"), ("time", "<i8"), ("sample", form.dtype, form.shape)])
        self._rows: Array = np.zeros(0, self.row)
        self._start = 0
        """The number of the first of `_rows`, which may be less than `first`: pieces begin within it."""
        self.first = 0
        """The number of the first sample that is kept."""
        self.stop = 0
        """The number behind the last."""
        self._clean = 0
        """The number behind the last sample that was saved."""
        self.saved: set[int] = set()

    @property
    def held(self) -> int:
        """How many samples are kept."""
        return self.stop - self.first

    @property
    def rows(self) -> Array:
        """The samples that are kept, with their times and windows."""
        return self._rows[self.first - self._start : self.stop - self._start]

    def add(self, rows: Array) -> None:
        """Add samples, as `row` has them."""
        count, at = len(rows), self.stop - self._start
        if at + count > len(self._rows):
            self._make_room(count)
            at = self.stop - self._start
        self._rows[at : at + count] = rows
        self.stop += count

    def trim(self, begin: int | None) -> None:
        """Windows that begin before this one are closed; `None`: all are."""
        needed = np.zeros(0, np.bool_) if begin is None else self.rows["newest"] >= begin
        if needed.any():
            self.first += int(needed.argmax())
        else:
            # Numbers begin anew, and memory goes back.
            self._rows = self._rows[:0].copy()
            self._start = self.first = self.stop = self._clean = 0

    def pieces(self) -> Iterator[tuple[int, bytes | None]]:
        size = self.row.itemsize
        needed = self._numbers()
        data = self._rows.view(np.uint8).reshape(-1)
        origin, end = self._start * size, (self.stop - self._start) * size
        dirty = self._clean * size // PIECE
        for number in needed:
            if (number >= dirty and self.stop > self._clean) or number not in self.saved:
                start = number * PIECE - origin
                yield number, data[start : min(start + PIECE, end)].tobytes()
        for number in sorted(self.saved - set(needed)):
            yield number, None
        self.saved, self._clean = set(needed), self.stop

    def load(self, first: int, stop: int, pieces: dict[int, bytes]) -> None:
        self.saved = set(pieces)
        if first == stop:
            return
        size = self.row.itemsize
        self.first, self.stop, self._clean = first, stop, stop
        self._start = self._begin()
        numbers = self._numbers()
        if missing := set(numbers) - pieces.keys():
            raise ValueError(f"piece {min(missing)} of its samples is missing")
        lead = numbers.start * PIECE - self._start * size
        data = bytes(lead) + b"".join(pieces[number] for number in numbers)
        if len(data) != (stop - self._start) * size:
            raise ValueError(f"its samples have {len(data)} bytes, not {(stop - self._start) * size}")
        self._rows = np.frombuffer(data, self.row).copy()

    def _begin(self) -> int:
        """The number of the sample in which the piece of the first sample begins."""
        size = self.row.itemsize
        return self.first * size // PIECE * PIECE // size

    def _numbers(self) -> range:
        """The numbers of the pieces of the samples that are kept."""
        size = self.row.itemsize
        if self.stop == self.first:
            return range(0)
        return range(self.first * size // PIECE, -(-self.stop * size // PIECE))

    def _make_room(self, count: int) -> None:
        begin = self._begin()
        kept = self._rows[begin - self._start : self.stop - self._start]
        rows = np.zeros(max(2 * (len(kept) + count), _FIRST), self.row)
        rows[: len(kept)] = kept
        self._rows, self._start = rows, begin


def most_samples(form: SampleForm) -> int:
    """How many samples of this form a window may have."""
    size = int(np.prod(form.shape, dtype=object)) * form.dtype.itemsize + _NUMBERS
    return min(LONGEST, MOST_BYTES // size)


def check_room(form: SampleForm, count: int) -> None:
    """Raises `DataError` if a window of so many samples is too large."""
    most = most_samples(form)
    if count > most:
        raise DataError(f"its window would have {count} samples of {form}; it has at most {most}: choose a shorter one")


def too_large(samples: Samples) -> dict[int, Exception]:
    """The rows that have more samples than a window may have, by position."""
    counts = np.ones(len(samples.rows), np.int64) if samples.counts is None else samples.counts
    failed: dict[int, Exception] = {}
    for at in np.flatnonzero(counts > most_samples(samples.form)).tolist():
        try:
            check_room(samples.form, int(counts[at]))
        except DataError as error:
            failed[int(samples.rows[at])] = error
    return failed
