"""Accumulators of windows: counts, sums, extremes and the like, as columns with a row for each open window.

Each is added to in the order of the records, so that a result does not depend on how these came in batches.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from pipelines.data.batch import Batch
from pipelines.data.columns import MISSING, Mask, Rows
from pipelines.errors import DataError
from pipelines.runners.keyed.numbers import Numbers, numbers_of
from pipelines.runners.state.keytable import grown
from pipelines.values.native import INT64_MAX

Read: TypeAlias = Any
"""The values of a batch's records in the form that an accumulator adds."""
_LOW: Final = 32
"""Bits of the lower half of an integer: sums of halves do not overflow."""


class Accumulator(ABC):
    """One number, or other value, about the records of each window; windows are rows of its columns (slots)."""

    def __init__(self, name: str) -> None:
        """`name`: the key of the values."""
        self._name = name
        self._columns: dict[str, npt.NDArray[Any]] = {}

    def grow(self, capacity: int) -> None:
        """Have room for so many windows."""
        self._columns = {key: grown(column, capacity) for key, column in self._columns.items()}

    def begin(self, slots: Rows) -> None:
        """These windows are empty."""
        for column in self._columns.values():
            column[slots] = 0

    def read(self, batch: Batch, failed: dict[int, Exception]) -> Read:
        """What `add` needs of a batch's records; those that cannot be used are put into `failed`, by position."""
        numbers = numbers_of(batch.get(self._name), self._name)
        for row, error in numbers.failed.items():
            failed.setdefault(row, error)
        return numbers

    @abstractmethod
    def add(self, read: Read, positions: Rows, slots: Rows, counts: Rows) -> None:
        """Add the record at `positions[i]` to the window `slots[i]`, in this order; a window may be there repeatedly.

        `counts[i]` is how many records the window had before.
        """

    @abstractmethod
    def values(self, slots: Rows, counts: Sequence[int]) -> list[Any]:
        """The results of windows with so many records; `MISSING` for one that has none."""

    def _listed(self, slots: Rows) -> Iterator[tuple[Any, ...]]:
        """The columns' values for each of these windows, as Python has them."""
        return zip(*(column[slots].tolist() for column in self._columns.values()), strict=True)

    def saved(self, slot: int) -> list[Any]:
        """What is known of a window, as values of JSON."""
        return [column[slot].item() for column in self._columns.values()]

    def load(self, slot: int, saved: list[Any]) -> None:
        """Take what `saved` gave. Raises any error if that is damaged."""
        for column, value in zip(self._columns.values(), saved, strict=True):
            column[slot] = value


class Count(Accumulator):
    """How many records have the value."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._columns = {"count": np.zeros(0, np.int64)}

    def read(self, batch: Batch, failed: dict[int, Exception]) -> Mask:
        return batch.get(self._name).present

    def add(self, read: Read, positions: Rows, slots: Rows, counts: Rows) -> None:
        np.add.at(self._columns["count"], slots, read[positions].astype(np.int64))

    def values(self, slots: Rows, counts: Sequence[int]) -> list[Any]:
        return list(self._columns["count"][slots].tolist())


class Sum(Accumulator):
    """The sum: of integers an integer, exactly, as long as 64 bits hold it; else a float."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._columns = {
            "high": np.zeros(0, np.int64),
            "low": np.zeros(0, np.int64),
            "floats": np.zeros(0),
            "fractions": np.zeros(0, np.int64),
        }

    def add(self, read: Read, positions: Rows, slots: Rows, counts: Rows) -> None:
        numbers: Numbers = read.take(positions)
        if numbers.whole.any():
            np.add.at(self._columns["high"], slots, numbers.integers >> _LOW)
            np.add.at(self._columns["low"], slots, numbers.integers & ((1 << _LOW) - 1))
        if not numbers.whole.all():
            fractions = ~numbers.whole
            with np.errstate(over="ignore", invalid="ignore"):
                np.add.at(self._columns["floats"], slots[fractions], numbers.floats[fractions])
            np.add.at(self._columns["fractions"], slots, fractions.astype(np.int64))

    def totals(self, slots: Rows) -> list[int | float]:
        """The sums of the windows' values."""
        return [
            float((high << _LOW) + low) + floats if fractions else (high << _LOW) + low
            for high, low, floats, fractions in self._listed(slots)
        ]

    def values(self, slots: Rows, counts: Sequence[int]) -> list[Any]:
        return [
            total if isinstance(total, float) or abs(total) <= INT64_MAX else float(total)
            for total in self.totals(slots)
        ]


