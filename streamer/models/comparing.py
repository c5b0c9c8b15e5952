"""`Comparison`: how the results of two versions of a pipeline for the same records differ."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pipelines.data.batch import Batch
from pipelines.data.columns import MISSING, DenseColumn
from pipelines.data.result import Result
from pipelines.errors import RowsFailed

Array = npt.NDArray[Any]

RELATIVE: Final = 1e-4
ABSOLUTE: Final = 1e-6
"""Floats that differ by less are equal: other hardware or another order of sums makes such differences."""
MOST_KEYS: Final = 100
"""How many outputs are compared."""


@dataclass(slots=True)
class Compared:
    """Of one output, since the service began."""

    equal: int = 0
    different: int = 0
    """Among them values of other shapes or types, and NaN beside a number."""
    missing: int = 0
    """Records of which only one version gave the output."""
    largest: float = 0.0
    """The largest absolute difference between two numbers."""


class Comparison:
    """Compares results, output by output. Used by one thread; `outputs` may be read by any."""

    def __init__(self) -> None:
        self.outputs: dict[str, Compared] = {}
        self.failed = [0, 0]
        """Records that failed in the first version alone, and in the second alone."""

    def add(self, first: Result, second: Result) -> None:
        """Compare what two versions made of the same records. Records with several results are left out."""
        self.failed[0] += len(first.failed.keys() - second.failed.keys())
        self.failed[1] += len(second.failed.keys() - first.failed.keys())
        a, b = _side_by_side(first.batch, second.batch)
        for key in sorted({*a.columns, *b.columns}):
            if key not in self.outputs and len(self.outputs) >= MOST_KEYS:
                continue
            compared = self.outputs.setdefault(key, Compared())
            arrays = _arrays(a, b, key)
            if arrays is not None:
                _compare_all(compared, *arrays)
                continue
            for value, other in zip(_values(a, key), _values(b, key), strict=True):
                _compare(compared, value, other)


def _side_by_side(first: Batch, second: Batch) -> tuple[Batch, Batch]:
    """The records that have one result in each, in the same order."""
    if first.row_range is not None and first.same_rows(second):
        return first, second
    pairs = list(_pairs(first, second))
    return first.take([at for at, _ in pairs]), second.take([at for _, at in pairs])


def _pairs(first: Batch, second: Batch) -> Iterator[tuple[int, int]]:
    """The places in both batches of records that have one result in each."""
    places = _places(second)
    for row, at in _places(first).items():
        other = places.get(row)
        if at is not None and other is not None:
            yield at, other


def _places(batch: Batch) -> dict[int, int | None]:
    if batch.splits is not None:
        return {}
    places: dict[int, int | None] = {}
    for at, row in enumerate(batch.rows.tolist()):
        places[row] = None if row in places else at
    return places


def _arrays(first: Batch, second: Batch, key: str) -> tuple[Array, Array] | None:
    """The numbers of all rows in both, if they are arrays of one shape."""
    if key not in first or key not in second:
        return None
    a, b = first.column(key), second.column(key)
    if not (isinstance(a, DenseColumn) and isinstance(b, DenseColumn)) or a.mask is not None or b.mask is not None:
        return None
    same = a.type == b.type and a.storage.shape == b.storage.shape and a.storage.dtype.kind == b.storage.dtype.kind
    return (a.storage, b.storage) if same and a.storage.dtype.kind in "biuf" else None


def _compare_all(compared: Compared, first: Array, second: Array) -> None:
    if first.dtype.kind == "f":
        close = np.isclose(first, second, rtol=RELATIVE, atol=ABSOLUTE, equal_nan=True)
    else:
        close = first == second
    equal = int(close.reshape(len(first), -1).all(axis=1).sum())
    compared.equal += equal
    compared.different += len(first) - equal
    if first.dtype.kind != "b":
        compared.largest = max(compared.largest, _apart(first, second))


def _apart(first: Array, second: Array) -> float:
    """The largest finite difference."""
    with np.errstate(invalid="ignore", over="ignore"):
        apart = np.abs(first.astype(np.float64) - second.astype(np.float64))
    finite = apart[np.isfinite(apart)]
    return float(finite.max()) if len(finite) else 0.0


def _values(batch: Batch, key: str) -> list[Any]:
    if key not in batch:
        return [MISSING] * batch.size
    column = batch.column(key)
    try:
        return list(column.values())
    except RowsFailed as error:
        return [MISSING if row in error.failures else column[row] for row in range(batch.size)]


def _compare(compared: Compared, first: Any, second: Any) -> None:
    if first is MISSING or second is MISSING:
        compared.missing += (first is MISSING) != (second is MISSING)
        return
    same, difference = _difference(first, second)
    compared.equal += same
    compared.different += not same
    compared.largest = max(compared.largest, difference)


def _difference(first: Any, second: Any) -> tuple[bool, float]:
    """Whether two values are equal, and the largest difference of numbers in them."""
    if _is_number(first) and _is_number(second):
        if math.isnan(first) or math.isnan(second):
            return math.isnan(first) and math.isnan(second), 0.0
        if isinstance(first, int) and isinstance(second, int):
            return first == second, float(abs(first - second))
        return math.isclose(first, second, rel_tol=RELATIVE, abs_tol=ABSOLUTE), _finite(abs(first - second))
    if isinstance(first, np.ndarray) and isinstance(second, np.ndarray):
        if first.shape != second.shape or first.dtype.kind not in "biuf" or second.dtype.kind not in "biuf":
            return bool(np.array_equal(first, second)), 0.0
        close = bool(np.isclose(first, second, rtol=RELATIVE, atol=ABSOLUTE, equal_nan=True).all())
        return close, _apart(first, second)
    try:
        return bool(first == second), 0.0
    except Exception:  # noqa: BLE001 - values of any kind: what cannot be compared is different
        return False, 0.0


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _finite(number: float) -> float:
    return number if math.isfinite(number) else 0.0
