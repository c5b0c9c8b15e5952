"""The sources and sinks that are installed: ours, which are found in this package, and those of plug-ins.

A configuration of ours is in a module whose name ends with `config`. A plug-in puts its configuration models into the
entry-point groups `streamer.sources` and `streamer.sinks`; the entry's name is the `type` of the service file.
"""

from __future__ import annotations

from connectors.config import SinkConfig, SourceConfig
from pipelines.plugins.catalog import Catalog, class_of, types_of

PACKAGE = "connectors"


def _may_hold_connectors(module: str) -> bool:
    return module.endswith("config")


SOURCES: Catalog[type[SourceConfig]] = Catalog(
    "source", "streamer.sources", class_of(SourceConfig), types_of, PACKAGE, _may_hold_connectors, by_entry=True
)
"""Sources by the `type` of the service file."""

SINKS: Catalog[type[SinkConfig]] = Catalog(
    "sink", "streamer.sinks", class_of(SinkConfig), types_of, PACKAGE, _may_hold_connectors, by_entry=True
)
"""Sinks by the `type` of the service file."""
