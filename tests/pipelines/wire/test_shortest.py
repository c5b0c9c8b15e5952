"""Floats of 32 bits with the fewest digits, all at once: the same that numpy finds for each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pipelines.wire.shortest import shortest


def one_by_one(array: Any) -> list[float]:
    return [float(str(number)) for number in array.ravel()]


def neighbours(numbers: Any) -> Any:
    """These numbers, those below and above, and their negatives."""
    own = np.asarray(numbers, np.float32)
    near = np.concatenate([own, np.nextafter(own, np.float32(0)), np.nextafter(own, np.float32(np.inf))])
    return np.concatenate([near, -near])


NUMBERS = {
    "normal": np.random.default_rng(1).standard_normal(20_000).astype("f4"),
    "any bits": np.random.default_rng(2).integers(0, 0x7F80_0000, 20_000, np.uint32).view("f4"),
    "few digits": (np.random.default_rng(3).integers(-(10**6), 10**6, 20_000) / 1000).astype("f4"),
    "integers": neighbours(np.arange(2**24 - 2000, 2**24 + 2000)),
    "powers of two": neighbours(2.0 ** np.arange(-140, 127)),
    "powers of ten": neighbours([float(f"1e{power}") for power in range(-40, 38)]),
    "halves": neighbours((np.arange(4000) + 0.5) / 8),
    "largest": neighbours([3.4e38, 1e-45, 1.1754944e-38, 0.0, 999999999.0, 9.9999e-6]),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", NUMBERS)
def test_each_number_has_the_digits_that_numpy_gives_it(name: str) -> None:
    numbers = NUMBERS[name]
    numbers = numbers[np.isfinite(numbers)]
    found = shortest(numbers)
    assert found.tolist() == one_by_one(numbers)
    assert (np.signbit(found) == np.signbit(numbers)).all()
    assert (found.astype("f4") == numbers).all()


def test_infinite_numbers_and_nan_stay_what_they_are() -> None:
    numbers = np.array([[np.nan, np.inf, -np.inf, 0.1]] * 100, "f4")
    np.testing.assert_array_equal(shortest(numbers), [[np.nan, np.inf, -np.inf, 0.1]] * 100)


@pytest.mark.parametrize("shape", [(0,), (), (3,), (100, 2, 1)])
@pytest.mark.parametrize("dtype", ["f2", "f4"])
def test_arrays_keep_their_shape(shape: tuple[int, ...], dtype: str) -> None:
    numbers = np.full(shape, 0.1, dtype)
    assert shortest(numbers).tolist() == np.full(shape, 0.1).tolist()
