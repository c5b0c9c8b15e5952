"""Runs LOOKUP."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from functools import partial
from typing import ClassVar, Final

import numpy as np

from pipelines.data.batch import Batch
from pipelines.data.result import Result
from pipelines.errors import RowsFailed, StreamerError
from pipelines.observe.metrics import LOOKUP_MISSING, LOOKUP_OUTDATED, LOOKUP_ROWS
from pipelines.runners.forms import Forms, ValueForm
from pipelines.runners.models.arrays import array_column
from pipelines.runners.runner import OpenContext, Runner
from pipelines.runners.tables.csvtable import CsvTable
from pipelines.runners.tables.followedtable import FollowedTable
from pipelines.runners.tables.jsontable import JsonTable
from pipelines.runners.tables.kinds import VALUE_TYPES
from pipelines.runners.tables.livetable import LiveTable
from pipelines.runners.tables.parquettable import ParquetTable
from pipelines.runners.tables.rowsbykey import RowsByKey
from pipelines.runners.tables.sqlitetable import SqliteTable
from pipelines.runners.tables.table import Table
from pipelines.runners.tables.tablefile import Limits, TableFile
from pipelines.steps.tables.lookup import Lookup
from pipelines.values import ValueType

NO_ROW: Final = "no row"
"""Reason of a record that `missing: drop` left out."""


class LookupRunner(Runner):
    """Adds values of a table's rows, for all records of a batch at once.

    Fails a row that lacks a key, or has one of another type than the table's, and with `missing: fail` one that the
    table has no row for; `missing: drop` drops that.
    """

    opens_images: ClassVar[bool] = False
    keeps_keys: ClassVar[bool] = True
    needs_all: ClassVar[bool] = True

    def __init__(self, step: Lookup, context: OpenContext) -> None:
        self._step = step
        self.keeps_rows = step.missing != "drop"  # type: ignore[misc]
        self._shared = context.shared
        # Executors of one definition read the same table.
        self._key = ("table", str(context.base), json.dumps(step.to_dict(), sort_keys=True, default=str))
        self._live: LiveTable | FollowedTable = self._shared.get(
            self._key, partial(_opened, step, context), lambda live: live.close()
        )
        self._lacking = context.metrics.counter(LOOKUP_MISSING, "Records that LOOKUP had no row for.")
        self._size = context.metrics.gauge(LOOKUP_ROWS, "Rows of the table that LOOKUP uses.")
        self._outdated = context.metrics.gauge(
            LOOKUP_OUTDATED, "Whether the table of before is in use, as the new one cannot be read."
        )
        self._shown: tuple[int, bool] | None = None
        self._show()

    @property
    def reads(self) -> frozenset[str] | None:
        return frozenset(self._step.by)

    @property
    def gives(self) -> frozenset[str] | None:
        sure = self._step.missing != "absent" and self._live.table.complete
        return frozenset(self._step.take) if sure else None

    @property
    def types(self) -> Mapping[str, ValueType]:
        kinds = self._live.table.kinds
        return {key: VALUE_TYPES[kinds[name]] for key, name in self._step.take.items() if name in kinds}

    @property
    def in_words(self) -> str:
        table = self._live.table
        if isinstance(table, RowsByKey):
            return f"{table.label}, {table.size:,} rows"
        return f"{table.size:,} rows, {_columns(self._step.by, table)} -> {_columns(self._step.take, table)}"

    def forms(self, given: Forms) -> Forms:
        others = {key: form for key, form in given.items() if key not in self._step.take}
        return {**others, **{key: ValueForm(kind) for key, kind in self.types.items()}}

    def misfit(self, given: Forms, possible: Collection[str] | None) -> str | None:
        return self._live.table.misfit(given)

    def limit(self, records: int) -> bool:
        return True

    def run_batch(self, batch: Batch) -> Result:
        self._live.watch()
        self._show()
        # One table for all records, though a new one may come meanwhile.
        table = self._live.table
        failures: dict[int, Exception] = {}
        keys = [array_column(batch, key) for key in self._step.by]
        columns, absent = table.looked_up(keys, failures)
        if self._step.missing == "fail":
            for row in absent:
                if row not in failures:
                    failures[row] = table.no_row(keys, row)
        if failures:
            raise RowsFailed(failures)
        self._lacking.add(len(absent))
        looked_up = batch.with_columns(columns)
        if self._step.missing == "absent" or not absent:
            return Result(looked_up)
        lacking = np.zeros(batch.size, np.bool_)
        lacking[absent] = True
        # Of records of which other rows are left, the executor forgets that one was dropped.
        return Result(looked_up.take(~lacking), dropped=dict.fromkeys(batch.take(lacking).rows.tolist(), NO_ROW))

    def close(self) -> None:
        self._shared.release(self._key)

    def _show(self) -> None:
        state = (self._live.table.size, self._live.outdated)
        if state != self._shown:
            self._shown = state
            self._size.set(state[0])
            self._outdated.set(state[1])


def _opened(step: Lookup, context: OpenContext) -> LiveTable | FollowedTable:
    """The table of this step, read whole. Raises `StreamerError`."""
    name = context.step or step.type_name
    if step.followed is None:
        file = _file(step, context)
        return LiveTable(file, lambda before: _made(file, step, before), name)
    table = step.followed.beside(context.sources)
    columns = tuple(dict.fromkeys(step.take.values()))
    (by,) = step.by
    limits = Limits(step.max_rows, step.max_bytes)
    return FollowedTable(
        lambda: table.reader(columns, context.base),
        lambda: RowsByKey(table.label, by, table.key_kind, table.key_hint, step.take, step.types, limits),
        name,
        table.patience,
        context.progress,
        context.stopping,
    )


def _file(step: Lookup, context: OpenContext) -> TableFile:
    path = context.path(step.file)
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "is not there"
        raise StreamerError(f'the table {path} {what}; relative paths start at {context.base}, set "path" to it')
    limits = Limits(step.max_rows, step.max_bytes)
    if step.format == "csv":
        return CsvTable(path, limits, step.delimiter or ("\t" if path.suffix.lower() == ".tsv" else ","))
    if step.format in ("json", "json lines"):
        return JsonTable(path, limits, lines=step.format == "json lines")
    return ParquetTable(path, limits) if step.format == "parquet" else SqliteTable(path, limits, step.sqlite_table)


def _made(file: TableFile, step: Lookup, before: Table | None) -> Table:
    """The table that the file has now. Its columns have the types that they had before: the steps behind rely on it."""
    raw = file.read(list(dict.fromkeys((*step.by.values(), *step.take.values()))))
    kinds = {} if before is None else before.kinds
    return Table(raw, file.label, step.by, step.take, {**kinds, **step.types})


def _columns(named: Mapping[str, str], table: Table) -> str:
    return ", ".join(f"{key} ({table.kinds.get(name, 'no values')})" for key, name in named.items())
