"""`polars`: the library that evaluates expressions and reads tables in Parquet, imported when it is first needed."""

from __future__ import annotations

import os
from functools import cache
from typing import Any, Final

from pipelines.plugins.requirements import Package

POLARS: Final = Package("polars", extra="map")


@cache
def polars(purpose: str = "an expression in SQL") -> Any:
    """The module. Raises `MissingPackageError` if it is not installed.

    It computes in the calling thread: for batches of some hundred rows, waking other threads takes more than they do.
    `POLARS_MAX_THREADS` in the environment says otherwise.
    """
    POLARS.check(purpose)
    os.environ.setdefault("POLARS_MAX_THREADS", "1")
    import polars as module

    return module
