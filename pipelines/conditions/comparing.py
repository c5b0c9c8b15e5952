"""`Comparisons`: rows are chosen by comparing their values, exactly, with those of a mapping: `{label: cat}`."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pipelines.conditions.contract import Failures
from pipelines.data.batch import Batch
from pipelines.data.columns import MISSING, Column, DenseColumn, Mask, ObjectColumn
from pipelines.data.spanscolumn import SpansColumn
from pipelines.errors import DataError, DefinitionError, RowsFailed
from pipelines.values import ValueType, type_of

OPERATORS: Final = ("gt", "ge", "lt", "le", "ne", "exists")
"""The comparisons of a key that have names; several of one key must all hold."""
_PLAIN: Final[Mapping[str, str]] = {
    "eq": "the value itself, {%s: VALUE}",
    "in": "the list itself, {%s: [VALUE, VALUE]}",
}

_ORDER: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "gt": operator.gt,
    "ge": operator.ge,
    "lt": operator.lt,
    "le": operator.le,
}
_EXACT: Final = 1 << 53
_NUMERIC: Final = (bool, int, float)


@dataclass(frozen=True, slots=True)
class _Test:
    key: str
    name: str
    wanted: Any


class Comparisons:
    """Chooses the rows for which all comparisons hold.

    `wanted` has a condition for each value that it names: `{label: cat}`, `{label: [cat, dog]}`,
    `{prob: {ge: 0.5, lt: 0.8}}` with gt, ge, lt, le, ne and `exists: true | false`. A row that lacks the value is not
    chosen, unless by `exists: false`. An array of one number counts as that number, and a list is true if it has
    values, to be compared with true or false alone. Raises `DefinitionError` if it is no such mapping.
    """

    def __init__(self, wanted: Mapping[str, Any]) -> None:
        self._tests = tuple(test for key, value in wanted.items() for test in _tests(key, value))
        self.names = frozenset(wanted)

    def rows(self, batch: Batch) -> tuple[Mask, Failures]:
        """As `Condition.rows`."""
        chosen = np.ones(batch.size, np.bool_)
        failures: Failures = {}
        for test in self._tests:
            chosen &= _passes(test, batch, failures)
        if failures:
            chosen[list(failures)] = False
        return chosen, failures


def _tests(key: str, wanted: object) -> list[_Test]:
    if isinstance(wanted, (list, tuple)):
        return [_list(key, wanted)]
    if not isinstance(wanted, Mapping):
        return [_Test(key, "eq", _scalar(key, wanted))]
    if not wanted:
        raise DefinitionError(f"{key}: nothing to compare with; write one of {', '.join(OPERATORS)}")
    return [_test(key, str(name), value) for name, value in wanted.items()]


def _list(key: str, wanted: Sequence[Any]) -> _Test:
    if not all(isinstance(item, (str, *_NUMERIC)) for item in wanted):
        raise DefinitionError(f"{key}: a list of texts, numbers and booleans is needed, not {wanted!r}")
    return _Test(key, "in", tuple(wanted))


def _test(key: str, name: str, wanted: object) -> _Test:
    if name in _PLAIN:
        raise DefinitionError(f"{key}: {name}: write {_PLAIN[name] % key}")
    if name not in OPERATORS:
        raise DefinitionError(f"{key}: {name}: no such comparison; there are {', '.join(OPERATORS)}")
    if name == "exists":
        if not isinstance(wanted, bool):
            raise DefinitionError(f"{key}: exists: true or false is needed, not {wanted!r}")
        return _Test(key, name, wanted)
    value = _scalar(f"{key}: {name}", wanted)
    # A reference like ${THRESHOLD} leaves text: gt, ge, lt and le compare with the number that it holds.
    return _Test(key, name, _number(value) if name in _ORDER and isinstance(value, str) else value)


def _scalar(place: str, wanted: object) -> str | bool | int | float:
    if isinstance(wanted, (str, bool, int, float)):
        return wanted
    raise DefinitionError(
        f"{place}: a text, number or boolean is needed, not {wanted!r}; a missing value is matched by exists: false"
    )


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
            raise _incomparable(test, value, f"write {test.key}: true for lists with values")
        value = bool(value)
    if not isinstance(value, (str, bytes, np.generic, *_NUMERIC)):
        raise _incomparable(test, value, "have a FUNCTION step make a number, text or boolean of it")
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
    return DataError(f'the value "{test.key}" is of type {kind}{shape} and cannot be compared; {hint}')
