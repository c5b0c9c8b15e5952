"""The installed connectors: ours, and those that other distributions add by entry point. Codecs have a registry, too.

A plug-in puts its configuration models into the entry-point groups `streamer.sources` and `streamer.sinks`; the
entry's name is the `type` of the service file. Nothing is imported before it is asked for.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, TypeVar

from pydantic import BaseModel

from connectors.config import SinkConfig, SourceConfig
from pipelines.errors import DISTRIBUTION, DefinitionError, MissingPackageError, nearest
from pipelines.plugins.entrypoints import origin_of, plugin_points

Config = TypeVar("Config", bound=BaseModel)

_log = logging.getLogger(__name__)


class ConnectorClash(DefinitionError):
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
        self.group = group
        self._base = base
        self._builtin = builtin

    @property
    def known(self) -> Mapping[str, Registered]:
        """All connectors by name, none of them imported; of two with one name the first."""
        return {name: found[0] for name, found in self._found.items()}

    @property
    def clashes(self) -> frozenset[str]:
        """Names for which two distributions have connectors."""
        return frozenset(name for name, found in self._found.items() if len(found) > 1)

    def get(self, name: str) -> type[Config]:
        """The configuration model of this connector.

        Raises `DefinitionError` if there is none of this name or its plug-in is broken, `ConnectorClash` if two
        distributions have one of this name.
        """
        found = self._found.get(name)
        if found is None:
            raise DefinitionError(
                f'there is no {self.kind} of type "{name}"{nearest(name, self._found)}; known are '
                f"{', '.join(sorted(self._found))}"
            )
        if len(found) > 1:
            raise ConnectorClash(self._clash(name))
        return self._load(found[0])

    def load_all(self) -> dict[str, type[Config]]:
        """Every connector that can be loaded; broken ones and those that exist twice are logged and left out."""
        loaded = {}
        for name in sorted(self._found):
            try:
                loaded[name] = self.get(name)
            except (DefinitionError, MissingPackageError) as error:
                _log.warning("left out: %s", error)
        return loaded

    @cached_property
    def _found(self) -> Mapping[str, list[Registered]]:
        found = {name: [Registered(name, target, DISTRIBUTION)] for name, target in self._builtin.items()}
        for point in plugin_points(self.group):
            known = found.setdefault(point.name, [])
            # An entry point is found twice if its folder is on the path twice.
            if point.value not in [other.target for other in known]:
                known.append(Registered(point.name, point.value, origin_of(point)))
        return found

    def _clash(self, name: str) -> str:
        both = " and ".join(f"{one.target} of {one.distribution}" for one in self._found[name])
        return f'{self.kind} "{name}" is given twice: {both}; uninstall one of them'

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


SOURCES: Registry[SourceConfig] = Registry(
    "source",
    "streamer.sources",
    SourceConfig,
    {
        "kafka": "connectors.kafka.config:KafkaSourceConfig",
        "file": "connectors.file:FileSourceConfig",
        "mqtt": "connectors.mqtt.config:MqttSourceConfig",
        "memory": "connectors.memory:MemorySourceConfig",
        "mqtt_endpoint": "connectors.mqtt.endpoint:MqttEndpointSourceConfig",
        "camera": "connectors.camera.config:CameraSourceConfig",
    },
)
"""Sources by the `type` of the service file."""

SINKS: Registry[SinkConfig] = Registry(
    "sink",
    "streamer.sinks",
    SinkConfig,
    {
        "kafka": "connectors.kafka.config:KafkaSinkConfig",
        "file": "connectors.file:FileSinkConfig",
        "mqtt": "connectors.mqtt.sinkconfig:MqttSinkConfig",
        "memory": "connectors.memory:MemorySinkConfig",
        "view": "connectors.view.config:ViewSinkConfig",
        "video": "connectors.view.config:VideoSinkConfig",
        "clip": "connectors.view.config:ClipSinkConfig",
        "mqtt_endpoint": "connectors.mqtt.endpoint:MqttEndpointSinkConfig",
    },
)
"""Sinks by the `type` of the service file."""
