"""One input of a model: which arrays it takes, and how the values of records become samples of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from pipelines.data.columns import Column, DenseColumn, Mask, ObjectColumn, RaggedColumn, Rows
from pipelines.data.listscolumn import ListsColumn
from pipelines.data.numberscolumn import NumbersColumn
from pipelines.data.spanscolumn import SpansColumn
from pipelines.errors import DataError, RowsFailed, WrongTypeError
from pipelines.runners.forms import ArrayForm, Lengths
from pipelines.runners.models.model import Port
from pipelines.runners.models.pictureinput import for_pictures
from pipelines.tensors import StringView, from_value
from pipelines.tensors.access import KIND
from pipelines.tensors.carry import is_tensor
from pipelines.values import ValueType, list_to_array, type_of
from pipelines.values.casting import cast, castable

Array: TypeAlias = npt.NDArray[Any]

_PLANS = 64
"""How many pairs of element type and shape are remembered for an input."""


@dataclass(frozen=True, slots=True)
class Samples:
    """Values of one or more records as a model takes them."""

    array: Array
    """`(total, ...)`, all samples."""
    count: int
    """Samples of each record; -1 where `splits` says."""
    lead: bool
    """Whether the records themselves had the sample axis."""
    splits: Rows | None = None


@dataclass(frozen=True, slots=True)
class _Plan:
    lead: bool
    count: int
    inner: tuple[int, ...]
    convert: bool


class ModelInput:
    """How arrays meet a model (docs/execution.md), for one input.

    A record's array of the model's rank is `[k, ...]`: k samples. One of a rank less is one sample. A scalar is also
    one sample where the model takes `[N, 1]`. An input of unknown rank takes every array as it is. All lengths that the
    model states must agree. Element types are converted as `pipelines.values.casting` says.
    """

    def __init__(self, port: Port, key: str, *, cast_freely: bool = False) -> None:
        self.port = port
        self.key = key
        self._freely = cast_freely
        self._plans: dict[tuple[np.dtype[Any], tuple[int, ...]], _Plan] = {}

    def of_column(self, column: Column) -> Samples | None:
        """All rows at once; `None` if the column's form does not allow it. Raises `RowsFailed`."""
        if column.mask is not None:
            return None
        if isinstance(column, DenseColumn):
            return self._of_dense(column.array)
        if isinstance(column, RaggedColumn):
            return self._of_ragged(column)
        if isinstance(column, NumbersColumn) and self.port.dtype.kind == "f":
            return self._unless_refused(DenseColumn(column.array))
        if isinstance(column, ListsColumn) and self.port.dtype.kind in "fiu":
            return self._of_lists(column)
        if isinstance(column, (ObjectColumn, SpansColumn)):
            if self.port.dtype.kind == "f" and isinstance(column, ObjectColumn) and column.is_double:
                return self._unless_refused(DenseColumn(column.array))
            return self._of_texts(column)
        return None

    def _of_lists(self, column: ListsColumn) -> Samples | None:
        # Looked at one by one, each list is an array by itself: of integers, also beside one with a fraction.
        if column.has_empty or (column.whole is not None and self.port.dtype.kind != "f"):
            return None
        return self._unless_refused(column.arrays)

    def _unless_refused(self, column: Column) -> Samples | None:
        """`of_column` of a column made from the values; `None` if it fails: then errors come from each value."""
        try:
            return self.of_column(column)
        except RowsFailed:
            return None

    def _of_texts(self, column: ObjectColumn | SpansColumn) -> Samples | None:
        if column.type is not ValueType.STRING or self.port.dtype != object:
            return None
        strings = np.empty(len(column), object)
        strings[:] = column.objects
        return self._of_dense(strings)

    def of_value(self, value: Any) -> Samples:
        """One record's value. Raises `DataError` if the model does not take it."""
        array = self._as_array(value)
        plan = self._plan(array.dtype, array.shape)
        samples, misfits = self._converted(array, plan)
        if misfits is not None:
            raise self._out_of_range(array.dtype)
        if self.port.shape is None:
            return Samples(samples, -1, True)
        return Samples(samples.reshape((plan.count, *plan.inner)), plan.count, plan.lead)

    def zeros(self, count: int, inner: tuple[int, ...]) -> Array:
        """`count` samples of zeros, or of empty strings."""
        if self.port.dtype == object:
            return np.full((count, *inner), "", object)
        return np.zeros((count, *inner), self.port.dtype)

    @property
    def inner(self) -> tuple[int, ...] | None:
        """Shape of a sample; `None` unless the model states all of it."""
        if self.port.shape is None:
            return None
        lengths = tuple(length for length in self.port.shape[1:] if isinstance(length, int))
        return lengths if len(lengths) == len(self.port.shape) - 1 else None

    def _of_dense(self, array: Array) -> Samples:
        try:
            plan = self._plan(array.dtype, array.shape[1:])
        except DataError as error:
            raise RowsFailed(dict.fromkeys(range(len(array)), error)) from None
        samples, misfits = self._converted(array, plan)
        if misfits is not None:
            raise self._rows_out_of_range(np.flatnonzero(misfits), array.dtype)
        return Samples(samples.reshape((len(array) * plan.count, *plan.inner)), plan.count, plan.lead)

    def _of_ragged(self, column: RaggedColumn) -> Samples | None:
        samples = column.samples
        if self.port.shape is None or not len(column):
            return None
        if samples.ndim == len(self.port.shape) - 1:
            return self._of_unequal(column)
        if samples.ndim != len(self.port.shape):
            return None
        try:
            plan = self._plan(samples.dtype, (1, *samples.shape[1:]))
        except DataError as error:
            raise RowsFailed(dict.fromkeys(range(len(column)), error)) from None
        samples, misfits = self._converted(samples, plan)
        if misfits is not None:
            owners = np.searchsorted(column.splits, np.flatnonzero(misfits), side="right") - 1
            raise self._rows_out_of_range(np.unique(owners), column.samples.dtype)
        return Samples(samples, -1, True, column.splits)

    def _of_unequal(self, column: RaggedColumn) -> Samples | None:
        """Rows of one sample each that should all have one shape, of which some have another."""
        samples = column.samples
        lengths = column.splits[1:] - column.splits[:-1]
        # Most are like the first: no need to look at each.
        kinds = sorted({int(lengths[0]), *lengths[lengths != lengths[0]].tolist()})
        failures: dict[int, Exception] = {}
        for length in kinds:
            try:
                self._plan(samples.dtype, (length, *samples.shape[1:]))
            except DataError as error:
                failures.update(dict.fromkeys(np.flatnonzero(lengths == length).tolist(), error))
        if failures:
            raise RowsFailed(failures)
        if len(kinds) > 1:
            return None
        return self._of_dense(samples.reshape((len(column), *kinds, *samples.shape[1:])))

    def _plan(self, dtype: np.dtype[Any], shape: tuple[int, ...]) -> _Plan:
        plan = self._plans.get((dtype, shape))
        if plan is None:
            plan = self._planned(dtype, shape)
            if len(self._plans) >= _PLANS:
                self._plans.clear()
            self._plans[dtype, shape] = plan
        return plan

    def _planned(self, dtype: np.dtype[Any], shape: tuple[int, ...]) -> _Plan:
        self._check(dtype, shape, self.port.shape)
        convert = dtype != self.port.dtype
        if self.port.shape is None:
            return _Plan(True, 1, shape, convert)
        lacking = len(self.port.shape) - len(shape)
        full = (*[1] * lacking, *shape)
        return _Plan(not lacking, full[0], full[1:], convert)

    def misfit(self, form: ArrayForm, key: str) -> str | None:
        """Why the model takes no array of this form, which is under `key`; `None` if it may take one.

        How many samples there are is not looked at: records run one by one where the model does not say it.
        """
        opened = None if self.port.shape is None else (None, *self.port.shape[1:])
        try:
            ModelInput(self.port, key, cast_freely=self._freely)._check(form.dtype, form.shape, opened)
        except WrongTypeError as error:
            return str(error)
        return None

    def _check(
        self, dtype: np.dtype[Any], shape: Lengths | None, declared: tuple[int | str | None, ...] | None
    ) -> None:
        """Raises `WrongTypeError` unless the input takes arrays of this type, and of this shape for `declared`."""
        if not castable(dtype, self.port.dtype, freely=self._freely):
            raise self._refused(_named(dtype, shape), self._to_send(dtype, shape))
        if declared is None or shape is None:
            return
        lacking = len(declared) - len(shape)
        if lacking not in (0, 1) and (shape or declared[1:] != (1,)):
            needed = f"{len(declared)} or {len(declared) - 1} dimensions are needed"
            raise self._refused(_named(dtype, shape), needed)
        for axis, (length, wanted) in enumerate(zip((*[1] * lacking, *shape), declared, strict=True)):
            if isinstance(wanted, int) and length is not None and length != wanted:
                needed = f"axis {axis} must have the length {wanted}"
                raise self._refused(_named(dtype, shape), needed + for_pictures(self.port, dtype, shape))

    def _to_send(self, dtype: np.dtype[Any], shape: Lengths | None) -> str:
        """The advice in an error about an array of another element type: what to send or set instead."""
        if "O" in (dtype.kind, self.port.dtype.kind):
            return "send that type"
        # Pixels as fractions would all be 0 or 1 after castInputs.
        return "send that type" + (for_pictures(self.port, dtype, shape) or ", or set castInputs")

    def _converted(self, array: Array, plan: _Plan) -> tuple[Array, Mask | None]:
        return cast(array, self.port.dtype) if plan.convert else (array, None)

    def _as_array(self, value: Any) -> Array:
        if isinstance(value, np.ndarray):
            return value
        if isinstance(value, str) and self.port.dtype == object:
            return np.array(value, object)
        if isinstance(value, (bool, int, float)):
            return np.array(value)
        if isinstance(value, list):
            return self._of_list(value)
        if is_tensor(value):
            return self._of_tensor(value)
        raise self._refused(type_of(value).name, "an array, numbers or lists of numbers are needed")

    def _of_tensor(self, value: Any) -> Array:
        tensor = from_value(value)
        if isinstance(tensor, StringView):
            return tensor.object_array()
        kind = value[KIND]
        hint = "make it dense in a step before, pipelines.tensors.from_value(...).to_dense()"
        raise self._refused(
            f"a {kind} tensor", hint if kind == "sparse" else "pad its rows, or send them as records of their own"
        )

    def _of_list(self, values: list[Any]) -> Array:
        dtype = self.port.dtype
        if dtype.kind in "Ob":
            array = np.array(values, object)
            wanted: type = str if dtype.kind == "O" else bool
            if self._freely and wanted is bool and not any(type(number) is bool for number in array.flat):
                return list_to_array(values, self.key)
            if any(type(number) is not wanted for number in array.flat):
                hint = ", or set castInputs for numbers" if wanted is bool else ""
                raise self._refused(
                    "a list", f"lists of equal lengths with {wanted.__name__} elements are needed{hint}"
                )
            return array.astype(dtype)
        # Konduit Serving makes float32 of lists. Here the model's type decides: a wider one gets all digits, and a
        # narrower one refuses what it cannot hold.
        try:
            return list_to_array(values, self.key, exact=dtype.kind in "iuf")
        except DataError as error:
            raise type(error)(f'input "{self.port.name}" takes {self.port}: {error}') from None

    def _refused(self, got: str, hint: str) -> WrongTypeError:
        return WrongTypeError(f'input "{self.port.name}" takes {self.port}, but key "{self.key}" holds {got}; {hint}')

    def _out_of_range(self, dtype: np.dtype[Any]) -> DataError:
        return DataError(
            f'input "{self.port.name}" takes {self.port}, but key "{self.key}" holds {dtype} values beyond its range'
        )

    def _rows_out_of_range(self, rows: Rows, dtype: np.dtype[Any]) -> RowsFailed:
        return RowsFailed(dict.fromkeys(rows.tolist(), self._out_of_range(dtype)))


def _named(dtype: np.dtype[Any], shape: Lengths | None) -> str:
    return str(Port("", dtype, shape))
