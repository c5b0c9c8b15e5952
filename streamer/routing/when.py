"""`when`: which results a sink gets."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from pipelines.data.batch import Batch
from pipelines.data.columns import MISSING, Column, DenseColumn, Mask, ObjectColumn
from pipelines.data.data import Data
from pipelines.data.spanscolumn import SpansColumn
from pipelines.definitions.functions import resolve, well_formed
from pipelines.errors import RAISED, DataError, DefinitionError, RowsFailed, blamed
from pipelines.values import ValueType, type_of

Failures = dict[int, Exception]
"""Position in the batch to the error of the row."""

OPERATORS: Final = ("gt", "ge", "lt", "le", "eq", "ne", "in", "exists")
"""Comparisons of a `when`; several of one key must all hold."""

_ORDER: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "gt": operator.gt,
    "ge": operator.ge,
    "lt": operator.lt,
    "le": operator.le,
}
_EXACT: Final = 1 << 53
_NUMERIC: Final = (bool, int, float)


class Condition(Protocol):
    """Chooses rows of a batch."""

    def rows(self, batch: Batch) -> tuple[Mask, Failures]:
        """The chosen rows, `bool (N,)`, and the errors of rows that cannot be compared, which are not chosen."""


def condition(when: str | Mapping[str, Any] | None) -> Condition | None:
    """The condition that `when` describes; `None` if it is `None`: every row is chosen.

    A mapping holds a condition for each value that it names, and all must hold: `{label: cat}`, `{label: [cat, dog]}`,
    `{prob: {ge: 0.5, lt: 0.8}}` with gt, ge, lt, le, eq, ne, in and `exists: true | false`. A row that lacks the value
    is not chosen, unless by `exists: false`. An array of one number counts as that number, and a list is true if it has
    values, to be compared with true or false alone. A text is `module:function`,
    called with the `Data` of each row; the row is chosen if it returns true.

    Raises `DefinitionError` if `when` is not a condition, or names a function that cannot be imported.
    """
    if when is None:
        return None
    if isinstance(when, str):
        check_condition(when)
        return _Function(when, resolve(when))
    return _All(tuple(test for key, wanted in when.items() for test in _tests(key, wanted)))


def check_condition(when: str | Mapping[str, Any] | None) -> None:
    """Raise `DefinitionError` as `condition` does, but import no function."""
    if not isinstance(when, str):
        condition(when)
    elif not well_formed(when):
        raise DefinitionError(f'"{when}" is not a function; write module:function, or a mapping like {{label: cat}}')


@dataclass(frozen=True, slots=True)
class _Test:
    key: str
    name: str
    wanted: Any


@dataclass(frozen=True, slots=True)
class _All:
    tests: tuple[_Test, ...]

    def rows(self, batch: Batch) -> tuple[Mask, Failures]:
        chosen = np.ones(batch.size, np.bool_)
        failures: Failures = {}
        for test in self.tests:
            chosen &= _passes(test, batch, failures)
        if failures:
            chosen[list(failures)] = False
        return chosen, failures


@dataclass(frozen=True, slots=True)
class _Function:
    name: str
    function: Callable[[Data], object]

    def rows(self, batch: Batch) -> tuple[Mask, Failures]:
        chosen = np.zeros(batch.size, np.bool_)
        failures: Failures = {}
        for position, data in enumerate(batch.to_list()):
            try:
                chosen[position] = bool(self.function(data))
            except RAISED as raised:  # any exception belongs to that row
                error = blamed(raised)
                failed = DataError(f"when: {self.name}: {type(error).__name__}: {error}")
                failed.__cause__ = error
                failures[position] = failed
        return chosen, failures


def _tests(key: str, wanted: object) -> list[_Test]:
    if isinstance(wanted, (list, tuple)):
        return [_test(key, "in", wanted)]
    if not isinstance(wanted, Mapping):
        return [_test(key, "eq", wanted)]
    if not wanted:
        raise DefinitionError(f"{key}: nothing to compare with; write one of {', '.join(OPERATORS)}")
    return [_test(key, str(name), value) for name, value in wanted.items()]


def _test(key: str, name: str, wanted: object) -> _Test:
    if name not in OPERATORS:
        raise DefinitionError(f"{key}: {name}: no such comparison; there are {', '.join(OPERATORS)}")
    if name == "in":
        if not isinstance(wanted, (list, tuple)) or not all(isinstance(item, (str, *_NUMERIC)) for item in wanted):
            raise DefinitionError(f"{key}: in: a list of texts, numbers and booleans is needed, not {wanted!r}")
        return _Test(key, name, tuple(wanted))
    if name == "exists":
        if not isinstance(wanted, bool):
            raise DefinitionError(f"{key}: exists: true or false is needed, not {wanted!r}")
        return _Test(key, name, wanted)
    if not isinstance(wanted, (str, *_NUMERIC)):
        raise DefinitionError(
            f"{key}: {name}: a text, number or boolean is needed, not {wanted!r}; "
            "a missing value is found by exists: false"
        )
    # A reference like ${THRESHOLD} leaves text: gt, ge, lt and le compare with the number that it holds.
    return _Test(key, name, _number(wanted) if name in _ORDER and isinstance(wanted, str) else wanted)


def _number(text: str) -> str | int | float:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _passes(test: _Test, batch: Batch, failures: Failures) -> Mask:
    if test.key not in batch:
        return np.full(batch.size, test.name == "exists" and not test.wanted)
    column = batch.column(test.key)
    present = np.ones(batch.size, np.bool_) if column.mask is None else column.mask
    if test.name == "exists":
        return present if test.wanted else ~present
    numbers = None
    try:
        column = column.decoded()
        numbers = _numbers(column)
    except RowsFailed as error:
        failures.update(error.failures)
    if numbers is None:
        return _row_by_row(test, column, failures)
    if (isinstance(test.wanted, str) and test.name in _ORDER) or _rounds(test, numbers):
        return _row_by_row(test, column, failures)
    return _compared(test, numbers) & present


def _numbers(column: Column) -> npt.NDArray[Any] | None:
    """One number for each row, `(N,)`; `None` if the column has other values."""
    if not isinstance(column, DenseColumn) or column.storage.dtype.kind not in "biuf":
        return None
    if column.storage[:1].size != 1 or len(column.storage) == 0:
        return None
    return column.storage.reshape(len(column.storage))


def _rounds(test: _Test, numbers: npt.NDArray[Any]) -> bool:
    """Whether numpy would compare by rounded numbers: integers beyond 2^53 with floats."""
    other: Any = {"f": int, "i": float, "u": float}.get(numbers.dtype.kind)
    wanted: tuple[Any, ...] = test.wanted if test.name == "in" else (test.wanted,)
    return any(number.__class__ is other and _EXACT < abs(number) < math.inf for number in wanted)


def _compared(test: _Test, numbers: npt.NDArray[Any]) -> Mask:
    if test.name in _ORDER:
        return np.asarray(_ORDER[test.name](numbers, test.wanted), np.bool_)
    wanted = test.wanted if test.name == "in" else (test.wanted,)
    equal = np.zeros(len(numbers), np.bool_)
    for number in wanted:
        if not isinstance(number, str):
            equal |= numbers == number
    return ~equal if test.name == "ne" else equal


def _row_by_row(test: _Test, column: Column, failures: Failures) -> Mask:
    chosen = np.zeros(len(column), np.bool_)
    if test.name in ("eq", "ne", "in") and isinstance(column, (ObjectColumn, SpansColumn)) and _all_text(column):
        return _compared_texts(test, column)
    for position in range(len(column)):
        if position in failures:
            continue
        try:
            chosen[position] = _holds(test, column[position])
        except DataError as error:
            failures[position] = error
    return chosen


def _all_text(column: ObjectColumn | SpansColumn) -> bool:
    return {value.__class__ for value in column.objects} == {str}


def _compared_texts(test: _Test, column: ObjectColumn | SpansColumn) -> Mask:
    wanted = {text for text in (test.wanted if test.name == "in" else (test.wanted,)) if isinstance(text, str)}
    equal = np.fromiter((value in wanted for value in column.objects), np.bool_, len(column))
    return ~equal if test.name == "ne" else equal


def _holds(test: _Test, value: Any) -> bool:
    if value is MISSING:
        return False
    if isinstance(value, np.ndarray) and value.size == 1 and value.dtype.kind in "biufU":
        # Of its own type: a float32 of 0.9 is equal to 0.9, as it is in a column of such arrays.
        value = value.reshape(())[()]
    if isinstance(value, list):
        if not isinstance(test.wanted, bool) or test.name not in ("eq", "ne"):
            raise _incomparable(test, value, f"write {test.key}: true for lists with values, or use a function")
        value = bool(value)
    if not isinstance(value, (str, bytes, np.generic, *_NUMERIC)):
        raise _incomparable(test, value, "use a function (module:function)")
    if test.name in _ORDER:
        if isinstance(value, str) is not isinstance(test.wanted, str) or isinstance(value, bytes):
            raise _incomparable(test, value, "text is compared with text, a number with a number")
        return bool(_ORDER[test.name](value, test.wanted))
    if test.name == "in":
        return value in test.wanted
    return bool(value == test.wanted) is (test.name == "eq")


def _incomparable(test: _Test, value: Any, hint: str) -> DataError:
    kind = ValueType(type_of(value)).name
    shape = f" of shape {list(value.shape)}" if isinstance(value, np.ndarray) else ""
    return DataError(f'when: the value "{test.key}" is of type {kind}{shape} and cannot be compared; {hint}')
