"""A record as typed values (`Data`), and N records in columns (`Batch`)."""

from pipelines.data.batch import Batch
from pipelines.data.data import RESERVED_KEYS, Data
from pipelines.data.record import RecordContext
from pipelines.data.result import Result

__all__ = ["RESERVED_KEYS", "Batch", "Data", "RecordContext", "Result"]
