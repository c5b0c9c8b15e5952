"""Which connectors there are: ours, and those that other distributions add by entry point. Codecs are found alike.

A plug-in puts its configuration models into the entry-point groups `streamer.sources` and `streamer.sinks`; the
entry's name is the `type` of the service file. Nothing is imported before it is asked for.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import Generic, TypeVar

from pydantic import BaseModel

from connectors.config import SinkConfig, SourceConfig
from pipelines.errors import DISTRIBUTION, DefinitionError, MissingPackageError, StreamerError, nearest

Config = TypeVar("Config", bound=BaseModel)

_log = logging.getLogger(__name__)


class ConnectorClash(StreamerError):
    """Two distributions give different connectors the same name."""


@dataclass(frozen=True, slots=True)
class Registered:
    """A connector that can be loaded: `target` is `module:class`, `distribution` where it comes from."""

    name: str
    target: str
    distribution: str


class Registry(Generic[Config]):
    """Names of one kind of connector and their configuration models."""

    def __init__(self, kind: str, group: str, base: type[Config], builtin: Mapping[str, str]) -> None:
        self.kind = kind
        self._group = group
        self._base = base
        self._builtin = builtin

    @cached_property
    def known(self) -> Mapping[str, Registered]:
        """All connectors by name, none of them imported. Raises `ConnectorClash`."""
        found = {name: Registered(name, target, DISTRIBUTION) for name, target in self._builtin.items()}
        for entry in entry_points(group=self._group):
            added = Registered(entry.name, entry.value, _distribution(entry))
            other = found.setdefault(entry.name, added)
            if other.target != added.target:
                raise ConnectorClash(
                    f'{self.kind} "{entry.name}" is given twice: {other.target} of {other.distribution} and '
                    f"{added.target} of {added.distribution}; uninstall one of them"
                )
        return found

    def get(self, name: str) -> type[Config]:
        """The configuration model of this connector.

        Raises `DefinitionError` if there is none of this name or its plug-in is broken, `ConnectorClash`.
        """
        if name not in self.known:
            raise DefinitionError(
                f'there is no {self.kind} of type "{name}"{nearest(name, self.known)}; known are '
                f"{', '.join(sorted(self.known))}"
            )
        return self._load(self.known[name])

    def load_all(self) -> dict[str, type[Config]]:
        """Every connector that can be loaded; broken ones are logged and left out. Raises `ConnectorClash`."""
        loaded = {}
        for name, registered in sorted(self.known.items()):
            try:
                loaded[name] = self._load(registered)
            except (DefinitionError, MissingPackageError) as error:
                _log.warning("left out: %s", error)
        return loaded

    def _load(self, registered: Registered) -> type[Config]:
        module, _, attribute = registered.target.partition(":")
        try:
            model = getattr(importlib.import_module(module), attribute)
        except MissingPackageError:
            raise
        except Exception as error:  # a plug-in may fail in any way; it must not take the others along
            raise self._broken(registered, f"{type(error).__name__}: {error}") from error
        if not (isinstance(model, type) and issubclass(model, self._base)):
            raise self._broken(registered, f"it is no {self._base.__name__}")
        return model

    def _broken(self, registered: Registered, why: str) -> DefinitionError:
        return DefinitionError(
            f'{self.kind} "{registered.name}" cannot be loaded from {registered.target} of '
            f"{registered.distribution}: {why}; update or uninstall it"
        )


def _distribution(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else "an unknown distribution"


SOURCES: Registry[SourceConfig] = Registry(
    "source",
    "streamer.sources",
    SourceConfig,  # type: ignore[type-abstract]
    {
        "kafka": "connectors.kafka.config:KafkaSourceConfig",
        "file": "connectors.file:FileSourceConfig",
        "memory": "connectors.memory:MemorySourceConfig",
    },
)
"""Sources by the `type` of the service file."""

SINKS: Registry[SinkConfig] = Registry(
    "sink",
    "streamer.sinks",
    SinkConfig,  # type: ignore[type-abstract]
    {
        "kafka": "connectors.kafka.config:KafkaSinkConfig",
        "file": "connectors.file:FileSinkConfig",
        "memory": "connectors.memory:MemorySinkConfig",
    },
)
"""Sinks by the `type` of the service file."""
