"""`OutputColumns`: the columns of a mapper's results, their types, and the rows that do not fit them."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from pipelines.arrow.declared import UnknownTypesError, declared_fields
from pipelines.arrow.library import pa
from pipelines.arrow.types import field_for
from pipelines.arrow.writing import array_of
from pipelines.data.batch import Batch
from pipelines.data.columns import Mask
from pipelines.errors import StepError, StreamerError, WrongTypeError
from pipelines.executors.executor import Executor

ERROR: Final = "_error"
"""The column of errors: null, or the text of the error of a record that failed."""
WRITING: Final = "arrow"
"""The step that errors name where a result does not fit its column."""


class OutputColumns:
    """The fields of results: stated, or those of the first results, and then the same for all that follow.

    `keep` are the columns of the input that stand before them.
    """

    def __init__(self, keep: Sequence[str], *, errors: bool) -> None:
        self.keep = tuple(keep)
        self.errors = errors
        self.fields: list[Any] | None = None
        """`pyarrow.Field` of each column but that of errors; `None`: not known yet."""
        self._chosen = False
        self._names: frozenset[str] = frozenset()
        self._odd: dict[str, str] = {}
        """Why there is no column for a key of the first results."""
        self._schema: Any = None
        self._settling = threading.Lock()

    def state(self, fields: Sequence[Any], *, chosen: bool = False) -> None:
        """Set the fields. If they are `chosen`, results may have other keys, which are left out."""
        self._chosen = chosen
        fields = [_nullable(field) for field in fields if not (self.errors and field.name == ERROR)]
        self._names = frozenset(field.name for field in fields)
        self._schema = self._with_errors(fields)
        self.fields = fields

    def state_declared(self, executor: Executor, given: Any | None) -> None:
        """Set the fields as the steps state them, for records of the `pyarrow.Schema` `given`, if that is known.

        Raises `UnknownTypesError` that says why they are not known.
        """
        self.state_with_kept(declared_fields(executor, given), given)

    def state_with_kept(self, fields: Sequence[Any], given: Any | None, *, chosen: bool = False) -> None:
        """As `state`, with those of `keep` that are not among the fields before them.

        They have the types that they have in records of the `pyarrow.Schema` `given`. Raises `UnknownTypesError` if
        there are such and `given` is not known.
        """
        names = {field.name for field in fields}
        lacking = [key for key in self.keep if key not in names]
        if lacking and given is None:
            raise UnknownKeptError(lacking[0])
        there = {} if given is None else {field.name: field for field in given}
        self.state([*(there[key] for key in lacking if key in there), *fields], chosen=chosen)

    def settle(self, results: Batch, given: Any | None) -> bool:
        """Whether the fields are known, now that there are results of records of the `pyarrow.Schema` `given`.

        `given` may be `None` if the results have the columns of `keep` already.
        """
        if self.fields is not None:
            return True
        with self._settling:
            if self.fields is None and results.size:
                made = {key: self._field(key, results) for key in results.columns}
                there = {} if given is None else {field.name: field for field in given}
                kept = [made.pop(key, None) or there.get(key) for key in self.keep]
                self.state([field for field in [*kept, *made.values()] if field is not None])
        return self.fields is not None

    def schema(self, given: Any | None = None) -> Any:
        """The `pyarrow.Schema` of results; as far as it is known, of records of the schema `given`."""
        if self.fields is not None:
            return self._schema
        return self._with_errors([] if given is None else [_nullable(given.field(key)) for key in self.keep])

    def check_given(self, given: Any) -> None:
        """Raise `StreamerError` if records of this `pyarrow.Schema` lack a column to keep, or have that of errors."""
        for key in self.keep:
            if key not in given.names:
                raise StreamerError(f'keep: there is no column "{key}"; there are {", ".join(given.names)}')
        if self.errors and ERROR in given.names:
            raise StreamerError(f'the records have a column "{ERROR}" already: rename it, or set errors="drop"')

    def arrays(self, results: Batch, failed: dict[int, Exception]) -> list[Any]:
        """The arrays of all fields for these rows; errors of rows that do not fit are put into `failed`."""
        assert self.fields is not None
        arrays = [array_of(results, field, failed) for field in self.fields]
        if self._chosen:
            return arrays
        for key in results.columns:
            if key not in self._names:
                column = results.column(key)
                why = self._odd.get(key) or f'the results before have no value of "{key}"'
                if key == ERROR:
                    why = f'results have a value "{ERROR}" of their own: name it otherwise, or set errors="drop"'
                failed.update({row: WrongTypeError(why) for row in column.positions() if row not in failed})
        return arrays

    def fitting(self, results: Batch, failed: dict[int, Exception]) -> tuple[list[Any], Batch]:
        """The arrays of all fields, and the rows that they have: the results of all records but those in `failed`.

        `failed` has errors by the number of the record. Records with a result that does not fit its column are put
        into it, and none of their results is among the rows.
        """
        unfit: dict[int, Exception] = {}
        arrays = self.arrays(results, unfit)
        if not unfit:
            return arrays, results
        for position, why in unfit.items():
            for number in results.parents(position).tolist():
                failed.setdefault(number, StepError.of(WRITING, why))
        results = results.take(~of_records(results, failed))
        return self.arrays(results, {}), results

    def _field(self, key: str, results: Batch) -> Any | None:
        try:
            return field_for(key, results.column(key))
        except WrongTypeError as error:
            # There is no such column, and the results that have such a value fail.
            self._odd[key] = str(error)
            return None

    def _with_errors(self, fields: Sequence[Any]) -> Any:
        return pa.schema([*fields, *([pa.field(ERROR, pa.string())] if self.errors else [])])


class UnknownKeptError(UnknownTypesError):
    """The type of a column to keep is that of the records, which is not known."""

    def __init__(self, key: str) -> None:
        super().__init__(
            f'the type of "{key}" is that of the input: ask schema_for(schema of the input), or name it in '
            "mapper(..., schema=...)"
        )


def of_records(results: Batch, numbers: Mapping[int, Any]) -> Mask:
    """Which rows came from a record with one of these numbers, among others or alone: `bool (N,)`."""
    among = np.isin(results.rows, list(numbers))
    if results.splits is None:
        return among
    before = np.append(0, np.cumsum(among))
    return np.diff(before[results.splits]) > 0


def _nullable(field: Any) -> Any:
    # Of a record that failed there is none.
    return field.with_nullable(True)
