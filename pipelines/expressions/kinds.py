"""The kinds of values that expressions know, and the values of a column as one of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from pipelines.data.columns import MISSING, Column, DenseColumn, Mask, Missing, ObjectColumn
from pipelines.data.numberscolumn import NumbersColumn
from pipelines.data.spanscolumn import SpansColumn
from pipelines.errors import RowsFailed, WrongTypeError
from pipelines.values import ValueType, type_of

Kind: TypeAlias = Literal["number", "text", "boolean"]
KINDS: Final[tuple[Kind, ...]] = ("number", "text", "boolean")
"""In the order in which they are tried for a value that is missing."""
ABSENT: Final = 3
"""The code of a missing value; that of a kind is its place in `KINDS`."""
_NUMBER, _TEXT, _BOOLEAN = range(3)
EXACT: Final = 1 << 53
"""The largest integer up to which float64 holds every integer."""
_DTYPES: Final = {"b": _BOOLEAN, "i": _NUMBER, "u": _NUMBER, "f": _NUMBER}

_CLASSES: Final = {float: _NUMBER, int: _NUMBER, str: _TEXT, bool: _BOOLEAN, Missing: ABSENT}

Codes: TypeAlias = npt.NDArray[np.int64]


@dataclass(slots=True)
class Cells:
    """The values of one column for N rows.

    `code` is the kind of all rows, if they have a value and it is of one kind; else `None`, and `codes`, `int64 (N,)`,
    has the kind of each. `values` are float64, bool, or a list of texts; where rows are of several kinds, or some lack
    the value, it may hold anything in the rows of other kinds.
    """

    values: npt.NDArray[Any] | list[Any]
    code: int | None
    codes: Codes | None = None

    def kinds(self, size: int) -> Codes:
        """The code of each row."""
        return np.full(size, self.code, np.int64) if self.codes is None else self.codes

    def of(self, rows: npt.NDArray[np.int64] | None) -> tuple[npt.NDArray[Any] | list[Any], Mask | None]:
        """The values of these rows, all of one kind, and which of them have one; `None`: all rows, all have one."""
        values = self.values
        if rows is None:
            return values, None if self.codes is None else self.codes != ABSENT
        if isinstance(values, list):
            picked: Any = [values[row] for row in rows.tolist()]
        else:
            picked = values[rows]
        there = None if self.codes is None else self.codes[rows] != ABSENT
        return picked, there


def cells_of(key: str, column: Column | None, size: int, failures: dict[int, Exception]) -> Cells:
    """The values of a column, `None` for one that no row has; errors of rows that have others are put in `failures`.

    INT64, DOUBLE and arrays of one number are numbers, NaN is a missing value. An integer beyond 2^53, which float64
    cannot tell from its neighbours, is an error, as are lists, objects, images, bytes and boxes.
    """
    if column is None:
        return Cells([None] * size, None, np.full(size, ABSENT, np.int64))
    try:
        column = column.decoded()
    except RowsFailed:
        return _mixed(key, column, size, failures)
    if isinstance(column, DenseColumn):
        cells = _dense(key, column, failures)
        if cells is not None:
            return cells
    if isinstance(column, NumbersColumn):
        _refuse_large(key, column.storage, column.whole, column.mask, failures)
        return _numbers(column.storage, column.mask)
    if isinstance(column, (SpansColumn, ObjectColumn)) and column.type is ValueType.STRING:
        return _with_mask(column.objects, _TEXT, column.mask)
    return _mixed(key, column, size, failures)


def _dense(key: str, column: DenseColumn, failures: dict[int, Exception]) -> Cells | None:
    storage = column.storage
    code = _DTYPES.get(storage.dtype.kind)
    if code is None or not len(storage) or storage[:1].size != 1:
        return None
    storage = storage.reshape(len(storage))
    if code == _BOOLEAN:
        return _with_mask(storage, code, column.mask)
    if storage.dtype.kind != "f":
        _refuse_large(key, storage, None, column.mask, failures)
    return _numbers(storage.astype(np.float64, copy=False), column.mask)


def _numbers(storage: npt.NDArray[np.float64], mask: Mask | None) -> Cells:
    nan = np.isnan(storage)
    if nan.any():
        mask = ~nan if mask is None else mask & ~nan
    return _with_mask(storage, _NUMBER, mask)


def _with_mask(values: Any, code: int, mask: Mask | None) -> Cells:
    if mask is None:
        return Cells(values, code)
    return Cells(values, None, np.where(mask, code, ABSENT))


def _refuse_large(
    key: str, storage: npt.NDArray[Any], whole: Mask | None, mask: Mask | None, failures: dict[int, Exception]
) -> None:
    large = (storage > EXACT) | (storage < -EXACT)
    if not large.any():
        return
    for part in (whole, mask):
        if part is not None:
            large = large & part
    for row in np.flatnonzero(large).tolist():
        failures.setdefault(row, _too_large(key, int(storage[row])))


def _mixed(key: str, column: Column, size: int, failures: dict[int, Exception]) -> Cells:
    if isinstance(column, ObjectColumn):
        # The classes of most values tell their kinds, without a look at each.
        objects = column.objects
        places = list(map(_CLASSES.get, map(type, objects)))
        if None not in places:
            return _plain(key, objects, np.array(places, np.int64), failures)
    codes = np.full(size, ABSENT, np.int64)
    values: list[Any] = [None] * size
    for row, value in column.cells(failures):
        try:
            cell = _cell(key, value)
        except WrongTypeError as error:
            failures.setdefault(row, error)
            continue
        if cell is not None:
            codes[row], values[row] = cell
    return Cells(values, None, codes)


def _plain(key: str, objects: list[Any], codes: Codes, failures: dict[int, Exception]) -> Cells:
    """The values of a column that has numbers, texts and booleans only, or none."""
    for row in np.flatnonzero(codes == _NUMBER).tolist():
        value = objects[row]
        if value != value:
            codes[row] = ABSENT
        elif not -EXACT <= value <= EXACT and isinstance(value, int):
            failures.setdefault(row, _too_large(key, value))
    return Cells(objects, None, codes)


def _cell(key: str, value: Any) -> tuple[int, Any] | None:
    """The code and value of a native value; `None` for a missing one."""
    if isinstance(value, np.ndarray) and value.size == 1 and value.dtype.kind in "biufU":
        value = value.reshape(())[()].item()
    if isinstance(value, bool):
        return _BOOLEAN, value
    if isinstance(value, int):
        if abs(value) > EXACT:
            raise _too_large(key, value)
        return _NUMBER, float(value)
    if isinstance(value, float):
        return None if value != value else (_NUMBER, value)
    if isinstance(value, str):
        return _TEXT, value
    if value is MISSING:
        return None
    kind = ValueType(type_of(value)).name
    if kind == "NDARRAY":
        kind += f" of shape {list(value.shape)}"
    hint = {
        "LIST": f"of an element the codec makes a value: fields: {{{key}_0: /{key}/0}}",
        "DATA": f"of a value inside it the codec makes a value: fields: {{NAME: /{key}/NAME}}",
    }.get(kind, "have a FUNCTION step make a number, text or boolean of it")
    raise WrongTypeError(f'"{key}" is of type {kind}, and an expression reads numbers, texts and booleans; {hint}')


def _too_large(key: str, value: int) -> WrongTypeError:
    return WrongTypeError(
        f'"{key}" is {value}, an integer beyond 2^53, which expressions would round; compare it exactly with '
        f"{{{key}: {value}}}"
    )
