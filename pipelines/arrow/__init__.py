"""Pipelines on Arrow record batches, and so on Spark, Ray, Polars, DuckDB and pandas: docs/arrow.md.

Importing it raises `MissingPackageError` without pyarrow (the extra `arrow`).
"""

from pipelines.arrow.mapping import Mapper, mapper
from pipelines.arrow.reading import batch_of
from pipelines.arrow.writing import record_batch_of

__all__ = ["Mapper", "batch_of", "mapper", "record_batch_of"]
