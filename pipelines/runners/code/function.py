"""Runs FUNCTION: the user's Python code as a step."""

from __future__ import annotations

from typing import ClassVar

from pipelines.data.batch import Batch
from pipelines.data.data import Data
from pipelines.data.result import Result
from pipelines.definitions.functions import is_batched
from pipelines.errors import RowsFailed
from pipelines.runners.runner import DROPPED, ContractError, OpenContext, RowRunner
from pipelines.steps.code.function import Function


class FunctionRunner(RowRunner):
    """Calls `f(data) -> Data | None | list[Data]` for each record, or a function marked with `pipelines.batched` with
    the whole batch.

    A batched function returns as many rows as it was given, in the same order, or else a batch that carries the numbers
    of the rows it came from: made with `take`, `with_columns` or `select` of its argument, or with `rows=`. Rows that
    it leaves out are dropped; a batch without numbers and of another size is a `ContractError`. If it raises, it is
    called again on halves of the batch to find the records to blame.

    Raises `StreamerError` when it opens where code is not allowed, `DefinitionError` if the function is not found.
    """

    keeps_rows: ClassVar[bool] = False

    def __init__(self, step: Function, context: OpenContext) -> None:
        self._label = step.label
        self._function = step.resolved(allowed=context.allow_code)
        self._batched = is_batched(self._function)

    def run(self, data: Data) -> Data | None | list[Data]:
        result: Data | None | list[Data] = self._function(data)
        return result

    def run_batch(self, batch: Batch) -> Result:
        if not self._batched:
            return super().run_batch(batch)
        lent = batch.lent()
        try:
            found = self._function(lent)
        except RowsFailed as error:
            if lent.holds(error.of):
                error.of = batch
            raise
        if not isinstance(found, Batch):
            raise ContractError(f"{self._label} returned {type(found).__name__}; a batched function returns a Batch")
        found = found.returned()
        if found.self_numbered:
            return Result(self._numbered(found, batch))
        if found.same_rows(batch):
            return Result(found)
        left_out = set(batch.rows.tolist()) - set(found.rows.tolist())
        return Result(found, dropped=dict.fromkeys(left_out, DROPPED))

    def _numbered(self, found: Batch, batch: Batch) -> Batch:
        if found.size != batch.size:
            raise ContractError(
                f"{self._label} was given {batch.size} rows and returned {found.size} without saying which they are; "
                "return batch.take(positions), or Batch(..., rows=numbers)"
            )
        metadata = batch.metadata if found.metadata is None else found.metadata
        return Batch(
            found.columns,
            found.size,
            rows=batch.row_numbers,
            splits=batch.splits,
            metadata=metadata,
            origin=batch.origin,
        )
