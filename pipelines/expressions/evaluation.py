"""`Evaluation`: several expressions over the rows of a batch, by whole columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice, product
from typing import Any, Final

import numpy as np

from pipelines.data.batch import Batch
from pipelines.data.columns import Rows
from pipelines.errors import WrongTypeError
from pipelines.expressions.engine import polars
from pipelines.expressions.expression import Expression, first_line
from pipelines.expressions.kinds import ABSENT, KINDS, Cells, Kind, cells_of

_MOST_TRIED: Final = 3**4


@dataclass(frozen=True, slots=True)
class Evaluated:
    """The results of rows whose values are of the same kinds."""

    rows: Rows | None
    """Their positions in the batch, rising; `None`: all."""
    results: list[Any]
    """For each expression a `polars.Series` with a result for each of these rows, null where it is missing."""


class Evaluation:
    """Evaluates expressions together.

    The results of a row do not depend on the rows beside it: rows are divided by the kinds of their values, and a value
    that a row lacks counts as of the first kind with which all expressions work.
    """

    def __init__(self, expressions: Sequence[Expression]) -> None:
        self._polars = pl = polars()
        self._expressions = tuple(expressions)
        self._selected = [expression.selected.alias(str(place)) for place, expression in enumerate(self._expressions)]
        self.names = tuple(dict.fromkeys(name for expression in expressions for name in expression.names))
        """The keys of the values that the expressions read."""
        self._dtypes = {"number": pl.Float64, "text": pl.String, "boolean": pl.Boolean}
        self._resolved = lru_cache(maxsize=4096)(self._resolve)

    def run(self, batch: Batch, failures: dict[int, Exception]) -> Iterator[Evaluated]:
        """The results of all rows but those that fail, whose errors are put into `failures`, by position."""
        if not batch.size:
            return
        cells = {
            name: cells_of(name, batch.column(name) if name in batch else None, batch.size, failures)
            for name in self.names
        }
        for rows, kinds in self._parts(batch.size, cells, failures):
            yield from self._evaluated(rows, batch.size, kinds, cells, failures)

    def _parts(
        self, size: int, cells: Mapping[str, Cells], failures: dict[int, Exception]
    ) -> Iterator[tuple[Rows | None, tuple[Kind, ...]]]:
        """The rows that are evaluated together, and the kinds of their values, one for each of `names`."""
        codes = tuple(cell.code for cell in cells.values())
        if not failures and None not in codes:
            kinds = self._resolved(codes)
            if isinstance(kinds, tuple):
                yield None, kinds
            else:
                failures.update(dict.fromkeys(range(size), WrongTypeError(kinds)))
            return
        left = np.ones(size, np.bool_)
        left[list(failures)] = False
        # The code of a row is a number with a digit to the base 4 for each name.
        joint = np.zeros(size, np.int64)
        for cell in cells.values():
            joint = joint * 4 + cell.kinds(size)
        together: dict[tuple[Kind, ...], list[int]] = {}
        for code in np.unique(joint[left]).tolist():
            kinds = self._resolved(self._digits(code))
            if isinstance(kinds, tuple):
                together.setdefault(kinds, []).append(code)
            else:
                wrong = np.flatnonzero(left & (joint == code)).tolist()
                failures.update(dict.fromkeys(wrong, WrongTypeError(kinds)))
        for kinds, of_kinds in together.items():
            rows = np.flatnonzero(left & np.isin(joint, of_kinds))
            yield None if len(rows) == size else rows, kinds

    def _digits(self, code: int) -> tuple[int, ...]:
        return tuple(code >> 2 * place & 3 for place in reversed(range(len(self.names))))

    def _resolve(self, codes: tuple[int, ...]) -> tuple[Kind, ...] | str:
        """The kinds of values with these codes, those of missing ones chosen; the error if they do not suit."""
        choices: list[tuple[Kind, ...]] = [KINDS if code == ABSENT else (KINDS[code],) for code in codes]
        for kinds in islice(product(*choices), _MOST_TRIED):
            named = dict(zip(self.names, kinds, strict=True))
            if all(each.misfit(tuple(named[name] for name in each.names)) is None for each in self._expressions):
                return kinds
        first = {name: choice[0] for name, choice in zip(self.names, choices, strict=True)}
        for each in self._expressions:
            if each.misfit(tuple(first[name] for name in each.names)) is not None:
                return each.error(first)
        return f"the values do not suit {' and '.join(each.text for each in self._expressions)} together"

    def _evaluated(
        self,
        rows: Rows | None,
        size: int,
        kinds: tuple[Kind, ...],
        cells: Mapping[str, Cells],
        failures: dict[int, Exception],
    ) -> Iterator[Evaluated]:
        pl = self._polars
        count = size if rows is None else len(rows)
        try:
            columns = {
                name: self._series(*cell.of(rows), kind)
                for (name, cell), kind in zip(cells.items(), kinds, strict=True)
            }
            selected = pl.DataFrame(columns).select_seq(self._selected).get_columns()
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException, UnicodeEncodeError) as error:
            # The kinds suit, so a value is to blame: it is searched by halves.
            positions = np.arange(size, dtype=np.int64) if rows is None else rows
            if count == 1:
                texts = " and ".join(each.text for each in self._expressions)
                failures[int(positions[0])] = WrongTypeError(f"{texts}: {first_line(error)}")
                return
            for half in (positions[: count // 2], positions[count // 2 :]):
                yield from self._evaluated(half, size, kinds, cells, failures)
            return
        # Where no value is read, there is one result.
        yield Evaluated(rows, [each if len(each) == count else each.new_from_index(0, count) for each in selected])

    def _series(self, values: Any, there: Any, kind: Kind) -> Any:
        pl = self._polars
        if there is not None and not there.any():
            # The values may be of another kind.
            return pl.Series([None] * len(there), dtype=self._dtypes[kind])
        if isinstance(values, list):
            if there is not None:
                values = [value if has else None for value, has in zip(values, there.tolist(), strict=True)]
            if kind == "number":
                return pl.Series(np.array(values, np.float64), nan_to_null=True)
            return pl.Series(values, dtype=self._dtypes[kind])
        if there is not None and kind == "number":
            return pl.Series(np.where(there, values, np.nan), nan_to_null=True)
        series = pl.Series(values)
        return series if there is None else series.set(~pl.Series(there), None)
