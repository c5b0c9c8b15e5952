"""Runs WINDOW with windows by time, and sessions, and with numbers about windows by count."""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from pipelines.data.batch import Batch
from pipelines.data.columns import Mask, Rows
from pipelines.data.result import Result
from pipelines.errors import DataError, StreamerError
from pipelines.observe.metrics import LATE_RECORDS, SHORT_HELP, SHORT_WINDOWS
from pipelines.runners.forms import ArrayForm, Forms
from pipelines.runners.keyed.aggregates import Aggregates, Read, repeats
from pipelines.runners.keyed.countedplacing import CountedWindows
from pipelines.runners.keyed.openwindows import Opened, OpenWindows
from pipelines.runners.keyed.placing import NO_RECORD, AlignedWindows, Placed, Placing, Sessions
from pipelines.runners.keyed.samplelogs import NO_FORM, SampleLogs, check_room, most_samples, too_large
from pipelines.runners.keyed.samples import Samples, padded, samples_of, unlike
from pipelines.runners.keyed.windowresults import Closed, Outcome, WindowResults
from pipelines.runners.runner import OpenContext, StatefulRunner
from pipelines.runners.state.item import Change, Item
from pipelines.runners.state.keymeters import KeyMeters
from pipelines.runners.state.keytable import NO_CODE, KeyTable, grown
from pipelines.runners.state.lastrecords import LastRecords
from pipelines.runners.state.recordtimes import RecordTimes
from pipelines.runners.state.silence import Silence
from pipelines.runners.state.timed import timed
from pipelines.steps.keyed.fields import milliseconds
from pipelines.steps.keyed.window import ADDED, Window

_VERSION: Final = 1
_NEVER: Final = np.iinfo(np.int64).max
"""The first time of a window that has no record."""
LATE: Final = "late: its windows have closed"
"""The reason of late records that are dropped."""


class _ClosedBy(NamedTuple):
    """Windows that records close."""

    records: Rows
    """The place, among the records that were placed, of the one that closes each."""
    windows: Opened


class _Entering(NamedTuple):
    """Records that enter their windows together."""

    batch: Batch
    read: list[Read]
    samples: Sequence[Samples]
    positions: Rows
    """Their positions in the batch."""
    codes: Rows
    """The codes of their keys."""
    times: Rows


