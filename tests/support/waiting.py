"""Waiting in tests for what other threads and processes do."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

PATIENCE = 120.0
"""Seconds, for a machine that has much else to do."""


def until(happened: Callable[[], T], what: object = "it", seconds: float = PATIENCE) -> T:
    """What `happened` returns, as soon as that is true. The test fails if it is not within so many seconds."""
    deadline = time.monotonic() + seconds
    while not (found := happened()):
        assert time.monotonic() < deadline, f"{what} did not happen in time"
        time.sleep(0.01)
    return found
