"""Runs a step that keeps state, in portions, with its state saved and read back by a fresh runner on the way."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from pipelines import Batch, Data, Step
from pipelines.data.record import RecordContext
from pipelines.data.result import Result
from pipelines.executors.accounting import check_account
from pipelines.plugins.registry import default_registry
from pipelines.runners.runner import OpenContext, StatefulRunner
from pipelines.runners.state.item import Item
from pipelines.runners.state.timed import FIRST_TIMED

START = 1_700_000_000_000
"""The timestamp of a record at 0 seconds."""


def record(
    values: dict[str, Any],
    seconds: float | None = 0.0,
    *,
    lane: Hashable = "lane",
    key: bytes | None = None,
    offset: int = 0,
) -> Data:
    """A record of a bus; `seconds` is its timestamp, counted from `START`."""
    timestamp = None if seconds is None else START + round(seconds * 1000)
    context = RecordContext("bus", "topic", offset=offset, timestamp=timestamp, lane=lane, key=key)
    return Data(values, record=context)


class Emitted(NamedTuple):
    """A result, in a form that can be compared."""

    row: int
    """The place of its record among all; -1: time or the end of the input made it."""
    values: dict[str, Any]
    """Its values; an array as dtype, shape and list."""


@dataclass
class Outcomes:
    """What became of records, by their place among all."""

    emitted: list[Emitted] = field(default_factory=list)
    failed: dict[int, str] = field(default_factory=dict)
    dropped: dict[int, str] = field(default_factory=dict)

    @property
    def values(self) -> list[dict[str, Any]]:
        """The values of all results, in order."""
        return [each.values for each in self.emitted]


class StatefulRun:
    """A step that is open, and a store of its state.

    Each reload puts another runner in its place, which begins with what was saved; then lanes have another epoch, as
    after a restart.
    """

    def __init__(self, step: Step, create: Callable[[], StatefulRunner] | None = None) -> None:
        """`create` makes the runner; default: that of the registry."""
        self._create = create or (lambda: _created(step))
        self.runner = self._create()
        self.outcomes = Outcomes()
        self.saved: dict[tuple[Hashable, str, int], bytes] = {}
        """The pieces by lane (as records name it), key and part."""
        self._epoch = 0
        self._lanes: dict[Hashable, None] = {}
        self._count = 0

    def run(self, records: Sequence[Data], portion: int | None = None, reloads: Collection[int] = ()) -> Outcomes:
        """Run records in batches of `portion` (all at once without it), saving and reloading behind those in `reloads`."""  # noqa: E501
        edges = {len(records), *range(0, len(records), portion or max(len(records), 1)), *(at + 1 for at in reloads)}
        before = 0
        for edge in sorted(edges):
            self._run(records[before:edge])
            if edge - 1 in reloads:
                self.reload()
            before = edge
        return self.outcomes

    def tick(self, now: float, caught_up: float = math.inf) -> Outcomes:
        """What is due at `now`, when all had come by `caught_up` that was run: seconds of a monotonic clock."""
        self.runner.caught_up = caught_up
        return self._enter(self.runner.tick(now), 0)

    def flush(self) -> Outcomes:
        """What comes out at the end of the input."""
        return self._enter(self.runner.flush(), 0)

    def save(self) -> int:
        """Save what has changed; returns how many bytes that were."""
        written = 0
        for lane, key, part, value in self.runner.changes():
            assert isinstance(lane, tuple), lane
            place = (lane[0], key, part)
            if value is None:
                del self.saved[place]
            else:
                assert value
                self.saved[place] = value
                written += len(value)
        return written

    def reload(self) -> None:
        """Save, and go on with a fresh runner."""
        self.save()
        self.runner.close()
        self.runner = self._create()
        self._epoch += 1
        for lane in self._lanes:
            self._load(lane)

    def rewind(self) -> None:
        """Go back to what was saved last, with the same runner, as after a lost message."""
        self.runner.forget([(lane, self._epoch) for lane in self._lanes])
        self._epoch += 1
        for lane in self._lanes:
            self._load(lane)

    def _load(self, lane: Hashable) -> None:
        items = [Item(key, part, value) for (of, key, part), value in sorted(self.saved.items(), key=str) if of == lane]
        self.runner.load((lane, self._epoch), items)

    def _run(self, records: Sequence[Data]) -> None:
        if not records:
            return
        for each in records:
            assert each.record is not None
            if each.record.lane not in self._lanes:
                self._lanes[each.record.lane] = None
                self._load(each.record.lane)
        batch = Batch.of([self._here(each) for each in records], self._count)
        result = self.runner.run_batch(batch)
        check_account(result, batch, "step", stateful=False)
        self._enter(result, self._count)
        self._count += len(records)

    def _here(self, each: Data) -> Data:
        assert each.record is not None
        return Data(each, record=replace(each.record, lane=(each.record.lane, self._epoch)))

    def _enter(self, result: Result, first: int) -> Outcomes:
        batch = result.batch
        assert batch.splits is None, "a result has one parent"
        for number, values in zip(batch.rows.tolist(), batch.to_list(), strict=True):
            row = -1 if number >= FIRST_TIMED else number
            self.outcomes.emitted.append(Emitted(row, {key: _comparable(values[key]) for key in values}))
        self.outcomes.failed.update({row: str(error) for row, error in result.failed.items()})
        self.outcomes.dropped.update(result.dropped)
        return self.outcomes


def _comparable(value: Any) -> Any:
    return (str(value.dtype), value.shape, value.tolist()) if isinstance(value, np.ndarray) else value


def _created(step: Step) -> StatefulRunner:
    runner = default_registry().create(step, OpenContext())
    assert isinstance(runner, StatefulRunner)
    assert runner.saves, "a service saves no state of this step"
    return runner
