"""Runs WINDOW for windows of so many samples."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from itertools import pairwise
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from pipelines.data.batch import Batch
from pipelines.data.columns import Mask, Rows
from pipelines.data.record import RecordContext
from pipelines.data.result import Result
from pipelines.errors import DataError
from pipelines.observe.metrics import SHORT_HELP, SHORT_WINDOWS
from pipelines.runners.forms import ArrayForm, Forms
from pipelines.runners.keyed.countedstate import CountedState
from pipelines.runners.keyed.samples import Samples, padded, samples_of, spread, unlike
from pipelines.runners.keyed.windowresults import Closed, Outcome, WindowResults
from pipelines.runners.runner import OpenContext, StatefulRunner
from pipelines.runners.state.item import Change, Item
from pipelines.runners.state.keymeters import KeyMeters
from pipelines.runners.state.keytable import NO_CODE
from pipelines.runners.state.recordtimes import RecordTimes
from pipelines.runners.state.silence import Silence
from pipelines.steps.keyed.window import ADDED, Window
from pipelines.values import ValueType

Array = npt.NDArray[Any]
_NO_ROW: Final = -1
"""The row of a window that no record ended."""


class CountedWindowRunner(StatefulRunner):
    """Gathers the samples of each key, and gives a window for each `size` of them, `every` so many.

    A record that fails leaves its key as it was. The samples of a key are of one type and shape, that of its first
    record. A result belongs to the record that completed the window, or whose gap ended it, or which brought a key for
    which another had to go.
    """

    saves: ClassVar[bool] = True
    opens_images: ClassVar[bool] = False

    def __init__(self, step: Window, context: OpenContext) -> None:
        assert isinstance(step.size, int)
        assert isinstance(step.stride, int)
        assert step.values is not None
        assert step.output_name is not None
        self._step = step
        self._values, self._output = step.values, step.output_name
        self._size, self._every = step.size, step.stride
        self._gap = None if step.gap is None else round(step.gap * 1000)
        self._times = RecordTimes(step.time, ahead=step.ahead, clock=context.clock)
        self._state = CountedState(step.by, step.most_keys, self._size, self._every, evict=self._evict)
        self._silence = None if step.idle is None else Silence(step.idle)
        self._remembers = step.short != "drop"
        """Whether a result that no record makes may come, which needs a record that it belongs to."""
        self._closed: list[tuple[int, Closed]] = []
        """Windows that have ended, with the position of the record that ended each, or `_NO_ROW`."""
        self._results = WindowResults(step.by, step.output_name)
        self._short = context.metrics.counter(SHORT_WINDOWS, SHORT_HELP)
        self._meters = KeyMeters(context.metrics, context.step or step.type_name, step.most_keys)

    @property
    def reads(self) -> frozenset[str] | None:
        return frozenset([*self._step.by, *self._values]) | self._times.reads

    @property
    def needs(self) -> frozenset[str]:
        return self.reads or frozenset()

    @property
    def gives(self) -> frozenset[str] | None:
        return frozenset([*self._step.by, self._output, *ADDED])

    @property
    def types(self) -> dict[str, ValueType]:
        return dict.fromkeys(ADDED, ValueType.INT64)

    def forms(self, given: Forms) -> Forms:
        if len(self._values) == 1:
            return super().forms(given)
        length = None if self._step.short == "emit" else self._size
        array = ArrayForm(np.dtype(np.float32), (length, len(self._values)))
        return {**super().forms(given), self._output: array}

    def limit(self, records: int) -> bool:
        return True

    def run_batch(self, batch: Batch) -> Result:
        return self._state.keys.in_portions(batch, self._run, self.reads)

    def _run(self, batch: Batch) -> Result:
        times, untimed = self._times.of(batch)
        failed = dict(untimed)
        parts = samples_of(batch, self._values, failed)
        numbers = self._numbers(batch.size, parts, failed)
        codes = self._codes(batch, numbers, failed)
        self._settle(codes, numbers)
        unlike = (codes != NO_CODE) & (self._state.form[codes] != numbers)
        for row in np.flatnonzero(unlike).tolist():
            failed[row] = self._unlike(int(codes[row]), int(numbers[row]))
        codes[unlike] = NO_CODE
        for part in parts:
            self._add(batch, _without(part, codes[part.rows] != NO_CODE), codes, times)
        self._meters.remembers(len(self._state.keys))
        closed, self._closed = self._closed, []
        outcome = Outcome([row for row, _ in closed], [window for _, window in closed], failed)
        return self._results.of(batch, outcome)

    def tick(self, now: float) -> Result:
        if self._silence is None:
            return Result(Batch({}, 0))
        return self._ended(self._silence.due(now, self._state.keys.codes, self.caught_up))

    def flush(self) -> Result:
        return self._ended(self._state.keys.codes)

    def forget(self, lanes: Iterable[Hashable]) -> None:
        self._state.forget(lanes)
        self._meters.remembers(len(self._state.keys))

    def changes(self) -> Iterable[Change]:
        return self._state.changes()

    def load(self, lane: Hashable, items: Iterable[Item]) -> None:
        self._heard(self._state.load(lane, items))
        # Of keys that were saved when there could be more of them.
        self._closed = []
        self._meters.remembers(len(self._state.keys))

    def _numbers(self, size: int, parts: list[Samples], failed: dict[int, Exception]) -> Rows:
        """The number of the store for the samples of each row; -1 for those that fail."""
        numbers = np.full(size, -1, np.int64)
        for part in parts:
            try:
                numbers[part.rows] = self._state.number_of(part.form)
            except DataError as error:
                failed.update(dict.fromkeys(part.rows.tolist(), error))
        return numbers

    def _codes(self, batch: Batch, numbers: Rows, failed: dict[int, Exception]) -> Rows:
        """The code of each row's key; `NO_CODE` for those that fail, which make no key known."""
        if not failed:
            codes, wrong = self._state.keys.coded(batch)
        else:
            good = np.flatnonzero(numbers >= 0)
            codes = np.full(batch.size, NO_CODE, np.int64)
            coded = self._state.keys.coded(batch.take(good))
            codes[good] = coded.codes
            self._closed = [(int(good[row]), window) for row, window in self._closed]
            wrong = {int(good[row]): error for row, error in coded.failed.items()}
        failed.update(wrong)
        self._heard(codes[codes != NO_CODE])
        return codes

    def _heard(self, codes: Rows) -> None:
        if self._silence is not None:
            self._silence.heard(codes, self._state.keys.capacity)

    def _settle(self, codes: Rows, numbers: Rows) -> None:
        """The first record of a key says which type and shape its samples have."""
        new = np.flatnonzero((codes != NO_CODE) & (self._state.form[codes] < 0))
        if len(new):
            keys, first = np.unique(codes[new], return_index=True)
            for code, number in zip(keys.tolist(), numbers[new[first]].tolist(), strict=True):
                self._state.settle(code, number)

    def _unlike(self, code: int, number: int) -> DataError:
        known, form = (self._state.stores[each].form for each in (int(self._state.form[code]), number))
        return unlike(known, form, self._state.keys.text(code))

    def _add(self, batch: Batch, part: Samples, codes: Rows, times: Rows) -> None:
        """Put the samples of rows into the windows of their keys."""
        if not len(part.rows):
            return
        state = self._state
        order = np.argsort(codes[part.rows], kind="stable")
        rows = part.rows[order]
        sorted_codes, sorted_times = codes[rows], times[rows]
        if self._remembers:
            state.records.note(sorted_codes, batch, rows)
        first = np.flatnonzero(np.concatenate([[True], sorted_codes[1:] != sorted_codes[:-1]]))
        keys, lengths = sorted_codes[first], np.diff(first, append=len(rows))
        counts = np.ones(len(rows), np.int64) if part.counts is None else part.counts[order]
        begins = np.cumsum(counts) - counts
        fill, totals = state.fill[keys], np.add.reduceat(counts, first)
        ends = fill + totals >= self._size
        gaps = self._gaps(keys, sorted_times, first)
        if gaps is not None:
            ends |= np.logical_or.reduceat(gaps, first)
        # Where the samples of a row are in the array, and their place in the window of the key.
        source = order if part.counts is None else (np.cumsum(part.counts) - part.counts)[order]
        place = np.repeat(fill - begins[first], lengths) + begins
        if ends.any():
            for at in np.flatnonzero(ends).tolist():
                these = slice(first[at], first[at] + lengths[at])
                run = _Run(rows[these], sorted_times[these], counts[these], None if gaps is None else gaps[these])
                index = source[these] if part.counts is None else spread(source[these], counts[these])
                self._add_one(int(keys[at]), run, part.array[index])
            if ends.all():
                return
            stay = np.repeat(~ends, lengths)
            sorted_codes, sorted_times = sorted_codes[stay], sorted_times[stay]
            source, place, counts = source[stay], place[stay], counts[stay]
            keys, totals, lengths = keys[~ends], totals[~ends], lengths[~ends]
        if part.counts is not None:
            source, place = spread(source, counts), spread(place, counts)
            sorted_codes, sorted_times = np.repeat(sorted_codes, counts), np.repeat(sorted_times, counts)
        self._scatter(part, source, place, sorted_codes, sorted_times)
        state.fill[keys] += totals
        state.written[keys] += totals
        state.changed[keys] = True
        last = np.cumsum(lengths if part.counts is None else totals) - 1
        state.last[keys] = sorted_times[last]

    def _gaps(self, keys: Rows, times: Rows, first: Rows) -> Mask | None:
        """Which records come so long after the one before them that the window ends."""
        if self._gap is None:
            return None
        before = np.empty_like(times)
        before[1:] = times[:-1]
        before[first] = self._state.last[keys]
        gaps: Mask = times - before > self._gap
        gaps[first] &= self._state.fill[keys] > 0
        return gaps

    def _scatter(self, part: Samples, source: Rows, place: Rows, codes: Rows, times: Rows) -> None:
        """Put samples, of keys whose windows they do not fill, into the rings: `place` counts from a window's begin."""
        state = self._state
        store = state.stores[state.number_of(part.form)]
        store.samples[state.slot[codes], (state.head[codes] + place) % self._size] = part.array[source]
        begin = np.flatnonzero(place % self._every == 0)
        if len(begin):
            codes = codes[begin]
            state.starts[codes, (state.mark[codes] + place[begin] // self._every) % state.marks] = times[begin]

    def _add_one(self, code: int, run: _Run, samples: Array) -> None:
        """Put samples of one key into windows some of which end."""
        state, ends = self._state, np.cumsum(run.counts)
        breaks = [] if run.gaps is None else np.flatnonzero(run.gaps).tolist()
        edges = [0, *(at for at in breaks if at), len(run.rows)]
        for begin, end in pairwise(edges):
            if begin in breaks:
                self._end_short(code, int(run.rows[begin]))
                state.begin_anew(code)
            at, stop = int(ends[begin] - run.counts[begin]), int(ends[end - 1])
            while at < stop:
                at += self._fill(code, run, ends, at, samples[at:stop])
            state.last[code] = run.times[end - 1]
        state.changed[code] = True

    def _fill(self, code: int, run: _Run, ends: Rows, at: int, samples: Array) -> int:
        """Put as many samples into the window as it has room for; returns how many. They begin at the run's `at`."""
        state = self._state
        fill, head, mark = int(state.fill[code]), int(state.head[code]), int(state.mark[code])
        store, slot = state.stores[int(state.form[code])], int(state.slot[code])
        count = min(self._size - fill, len(samples))
        store.write(slot, (head + fill) % self._size, samples[:count])
        begins = np.arange(-(-fill // self._every) * self._every, fill + count, self._every)
        row_of = np.searchsorted(ends, begins - fill + at, "right")
        state.starts[code, (mark + begins // self._every) % state.marks] = run.times[row_of]
        state.written[code] += count
        state.fill[code] = fill + count
        if fill + count == self._size:
            row = int(np.searchsorted(ends, at + count - 1, "right"))
            start, end = int(state.starts[code, mark]), int(run.times[row])
            window = store.window(slot, head, self._size)
            self._closed.append((int(run.rows[row]), Closed(self._key(code), (), start, end, self._size, window)))
            state.head[code] = (head + self._every) % self._size
            state.mark[code] = (mark + 1) % state.marks
            state.fill[code] = self._size - self._every
            state.closed[code] = True
        return count

    def _end_short(self, code: int, row: int) -> None:
        """Enter the window of a key that has to end now, if it has samples that were in none."""
        state = self._state
        if state.fresh(np.array([code]))[0] <= 0:
            return
        self._short.add()
        if self._step.short == "drop":
            return
        fill = int(state.fill[code])
        samples = state.stores[int(state.form[code])].window(int(state.slot[code]), int(state.head[code]), fill)
        if self._step.short == "pad":
            samples = padded(samples, self._size)
        start, end = int(state.starts[code, state.mark[code]]), int(state.last[code])
        self._closed.append((row, Closed(self._key(code), (), start, end, fill, samples)))

    def _evict(self, codes: Rows, rows: Rows) -> None:
        self._meters.evict(len(codes))
        for code, row in zip(codes.tolist(), rows.tolist(), strict=True):
            self._end_short(code, row)

    def _ended(self, codes: Rows) -> Result:
        """The short windows of these keys, which are forgotten."""
        records: list[RecordContext] = []
        for code in codes.tolist():
            before = len(self._closed)
            self._end_short(code, _NO_ROW)
            if len(self._closed) > before:
                records.append(self._state.records.record(code))
        closed, self._closed = self._closed, []
        self._state.drop(codes)
        self._meters.remembers(len(self._state.keys))
        return self._results.timed([window for _, window in closed], records)

    def _key(self, code: int) -> tuple[Any, ...]:
        value = self._state.keys.value(code)
        return value if len(self._step.by) > 1 else (value,)


class _Run(NamedTuple):
    """The records of one key in a batch, in their order."""

    rows: Rows
    """Their positions in the batch."""
    times: Rows
    counts: Rows
    """How many samples each has."""
    gaps: Mask | None
    """Before which of them the window ends."""


def _without(part: Samples, keep: Mask) -> Samples:
    """The samples of the rows to keep."""
    if keep.all():
        return part
    if part.counts is None:
        return Samples(part.form, part.rows[keep], part.array[keep], None)
    array = part.array[np.repeat(keep, part.counts)]
    return Samples(part.form, part.rows[keep], array, part.counts[keep])
