"""`mapper`: a pipeline as a function of Arrow record batches, for the engines that hand these out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from os import PathLike
from typing import Any, Final, Literal, Self, get_args

import numpy as np

from pipelines.arrow.declared import UnknownTypesError, check_columns
from pipelines.arrow.definition import ShippedDefinition
from pipelines.arrow.entries import selected
from pipelines.arrow.library import pa
from pipelines.arrow.outputs import OutputColumns, UnknownKeptError
from pipelines.arrow.reading import BatchReader
from pipelines.data.batch import Batch
from pipelines.data.result import Result
from pipelines.definitions.pipeline import Pipeline
from pipelines.errors import StepError, StreamerError, nearest, step_of
from pipelines.executors.executor import Executor
from pipelines.executors.keep import kept, last_parents
from pipelines.expressions.engine import polars

Errors = Literal["column", "drop", "raise"]
"""What becomes of records that fail."""

ROWS: Final = 1024
"""How many rows are run together, unless it is said otherwise."""
_MOST_WAITING: Final = 64
"""How many batches without any result are held back before one shows what the columns are."""


def mapper(
    definition: str | PathLike[str] | Pipeline,
    keep: Sequence[str] = (),
    errors: Errors = "column",
    schema: Any | None = None,
    rows: int = ROWS,
) -> Mapper:
    """A function that runs a pipeline on Arrow record batches. It can be pickled, and sends no models.

    Args:
        definition: The path of the definition, or the pipeline. A relative path starts at the working directory of
            each process that runs it.
        keep: Columns of the records that results get too, as they came.
        errors: What becomes of a record that fails: a row without values whose `_error` says why (`"column"`), nothing
            (`"drop"`), or the error of the call (`"raise"`). With `"column"` all rows have `_error`, null if all is
            well.
        schema: The `pyarrow.Schema` of the results, if it is to be another than the steps state, or if they state none.
            Values of other keys are left out; columns of `keep` and `_error` need not be named.
        rows: How many rows are run together: fewer for large images.

    Raises:
        DefinitionError: The definition is wrong.
        StreamerError: An argument is.
    """
    if isinstance(keep, str):
        keep = [keep]
    if errors not in get_args(Errors):
        hint = nearest(str(errors), get_args(Errors))
        raise StreamerError(f'errors="{errors}" is none of {", ".join(get_args(Errors))}{hint}')
    if rows < 1:
        raise StreamerError(f"rows={rows}: at least one row is run")
    return Mapper(ShippedDefinition(definition), keep, errors, schema, rows)


class Mapper:
    """A pipeline as a function: `for results in f(record_batches)`. Made by `mapper`.

    Models are opened at the first use, once in each process. Rows come out in the order of the input: one for each
    result, none for a record that was dropped. What steps state about their results holds for records of one sample;
    where they state nothing, columns are those of the first results. Later results that do not fit fail.

    A pipeline with steps that have to see all records in order (`WINDOW`, `TRACK`) runs by `f(record_batches)` only,
    in the process that made the mapper: each call begins anew, and ends with what the steps still hold.
    """

    def __init__(
        self, definition: ShippedDefinition, keep: Sequence[str], errors: Errors, schema: Any | None, rows: int
    ) -> None:
        self._definition = definition
        self._keep = tuple(keep)
        self._errors = errors
        self._schema = schema
        self._rows = rows
        self._columns = self._unsettled()
        self._reader: BatchReader | None = None
        """Of the schema of the last call, which needs no check again."""

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        """The results of an iterable of `pyarrow.RecordBatch` (or tables), as record batches of one schema.

        Raises `StreamerError` if the pipeline cannot be opened or a column is missing, and, with `errors="raise"`, the
        `StepError` of the first record that fails.
        """
        with self._definition.opened() as executor:
            if not executor.sequential_steps:
                yield from self._mapped(executor, batches, ends=False)
                return
            if self._definition.sent:
                raise self._unordered(executor, "this is a process that sees a part of them")
        with self._definition.open() as alone:
            yield from self._mapped(alone, batches, ends=True)

    def batch(self, records: Any) -> Any:
        """The results of one `pyarrow.Table` or `pyarrow.RecordBatch`, as a table or record batch."""
        with self._definition.opened() as executor:
            if executor.sequential_steps:
                raise self._unordered(executor, "calls for single batches come in any order")
            # Records without rows have the columns of others, or lack them.
            self._reader_for(executor, _of_arrow(records).schema)
            mapped = list(self._mapped(executor, [records], ends=False))
        schema = mapped[0].schema if mapped else self._columns.schema(records.schema)
        table = pa.Table.from_batches(mapped, schema)
        if isinstance(records, pa.Table):
            return table
        batches = table.combine_chunks().to_batches()
        return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=schema)

    def frame(self, records: Any) -> Any:
        """The results of a `polars.DataFrame`, as one."""
        return polars("a mapper's frame").from_arrow(self.batch(records.to_arrow()))

    @property
    def schema(self) -> Any:
        """The `pyarrow.Schema` of results, if it is known without those of the records: `schema_for(None)`."""
        return self.schema_for(None)

    def schema_for(self, given: Any | None) -> Any:
        """The `pyarrow.Schema` of the results of records of this schema. Nothing is run, but models are opened.

        The results of this mapper are of that schema from then on, also where it is sent.
        Raises `StreamerError` if a column that the pipeline needs is missing, or if the types of the results are not
        known: then `mapper(..., schema=...)` says them.
        """
        with self._definition.opened() as executor:
            if given is not None:
                self._check(executor, given)
            if self._columns.fields is None:
                self._state(executor, given, insist=True)
        return self._columns.schema()

    def close(self) -> None:
        """Release the models of this process, which all mappers of this definition share.

        Calls that run go on to their end. A later call opens the models again; without this they stay until the
        process ends. A mapper is a context manager, too.
        """
        self._definition.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        columns = self._columns
        return {**self.__dict__, "_columns": (columns.fields, self._schema is not None), "_reader": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        fields, chosen = state["_columns"]
        self._columns = self._unsettled()
        if fields is not None:
            self._columns.state(fields, chosen=chosen)

    def __repr__(self) -> str:
        return f"mapper({self._definition.label!r}, keep={list(self._keep)}, errors={self._errors!r})"

    def _unsettled(self) -> OutputColumns:
        return OutputColumns(self._keep, errors=self._errors == "column")

    def _unordered(self, executor: Executor, why: str) -> StreamerError:
        names = ", ".join(executor.sequential_steps)
        return StreamerError(
            f"{names}: the pipeline remembers records and needs all of them in order, and {why}. Run it with "
            "f(record_batches) in one process, or as a service"
        )

    def _check(self, executor: Executor, given: Any) -> None:
        self._columns.check_given(given)
        check_columns(executor, given)

    def _state(self, executor: Executor, given: Any | None, *, insist: bool) -> None:
        """Set the columns of the results, if they are known. With `insist` it is an error if not."""
        try:
            if self._schema is None:
                self._columns.state_declared(executor, given)
            else:
                self._columns.state_with_kept(list(self._schema), given, chosen=True)
        except UnknownKeptError:
            if insist:
                raise
        except UnknownTypesError as error:
            if insist:
                raise UnknownTypesError(
                    f"the types of the results are not known before the pipeline has run: {error}. Say them: "
                    "mapper(..., schema=pyarrow.schema([...]))"
                ) from None

    def _mapped(self, executor: Executor, batches: Iterable[Any], *, ends: bool) -> Iterator[Any]:
        waiting: list[tuple[Result, Batch]] = []
        first = 0
        reader: BatchReader | None = None
        for records in self._parts(batches):
            if reader is None or not records.schema.equals(reader.schema, check_metadata=True):
                reader = self._reader_for(executor, records.schema)
            given = reader.read(records, first)
            first += given.size
            yield from self._written(executor.run_batch(given), given, reader.schema, waiting)
        if ends and reader is not None:
            nothing = reader.read(pa.RecordBatch.from_pylist([], schema=reader.schema), first)
            yield from self._written(executor.flush(), nothing, reader.schema, waiting)
        if waiting and reader is not None:
            # No record has shown what the columns are; another call may.
            columns = self._unsettled()
            columns.state([reader.schema.field(key) for key in self._keep])
            yield from (self._joined(result, given, columns) for result, given in waiting)

    def _reader_for(self, executor: Executor, schema: Any) -> BatchReader:
        """A reader of records of this schema. Raises `StreamerError` if a column is missing."""
        last = self._reader
        if last is not None and schema.equals(last.schema, check_metadata=True):
            return last
        self._check(executor, schema)
        if self._columns.fields is None:
            self._state(executor, schema, insist=False)
        # Other threads may set another one meanwhile.
        reader = self._reader = BatchReader(schema)
        return reader

    def _parts(self, batches: Iterable[Any]) -> Iterator[Any]:
        for given in batches:
            for records in given.to_batches() if isinstance(_of_arrow(given), pa.Table) else [given]:
                if 0 < records.num_rows <= self._rows:
                    yield records
                    continue
                for start in range(0, records.num_rows, self._rows):
                    yield records.slice(start, self._rows)

    def _written(self, result: Result, given: Batch, schema: Any, waiting: list[tuple[Result, Batch]]) -> Iterator[Any]:
        if self._errors == "raise":
            _raise_first(result.failed)
        if not self._columns.settle(result.batch, schema):
            if result.failed and self._errors == "column":
                waiting.append((result, given))
            if len(waiting) > _MOST_WAITING:
                (why, *_) = result.failed.values()
                raise StreamerError(
                    f"all records of the first {_MOST_WAITING} batches failed, so that the columns of the results are "
                    f"not known: {why}"
                )
            return
        for earlier, rows in [*waiting, (result, given)]:
            written = self._joined(earlier, rows, self._columns)
            if written.num_rows:
                yield written
        waiting.clear()

    def _joined(self, result: Result, given: Batch, columns: OutputColumns) -> Any:
        """The results of a batch and its failures, in the order of their records."""
        failed = dict(result.failed)
        arrays, results = columns.fitting(kept(result.batch, given, self._keep), failed)
        if self._errors == "raise":
            _raise_first(failed)
        schema = columns.schema()
        if self._errors != "column":
            return pa.RecordBatch.from_arrays(arrays, schema=schema)
        if not failed:
            return pa.RecordBatch.from_arrays([*arrays, pa.nulls(results.size, pa.string())], schema=schema)
        numbers = np.array(sorted(failed), np.int64)
        order = np.argsort(np.concatenate([last_parents(results), numbers]), kind="stable")
        # They have the values that are kept.
        lost = columns.arrays(kept(Batch({}, len(numbers), rows=numbers), given, self._keep), {})
        parts = zip([*arrays, pa.nulls(results.size, pa.string())], [*lost, _texts(failed)], strict=True)
        joined = [selected(pa.concat_arrays(pair), order) for pair in parts]
        return pa.RecordBatch.from_arrays(joined, schema=schema)


def _of_arrow(records: Any) -> Any:
    if isinstance(records, (pa.RecordBatch, pa.Table)):
        return records
    kind = type(records)
    raise StreamerError(
        f"a {kind.__module__}.{kind.__qualname__} is no pyarrow.RecordBatch or Table: give f(table.to_batches()), "
        "f.batch(pyarrow.Table.from_pandas(frame)), or f.frame(frame) of Polars"
    )


def _raise_first(failed: Mapping[int, Exception]) -> None:
    if failed:
        row = min(failed)
        raise StepError(f"row {row}: {failed[row]}", step=step_of(failed[row]) or None) from failed[row]


def _texts(failed: Mapping[int, Exception]) -> Any:
    """The column of errors of these records, in the order of their numbers."""
    return pa.array([str(failed[number]) for number in sorted(failed)], pa.string())
