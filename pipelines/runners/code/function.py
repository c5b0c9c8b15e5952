"""Runs FUNCTION: the user's Python code as a step."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from pipelines.data.batch import Batch
from pipelines.data.data import Data, as_data
from pipelines.data.result import Result
from pipelines.definitions.functions import is_alone
from pipelines.errors import DefinitionError, RowsFailed
from pipelines.runners.code.alldropped import AllDropped
from pipelines.runners.code.usercode import UserCode
from pipelines.runners.runner import DROPPED, ContractError, OpenContext, RowRunner
from pipelines.steps.code.function import Function

LOGGER: Final = "pipelines.function"
"""Name of the logger that warns of a function that drops all records."""

WHY_DROPPED: Final = (
    "it returned nothing for them; if that is not meant, look whether it ends without a return; if it gathers records "
    "for a later result, have it do so in a state (remember): what it keeps otherwise is lost at a restart"
)
_log = logging.getLogger(LOGGER)


class FunctionRunner(RowRunner):
    """Calls a function for each record, or a function marked with `pipelines.batched` with the whole batch.

    For each record it is `f(data, **args) -> Data | None | list[Data]`. It may return a `dict` in place of a `Data`,
    which gets the metadata of the record; it is given a `dict` if its parameter is annotated so. A class is
    instantiated, and the object is called (`UserCode`).

    A batched function returns as many rows as it was given, in the same order, or else a batch that carries the numbers
    of the rows it came from: made with `take`, `with_columns` or `select` of its argument, or with `rows=`. Rows that
    it leaves out are dropped; a batch without numbers and of another size is a `ContractError`. If it raises, it is
    called again on halves of the batch to find the records to blame.

    Raises:
        StreamerError: When it opens where code is not allowed.
        DefinitionError: The function does not exist or does not take `args`, or `concurrency` is given for one that is
            not `async`.
    """

    keeps_rows: ClassVar[bool] = False

    def __init__(self, step: Function, context: OpenContext) -> None:
        self._label = step.label
        function = step.resolved(allowed=context.allow_code)
        self.alone = is_alone(function)
        self._code = UserCode(step.label, function, step.args or {})
        # Looked up for each record otherwise.
        self._call, self._takes_dict = self._code.call, self._code.takes_dict
        self._concurrency = step.concurrency
        self._timeout = context.policy.timeout
        self.ends_calls = self._code.waits and not self._code.batched
        self._all_dropped = AllDropped(_log, step.label, WHY_DROPPED)
        if step.concurrency > 1 and (self._code.batched or not self._code.waits):
            self.close()
            what = "takes whole batches" if self._code.batched else "is not async"
            raise DefinitionError(f"concurrency is for async functions of one record, and {step.label} {what}")

    def close(self) -> None:
        self._all_dropped.close()
        self._code.close()

    def run(self, data: Data) -> Data | None | list[Data]:
        return adopted(self._call(plain_dict(data) if self._takes_dict else data), data)

    def run_rows(self, rows: Sequence[Data]) -> list[Data | None | list[Data] | Exception]:
        if self._code.loop is None or not self._code.waits:
            return super().run_rows(rows)
        return self._code.loop.map(self._run_async, rows, self._concurrency, self._timeout)

    async def _run_async(self, data: Data) -> Data | None | list[Data]:
        return adopted(await self._call(plain_dict(data) if self._takes_dict else data), data)

    def run_batch(self, batch: Batch) -> Result:
        result = self._run_batched(batch) if self._code.batched else super().run_batch(batch)
        self._all_dropped.look(result)
        return result

    def _run_batched(self, batch: Batch) -> Result:
        lent = batch.lent()
        try:
            returned = self._code.call(lent)
            if self._code.waits:
                assert self._code.loop is not None
                returned = self._code.loop.wait_for(returned)
        except RowsFailed as error:
            if lent.holds(error.of):
                error.of = batch
            raise
        if not isinstance(returned, Batch):
            raise ContractError(f"{self._label} returned {type(returned).__name__}; a batched function returns a Batch")
        returned = returned.returned()
        if returned.self_numbered:
            return Result(self._numbered(returned, batch))
        if returned.same_rows(batch):
            return Result(returned)
        left_out = set(batch.rows.tolist()) - set(returned.rows.tolist())
        return Result(returned, dropped=dict.fromkeys(left_out, DROPPED))

    def _numbered(self, returned: Batch, batch: Batch) -> Batch:
        if returned.size != batch.size:
            raise ContractError(
                f"{self._label} was given {batch.size} rows and returned {returned.size} without saying which they "
                "are; return batch.take(positions), or Batch(..., rows=numbers)"
            )
        metadata = batch.metadata if returned.metadata is None else returned.metadata
        return Batch(
            returned.columns,
            returned.size,
            rows=batch.row_numbers,
            splits=batch.splits,
            metadata=metadata,
            origin=batch.origin,
            views=batch.views if returned.views is None else returned.views,
        )


def plain_dict(data: Data) -> dict[str, Any]:
    """The keys and values of `data`, nested ones as `dict`s too, also those in lists."""
    values = dict(data.items())
    odd = data.odd
    return {key: value if key in odd else _plain(value) for key, value in values.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, Data):
        return plain_dict(value)
    if isinstance(value, list) and value and isinstance(value[0], (Data, list)):
        return [_plain(item) for item in value]
    return value


def adopted(returned: Any, given: Data) -> Data | None | list[Data]:
    """What a function returned for the record `given`, with each `dict` as a `Data` that has the record's metadata.

    Raises as `Data` does for a value that no record can have. What is neither is given as it is.
    """
    if returned is None or type(returned) is Data:
        return returned
    if isinstance(returned, list):
        returned = [_data(item, given) for item in returned]
    # The caller reports any other type.
    result: Data | None | list[Data] = _data(returned, given)
    return result


def _data(returned: Any, given: Data) -> Any:
    if not isinstance(returned, Mapping) or isinstance(returned, Data):
        return returned
    if odd := given.odd:
        # Odd values that the function was given and put into its result are these again.
        lent = {id(value.handed_out): value for value in odd.values() if value.source is not None}
        returned = {key: lent.get(id(value), value) for key, value in returned.items()}
    return as_data(returned, given.metadata)
