"""`pipelines.data.columns` under the name that it had: plug-ins and scripts import from here."""

from pipelines.data.columns import MISSING, Column, DenseColumn, ObjectColumn, RaggedColumn
from pipelines.data.wirecolumn import WireColumn

__all__ = ["MISSING", "Column", "DenseColumn", "ObjectColumn", "RaggedColumn", "WireColumn"]
