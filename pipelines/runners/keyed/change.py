"""Runs CHANGE."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from pipelines.data.batch import Batch
from pipelines.data.columns import MISSING, Column, DenseColumn, Rows
from pipelines.data.result import Result
from pipelines.errors import DataError
from pipelines.runners.keyed.keyedrunner import KeyedRunner, by_number, dropped
from pipelines.runners.keyed.numbers import numbers_of, only
from pipelines.runners.keyed.standing import LOW, News, Rules, Standing
from pipelines.runners.runner import OpenContext
from pipelines.runners.state.keytable import grown
from pipelines.runners.state.recordkeys import distinct
from pipelines.runners.state.recordtimes import RecordTimes
from pipelines.steps.keyed.change import ADDED, BEFORE, COUNT, SINCE, STATE, Change
from pipelines.steps.keyed.fields import milliseconds
from pipelines.values import ValueType

NO_CHANGE: Final = "no change"
"""Reason of a record that changes nothing."""
LONGEST_TEXT: Final = 1024
"""Characters of a state that is a text."""
ON: Final = "on"
OFF: Final = "off"

_OF_NUMBER: Final = np.array([None, OFF, ON], object)

States = npt.NDArray[np.object_]


class _Read(NamedTuple):
    """The states that the records of a batch tell."""

    states: States
    """Of each row a state as `distinct` makes it; `None`: it is as it was."""
    failed: dict[int, Exception]
    """Why rows have none, by position."""


class ChangeRunner(KeyedRunner):
    """Lets records through that change the state of their key, or remind of it.

    Most records change nothing: these are recognised by columns, which have the state of each key, and whether one is
    pending. Only the records of the other keys are looked at one after the other (`Standing`).
    """

    opens_images: ClassVar[bool] = False
    keeps_keys: ClassVar[bool] = True
    needs_all: ClassVar[bool] = True

    def __init__(self, step: Change, context: OpenContext) -> None:
        self._step = step
        self._first = None if step.on is None else OFF
        self._times = RecordTimes(step.time, clock=context.clock)
        self._rules = Rules(
            records=step.after if isinstance(step.after, int) else 1,
            span=None if isinstance(step.after, int) else milliseconds(step.after),
            remind=None if step.remind is None else milliseconds(step.remind),
            calm=(LOW,) if step.on is None else (OFF,),
        )
        self._standings: dict[int, Standing] = {}
        """By code, of the keys that ever had another state than that of new ones, or a pending one."""
        # By code, of all keys.
        self._states: States = np.zeros(0, object)
        self._pending = np.zeros(0, np.bool_)
        self._reminded = np.zeros(0, np.bool_)
        self._reported = np.zeros(0, np.int64)
        self._calm_records = np.zeros(0, np.int64)
        """Records that `Standing.count` does not have yet."""
        super().__init__(step.by, step.most_keys, context, context.step or step.type_name)
        self._grow()

    @property
    def reads(self) -> frozenset[str] | None:
        """The key, the value and the time if that is a value."""
        return frozenset([*self.table.by, self._step.value]) | self._times.reads

    @property
    def gives(self) -> frozenset[str] | None:
        """What is added; not known where the first state of a key has none before it."""
        return None if self._step.on is None else frozenset(ADDED)

    @property
    def types(self) -> Mapping[str, ValueType]:
        """The types of what is added."""
        known = {SINCE: ValueType.INT64, COUNT: ValueType.INT64}
        return known if self._step.on is None else {STATE: ValueType.STRING, BEFORE: ValueType.STRING, **known}

    def limit(self, records: int) -> bool:
        """It works on columns, of any size."""
        return True

    def run_batch(self, batch: Batch) -> Result:
        """The records that change something, or remind of it."""
        return self.table.in_portions(batch, self._run, self.reads)

    def _run(self, batch: Batch) -> Result:
        times, failed = self._times.of(batch)
        read = self._read(batch.get(self._step.value))
        failed.update(read.failed)
        rows, codes = self.coded(batch, failed)
        news = self._news(codes, read.states[rows], times[rows])
        through = np.fromiter(news, np.int64, len(news))
        emitted = batch.take(rows[through])
        if news:
            emitted = emitted.with_columns(_columns(list(news.values())))
        return Result(emitted, by_number(batch, failed), dropped(batch, np.delete(rows, through), NO_CHANGE))

    def _news(self, codes: Rows, states: States, times: Rows) -> dict[int, News]:
        """The news that records make, by position. Records of keys of which none could make any are only counted."""
        unsaid = states == None  # noqa: E711 by element
        same = unsaid | (self._states[codes] == states)
        could = ~same | self._pending[codes]
        if self._rules.remind is not None:
            since = np.abs(times - self._reported[codes])
            could |= self._reminded[codes] & (since >= self._rules.remind)
        if could.any():
            awake = np.zeros(self.table.capacity, np.bool_)
            awake[codes[could]] = True
            could = awake[codes]
        if self._rules.remind is not None:
            calm = codes[~could]
            calm = calm[self._reminded[calm]]
            np.add.at(self._calm_records, calm, 1)
            self.pieces.change(calm)
        return self._looked_at(np.flatnonzero(could), codes, states, times)

    def _looked_at(self, rows: Rows, codes: Rows, states: States, times: Rows) -> dict[int, News]:
        made: dict[int, News] = {}
        looked = dict.fromkeys(codes[rows].tolist())
        for code in looked:
            self._standing(code)
        each = zip(rows.tolist(), codes[rows].tolist(), states[rows].tolist(), times[rows].tolist(), strict=True)
        for row, code, state, time in each:
            news = self._standings[code].heard(state, time, self._rules)
            if news is not None:
                made[row] = news
        for code in looked:
            self._note(code)
        self.pieces.change(np.fromiter(looked, np.int64, len(looked)))
        return made

    def _standing(self, code: int) -> Standing:
        """What is known of a key, with all its records counted."""
        standing = self._standings.get(code)
        if standing is None:
            standing = self._standings[code] = Standing(self._first)
        standing.count += int(self._calm_records[code])
        self._calm_records[code] = 0
        return standing

    def _note(self, code: int) -> None:
        """Set the columns of a key."""
        standing = self._standings[code]
        self._states[code] = standing.state
        self._pending[code] = standing.pending is not None
        self._reminded[code] = standing.reminded(self._rules)
        self._reported[code] = standing.reported

    def _read(self, column: Column) -> _Read:
        if self._step.on is None:
            return _stated(column, self._step.value)
        numbers = numbers_of(column, self._step.value)
        off = self._step.on if self._step.off is None else self._step.off
        low = numbers.floats < off
        return _Read(_OF_NUMBER[np.where(numbers.floats >= self._step.on, 2, low)], numbers.failed)

    def begin(self, codes: Rows) -> None:
        """Nothing is known of these keys."""
        self._grow()
        self._states[codes] = self._first
        self._pending[codes] = self._reminded[codes] = False
        self._calm_records[codes] = 0

    def _grow(self) -> None:
        capacity = self.table.capacity
        if len(self._states) < capacity:
            self._states, self._pending = grown(self._states, capacity), grown(self._pending, capacity)
            self._reminded, self._reported = grown(self._reminded, capacity), grown(self._reported, capacity)
            self._calm_records = grown(self._calm_records, capacity)

    def end(self, codes: Rows) -> None:
        """Release what is known of these keys."""
        for code in codes.tolist():
            self._standings.pop(code, None)

    def written(self, codes: Rows) -> Sequence[bytes]:
        """What is known of these keys, as JSON, and whether their values are numbers."""
        numbers = self._step.on is not None
        return [json.dumps([numbers, *self._standing(code).saved()]).encode() for code in codes.tolist()]

    def read(self, code: int, state: bytes) -> None:
        """See `written`."""
        numbers, *saved = json.loads(state)
        if numbers != (self._step.on is not None):
            raise ValueError('it was saved with "on", and the step has none, or the other way round')
        self._standings[code] = Standing.load(saved)
        self._note(code)


def _stated(column: Column, name: str) -> _Read:
    """The states of a column of texts, integers and booleans, whose key is `name`."""
    values = column.values()
    failed: dict[int, Exception] = {}
    kinds = set(map(type, values))
    if kinds != {int} and not (kinds == {str} and max(map(len, values)) <= LONGEST_TEXT):
        for row, value in enumerate(values):
            values[row] = _state(value, name, row, failed)
    return _Read(np.fromiter(values, object, len(values)), failed)


def _state(value: Any, name: str, row: int, failed: dict[int, Exception]) -> Any:
    value = only(value)
    if isinstance(value, str) and len(value) > LONGEST_TEXT:
        failed[row] = DataError(f'"{name}" has {len(value)} characters; a state has at most {LONGEST_TEXT}')
    elif isinstance(value, (str, int)):
        return distinct(value)
    elif value is MISSING or value is None:
        failed[row] = DataError(f'there is no value "{name}", which is the state')
    elif isinstance(value, float):
        failed[row] = DataError(f'"{name}" is {value}; numbers with a fraction need "on", from which they are on')
    else:
        failed[row] = DataError(f'"{name}" is a {type(value).__name__}; a state is a text, an integer or a boolean')
    return None


def _columns(news: Sequence[News]) -> dict[str, Column]:
    return {
        STATE: Column.of([each.state for each in news]),
        BEFORE: Column.of([MISSING if each.before is None else each.before for each in news]),
        SINCE: DenseColumn(np.array([each.since for each in news], np.int64), ValueType.INT64),
        COUNT: DenseColumn(np.array([each.count for each in news], np.int64), ValueType.INT64),
    }
