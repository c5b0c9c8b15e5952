"""`pa`: pyarrow, which this whole package needs. Importing raises `MissingPackageError` where it is not installed."""

from __future__ import annotations

from typing import Any, Final

from pipelines.values.conversion.arrowarrays import pyarrow

pa: Final[Any] = pyarrow("pipelines.arrow")
