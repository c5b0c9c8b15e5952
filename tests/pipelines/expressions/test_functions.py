"""Every function of the table gives what the table says, also for missing values, and looks at one record at a time."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from pipelines.data.batch import Batch
from pipelines.data.columns import MISSING, Column
from pipelines.errors import DefinitionError
from pipelines.expressions.evaluation import Evaluation
from pipelines.expressions.expression import Expression
from pipelines.expressions.functions import FUNCTIONS, Function

VALUES = (1.5, -2, 0, "text", "", "7", True, False, MISSING, float("nan"), float("inf"), 1764424800123)


def results(call: str, rows: list[dict[str, Any]]) -> list[Any]:
    """The result of each row: a value, `None` if it is missing, or the class of its error."""
    keys = dict.fromkeys(key for row in rows for key in row)
    batch = Batch({key: Column.of([row.get(key, MISSING) for row in rows]) for key in keys}, len(rows))
    failures: dict[int, Exception] = {}
    given: dict[int, Any] = {}
    for part in Evaluation([Expression(call)]).run(batch, failures):
        positions = range(len(rows)) if part.rows is None else part.rows.tolist()
        given |= dict(zip(positions, part.results[0].to_list(), strict=True))
    assert given.keys().isdisjoint(failures)
    return [type(failures[row]) if row in failures else given[row] for row in range(len(rows))]


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_the_example_of_a_function_gives_what_the_table_says(function: Function) -> None:
    assert results(function.call, [dict(function.example)]) == [function.result]


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_a_function_takes_any_value_and_gives_each_record_what_it_gets_alone(function: Function) -> None:
    names = Expression(function.call).names
    rows = [{**function.example, name: value} for name in names for value in VALUES] or [{"a": 1}]
    alone = [repr(results(function.call, [row])[0]) for row in rows]
    assert list(map(repr, results(function.call, rows))) == alone
    assert list(map(repr, results(function.call, rows[::-1]))) == alone[::-1]


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_no_function_looks_at_other_records(function: Function) -> None:
    # A filter by another column can be moved before an expression only if each row is computed by itself.
    parsed = Expression(function.call)
    types = {"number": pl.Float64, "text": pl.String, "boolean": pl.Boolean}
    schema = {name: types[kind] for name, kind in parsed.kinds.items()}
    frame = pl.LazyFrame(schema={**schema, "other": pl.Boolean})
    plan = frame.with_columns(parsed.parsed.alias("result")).filter(pl.col("other")).explain()
    assert plan.index("WITH_COLUMNS") < plan.index('col("other")')


def test_that_test_sees_a_function_that_looks_at_other_records() -> None:
    frame = pl.LazyFrame(schema={"a": pl.Float64, "other": pl.Boolean})
    plan = frame.with_columns(pl.sql_expr("sum(a)").alias("result")).filter(pl.col("other")).explain()
    assert plan.index("WITH_COLUMNS") > plan.index('col("other")')


def test_a_function_that_only_polars_has_is_refused() -> None:
    pl.sql_expr("bit_count(a)")
    with pytest.raises(DefinitionError, match="no such function"):
        Expression("bit_count(a)")
