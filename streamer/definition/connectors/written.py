"""`Written`: which fields of a service are written down, and where, for engines that cannot have all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from typing import Any

from connectors.config import ConnectorConfig, SinkConfig
from pipelines.definitions.document import Document, KeyPath
from pipelines.definitions.documents import only, read_documents
from pipelines.errors import DefinitionError
from streamer.definition.service import Service


@dataclass(frozen=True, slots=True)
class Written:
    """The fields that a service file sets, with their lines; of one made in Python, those that are not the defaults."""

    document: Document | None

    @classmethod
    def of(cls, service: str | PathLike[str] | Service) -> Written:
        """Of a service file; raises `DefinitionError` as loading it does."""
        if isinstance(service, Service):
            return cls(None)
        document = only(read_documents(service), str(service))
        return cls(document if isinstance(document.data, dict) and "source" in document.data else None)

    def connector(self, key: str, index: int = 0) -> KeyPath:
        """The path of this source or sink in the file."""
        data = None if self.document is None else self.document.data.get(key)
        return (key, index) if isinstance(data, list) else (key,)

    def says(self, path: KeyPath, config: ConnectorConfig, field: str) -> bool:
        """Whether the connector at this path says this field."""
        if self.document is not None:
            return self.at((*path, field)) is not None
        info = type(config).model_fields[field]
        return bool(getattr(config, field) != info.get_default(call_default_factory=True))

    def at(self, path: KeyPath) -> Any:
        """The value that is written at this path; `None`: none is."""
        data = None if self.document is None else self.document.data
        for key in path:
            if isinstance(data, Mapping):
                data = data.get(key)
            elif isinstance(data, list) and isinstance(key, int) and key < len(data):
                data = data[key]
            else:
                return None
        return data

    def error(self, path: KeyPath, message: str) -> DefinitionError:
        """An error about the value at this path, with file and line where these are known."""
        if self.document is not None:
            return self.document.error(path, message)
        return Document(None).error(path, message)

    def sinks_of(self, service: Service) -> list[tuple[SinkConfig, KeyPath]]:
        """The sinks of the service, that of dead letters among them, each with its path in the file."""
        sinks = [(sink, self.connector("sink", index)) for index, sink in enumerate(service.sinks)]
        if service.dead_letter is not None:
            sinks.append((service.dead_letter, ("dead_letter",)))
        return sinks
