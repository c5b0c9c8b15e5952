"""Counts by bucket, as Prometheus wants them."""

from __future__ import annotations

import numpy as np
import pytest

from pipelines.observe.histogram import Histogram
from pipelines.observe.meters import BOUNDS


def test_a_histogram_counts_like_one_observation_after_the_other() -> None:
    values = np.random.default_rng(1).exponential(0.05, 1000)
    histogram, single = Histogram(BOUNDS), Histogram(BOUNDS)
    histogram.add(values)
    for value in values.tolist():
        single.add_one(value)
    assert histogram.counts.tolist() == single.counts.tolist()
    assert histogram.total == pytest.approx(values.sum())
    for bound, cumulated in zip(BOUNDS, histogram.buckets(), strict=False):
        assert cumulated[1] == (values <= bound).sum()


@pytest.mark.parametrize("count", [1, 16, 17])
def test_few_values_count_like_many(count: int) -> None:
    rng = np.random.default_rng(count)
    values, times = rng.exponential(0.05, count), rng.integers(1, 5, count).astype(np.float64)
    few, many = Histogram(BOUNDS), Histogram(BOUNDS)
    few.add(values, times)
    few.add(values)
    many.add(np.tile(values, 20), np.tile(times, 20))
    many.add(np.tile(values, 20))
    assert (20 * few.counts).tolist() == many.counts.tolist()
    assert 20 * few.total == pytest.approx(many.total)


def test_a_quantile_lies_in_the_bucket_of_the_exact_one() -> None:
    values = np.random.default_rng(2).uniform(0, 0.2, 5000)
    histogram = Histogram(BOUNDS)
    histogram.add(values)
    for q in (0.1, 0.5, 0.9, 0.99):
        exact = float(np.quantile(values, q))
        at = np.searchsorted(BOUNDS, exact)
        assert (BOUNDS[at - 1] if at else 0) <= histogram.quantile(q) <= BOUNDS[at]
