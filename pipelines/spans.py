"""`pipelines.data.spans` under the name that it had: plug-ins and scripts import from here."""

from pipelines.data.spans import Spans

__all__ = ["Spans"]