class Mean(Sum):
    """The sum, divided by the number of values."""

    def values(self, slots: Rows, counts: Sequence[int]) -> list[Any]:
        totals = zip(self.totals(slots), counts, strict=True)
        return [float(total / count) if count else MISSING for total, count in totals]


class Std(Accumulator):
    """The standard deviation of the values (divided by their number, as numpy's): of one value 0.

    Sums of differences from the first value, and of their squares: they keep their digits where values are far from 0.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._columns = {"first": np.zeros(0), "sum": np.zeros(0), "squares": np.zeros(0)}

    def add(self, read: Read, positions: Rows, slots: Rows, counts: Rows) -> None:
        values = read.floats[positions]
        begin = counts == 0
        self._columns["first"][slots[begin]] = values[begin]
        with np.errstate(over="ignore", invalid="ignore"):
            differences = values - self._columns["first"][slots]
            np.add.at(self._columns["sum"], slots, differences)
            np.add.at(self._columns["squares"], slots, differences * differences)

    def values(self, slots: Rows, counts: Sequence[int]) -> list[Any]:
        return [
            math.sqrt(max(squares / count - (total / count) * (total / count), 0.0)) if count else MISSING
            for (_, total, squares), count in zip(self._listed(slots), counts, strict=True)
        ]


class Extreme(Accumulator):
    """The smallest (`sign` 1) or the largest value (-1), an integer or a float as it came."""

    def __init__(self, name: str, *, largest: bool) -> None:
        super().__init__(name)
        self._of = np.maximum if largest else np.minimum
        self._choose = max if largest else min
        limit = np.iinfo(np.int64)
        self._none = (limit.min, -math.inf) if largest else (limit.max, math.inf)
        self._columns = {"integer": np.zeros(0, np.int64), "float": np.zeros(0)}

    def begin(self, slots: Rows) -> None:
        self._columns["integer"][slots], self._columns["float"][slots] = self._none

    def add(self, read: Read, positions: Rows, slots: Rows, counts: Rows) -> None:
        numbers: Numbers = read.take(positions)
        whole = numbers.whole
        self._of.at(self._columns["integer"], slots[whole], numbers.integers[whole])
        self._of.at(self._columns["float"], slots[~whole], numbers.floats[~whole])

    def values(self, slots: Rows, counts: Sequence[int]) -> list[Any]:
        extremes = zip(self._listed(slots), counts, strict=True)
        return [self._value(integer, number, count) for (integer, number), count in extremes]

    def _value(self, integer: int, number: float, count: int) -> Any:
        if not math.isfinite(number):
            # A limit of int64 may be a value, too.
            return integer if count else MISSING
        return number if integer == self._none[0] else self._choose(integer, number)

    def saved(self, slot: int) -> list[Any]:
        integer, number = super().saved(slot)
        return [integer, number if math.isfinite(number) else None]

    def load(self, slot: int, saved: list[Any]) -> None:
        integer, number = saved
        super().load(slot, [integer, self._none[1] if number is None else number])


class Edge(Accumulator):
    """The value of the first or the last record: a number, a text or a boolean."""

    def __init__(self, name: str, *, last: bool) -> None:
        super().__init__(name)
        self._last = last
        self._columns = {"value": np.zeros(0, object)}

    def read(self, batch: Batch, failed: dict[int, Exception]) -> npt.NDArray[np.object_]:
        values = np.empty(batch.size, object)
        for row, value in enumerate(batch.get(self._name).values()):
            if isinstance(value, np.ndarray) and value.size == 1:
                value = value.item()
            if value is MISSING or value is None:
                failed.setdefault(row, DataError(f'there is no value "{self._name}", which the window is made of'))
            elif not isinstance(value, (str, bool, int, float)) or value != value or value in (math.inf, -math.inf):
                kind = value if isinstance(value, float) else f"a {type(value).__name__}"
                failed.setdefault(
                    row,
                    DataError(f'"{self._name}" is {kind}; first and last are of finite numbers, texts and booleans'),
                )
            else:
                values[row] = value
        return values

    def add(self, read: Read, positions: Rows, slots: Rows, counts: Rows) -> None:
        values = read[positions]
        if self._last:
            # Of a slot that is there repeatedly, the last assignment stays.
            self._columns["value"][slots] = values
        else:
            begin = counts == 0
            self._columns["value"][slots[begin]] = values[begin]

    def values(self, slots: Rows, counts: Sequence[int]) -> list[Any]:
        values = self._columns["value"][slots].tolist()
        return [value if count else MISSING for value, count in zip(values, counts, strict=True)]

    def saved(self, slot: int) -> list[Any]:
        return [self._columns["value"][slot]]


class Aggregates:
    """The accumulators of one step, and the number of records of each window."""

    def __init__(self, described: Mapping[str, Mapping[str, str]]) -> None:
        """`described`: by the key of the result the function and the key of the values, `{"warmest": {"max": "temp"}}`.

        It may be empty: then records are only counted.
        """
        self._accumulators = {
            key: _MADE[function](name) for key, made in described.items() for function, name in made.items()
        }
        self._counts = np.zeros(0, np.int64)
        self.reads = frozenset(name for made in described.values() for name in made.values())
        """The keys of the values that are read."""

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of the results."""
        return tuple(self._accumulators)

    def grow(self, capacity: int) -> None:
        """Have room for so many windows."""
        self._counts = grown(self._counts, capacity)
        for accumulator in self._accumulators.values():
            accumulator.grow(capacity)

    def begin(self, slots: Rows) -> None:
        """These windows are empty."""
        self._counts[slots] = 0
        for accumulator in self._accumulators.values():
            accumulator.begin(slots)

    def read(self, batch: Batch, failed: dict[int, Exception]) -> list[Read]:
        """The values of a batch's records; those that cannot be used are put into `failed`, by position."""
        return [accumulator.read(batch, failed) for accumulator in self._accumulators.values()]

    def add(self, read: list[Read], positions: Rows, slots: Rows) -> None:
        """Add the record at `positions[i]` to the window `slots[i]`, in this order."""
        counts = self._counts[slots] + repeats(slots)
        for accumulator, values in zip(self._accumulators.values(), read, strict=True):
            accumulator.add(values, positions, slots, counts)
        np.add.at(self._counts, slots, 1)

    def counts(self, slots: Rows) -> Rows:
        """How many records each of these windows has."""
        return self._counts[slots]

    def values(self, slots: Rows) -> list[tuple[Any, ...]]:
        """The results of each of these windows, in the order of `keys`."""
        if not self._accumulators:
            return [()] * len(slots)
        counts = self._counts[slots].tolist()
        each = [accumulator.values(slots, counts) for accumulator in self._accumulators.values()]
        return list(zip(*each, strict=True))

    def saved(self, slot: int) -> list[Any]:
        """What is known of a window, as values of JSON."""
        return [int(self._counts[slot]), *(accumulator.saved(slot) for accumulator in self._accumulators.values())]

    def load(self, slot: int, saved: list[Any]) -> None:
        """Take what `saved` gave. Raises any error if that is damaged."""
        count, *of_each = saved
        self._counts[slot] = count
        for accumulator, values in zip(self._accumulators.values(), of_each, strict=True):
            accumulator.load(slot, values)


def repeats(slots: Rows) -> Rows:
    """How often the slot of each place stands before it."""
    order = np.argsort(slots, kind="stable")
    ordered = slots[order]
    begins = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]]) if len(slots) else order
    times = np.empty(len(slots), np.int64)
    times[order] = np.arange(len(slots)) - np.repeat(begins, np.diff(np.r_[begins, len(slots)]))
    return times


_MADE: Final[Mapping[str, Any]] = {
    "count": Count,
    "sum": Sum,
    "mean": Mean,
    "std": Std,
    "min": lambda name: Extreme(name, largest=False),
    "max": lambda name: Extreme(name, largest=True),
    "first": lambda name: Edge(name, last=False),
    "last": lambda name: Edge(name, last=True),
}
