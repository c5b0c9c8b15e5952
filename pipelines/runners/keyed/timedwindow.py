"""Runs WINDOW with windows by time, and sessions."""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np

from pipelines.data.batch import Batch
from pipelines.data.columns import Column, DenseColumn, Rows
from pipelines.data.result import Result
from pipelines.errors import DataError, StreamerError
from pipelines.observe.metrics import LATE_RECORDS
from pipelines.runners.keyed.aggregates import Aggregates, Read, repeats
from pipelines.runners.keyed.openwindows import OpenWindows
from pipelines.runners.keyed.placing import MOST_AT_ONCE, AlignedWindows, Closing, Placed, Placing, Sessions
from pipelines.runners.runner import OpenContext, StatefulRunner
from pipelines.runners.state.item import Change, Item
from pipelines.runners.state.keymeters import KeyMeters
from pipelines.runners.state.keytable import NO_CODE, KeyTable, grown
from pipelines.runners.state.lastrecords import LastRecords
from pipelines.runners.state.recordtimes import RecordTimes
from pipelines.runners.state.timed import timed
from pipelines.steps.keyed.fields import milliseconds
from pipelines.steps.keyed.window import ADDED, Window
from pipelines.values import ValueType

_VERSION: Final = 1
LATE: Final = "late: its windows have closed"
"""The reason of late records that are dropped."""
LONGEST_TICK: Final = 1.0
"""Seconds between two ticks that count for `idle` at most: in a longer pause records may be waiting to be read."""


class _Closed(NamedTuple):
    """A result: what a window has when it closes, or after a record."""

    key: tuple[Any, ...]
    values: list[Any]
    start: int
    end: int
    records: int


