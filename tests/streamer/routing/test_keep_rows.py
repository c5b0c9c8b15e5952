"""`keep` where a record came as several rows: a row gets its own values, or none where nobody knows them."""

from __future__ import annotations

import numpy as np
import pytest

from pipelines import Batch
from pipelines.data.columns import MISSING, Column
from pipelines.executors.keep import kept


@pytest.mark.parametrize(
    ("rows", "found"),
    [
        ([7, 7, 8, 9, 9, 9], [0, 1, 2, 3, 4, 5]),
        ([7, 7, 9, 9, 9], [0, 1, 3, 4, 5]),
        ([9, 9, 9, 7, 7], [3, 4, 5, 0, 1]),
        ([7, 8, 8, 9, 9], [MISSING, 2, 2, MISSING, MISSING]),
        ([5, 8, 99], [MISSING, 2, MISSING]),
        ([], []),
    ],
)
def test_a_row_gets_the_values_of_its_own_row(rows: list[int], found: list[object]) -> None:
    given = Batch({"id": Column.of(list(range(6)))}, 6, rows=np.array([7, 7, 8, 9, 9, 9]))
    result = Batch({}, len(rows), rows=np.array(rows, np.int64))
    kept_batch = kept(result, given, ["id"])
    assert (kept_batch.column("id").values() if rows else []) == found
