"""`RowsByKey`: the rows of a table that is followed, by their keys."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from itertools import repeat
from typing import Any, Final

from pipelines.data.columns import MISSING, Column
from pipelines.errors import DataError
from pipelines.plugins.tables import KeyKind, TableRows
from pipelines.runners.forms import Forms
from pipelines.runners.tables.kinds import UnfitError, typed
from pipelines.runners.tables.lookupkeys import LookupKeys
from pipelines.runners.tables.tablefile import Limits
from pipelines.steps.tables.lookup import ColumnKind

_REASONS: Final = 1000
"""Of how many rows that cannot be read the reason is kept."""


class RowsByKey:
    """Rows that one thread puts, and any thread looks up: each row is replaced as a whole, and none is changed."""

    complete: Final = False
    """It is not known which values rows have that come later."""

    def __init__(
        self,
        label: str,
        by: str,
        key_kind: KeyKind,
        key_hint: str,
        take: Mapping[str, str],
        types: Mapping[str, ColumnKind],
        limits: Limits,
    ) -> None:
        """`by` is the key of records with the key of their row, `take` names the column of each key that they get."""
        self.label = label
        self.kinds: dict[str, ColumnKind] = {**types, by: key_kind}
        """The types of columns, as far as they are known."""
        self.unread = 0
        """How many records could not be read, or had no key."""
        self.refused = 0
        """How many rows there was no room for."""
        self.bytes = 0
        self._take = dict(take)
        self._types = types
        self._limits = limits
        self._keys = LookupKeys(label, {by: by}, {by: key_kind}, key_hint, f"the key of {label}")
        # A row ends with the bytes of its record.
        self._rows: dict[Hashable, tuple[Any, ...]] = {}
        self._absent = (MISSING,) * (len(self._take) + 1)
        self._reasons: dict[Hashable, str] = {}

    @property
    def size(self) -> int:
        """How many rows there are."""
        return len(self._rows)

    def put(self, rows: TableRows) -> None:
        """Let the rows be as these records say.

        A row that would be one too many, or have too many bytes, is not there; `refused` counts it.
        """
        if not len(rows):
            return
        failed = dict(rows.failed)
        columns = [self._typed(name, rows.columns[name], failed) for name in self._take.values()]
        known, most_rows, most_bytes = self._rows, self._limits.rows, self._limits.bytes
        for position, (key, row) in enumerate(zip(rows.keys, zip(*columns, rows.sizes, strict=True), strict=True)):
            if key is None:
                self.unread += 1
                continue
            before = known.get(key)
            size = self.bytes + row[-1] - (0 if before is None else before[-1])
            if position in rows.gone:
                self._remove(key)
            elif position in failed:
                self._remove(key)
                self.unread += 1
                if len(self._reasons) < _REASONS:
                    self._reasons[key] = str(failed[position])
            elif size > most_bytes or (before is None and len(known) >= most_rows):
                self._remove(key)
                self.refused += 1
            else:
                known[key] = row
                self.bytes = size
                if self._reasons:
                    self._reasons.pop(key, None)

    @property
    def full(self) -> str:
        """Why there was no room for rows, and what to do; empty if there was."""
        if not self.refused:
            return ""
        if len(self._rows) >= self._limits.rows:
            return f"{self.label} has more than {self._limits.rows:,} rows; raise maxRows of the step"
        return f"{self.label} has more than {self._limits.bytes:,} bytes; raise maxBytes of the step"

    def looked_up(
        self, given: Sequence[Column], failures: dict[int, Exception]
    ) -> tuple[Mapping[str, Column], Sequence[int]]:
        """As `Table.looked_up`."""
        absent = self._absent
        rows = list(map(self._rows.get, self._keys.comparable(given, failures), repeat(absent)))
        columns = {key: Column.of(values) for key, values in zip(self._take, zip(*rows, strict=True), strict=False)}
        return columns, [position for position, row in enumerate(rows) if row is absent]

    def misfit(self, given: Forms) -> str | None:
        """As `Table.misfit`."""
        return self._keys.misfit(given)

    def no_row(self, given: Sequence[Column], row: int) -> DataError:
        """As `Table.no_row`; it says so if the row's record could not be read, or there may have been no room."""
        value = given[0][row]
        reason = self._reasons.get(value) or self.full
        return self._keys.no_row([value], f": {reason}" if reason else "")

    def _remove(self, key: Hashable) -> None:
        row = self._rows.pop(key, None)
        if row is not None:
            self.bytes -= row[-1]
        self._reasons.pop(key, None)

    def _typed(self, name: str, values: Sequence[Any], failed: dict[int, Exception]) -> Sequence[Any]:
        """The values as those of the type that `types` gives the column."""
        kind = self._types.get(name)
        if kind is None:
            return values
        there: list[Any] = [None if value is MISSING else value for value in values]
        while True:
            try:
                return typed(name, there, kind, fields=False)[1]
            except UnfitError as error:
                failed.setdefault(error.position, error)
                there[error.position] = None
