"""`OutputColumns`: the columns of a mapper's results, their types, and the rows that do not fit them."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, Final

from pipelines.arrow.library import pa
from pipelines.arrow.types import field_for
from pipelines.arrow.writing import array_of
from pipelines.data.batch import Batch
from pipelines.errors import StreamerError, WrongTypeError

ERROR: Final = "_error"
"""The column of errors: null, or the text of the error of a record that failed."""


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
        self._schema: Any = None
        self._settling = threading.Lock()

    def state(self, fields: Sequence[Any], *, chosen: bool = False) -> None:
        """Set the fields. If they are `chosen`, results may have other keys, which are left out."""
        self._chosen = chosen
        fields = [_nullable(field) for field in fields if not (self.errors and field.name == ERROR)]
        self._names = frozenset(field.name for field in fields)
        self._schema = self._with_errors(fields)
        self.fields = fields

    def settle(self, results: Batch, given: Any) -> bool:
        """Whether the fields are known, now that there are results of records of the `pyarrow.Schema` `given`."""
        if self.fields is not None:
            return True
        with self._settling:
            if self.fields is None and results.size:
                made = {key: field_for(key, results.column(key)) for key in results.columns}
                kept = [made.pop(key, None) or given.field(key) for key in self.keep]
                self.state([*kept, *(field for field in made.values() if field is not None)])
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
                why = f'the results before have no value of "{key}"'
                if key == ERROR:
                    why = f'results have a value "{ERROR}" of their own: name it otherwise, or set errors="drop"'
                failed.update({row: WrongTypeError(why) for row in column.positions() if row not in failed})
        return arrays

    def _with_errors(self, fields: Sequence[Any]) -> Any:
        return pa.schema([*fields, *([pa.field(ERROR, pa.string())] if self.errors else [])])


def _nullable(field: Any) -> Any:
    # Of a record that failed there is none.
    return field.with_nullable(True)
