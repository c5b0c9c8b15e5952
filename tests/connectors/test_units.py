"""Durations and sizes as people write them."""

from __future__ import annotations

import re
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from connectors.units import Duration, Size

DURATION: TypeAdapter[float] = TypeAdapter(Duration)
SIZE: TypeAdapter[int] = TypeAdapter(Size)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("250us", 0.00025),
        ("5ms", 0.005),
        ("2s", 2.0),
        ("1m", 60.0),
        ("1h", 3600.0),
        ("2d", 172800.0),
        ("1.5 s", 1.5),
        (3, 3.0),
        (0.25, 0.25),
        (0, 0.0),
        ("0s", 0.0),
    ],
)
def test_durations_are_seconds(text: Any, expected: float) -> None:
    assert DURATION.validate_python(text) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("64KiB", 65536),
        ("16MiB", 16 << 20),
        ("1GiB", 1 << 30),
        ("1GB", 10**9),
        ("2kB", 2000),
        ("10B", 10),
        (7, 7),
        ("0.5KiB", 512),
        (" 1 MB ", 10**6),
    ],
)
def test_sizes_are_whole_bytes(text: Any, expected: int) -> None:
    found = SIZE.validate_python(text)
    assert found == expected
    assert type(found) is int


@pytest.mark.parametrize(
    "text", ["5", "5 minutes", "5MS", "-1s", "ms", "1e3s", "1m30s", "", "nan", True, None, [1], -1, float("inf")]
)
def test_a_value_that_is_no_duration_is_refused(text: Any) -> None:
    with pytest.raises(ValidationError):
        DURATION.validate_python(text)


@pytest.mark.parametrize("text", ["64", "64K", "1MIB", "-1B", "KiB", "", True, None, -1, 1.5])
def test_a_value_that_is_no_size_is_refused(text: Any) -> None:
    with pytest.raises(ValidationError):
        SIZE.validate_python(text)


def test_an_error_shows_how_to_write_it() -> None:
    with pytest.raises(ValidationError, match='"5 minutes" is not a duration like 5ms, 2s or 1m'):
        DURATION.validate_python("5 minutes")
    with pytest.raises(ValidationError, match="True is not a size like 64KiB, 16MiB or 1GB"):
        SIZE.validate_python(True)


def test_the_schema_takes_the_texts_that_reading_takes() -> None:
    for adapter, good, bad in ((DURATION, "5ms", "5"), (SIZE, "64KiB", "64K")):
        pattern = adapter.json_schema()["anyOf"][1]["pattern"]
        assert re.search(pattern, good)
        assert not re.search(pattern, bad)
