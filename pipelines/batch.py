"""`pipelines.data.batch` under the name that it had: plug-ins and scripts import from here."""

from pipelines.data.batch import Batch

__all__ = ["Batch"]
