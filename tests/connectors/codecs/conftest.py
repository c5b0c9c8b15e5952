"""Blocks of records for codecs that look beside the payload."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from connectors.records import Header, Lane, Records, Span


def records_of(
    values: Sequence[Any],
    headers: Sequence[Sequence[Header] | None] | None = None,
    topics: Sequence[str] | None = None,
    keys: Sequence[bytes | None] | None = None,
) -> Records:
    """Records of these payloads; those with topics have one each."""
    count = len(values)
    each = [(row, row + 1) for row in range(count)] if topics is not None else [(0, count)]
    return Records(
        "bus",
        list(values),
        keys,
        np.arange(100, 100 + count, dtype=np.int64),
        [Span(Lane("bus", "0", 0), start, stop) for start, stop in each],
        ["topic"] if topics is None else list(topics),
        [0] * len(each),
        0,
        headers=lambda: headers,
    )


@pytest.fixture
def block() -> Callable[..., Records]:
    """`block(values, headers=None, topics=None, keys=None)`."""
    return records_of
