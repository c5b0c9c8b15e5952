"""The batchers that are installed: ours, which are found in this package, and those of plug-ins.

A plug-in puts its `Batcher` into the entry-point group `streamer.batchers`; the entry's name is the `batch.type` of
service files.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pipelines.errors import DefinitionError
from pipelines.plugins.catalog import Catalog, class_of
from streamer.batching.batcher import Batcher
from streamer.definition.settings import BatcherSettings, BatchSettings

BATCHERS: Final[Catalog[type[Batcher]]] = Catalog(
    "batcher",
    "streamer.batchers",
    class_of(Batcher),
    lambda batcher: (batcher.type_name,) if batcher.type_name else (),
    "streamer.batching",
    by_entry=True,
)
"""All batchers by the `batch.type` of service files."""


def settings_class(data: object) -> type[BatcherSettings]:
    """The model that reads this `batch` mapping, by its `type`. Without one it is that of our batchers, of which the
    sources choose one.

    Raises:
        DefinitionError: `data` is not a mapping, or there is no batcher of its type.
    """
    if not isinstance(data, Mapping):
        raise DefinitionError("must be a mapping, such as {max_records: 512, max_wait: 5ms}")
    kind = data.get("type")
    return BATCHERS.get(kind).settings if isinstance(kind, str) else BatchSettings


def built(settings: BatcherSettings) -> Batcher:
    """A batcher for one source of a service with these settings. Raises `DefinitionError` if there is none of this
    type."""
    return BATCHERS.get(settings.type).of(settings)