class TimedWindowRunner(StatefulRunner):
    """Gathers records into windows of the time of their keys. Content is kept by slots, one for each open window.

    All records of a batch are placed and added at once. That gives what it gives one by one, as a window that a record
    closes gets none of those behind it: they are late for it.
    """

    saves: ClassVar[bool] = True
    opens_images: ClassVar[bool] = False

    def __init__(self, step: Window, context: OpenContext) -> None:
        self._step = step
        self._size = None if step.size is None else milliseconds(step.size)
        self._placing: Placing = (
            Sessions(milliseconds(step.gap or 0))
            if self._size is None
            else AlignedWindows(self._size, milliseconds(step.stride or step.size), milliseconds(step.lateness))
        )
        self._times = RecordTimes(step.time, ahead=step.ahead, clock=context.clock)
        self._contents = Aggregates(step.aggregate)
        self._open = OpenWindows(self._grow_slots, self._begin_windows)
        self._keys = KeyTable(step.by, step.most_keys, begin=self._begin_keys, evict=self._evict)
        self._last = LastRecords()
        # By slot: the first and the last time of a session.
        self._from, self._to = np.zeros(0, np.int64), np.zeros(0, np.int64)
        # By code.
        self._changed, self._saved = np.zeros(0, np.bool_), np.zeros(0, np.bool_)
        self._touched, self._seen = np.zeros(0, np.bool_), np.zeros(0)
        self._gone: dict[tuple[Hashable, str], None] = {}
        self._evicted: list[tuple[int, _Closed]] = []
        """Windows of keys that had to go, with the position of the record that brought another."""
        self._ticked: float | None = None
        self._waited = 0.0
        self._late_records = context.metrics.counter(LATE_RECORDS, "Records that came after their windows had closed.")
        self._meters = KeyMeters(context.metrics, context.step or step.type_name, step.most_keys)

    @property
    def reads(self) -> frozenset[str] | None:
        return frozenset(self._step.by) | self._contents.reads | self._times.reads

    @property
    def gives(self) -> frozenset[str] | None:
        return frozenset([*self._step.by, *self._contents.keys, *ADDED])

    def run_batch(self, batch: Batch) -> Result:
        return self._keys.in_portions(batch, self._run, self.reads, MOST_AT_ONCE)

    def tick(self, now: float) -> Result:
        self._waited += 0.0 if self._ticked is None else min(max(now - self._ticked, 0.0), LONGEST_TICK)
        self._ticked = now
        if self._step.idle is None:
            return timed({}, [])
        self._seen[self._touched] = self._waited
        self._touched[:] = False
        codes = self._keys.codes
        return self._ended(codes[self._waited - self._seen[codes] >= self._step.idle].tolist())

    def flush(self) -> Result:
        return self._ended(self._keys.codes.tolist())

    def forget(self, lanes: Iterable[Hashable]) -> None:
        lanes = set(lanes)
        codes = self._keys.forget(lanes)
        self._open.drop(codes)
        self._last.drop(codes)
        self._gone = {gone: None for gone in self._gone if gone[0] not in lanes}
        self._meters.remembers(len(self._keys))

    def changes(self) -> Iterable[Change]:
        codes = self._keys.codes
        changed = codes[self._changed[codes]]
        self._changed[changed] = False
        self._saved[changed] = True
        for code in changed.tolist():
            lane, text = self._keys.lane(code), self._keys.text(code)
            self._gone.pop((lane, text), None)
            yield Change(lane, text, 0, self._piece(code))
        gone, self._gone = self._gone, {}
        for lane, text in gone:
            yield Change(lane, text, 0, None)

    def load(self, lane: Hashable, items: Iterable[Item]) -> None:
        self.forget([lane])
        for item in items:
            code = self._keys.code(lane, item.key)
            try:
                self._load_piece(code, item.value, lane)
            except (StreamerError, ValueError, TypeError, KeyError, IndexError, OverflowError) as error:
                raise StreamerError(f"the saved windows of {item.key[:60]} are damaged: {error}") from None
            self._changed[code], self._saved[code] = False, True
        self._meters.remembers(len(self._keys))
        # What did not fit was full of keys that nobody asked for since.
        self._evicted = []

    def _run(self, batch: Batch) -> Result:
        failed: dict[int, Exception] = {}
        read = self._contents.read(batch, failed)
        times, untimed = self._times.of(batch)
        positions, codes = self._coded(batch, {**untimed, **failed}, failed)
        if not len(positions):
            return self._result(batch, [], [], failed, {})
        times = times[positions]
        if self._step.time == "arrival":
            # A clock that was put back, or that of the host before, makes no record late.
            times = np.maximum(times, self._placing.latest(codes))
        before = self._placing.latest(codes)
        placed = self._placing.place(codes, times)
        dropped = self._late(positions[placed.late], times[placed.late], before[placed.late], failed)
        self._note(codes[~placed.late], batch, positions[~placed.late])
        slots = self._open.slots(codes[placed.records], placed.begins)
        if self._size is None:
            np.minimum.at(self._from, slots, times[placed.records])
            np.maximum.at(self._to, slots, times[placed.records])
        parents = [row for row, _ in self._evicted]
        made = [window for _, window in self._evicted]
        self._evicted = []
        if self._step.emit == "each":
            self._add_each(read, positions, codes, placed, slots, parents, made)
        else:
            self._contents.add(read, positions[placed.records], slots)
        for closing in self._closings():
            if self._step.emit == "window":
                parents.append(int(positions[closing.record]))
                made.append(self._window(closing.code, closing.begin))
            self._open.close(closing.code, closing.begin)
        return self._result(batch, parents, made, failed, dropped)

    def _coded(
        self, batch: Batch, unusable: Mapping[int, Exception], failed: dict[int, Exception]
    ) -> tuple[Rows, Rows]:
        """The positions of the records that can be used, and the codes of their keys."""
        failed.update(unusable)
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

    def _late(self, positions: Rows, times: Rows, before: Rows, failed: dict[int, Exception]) -> dict[int, str]:
        """Fail or drop late records; gives those that are dropped."""
        if not len(positions):
            return {}
        self._late_records.add(len(positions))
        if self._step.on_late == "drop":
            return dict.fromkeys(positions.tolist(), LATE)
        for position, time in zip(positions.tolist(), times.tolist(), strict=True):
            failed[position] = DataError(
                f"it is late: the windows of its time, {np.datetime64(time, 'ms')}Z, have closed; raise lateness to "
                "wait longer, or set onLate: drop"
            )
        return {}

    def _note(self, codes: Rows, batch: Batch, positions: Rows) -> None:
        self._last.note(codes, batch, positions)
        self._changed[codes] = True
        self._touched[codes] = True

    def _add_each(
        self,
        read: list[Read],
        positions: Rows,
        codes: Rows,
        placed: Placed,
        slots: Rows,
        parents: list[int],
        made: list[_Closed],
    ) -> None:
        """Add records, with a result for each: those that are the first of their windows at once, then the second."""
        rank = repeats(slots)
        running: list[_Closed | None] = [None] * len(slots)
        for turn in range(int(rank.max(initial=-1)) + 1):
            places = np.flatnonzero(rank == turn)
            self._contents.add(read, positions[placed.records[places]], slots[places])
            for place in places.tolist():
                code, begin = int(codes[placed.records[place]]), int(placed.begins[place])
                running[place] = self._window(code, begin)
        parents += positions[placed.records].tolist()
        made += [each for each in running if each is not None]

    def _closings(self) -> Sequence[Closing]:
        moved = {code: windows for code in self._placing.moved if (windows := self._open.of(code))}
        return self._placing.closings(moved) if moved else ()

    def _window(self, code: int, begin: int) -> _Closed:
        slot = self._open.of(code)[begin]
        start, end = (int(self._from[slot]), int(self._to[slot])) if self._size is None else (begin, begin + self._size)
        value = self._keys.value(code)
        key = value if len(self._step.by) > 1 else (value,)
        return _Closed(key, self._contents.values(slot), start, end, self._contents.count(slot))

    def _ended(self, codes: Sequence[int]) -> Result:
        """The open windows of these keys, which end without a record."""
        ended = sorted(
            ((begin, self._keys.text(code), code) for code in codes for begin in self._open.of(code)),
            key=lambda each: each[:2],
        )
        made = [self._window(code, begin) for begin, _, code in ended]
        records = [self._last.record(code) for _, _, code in ended]
        for begin, _, code in ended:
            self._open.close(code, begin)
            self._placing.ended(code)
            self._changed[code] = True
        if self._step.emit == "each":
            return timed({}, [])
        return timed(self._columns(made), records)

    def _result(
        self,
        batch: Batch,
        parents: Sequence[int],
        made: Sequence[_Closed],
        failed: Mapping[int, Exception],
        dropped: Mapping[int, str],
    ) -> Result:
        order = np.argsort(np.array(parents, np.int64), kind="stable")
        numbers, splits = batch.numbers(np.array(parents, np.int64)[order])
        emitted = Batch(
            self._columns([made[at] for at in order.tolist()]),
            len(made),
            rows=numbers,
            splits=splits,
            origin=batch.origin,
        )
        held = np.ones(batch.size, np.bool_)
        held[[*parents, *failed, *dropped]] = False
        return Result(
            emitted,
            {number: error for row, error in failed.items() for number in batch.parents(row).tolist()},
            {number: reason for row, reason in dropped.items() for number in batch.parents(row).tolist()},
            batch.numbers(np.flatnonzero(held))[0],
        )

    def _columns(self, made: Sequence[_Closed]) -> dict[str, Column]:
        if not made:
            return {}
        columns = {name: Column.of([each.key[at] for each in made]) for at, name in enumerate(self._step.by)}
        columns |= self._contents.columns([each.values for each in made])
        bounds = np.array([(each.start, each.end, each.records) for each in made], np.int64)
        for at, name in enumerate(ADDED):
            columns[name] = DenseColumn(bounds[:, at], ValueType.INT64)
        return columns

    def _begin_keys(self, codes: Rows) -> None:
        capacity = self._keys.capacity
        if capacity > len(self._changed):
            self._changed, self._saved = grown(self._changed, capacity), grown(self._saved, capacity)
            self._touched, self._seen = grown(self._touched, capacity), grown(self._seen, capacity)
            self._placing.grow(capacity)
            self._open.grow(capacity)
        self._changed[codes] = self._saved[codes] = False
        self._touched[codes] = True
        self._placing.begin(codes)
        self._open.begin(codes)

    def _evict(self, codes: Rows, rows: Rows) -> None:
        self._meters.evict(len(codes))
        for code, row in zip(codes.tolist(), rows.tolist(), strict=True):
            if self._step.emit == "window":
                self._evicted += [(row, self._window(code, begin)) for begin in sorted(self._open.of(code))]
            if self._saved[code]:
                self._gone[self._keys.lane(code), self._keys.text(code)] = None
        self._open.drop(codes)
        self._last.drop(codes)

    def _grow_slots(self, capacity: int) -> None:
        self._contents.grow(capacity)
        self._from, self._to = grown(self._from, capacity), grown(self._to, capacity)

    def _begin_windows(self, slots: Rows) -> None:
        self._contents.begin(slots)
        limits = np.iinfo(np.int64)
        self._from[slots], self._to[slots] = limits.max, limits.min

    def _piece(self, code: int) -> bytes:
        windows = [
            [begin, int(self._from[slot]), int(self._to[slot]), self._contents.saved(slot)]
            for begin, slot in self._open.of(code).items()
        ]
        piece = [self._placing.saved(code), self._last.saved(code), windows]
        return bytes([_VERSION]) + json.dumps(piece, ensure_ascii=False, separators=(",", ":")).encode()

    def _load_piece(self, code: int, value: bytes, lane: Hashable) -> None:
        if value[:1] != bytes([_VERSION]):
            raise ValueError(f"they are of version {value[0] if value else 'none'}, this program reads {_VERSION}")
        placing, record, windows = json.loads(value[1:])
        self._placing.load(code, placing)
        self._last.load(code, record, lane)
        for begin, start, end, content in windows:
            (slot,) = self._open.slots(np.array([code]), np.array([begin], np.int64)).tolist()
            self._from[slot], self._to[slot] = start, end
            self._contents.load(slot, content)
