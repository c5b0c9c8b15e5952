"""Which rows are among others."""

from __future__ import annotations

import numpy as np
import pytest

from pipelines.data.membership import among


@pytest.mark.parametrize("count", [0, 1, 20, 200])
def test_a_few_and_many_are_found_alike(count: int) -> None:
    rng = np.random.default_rng(count)
    rows = rng.integers(0, 300, 500)
    few = rng.integers(0, 300, count)
    assert among(rows, few).tolist() == [row in set(few.tolist()) for row in rows.tolist()]