class TimedWindowRunner(StatefulRunner):
    """Gathers records into windows of the time of their keys, or of so many records.

    Numbers are kept by slots, one for each open window; samples by key, as a sample may be in several windows.

    All records of a batch are placed and added at once. That gives what it gives one by one, as a window that a record
    closes gets none of those behind it: they are late for it.
    """

    saves: ClassVar[bool] = True
    opens_images: ClassVar[bool] = False

    def __init__(self, step: Window, context: OpenContext) -> None:
        self._step = step
        self._values = step.values
        self._placing = _placing(step)
        self._full = step.size if isinstance(step.size, int) else None
        """How many records a window by count has."""
        self._size = None if step.size is None or step.counted else milliseconds(step.size)
        """Milliseconds of a window by time; `None`: it is from its first record to its last."""
        self._times = RecordTimes(step.time, ahead=step.ahead, clock=context.clock)
        self._contents = Aggregates(step.aggregate)
        self._logs = SampleLogs()
        self._open = OpenWindows(self._grow_slots, self._begin_windows)
        self._keys = KeyTable(step.by, step.most_keys, begin=self._begin_keys, evict=self._evict)
        self._last = LastRecords()
        # By slot: the first and the last time of a session or a window by count.
        self._from, self._to = np.zeros(0, np.int64), np.zeros(0, np.int64)
        # By code.
        self._changed, self._saved = np.zeros(0, np.bool_), np.zeros(0, np.bool_)
        self._gone: dict[tuple[Hashable, str], set[int]] = {}
        self._results = WindowResults(step.by, step.output_name, self._contents.keys)
        self._evicted: list[tuple[int, Closed]] = []
        """Windows of keys that had to go, with the position of the record that brought another."""
        self._silence = None if step.idle is None else Silence(step.idle)
        self._late_records = context.metrics.counter(LATE_RECORDS, "Records that came after their windows had closed.")
        self._short = None
        if step.counted:
            self._short = context.metrics.counter(SHORT_WINDOWS, SHORT_HELP)
        self._meters = KeyMeters(context.metrics, context.step or step.type_name, step.most_keys)

    @property
    def reads(self) -> frozenset[str] | None:
        return frozenset([*self._step.by, *(self._values or ())]) | self._contents.reads | self._times.reads

    @property
    def gives(self) -> frozenset[str] | None:
        output = () if self._step.output_name is None else (self._step.output_name,)
        return frozenset([*self._step.by, *output, *self._contents.keys, *ADDED])

    def forms(self, given: Forms) -> Forms:
        if self._values is None or self._step.output_name is None or len(self._values) == 1:
            return super().forms(given)
        length = None if self._step.short == "emit" else self._full
        array = ArrayForm(np.dtype(np.float32), (length, len(self._values)))
        return {**super().forms(given), self._step.output_name: array}

    def run_batch(self, batch: Batch) -> Result:
        return self._keys.in_portions(batch, self._run, self.reads, self._placing.most_at_once)

    def tick(self, now: float) -> Result:
        if self._silence is None:
            return timed({}, [])
        return self._ended(self._silence.due(now, self._open.codes, self.caught_up))

    def flush(self) -> Result:
        return self._ended(self._open.codes)

    def forget(self, lanes: Iterable[Hashable]) -> None:
        lanes = set(lanes)
        codes = self._keys.forget(lanes)
        self._open.drop(codes)
        self._last.drop(codes)
        self._logs.drop(codes)
        self._gone = {gone: parts for gone, parts in self._gone.items() if gone[0] not in lanes}
        self._meters.remembers(len(self._keys))

    def changes(self) -> Iterable[Change]:
        codes = self._keys.codes
        changed = codes[self._changed[codes]]
        self._changed[changed] = False
        self._saved[changed] = True
        gone, self._gone = self._gone, {}
        for code in changed.tolist():
            lane, text = self._keys.lane(code), self._keys.text(code)
            left = gone.get((lane, text), set())
            left.discard(0)
            yield Change(lane, text, 0, self._piece(code))
            if self._values is not None:
                for number, data in self._logs.pieces(code):
                    left.discard(number + 1)
                    yield Change(lane, text, number + 1, None if data is None else bytes([_VERSION]) + data)
        for (lane, text), parts in gone.items():
            for part in sorted(parts):
                yield Change(lane, text, part, None)

    def load(self, lane: Hashable, items: Iterable[Item]) -> None:
        self.forget([lane])
        pieces: dict[str, dict[int, bytes]] = {}
        for item in items:
            pieces.setdefault(item.key, {})[item.part] = item.value
        for (key, parts), code in zip(pieces.items(), self._keys.loaded(lane, pieces), strict=True):
            try:
                self._load_pieces(code, parts, lane)
            except (StreamerError, ValueError, TypeError, KeyError, IndexError, OverflowError) as error:
                raise StreamerError(f"the saved windows of {key[:60]} are damaged: {error}") from None
            self._changed[code], self._saved[code] = False, True
        self._meters.remembers(len(self._keys))
        # What did not fit was full of keys that nobody asked for since.
        self._evicted = []

    def _run(self, batch: Batch) -> Result:
        outcome = Outcome()
        failed = outcome.failed
        read = self._contents.read(batch, failed)
        times, untimed = self._times.of(batch)
        for row, error in untimed.items():
            failed.setdefault(row, error)
        samples = self._samples(batch, failed)
        positions, codes = self._coded(batch, failed)
        positions, codes = self._alike(samples, positions, codes, failed)
        for row, window in self._evicted:
            outcome.rows.append(row)
            outcome.closed.append(window)
        self._evicted = []
        for part in self._portions(samples, positions, codes, times, failed):
            self._enter(_Entering(batch, read, samples, *part), outcome)
        return self._results.of(batch, outcome)

    def _enter(self, entering: _Entering, outcome: Outcome) -> None:
        """Put records into their windows."""
        positions, codes, times = entering.positions, entering.codes, entering.times
        if self._step.time == "arrival":
            # A clock that was put back, or that of the host before, makes no record late.
            times = np.maximum(times, self._placing.latest(codes))
        placed = self._placing.place(codes, times)
        self._late(positions[placed.late], times[placed.late], outcome)
        self._note(codes[~placed.late], entering.batch, positions[~placed.late])
        slots = self._open.slots(codes[placed.records], placed.begins)
        self._keep(entering.samples, positions, codes, times, placed)
        if self._step.emit == "each":
            self._add_each(entering, times, placed, slots, outcome)
        else:
            self._add(entering, times, placed, slots, slice(None))
        closed = self._closed()
        given, made = self._given(closed.windows)
        outcome.rows.extend(positions[closed.records[given]].tolist())
        outcome.closed.extend(made)
        self._open.close(closed.windows.codes, closed.windows.begins)
        if self._values is not None:
            for code in set(closed.windows.codes.tolist()):
                self._logs.trim(code, self._open.of(code))

    def _samples(self, batch: Batch, failed: dict[int, Exception]) -> list[Samples]:
        """The samples of the records, by their form."""
        if self._values is None:
            return []
        parts = samples_of(batch, self._values, failed)
        for part in parts:
            if self._full is None:
                # Before its key is known, for which another may have to go.
                failed.update(too_large(part))
                continue
            try:
                check_room(part.form, self._full)
            except DataError as error:
                failed.update(dict.fromkeys(part.rows.tolist(), error))
                continue
            if part.counts is not None:
                for row, count in zip(part.rows.tolist(), part.counts.tolist(), strict=True):
                    if count != 1:
                        failed[row] = _several(count)
        return parts

    def _portions(
        self, samples: Sequence[Samples], positions: Rows, codes: Rows, times: Rows, failed: dict[int, Exception]
    ) -> Iterator[tuple[Rows, Rows, Rows]]:
        """The records to enter together, as positions, codes and times.

        Each record of a key is alone that may come to have more samples than a window may have; those that have no room
        are added to `failed`.
        """
        tight = self._tight(samples, positions, codes)
        if tight is None:
            if len(positions):
                yield positions, codes, times[positions]
            return
        if not tight.all():
            yield positions[~tight], codes[~tight], times[positions[~tight]]
        for at in np.flatnonzero(tight).tolist():
            position, code = positions[at : at + 1], codes[at : at + 1]
            error = self._without_room(samples, position, code, times[position])
            if error is None:
                yield position, code, times[position]
            else:
                failed[int(position[0])] = error

    def _tight(self, samples: Sequence[Samples], positions: Rows, codes: Rows) -> Mask | None:
        """Of which records the keys may come to have more samples than a window may have; `None`: of none."""
        if self._full is not None or not samples or not len(positions):
            return None
        most = min(most_samples(part.form) for part in samples)
        if self._logs.most_held + sum(len(part.array) for part in samples) <= most:
            return None
        counts = np.ones(len(positions), np.int64)
        for part in samples:
            if part.counts is not None:
                mine = np.isin(positions, part.rows)
                counts[mine] = part.counts[np.searchsorted(part.rows, positions[mine])]
        keys, inverse = np.unique(codes, return_inverse=True)
        tight: Mask = self._logs.held(keys) + np.bincount(inverse, counts).astype(np.int64) > most
        return tight[inverse] if tight.any() else None

    def _alike(
        self, samples: Sequence[Samples], positions: Rows, codes: Rows, failed: dict[int, Exception]
    ) -> tuple[Rows, Rows]:
        """The records whose samples have the form of those of their key; the first of a key says what that is."""
        if not samples or not len(positions):
            return positions, codes
        forms = np.empty(1 + max(int(positions.max()), *(int(part.rows.max()) for part in samples)), np.int64)
        for part in samples:
            forms[part.rows] = self._logs.number_of(part.form)
        forms = forms[positions]
        new = np.flatnonzero(self._logs.forms(codes) == NO_FORM)
        if len(new):
            keys, first = np.unique(codes[new], return_index=True)
            by_number = {self._logs.number_of(part.form): part.form for part in samples}
            for code, number in zip(keys.tolist(), forms[new[first]].tolist(), strict=True):
                self._logs.settle(code, by_number[number])
        other = self._logs.forms(codes) != forms
        if not other.any():
            return positions, codes
        of = {int(row): part.form for part in samples for row in part.rows}
        for position, code in zip(positions[other].tolist(), codes[other].tolist(), strict=True):
            failed[position] = unlike(self._logs.form(code), of[position], self._keys.text(code))
        return positions[~other], codes[~other]

    def _without_room(self, samples: Sequence[Samples], position: Rows, codes: Rows, times: Rows) -> DataError | None:
        """Why the windows of a single record have no room for its samples; `None` if they have."""
        (code,) = codes.tolist()
        part = next(part for part in samples if np.isin(position, part.rows)[0])
        array, _ = part.of(position)
        before = self._placing.saved(code)
        placed = self._placing.place(codes, times)
        self._placing.load(code, before)
        try:
            for begin in placed.begins.tolist():
                check_room(part.form, self._logs.count(code, begin) + len(array))
        except DataError as error:
            return error
        return None

    def _keep(self, samples: Sequence[Samples], positions: Rows, codes: Rows, times: Rows, placed: Placed) -> None:
        """Keep the samples of the records that are not late, with the windows that they are in."""
        if not samples or not len(placed.records):
            return
        first = np.flatnonzero(np.r_[True, placed.records[1:] != placed.records[:-1]])
        last = np.r_[first[1:], len(placed.records)] - 1
        records = placed.records[first]
        order = np.argsort(codes[records], kind="stable")
        first, last, records = first[order], last[order], records[order]
        for part in samples:
            mine = np.ones(len(records), np.bool_)
            if len(samples) > 1:
                mine = np.isin(positions[records], part.rows)
            these = records[mine]
            if not len(these):
                continue
            array, counts = part.of(positions[these])
            oldest, newest = placed.begins[first[mine]], placed.begins[last[mine]]
            self._logs.add(codes[these], oldest, newest, times[these], counts, array)

    def _extend(self, slots: Rows, times: Rows) -> None:
        """Windows last from their first record to their last: of sessions in time, of windows by count as they came."""
        if self._full is None:
            np.minimum.at(self._from, slots, times)
            np.maximum.at(self._to, slots, times)
            return
        # Of a slot that is there repeatedly, the last assignment stays.
        new = np.flatnonzero(self._from[slots] == _NEVER)[::-1]
        self._from[slots[new]] = times[new]
        self._to[slots] = times

    def _coded(self, batch: Batch, failed: dict[int, Exception]) -> tuple[Rows, Rows]:
        """The positions of the records that can be used, and the codes of their keys."""
        positions = np.arange(batch.size)
        if failed:
            positions = np.delete(positions, list(failed))
            batch = batch.take(positions)
        codes, unknown = self._keys.coded(batch)
        self._evicted = [(int(positions[row]), window) for row, window in self._evicted]
        self._meters.remembers(len(self._keys))
        if unknown:
            failed.update({int(positions[row]): error for row, error in unknown.items()})
            positions, codes = positions[codes != NO_CODE], codes[codes != NO_CODE]
        return positions, codes

    def _late(self, positions: Rows, times: Rows, outcome: Outcome) -> None:
        """Fail or drop late records."""
        if not len(positions):
            return
        self._late_records.add(len(positions))
        if self._step.on_late == "drop":
            outcome.dropped.update(dict.fromkeys(positions.tolist(), LATE))
            return
        for position, time in zip(positions.tolist(), times.tolist(), strict=True):
            outcome.failed[position] = DataError(
                f"it is late: the windows of its time, {np.datetime64(time, 'ms')}Z, have closed; raise lateness to "
                "wait longer, or set onLate: drop"
            )

    def _note(self, codes: Rows, batch: Batch, positions: Rows) -> None:
        self._last.note(codes, batch, positions)
        self._changed[codes] = True
        self._heard(codes)

    def _heard(self, codes: Rows) -> None:
        if self._silence is not None:
            self._silence.heard(codes, self._keys.capacity)

    def _add(self, entering: _Entering, times: Rows, placed: Placed, slots: Rows, places: Rows | slice) -> None:
        """Add records to the numbers of their windows, those at these places of `placed`."""
        records = placed.records[places]
        if self._size is None:
            self._extend(slots[places], times[records])
        self._contents.add(entering.read, entering.positions[records], slots[places])

    def _add_each(self, entering: _Entering, times: Rows, placed: Placed, slots: Rows, outcome: Outcome) -> None:
        """Add records, with a result for each: those that are the first of their windows at once, then the second."""
        rank = repeats(slots)
        codes = entering.codes[placed.records]
        running: list[Closed] = []
        order: list[Rows] = []
        for turn in range(int(rank.max(initial=-1)) + 1):
            places = np.flatnonzero(rank == turn)
            self._add(entering, times, placed, slots, places)
            running += self._windows(Opened(codes[places], placed.begins[places], slots[places]))
            order.append(places)
        if order:
            outcome.closed.extend(running[at] for at in np.argsort(np.concatenate(order)).tolist())
        outcome.rows.extend(entering.positions[placed.records].tolist())

    def _closed(self) -> _ClosedBy:
        """The windows that the records placed last have closed, in the order of records and begins."""
        windows = self._open.all_of(self._placing.moved.tolist())
        if not len(windows.codes):
            return _ClosedBy(windows.codes, windows)
        records = self._placing.closing(windows.codes, windows.begins)
        at = np.flatnonzero(records != NO_RECORD)
        at = at[np.lexsort((windows.begins[at], records[at]))]
        return _ClosedBy(records[at], windows.take(at))

    def _given(self, ending: Opened) -> tuple[Mask, list[Closed]]:
        """Which of the windows that end give a result, and these results."""
        counts = self._contents.counts(ending.slots)
        given = self._placing.fresh(ending.codes, ending.begins, counts)
        if self._short is not None:
            short = given & (counts < (self._full or 0))
            self._short.add(int(np.count_nonzero(short)))
            if self._step.short == "drop":
                given &= ~short
        if self._step.emit != "window":
            given = np.zeros(len(given), np.bool_)
        return given, self._windows(ending.take(given))

    def _windows(self, opened: Opened) -> list[Closed]:
        """What these windows have."""
        codes, begins, slots = opened
        starts, ends = (self._from[slots], self._to[slots]) if self._size is None else (begins, begins + self._size)
        keys = list(map(self._keys.value, codes.tolist()))
        if len(self._step.by) == 1:
            keys = [(key,) for key in keys]
        counts = self._contents.counts(slots).tolist()
        made = list(map(Closed, keys, self._contents.values(slots), starts.tolist(), ends.tolist(), counts))
        if self._values is None:
            return made
        samples = (self._of_window(code, begin) for code, begin in zip(codes.tolist(), begins.tolist(), strict=True))
        return [each._replace(length=count, samples=array) for each, (count, array) in zip(made, samples, strict=True)]

    def _of_window(self, code: int, begin: int) -> tuple[int, npt.NDArray[Any]]:
        """How many samples a window has, and the array of them."""
        samples = self._logs.window(code, begin, by_time=self._full is None)
        count = len(samples)
        if self._step.short == "pad" and self._full is not None:
            samples = padded(samples, self._full)
        return count, samples

    def _ended(self, codes: Rows) -> Result:
        """The open windows of these keys, which end without a record."""
        if not len(codes):
            return timed({}, [])
        windows = self._open.all_of(codes.tolist())
        each = zip(windows.begins.tolist(), map(self._keys.text, windows.codes.tolist()), strict=True)
        order = [at for *_, at in sorted((*by, at) for at, by in enumerate(each))]
        ending = windows.take(np.array(order, np.int64))
        given, made = self._given(ending)
        records = [self._last.record(code) for code in ending.codes[given].tolist()]
        self._open.close(ending.codes, ending.begins)
        for code in codes.tolist():
            self._placing.ended(code)
            self._logs.trim(code, ())
        self._changed[codes] = True
        return self._results.timed(made, records)

    def _begin_keys(self, codes: Rows) -> None:
        capacity = self._keys.capacity
        if capacity > len(self._changed):
            self._changed, self._saved = grown(self._changed, capacity), grown(self._saved, capacity)
            self._placing.grow(capacity)
            self._open.grow(capacity)
            self._logs.grow(capacity)
        self._changed[codes] = self._saved[codes] = False
        self._heard(codes)
        self._placing.begin(codes)
        self._logs.begin(codes)
        self._open.begin(codes)

    def _evict(self, codes: Rows, rows: Rows) -> None:
        self._meters.evict(len(codes))
        for code, row in zip(codes.tolist(), rows.tolist(), strict=True):
            ending = self._open.all_of([code])
            _, made = self._given(ending.take(np.argsort(ending.begins)))
            self._evicted += [(row, window) for window in made]
            if self._saved[code]:
                parts = self._gone.setdefault((self._keys.lane(code), self._keys.text(code)), set())
                parts |= {0, *(number + 1 for number in self._logs.saved(code))}
        self._open.drop(codes)
        self._last.drop(codes)
        self._logs.drop(codes)

    def _grow_slots(self, capacity: int) -> None:
        self._contents.grow(capacity)
        self._from, self._to = grown(self._from, capacity), grown(self._to, capacity)

    def _begin_windows(self, slots: Rows) -> None:
        self._contents.begin(slots)
        self._from[slots], self._to[slots] = _NEVER, -_NEVER

    def _piece(self, code: int) -> bytes:
        windows = [
            [begin, int(self._from[slot]), int(self._to[slot]), self._contents.saved(slot)]
            for begin, slot in self._open.of(code).items()
        ]
        piece = [self._placing.saved(code), self._last.saved(code), windows]
        if self._values is not None:
            piece.append(self._logs.described(code))
        return bytes([_VERSION]) + json.dumps(piece, ensure_ascii=False, separators=(",", ":")).encode()

    def _load_pieces(self, code: int, parts: dict[int, bytes], lane: Hashable) -> None:
        for value in parts.values():
            if value[:1] != bytes([_VERSION]):
                raise ValueError(f"they are of version {value[0] if value else 'none'}, this program reads {_VERSION}")
        placing, record, windows, *samples = json.loads(parts.pop(0)[1:])
        self._placing.load(code, placing)
        self._last.load(code, record, lane)
        for begin, start, end, content in windows:
            (slot,) = self._open.slots(np.array([code]), np.array([begin], np.int64)).tolist()
            self._from[slot], self._to[slot] = start, end
            self._contents.load(slot, content)
        if self._values is not None:
            (described,) = samples
            self._logs.load(code, described, {part - 1: value[1:] for part, value in parts.items()})
        elif samples or parts:
            raise ValueError("they have samples, and the step has none")


def _placing(step: Window) -> Placing:
    """What places the records in the windows that the step describes."""
    if isinstance(step.size, int) and isinstance(step.stride, int):
        return CountedWindows(step.size, step.stride, None if step.gap is None else round(step.gap * 1000))
    if step.size is None:
        return Sessions(milliseconds(step.gap or 0))
    return AlignedWindows(milliseconds(step.size), milliseconds(step.stride or step.size), milliseconds(step.lateness))


def _several(count: int) -> DataError:
    return DataError(
        f'it has {count} samples; where a window by count has an "aggregate", too, each record has to have one'
    )
