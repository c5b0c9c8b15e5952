"""`pipelines.plugins.requirements` under the name that it had: plug-ins and scripts import from here."""

from pipelines.plugins.requirements import Package, Requires, all_of, any_of

__all__ = ["Package", "Requires", "all_of", "any_of"]
