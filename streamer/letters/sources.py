"""`source_of`: which source of a service has read the record of a dead letter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from connectors.config import SourceConfig
from pipelines.errors import DefinitionError
from streamer.definition.service import Service


def source_of(service: Service, topic: str, decoding: Callable[[SourceConfig], Any]) -> SourceConfig:
    """The source that reads records of this topic; where no source does, as in MQTT's filters, any may have.

    Args:
        service: The service that wrote the letter.
        topic: The topic that the letter names.
        decoding: What matters of a source: of several for which it is equal the first is taken.

    Raises:
        DefinitionError: Several may have read it, and they differ.
    """
    sources = [source for source in service.sources if source.reads(topic)] or list(service.sources)
    first = decoding(sources[0])
    if any(decoding(source) != first for source in sources):
        raise DefinitionError(f'it is not known which source of {service.name} has read "{topic[:200]}"')
    return sources[0]
