"""`pipelines.plugins.modelfiles` under the name that it had: plug-ins and scripts import from here."""

from pipelines.plugins.modelfiles import ModelFetcher

__all__ = ["ModelFetcher"]
