"""`column_of`: the results of an expression as a column."""

from __future__ import annotations

from typing import Any

import numpy as np

from pipelines.data.columns import MISSING, Column, DenseColumn, ObjectColumn
from pipelines.expressions.engine import polars
from pipelines.values import ValueType


def column_of(results: Any) -> Column:
    """A `polars.Series` of numbers, texts or booleans as a column; null and NaN are missing values.

    Integers (counts, parts of times, `TRY_CAST(x AS BIGINT)`) are INT64, all other numbers DOUBLE.
    """
    pl = polars()
    dtype = results.dtype
    if dtype == pl.Null:
        return Column.absent(len(results))
    if dtype == pl.String:
        texts = results.to_list()
        if not results.has_nulls():
            return ObjectColumn(texts, ValueType.STRING)
        return ObjectColumn([MISSING if text is None else text for text in texts], ValueType.STRING)
    if dtype == pl.Boolean or dtype.is_integer():
        there = None if not results.has_nulls() else results.is_not_null().to_numpy()
        if there is not None:
            results = results.fill_null(False if dtype == pl.Boolean else 0)
        if dtype == pl.Boolean:
            return DenseColumn(results.to_numpy(), ValueType.BOOLEAN, there)
        return DenseColumn(results.cast(pl.Int64).to_numpy(), ValueType.INT64, there)
    numbers = (results if dtype == pl.Float64 else results.cast(pl.Float64)).to_numpy()
    missing = np.isnan(numbers)
    return DenseColumn(numbers, ValueType.DOUBLE, ~missing if missing.any() else None)
