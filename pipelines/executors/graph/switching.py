"""SWITCH and SWITCH_OUTPUT: each row is given a branch, and each branch takes its rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from pipelines.data.batch import Batch
from pipelines.data.columns import MISSING, DenseColumn, Rows
from pipelines.errors import RAISED, DataError, RowsFailed, WrongTypeError, blamed, nearest
from pipelines.executors.graph.junction import Flow, Junction, Router, searched
from pipelines.executors.graph.lineage import Lineage
from pipelines.runners.models.arrays import keys_there
from pipelines.runners.runner import ContractError, OpenContext
from pipelines.steps.flow.switch import (
    FunctionSwitch,
    IntSwitch,
    StringSwitch,
    Switch,
    SwitchFunction,
    SwitchOutput,
)
from pipelines.values import ValueType, type_of


class SwitchJunction(Junction):
    """Calls the switch function for the branch of each row; a row that gets no branch fails alone."""

    def __init__(self, name: str, inputs: tuple[str, ...], function: SwitchFunction, router: Router) -> None:
        super().__init__(name, inputs)
        self._function = function
        self._router = router

    @classmethod
    def of(cls, step: Switch, name: str, inputs: tuple[str, ...], context: OpenContext) -> SwitchJunction:
        return cls(name, inputs, step.switch_fn, step.switch_fn.open(context))

    @property
    def reads(self) -> frozenset[str] | None:
        return self._function.reads

    @property
    def opens_images(self) -> bool:
        return isinstance(self._router, FunctionRouter)

    @property
    def passes(self) -> bool:
        return True

    def run(self, flows: Sequence[Flow], lineage: Lineage) -> Flow:
        (flow,) = flows
        batch = flow.batch
        if not batch.size:
            return Flow(batch, flow.failed, flow.dropped, branches=batch.rows)
        errors: dict[int, Exception] = {}

        def asked(parts: Sequence[Batch]) -> tuple[Rows, Rows]:
            (part,) = parts
            branches, failures = self._asked(part)
            errors.update({int(part.rows[position]): error for position, error in failures.items()})
            return part.rows, branches

        results = searched([batch], asked, errors)
        rows = np.concatenate([batch.rows[:0], *(rows for rows, _ in results)])
        branches = np.concatenate([batch.rows[:0], *(branches for _, branches in results)])
        if errors:
            bad = np.fromiter(errors, np.int64)
            batch = batch.take(np.isin(batch.rows, bad, invert=True))
            branches = branches[np.isin(rows, bad, invert=True)]
        return Flow(batch, {**self.failures(errors, lineage), **flow.failed}, flow.dropped, branches)

    def _asked(self, batch: Batch) -> tuple[Rows, dict[int, Exception]]:
        answer = self._router(batch)
        given, failures = answer if isinstance(answer, tuple) else (answer, {})
        branches = np.asarray(given)
        if branches.shape != (batch.size,) or branches.dtype.kind not in "iu":
            raise ContractError(
                f"{self.name}: the switch function returned {branches.dtype} {branches.shape} for {batch.size} rows; "
                "one integer a row is needed"
            )
        count = self._function.num_outputs
        known = "the only one is 0" if count == 1 else f"they are numbered from 0 to {count - 1}"
        outside: dict[int, Exception] = {
            row: DataError(f"there is no branch {branches[row]}; {known}")
            for row in np.flatnonzero((branches < 0) | (branches >= count)).tolist()
        }
        return branches.astype(np.int64, copy=False), {**outside, **failures}


class SwitchOutputJunction(Junction):
    """Emits the rows of one branch."""

    def __init__(self, name: str, inputs: tuple[str, ...], number: int) -> None:
        super().__init__(name, inputs)
        self._number = number

    @classmethod
    def of(cls, step: SwitchOutput, name: str, inputs: tuple[str, ...], context: OpenContext) -> SwitchOutputJunction:
        return cls(name, inputs, step.output_num)

    @property
    def passes(self) -> bool:
        return True

    def run(self, flows: Sequence[Flow], lineage: Lineage) -> Flow:
        (flow,) = flows
        mask = flow.branches == self._number
        batch = flow.batch if np.all(mask) else flow.batch.take(mask)
        return Flow(batch, flow.failed, flow.dropped)


Answer: TypeAlias = tuple[Rows, Mapping[int, Exception]]


class IntRouter:
    """An INT64 value is the branch."""

    def __init__(self, function: IntSwitch, context: OpenContext) -> None:
        self._key = function.field_name

    def __call__(self, batch: Batch) -> Rows | Answer:
        if self._key in batch:
            column = batch[self._key]
            if isinstance(column, DenseColumn) and column.type is ValueType.INT64 and column.mask is None:
                return column.array
        return _by_row(_values(batch, self._key), self._branch)

    def _branch(self, value: Any) -> int:
        kind = type_of(value)
        if kind is not ValueType.INT64:
            raise WrongTypeError(f'Input data field "{self._key}" has type "{kind.name}", must be INT64 (long)')
        return int(value)


class StringRouter:
    """A STRING value is looked up in a table."""

    def __init__(self, function: StringSwitch, context: OpenContext) -> None:
        self._key = function.field_name
        self._branches = function.map

    def __call__(self, batch: Batch) -> Answer:
        return _by_row(_values(batch, self._key), self._branch)

    def _branch(self, value: Any) -> int:
        kind = type_of(value)
        if kind is not ValueType.STRING:
            raise WrongTypeError(f'Input data field "{self._key}" has type "{kind.name}", must be String')
        branch = self._branches.get(value)
        if branch is None:
            hint = nearest(value, self._branches) or f"; known are {', '.join(sorted(self._branches)[:5])}"
            raise DataError(f'"{value}", the value of "{self._key}", is not in the map{hint}')
        return branch


class FunctionRouter:
    """Calls a Python function, row by row."""

    def __init__(self, function: FunctionSwitch, context: OpenContext) -> None:
        self._label = function.label
        self._function = function.resolved(allowed=context.allow_code)

    def __call__(self, batch: Batch) -> Answer:
        return _by_row(batch.to_list(), lambda data: self._number(self._function(data)))

    def _number(self, value: object) -> int:
        if isinstance(value, (int, np.integer)) and not isinstance(value, (bool, np.bool_)):
            return int(np.int64(value))
        raise WrongTypeError(f"{self._label} returned {value!r}; a switch function returns the number of a branch")


def _values(batch: Batch, key: str) -> list[Any]:
    values = batch[key].values() if key in batch else [MISSING] * batch.size
    lacking: dict[int, Exception] = {
        row: DataError(f'Input data has no field "{key}"{keys_there(key, batch, row)}')
        for row, value in enumerate(values)
        if value is MISSING
    }
    if lacking:
        raise RowsFailed(lacking)
    return values


def _by_row(given: Sequence[Any], branch: Callable[[Any], int]) -> Answer:
    branches = np.zeros(len(given), np.int64)
    failures: dict[int, Exception] = {}
    for row, value in enumerate(given):
        try:
            branches[row] = branch(value)
        except RAISED as error:  # any exception belongs to that record
            failures[row] = blamed(error)
    return branches, failures
