"""Lists the plug-ins of all kinds: steps, runners, connectors, codecs and the like."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any, Final

from connectors.codecs.registry import CODECS
from connectors.registry import SINKS, SOURCES
from pipelines.errors import StreamerError, nearest
from pipelines.plugins.catalog import Catalog, origin_of, plugin_points
from pipelines.plugins.modelfiles import FETCHER_GROUP, fetchers
from pipelines.plugins.registry import RUNNER_GROUP, TYPE_GROUPS, default_registry
from pipelines.plugins.tables import TABLES
from pipelines.runners.boxes.detectors.layout import LAYOUTS
from pipelines.values import array_conversions, image_conversions
from pipelines.values.conversion.convert import CONVERTER_GROUP, FORMAT_GROUP
from streamer.batching.registry import BATCHERS

BY_ENTRY: Final[tuple[Catalog[Any], ...]] = (SOURCES, SINKS, CODECS, BATCHERS, TABLES)
PREFIX: Final = "streamer."

GROUPS: Final[tuple[str, ...]] = (
    *TYPE_GROUPS,
    RUNNER_GROUP,
    FORMAT_GROUP,
    CONVERTER_GROUP,
    FETCHER_GROUP,
    LAYOUTS.group,
    *(catalog.group for catalog in BY_ENTRY),
)
"""Every group of entry points that plug-ins may use."""


@dataclass(frozen=True, slots=True)
class Plugin:
    """An entry point of an installed distribution other than streamer."""

    group: str
    name: str
    target: str
    """`module:object`."""
    distribution: str
    version: str


def listed() -> list[Plugin]:
    """Every plug-in that is installed, by group and distribution. None is imported."""
    groups = sorted(group for group in entry_points().groups if group.startswith(PREFIX))
    return [
        Plugin(group, point.name, point.value, origin_of(point), "" if point.dist is None else point.dist.version)
        for group in groups
        for point in plugin_points(group)
    ]


def problems() -> list[str]:
    """Import all plug-ins and return their problems, a line each.

    Problems are entry points that cannot be imported, names that exist twice, and unknown groups.
    """
    return list(dict.fromkeys(_problems()))


def _problems() -> Iterator[str]:
    for plugin in listed():
        if plugin.group not in GROUPS:
            hint = nearest(plugin.group, GROUPS)
            yield f"plug-in {plugin.name} of {plugin.distribution}: there is no group {plugin.group}{hint}"
    registry = default_registry()
    # Listing loads the plug-ins.
    registry.listing()
    yield from registry.problems
    for conversions in (array_conversions(), image_conversions()):
        conversions.listing()
        yield from conversions.problems
    yield from fetchers().problems
    # Listing loads those of plug-ins.
    LAYOUTS.registered()
    yield from LAYOUTS.problems
    for catalog in BY_ENTRY:
        for registered in catalog.registered():
            try:
                catalog.get(registered.name)
            except StreamerError as error:
                yield str(error)
