"""Boxes as columns: many rows' boxes made at once, one list a row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from pipelines.data.batch import Batch
from pipelines.data.columns import DenseColumn, ObjectColumn, Rows
from pipelines.errors import DataError, RowsFailed, WrongTypeError
from pipelines.runners.models.arrays import array_named
from pipelines.values import BoundingBox, TypedList, ValueType, type_of

Array: TypeAlias = npt.NDArray[Any]


class BoxLists:
    """The lists of boxes of `size` rows, filled part by part; rows of a part that fails are remembered."""

    def __init__(self, size: int) -> None:
        self._lists: list[Any] = [None] * size
        self._failures: dict[int, Exception] = {}

    def put_groups(
        self, batch: Batch, keys: Sequence[str], boxes_of: Callable[[Batch], tuple[Array, Iterable[BoundingBox]]]
    ) -> None:
        """The boxes of a batch, by parts whose arrays under `keys` agree in shape.

        `boxes_of` gives owners and boxes of a part, as `put` takes them; rows for which it raises have failed.
        """
        for positions, part in batch.groups(keys):
            try:
                owners, boxes = boxes_of(part)
            except DataError as error:
                self.fail(positions.tolist(), error)
            except RowsFailed as failed:
                for row, cause in failed.failures.items():
                    self.fail([int(positions[row])], cause)
            else:
                self.put(positions, owners, boxes)

    def put(self, positions: Rows, owners: Array, boxes: Iterable[BoundingBox]) -> None:
        """`boxes`, in order; the box at i belongs to the row at `positions[owners[i]]`. `owners` never falls."""
        listed = list(boxes)
        ends = np.searchsorted(owners, np.arange(len(positions)), side="right").tolist()
        start = 0
        for position, end in zip(positions.tolist(), ends, strict=True):
            self._lists[position] = listed[start:end] if end > start else TypedList(ValueType.BOUNDING_BOX)
            start = end

    def fail(self, positions: Iterable[int], error: Exception) -> None:
        """Note `error` for the rows at these positions; the first error of a row counts."""
        self._failures.update({position: error for position in positions if position not in self._failures})

    def column(self) -> ObjectColumn:
        """One list a row. Raises `RowsFailed` if rows failed."""
        if self._failures:
            raise RowsFailed(self._failures)
        return ObjectColumn(self._lists, ValueType.LIST)


def float_array(part: Batch, key: str, *, named: str = "", integers: bool = False) -> Array:
    """The arrays `(M, ...)` of a part whose rows agree in `key`.

    With `integers` they may be of an integer type, too. Errors call them `named`, by default their key.

    Raises:
        WrongTypeError: They are arrays of another type.
        RowsFailed: Values are not arrays.
    """
    column = part[key]
    if not isinstance(column, DenseColumn) or column.type is not ValueType.NDARRAY:
        wrong = f'Value has wrong type for key "{key}": requested type NDARRAY, actual type'
        raise RowsFailed({row: WrongTypeError(f"{wrong} {type_of(value).name}") for row, value in column.cells({})})
    dtype = column.array.dtype
    if dtype.kind != "f" and dtype.name != "bfloat16" and not (integers and dtype.kind in "iu"):
        needed = "a float or integer type" if integers else "a float type"
        raise WrongTypeError(f"{named or array_named(key)} is {dtype.name}; {needed} is needed")
    return column.array


def narrow(box: BoundingBox) -> BoundingBox:
    """Mark the box's numbers as float32 values, which are written with fewer digits, and return it."""
    box.narrow = True
    return box


def label_of(labels: Sequence[str], index: int, first: int) -> str:
    """The label of a class number, of which `first` is the lowest. Raises `DataError` if it has none."""
    place = index - first
    if not 0 <= place < len(labels):
        raise DataError(
            f"Predicted label index was {index} but only {len(labels)} labels were provided"
            + (f", for {first} and up" if index < first else "")
            + ("; set firstClass: 0 if the model counts from 0" if 0 == index < first else "")
        )
    return labels[place]


def fail_outside_range(values: Array, message: str, *, slack: float = 0.01) -> None:
    """Raise `RowsFailed` with `message` for rows, the first axis, with a value outside 0..1 or NaN.

    A deviation of up to `slack` is accepted, as float16 cannot hold all values.
    """
    rows = np.flatnonzero(~((values >= -slack) & (values <= 1 + slack)).reshape(len(values), -1).all(axis=1))
    if len(rows):
        raise RowsFailed(dict.fromkeys(rows.tolist(), DataError(message)))
